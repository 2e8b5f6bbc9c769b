//! Questions about the core.

use leasehold_crds::lease::SessionId;
use leasehold_crds::names::{InterfaceName, NodeName};

use super::Election;
use crate::clock::Instant;
use crate::election::io::serving::Serving;

impl Election {
    /// What the speaker is to log instead of what it was started with.
    pub fn log_filter(&self) -> Option<&str> {
        self.cx.log_filter()
    }

    /// The node whose speaker this is.
    pub fn node(&self) -> &NodeName {
        self.cx.node()
    }

    /// The interfaces of this node that can announce anything that is asked for.
    pub fn interfaces(&self) -> impl Iterator<Item = &InterfaceName> {
        self.cx.interfaces()
    }

    /// Whether all that decisions rest on has been listed.
    pub fn is_informed(&self) -> bool {
        self.cx.is_informed()
    }

    /// The session that this speaker holds.
    pub fn session(&self) -> Option<&SessionId> {
        self.cx.session()
    }

    /// Whether the cluster has a Node of this speaker's name; unknown before the lists are in.
    pub fn node_exists(&self) -> Option<bool> {
        self.cx.node_exists()
    }

    /// What is served now.
    pub fn serving(&self) -> &Serving {
        self.cx.serving()
    }

    /// Whether a renewal that was sent a short time ago was answered: what the API says is current.
    pub fn is_api_answering(&self, now: Instant) -> bool {
        self.cx.is_api_answering(now)
    }

    /// Whether none was for some time, and the last one not even refused.
    pub fn is_api_away(&self, now: Instant) -> bool {
        self.cx.is_api_away(now)
    }
}
