//! The announcement's side of the guard: it says which addresses are to be protected, and holds their
//! addition back until they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::watch;

use crate::datapath::guard::state::{Guarded, Wanted};
use crate::net::rtnl::addresses::AddressChange;
use leasehold_core::clock::Instant;

/// The longest wait of an addition: an address that no node answers for is worse than one that leads to more than
/// it should for a moment.
const PATIENCE: Duration = Duration::from_millis(50);

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

    /// Takes the additions that have to wait out of `ops`; until when at the latest.
    pub fn hold(&mut self, now: Instant, ops: &mut Vec<AddressChange>) -> Option<Instant> {
        let guarded = self.guarded.borrow_and_update();
        // What went and came again may have been protected before, and not be any more.
        let is_settled = |ip: &IpAddr| {
            let current = self.since.get(ip).is_none_or(|since| guarded.generation >= *since);
            current && guarded.settled.contains(ip)
        };
        self.waiting.hold(now, is_settled, ops)
    }

    /// Waits for news of what is protected; the guard has ended where there can be none.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.guarded.changed().await
    }
}

/// The addresses whose addition waits, and until when at the latest.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<IpAddr, Instant>);

impl Waiting {
    fn hold(
        &mut self,
        now: Instant,
        is_settled: impl Fn(&IpAddr) -> bool,
        ops: &mut Vec<AddressChange>,
    ) -> Option<Instant> {
        let mut before = std::mem::take(&mut self.0);
        let mut wake: Option<Instant> = None;
        ops.retain(|op| {
            let AddressChange::Add { place: (_, ip), .. } = op else { return true };
            if is_settled(ip) {
                return true;
            }
            let until = before.remove(ip).unwrap_or(now + PATIENCE);
            self.0.insert(*ip, until);
            if now >= until {
                return true;
            }
            wake = Some(wake.map_or(until, |wake| wake.min(until)));
            false
        });
        wake
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

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

    /// The additions of two addresses that pass, and the time of the next look.
    fn held(
        waiting: &mut Waiting,
        millis: u64,
        settled: &[u8],
    ) -> (Vec<AddressChange>, Option<Instant>) {
        let mut ops = vec![add(1), add(2)];
        let is_settled = |ip: &IpAddr| settled.iter().any(|last| self::ip(*last) == *ip);
        let wake = waiting.hold(at(millis), is_settled, &mut ops);
        (ops, wake)
    }

    #[test]
    fn an_addition_waits_until_its_address_is_settled_and_not_for_long() {
        let mut waiting = Waiting::default();
        assert_eq!(held(&mut waiting, 0, &[]), (vec![], Some(at(50))));
        assert_eq!(held(&mut waiting, 10, &[1]), (vec![add(1)], Some(at(50))));
        assert_eq!(held(&mut waiting, 50, &[1]), (vec![add(1), add(2)], None));
        // Refused by the kernel, it is tried again without another pause.
        assert_eq!(held(&mut waiting, 1_050, &[1]), (vec![add(1), add(2)], None));
    }

    #[test]
    fn only_additions_wait_and_each_time_anew() {
        let mut waiting = Waiting::default();
        let mut others = vec![AddressChange::Delete { place: (2, ip(1)) }, add(2)];
        assert_eq!(waiting.hold(at(0), |_| false, &mut others), Some(at(50)));
        assert_eq!(others, [AddressChange::Delete { place: (2, ip(1)) }]);
        assert_eq!(waiting.hold(at(60), |_| false, &mut Vec::new()), None);
        assert_eq!(waiting.hold(at(70), |_| false, &mut vec![add(2)]), Some(at(120)));
    }

    #[test]
    fn what_was_settled_before_it_went_and_came_again_waits() {
        let (wanted, _applier) = watch::channel(None);
        let settled: BTreeSet<IpAddr> = [ip(1), ip(2)].into();
        let (told, guarded) = watch::channel(Guarded::default());
        let mut gate = Gate::new(wanted, guarded);
        let passing = |gate: &mut Gate| {
            let mut ops = vec![add(1), add(2)];
            gate.hold(at(0), &mut ops);
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
