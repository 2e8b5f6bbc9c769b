//! The own session, and the expiry of others.

pub(in crate::lease) mod expiry;
pub(in crate::lease) mod renewal;
pub(in crate::lease) mod shutdown;
pub(in crate::lease) mod state;

use crate::lease::session::state::expiry::Peers;

/// The own session, and the expiry of others.
#[derive(Debug, Default)]
pub(in crate::lease) struct Sessions {
    peers: Peers,
}

impl Sessions {
    pub(in crate::lease) const fn peers_mut(&mut self) -> &mut Peers {
        &mut self.peers
    }
}
