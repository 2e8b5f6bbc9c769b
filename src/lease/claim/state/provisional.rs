//! Provisional ownership of one claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::lease::io::transition::Story;

/// An address that this node serves without being its owner, until the API server answers.
#[derive(Clone, Debug)]
pub(in crate::lease) struct Provisional {
    /// The owner that died.
    pub(in crate::lease) from: NodeName,
    /// Since when this node asks for it, or serves it.
    pub(in crate::lease) since: Instant,
    /// The version of its session when it did: another one says that it lives.
    pub(in crate::lease) version: Option<Arc<str>>,
    /// When each of the others that have it was told first, and last, that this node has it.
    pub(in crate::lease) told: BTreeMap<MacAddr, (Instant, Instant)>,
    /// How this node comes to serve it.
    pub(in crate::lease) story: Story,
    /// Since when its owner is known to be back: it is about to serve again.
    pub(in crate::lease) returned: Option<Instant>,
}
