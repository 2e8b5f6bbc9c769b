//! Settings of a policy whose fields may be absent, so that those of another object apply.

/// One field as a policy has it.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Absent if the policy does not set it.
    pub(super) value: Option<String>,
    pub(super) default: String,
}

/// Settings that are in `layer2` or in a deprecated field.
pub(super) trait Settings: Clone + Default {
    /// The name of the field in `spec.layer2`, and of the deprecated one in `spec`.
    const NAME: &'static str;

    /// The fields of `self`, and those of `other` that `self` does not set.
    #[must_use]
    fn or(self, other: Self) -> Self;

    fn fields(&self) -> Vec<Field>;
}
