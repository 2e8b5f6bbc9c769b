//! The gates that additions of addresses pass.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tokio::sync::watch;

use crate::datapath::{forward, guard, return_path, spread};
use crate::net::rtnl::addresses::AddressChange;
use leasehold_core::clock::Instant;

/// The gates of the tenants without which no address is added.
#[derive(Debug)]
pub struct Gates {
    /// That of host protection.
    pub guard: guard::gate::Gate,
    /// That of the forwarding to former owners.
    pub forward: forward::gate::Gate,
    /// That of the spreading over nodes.
    pub spread: spread::Gate,
    /// That of the return path.
    pub return_path: return_path::gate::Gate,
}

impl Gates {
    /// Says which addresses are served or left in the kernel.
    pub fn guard(&mut self, addresses: BTreeSet<IpAddr>) {
        self.guard.guard(addresses);
    }

    /// Takes the additions that have to wait out of `ops`; until when at the latest.
    pub fn hold(&mut self, now: Instant, ops: &mut Vec<AddressChange>) -> Option<Instant> {
        let forward = self.forward.hold(now, ops);
        let guard = self.guard.hold(now, ops);
        let spread = self.spread.hold(now, ops);
        let return_path = self.return_path.hold(now, ops);
        forward.into_iter().chain(guard).chain(spread).chain(return_path).min()
    }

    /// Waits for news of one of them; a tenant has ended where there can be none.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            changed = self.guard.changed() => changed,
            changed = self.forward.changed() => changed,
            changed = self.spread.changed() => changed,
            changed = self.return_path.changed() => changed,
        }
    }
}
