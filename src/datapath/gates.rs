//! The gates that additions of addresses pass.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tokio::sync::watch;

use crate::datapath::gate::Held;
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

    /// Takes the additions that have to wait out of `ops`; until when at the latest. An addition waits for all tenants at
    /// once, not for one after the other.
    pub fn hold(&mut self, now: Instant, ops: &mut Vec<AddressChange>) -> Option<Instant> {
        let mut held = Held::default();
        self.guard.hold(now, ops, &mut held);
        self.forward.hold(now, ops, &mut held);
        self.spread.hold(now, ops, &mut held);
        self.return_path.hold(now, ops, &mut held);
        held.take_out(ops)
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::datapath::gate::Waiting;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    #[test]
    fn an_addition_that_several_gates_hold_back_waits_for_as_long_as_the_most_patient_one() {
        let place = (2, IpAddr::from([192, 0, 2, 1]));
        let all = [
            AddressChange::Add { place, seconds: NonZeroU32::MIN },
            AddressChange::Delete { place: (3, place.1) },
        ];
        let (mut short, mut long) = (Waiting::default(), Waiting::for_connections());
        for (millis, passing, until) in
            [(0, &all[1..], Some(at(50))), (50, &all[1..], Some(at(120))), (120, &all[..], None)]
        {
            let mut ops = all.to_vec();
            let mut held = Held::default();
            for gate in [&mut long, &mut short] {
                gate.hold(at(millis), |_| false, &ops, &mut held);
            }
            let wake = held.take_out(&mut ops);
            assert_eq!((&ops[..], wake), (passing, until), "after {millis} ms");
        }
    }
}
