//! The result of a command that ran.

/// The result of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The answer is good, or the request was met. Exit code 0.
    Well,
    /// The command found a problem. Exit code 1.
    Negative,
}

impl From<bool> for Outcome {
    fn from(well: bool) -> Self {
        if well { Self::Well } else { Self::Negative }
    }
}
