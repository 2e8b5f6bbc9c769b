//! The announcement's side of the guard: it says which addresses are to be protected, and holds their
//! addition back until they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::sync::watch;

use crate::datapath::gate::{Held, Waiting};
use crate::datapath::guard::state::{Guarded, Wanted};
use crate::net::rtnl::addresses::AddressChange;
use leasehold_core::clock::Instant;

/// The gate that additions pass.
#[derive(Debug)]
pub struct Gate {
    wanted: watch::Sender<Option<Wanted>>,
    guarded: watch::Receiver<Guarded>,
    /// The generation of the wanted addresses with which each address came.
    since: BTreeMap<IpAddr, u64>,
    waiting: Waiting,
}

impl Gate {
    pub(super) fn new(
        wanted: watch::Sender<Option<Wanted>>,
        guarded: watch::Receiver<Guarded>,
    ) -> Self {
        Self { wanted, guarded, since: BTreeMap::new(), waiting: Waiting::default() }
    }

    /// Says which addresses are served or left in the kernel: these are protected, and no others.
    pub fn guard(&mut self, addresses: BTreeSet<IpAddr>) {
        let since = &mut self.since;
        self.wanted.send_if_modified(|known| {
            if known.as_ref().is_some_and(|known| known.addresses == addresses) {
                return false;
            }
            let generation = known.as_ref().map_or(0, |known| known.generation) + 1;
            since.retain(|ip, _| addresses.contains(ip));
            for ip in &addresses {
                since.entry(*ip).or_insert(generation);
            }
            *known = Some(Wanted { generation, addresses });
            true
        });
    }

    /// Adds to `held` the additions in `ops` that have to wait.
    pub fn hold(&mut self, now: Instant, ops: &[AddressChange], held: &mut Held) {
        let guarded = self.guarded.borrow_and_update();
        // What went and came again may have been protected before, and not be any more.
        let is_settled = |ip: &IpAddr| {
            let current = self.since.get(ip).is_none_or(|since| guarded.generation >= *since);
            current && guarded.settled.contains(ip)
        };
        self.waiting.hold(now, is_settled, ops, held);
    }

    /// Waits for news of what is protected; the guard has ended where there can be none.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.guarded.changed().await
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn add(last: u8) -> AddressChange {
        AddressChange::Add { place: (2, ip(last)), seconds: NonZeroU32::MIN }
    }

    #[test]
    fn what_was_settled_before_it_went_and_came_again_waits() {
        let (wanted, _applier) = watch::channel(None);
        let settled: BTreeSet<IpAddr> = [ip(1), ip(2)].into();
        let (told, guarded) = watch::channel(Guarded::default());
        let mut gate = Gate::new(wanted, guarded);
        let passing = |gate: &mut Gate| {
            let mut ops = vec![add(1), add(2)];
            let mut held = Held::default();
            gate.hold(at(0), &ops, &mut held);
            held.take_out(&mut ops);
            ops
        };
        gate.guard(settled.clone());
        told.send_replace(Guarded {
            generation: 1,
            settled: settled.clone(),
            ..Guarded::default()
        });
        assert_eq!(passing(&mut gate), [add(1), add(2)]);
        gate.guard([ip(2)].into());
        gate.guard(settled.clone());
        assert_eq!(passing(&mut gate), [add(2)], "the guard has not heard that the first had gone");
        told.send_replace(Guarded { generation: 3, settled, ..Guarded::default() });
        assert_eq!(passing(&mut gate), [add(1), add(2)]);
    }
}
