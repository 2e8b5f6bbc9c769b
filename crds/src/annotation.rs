//! Entries of annotations, labels and conditions: each is declared once, together with its description in the
//! reference of the book.

/// An object that bears annotations of Leasehold, or labels that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bearer {
    /// A Service of `type: LoadBalancer`.
    Service,
    /// A claim Lease.
    Claim,
    /// A session Lease.
    Session,
    /// The Lease that elects the active replica of the operator.
    Election,
    /// A Node.
    Node,
}

/// An annotation or a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: &'static str,
    /// The objects that bear it.
    pub on: &'static [Bearer],
    /// The writer: a component, or the user.
    pub writer: &'static str,
    /// The format of the value, in Markdown.
    pub format: &'static str,
    /// The meaning, in Markdown.
    pub meaning: &'static str,
}

/// A type of condition; the operator writes all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionType {
    /// `type`.
    pub type_: &'static str,
    /// The kind of the object.
    pub object: &'static str,
    /// The meaning of `status: "True"`, in Markdown.
    pub meaning: &'static str,
}

/// Declares a constant for each key, and `$all` with the entries of all.
macro_rules! entries {
    ($all:ident: $($name:ident = $key:expr, on [$($on:ident),+] by $writer:literal, $format:literal,
        $meaning:literal;)+) => {
        $(#[doc = $meaning] pub const $name: &str = $key;)+

        /// All of them.
        pub const $all: &[$crate::annotation::Entry] = &[$($crate::annotation::Entry {
            key: $name,
            on: &[$($crate::annotation::Bearer::$on),+],
            writer: $writer,
            format: $format,
            meaning: $meaning,
        }),+];
    };
}
pub(crate) use entries;
