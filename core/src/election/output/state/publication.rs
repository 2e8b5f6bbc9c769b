//! The last publication.

use crate::clock::Instant;

/// The last publication.
#[derive(Debug, Default)]
pub(in crate::election) struct Output {
    /// Until when what is served is.
    pub(in crate::election::output) until: Option<(Instant, Instant, bool)>,
    /// Whether an address was yielded to another speaker.
    pub(in crate::election::output) yielded: bool,
}
