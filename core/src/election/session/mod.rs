//! The own session, and the expiry of others.

pub(in crate::election) mod expiry;
pub(in crate::election) mod renewal;
pub(in crate::election) mod shutdown;
pub(in crate::election) mod state;

use crate::election::session::state::expiry::Peers;

/// The own session, and the expiry of others.
#[derive(Debug, Default)]
pub(in crate::election) struct Sessions {
    peers: Peers,
}

impl Sessions {
    pub(in crate::election) const fn peers_mut(&mut self) -> &mut Peers {
        &mut self.peers
    }
}
