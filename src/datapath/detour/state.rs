//! The view that the tenant gives back.

/// The detours that are in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detoured {
    /// The number of ports of addresses that lead elsewhere.
    pub ports: usize,
    /// The number of connections, so far, that were forgotten so that they begin anew elsewhere.
    pub forgotten: u64,
    /// Why it is not as it should be, if so.
    pub failure: Option<String>,
}
