//! Additions of addresses that wait until the path of their address is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::net::rtnl::addresses::{AddressChange, Place};
use leasehold_core::clock::Instant;

/// The longest wait of an addition: an address that no node answers for is worse than one that leads elsewhere than
/// it should for a moment.
const PATIENCE: Duration = Duration::from_millis(50);

/// The same where the kernel would reset open connections meanwhile, which clients do not get back. An owner that hands over
/// waits longer for the announcement.
const CONNECTIONS: Duration = Duration::from_millis(120);

/// The addresses whose addition waits, and until when at the latest.
#[derive(Debug)]
pub(super) struct Waiting {
    addresses: BTreeMap<IpAddr, Instant>,
    patience: Duration,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { addresses: BTreeMap::new(), patience: PATIENCE }
    }
}

impl Waiting {
    /// Additions before which the kernel would reset open connections.
    pub(super) fn for_connections() -> Self {
        Self { patience: CONNECTIONS, ..Self::default() }
    }

    /// Adds to `held` the additions in `ops` of addresses that are not settled.
    pub(super) fn hold(
        &mut self,
        now: Instant,
        is_settled: impl Fn(&IpAddr) -> bool,
        ops: &[AddressChange],
        held: &mut Held,
    ) {
        let mut before = std::mem::take(&mut self.addresses);
        for op in ops {
            let AddressChange::Add { place, .. } = op else { continue };
            let (_, ip) = place;
            if is_settled(ip) {
                continue;
            }
            let until = before.remove(ip).unwrap_or(now + self.patience);
            self.addresses.insert(*ip, until);
            if now < until {
                held.add(*place, until);
            }
        }
    }
}

/// The additions that one gate or several hold back.
#[derive(Debug, Default)]
pub struct Held {
    places: BTreeSet<Place>,
    /// The time of the next look.
    wake: Option<Instant>,
}

impl Held {
    fn add(&mut self, place: Place, until: Instant) {
        self.places.insert(place);
        self.wake = Some(self.wake.map_or(until, |wake| wake.min(until)));
    }

    /// Takes them out of `ops`; until when at the latest one of them has to wait.
    pub(super) fn take_out(self, ops: &mut Vec<AddressChange>) -> Option<Instant> {
        let is_held = |op: &AddressChange| matches!(op, AddressChange::Add { place, .. } if self.places.contains(place));
        ops.retain(|op| !is_held(op));
        self.wake
    }
}

/// The view of a tenant that is told what is wanted of each address.
pub trait View {
    /// The wanted state.
    type Wanted;

    /// The state in place: the last wanted one for which all was done that could be.
    fn applied(&self) -> Option<&Self::Wanted>;

    /// Whether an address can be added when `applied` is in place and `wanted` is wanted.
    fn settled<'a>(
        applied: &'a Self::Wanted,
        wanted: &'a Self::Wanted,
    ) -> impl Fn(&IpAddr) -> bool + 'a;
}

/// The gate of such a tenant: an address is added once what it needs of what is wanted is in place. Without that its node
/// would reset the connections that are open on others.
#[derive(Debug)]
pub struct Gate<V: View> {
    wanted: watch::Receiver<Option<Arc<V::Wanted>>>,
    view: watch::Receiver<V>,
    waiting: Waiting,
}

impl<V: View> Gate<V> {
    pub(super) fn new(
        wanted: watch::Receiver<Option<Arc<V::Wanted>>>,
        view: watch::Receiver<V>,
    ) -> Self {
        Self { wanted, view, waiting: Waiting::for_connections() }
    }

    /// Adds to `held` the additions in `ops` that have to wait.
    pub fn hold(&mut self, now: Instant, ops: &[AddressChange], held: &mut Held) {
        let wanted = self.wanted.borrow().clone();
        let view = self.view.borrow_and_update();
        let known = wanted.as_deref().zip(view.applied());
        let is_settled = known.map(|(wanted, applied)| V::settled(applied, wanted));
        let may_be_settled = wanted.is_none();
        let is_settled =
            |ip: &IpAddr| is_settled.as_ref().map_or(may_be_settled, |settled| settled(ip));
        self.waiting.hold(now, is_settled, ops, held);
    }

    /// Waits for news of what is in place; the thread has ended where there can be none.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.view.changed().await
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

    /// Takes the additions out of `ops` that are held back while no address is settled; the time of the next look.
    fn take_out(
        waiting: &mut Waiting,
        millis: u64,
        ops: &mut Vec<AddressChange>,
    ) -> Option<Instant> {
        let mut held = Held::default();
        waiting.hold(at(millis), |_| false, ops, &mut held);
        held.take_out(ops)
    }

    /// The additions of two addresses that pass, and the time of the next look.
    fn held(
        waiting: &mut Waiting,
        millis: u64,
        settled: &[u8],
    ) -> (Vec<AddressChange>, Option<Instant>) {
        let mut ops = vec![add(1), add(2)];
        let is_settled = |ip: &IpAddr| settled.iter().any(|last| self::ip(*last) == *ip);
        let mut held = Held::default();
        waiting.hold(at(millis), is_settled, &ops, &mut held);
        let wake = held.take_out(&mut ops);
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
        assert_eq!(take_out(&mut waiting, 0, &mut others), Some(at(50)));
        assert_eq!(others, [AddressChange::Delete { place: (2, ip(1)) }]);
        assert_eq!(take_out(&mut waiting, 60, &mut Vec::new()), None);
        assert_eq!(take_out(&mut waiting, 70, &mut vec![add(2)]), Some(at(120)));
        let mut longer = Waiting::for_connections();
        assert_eq!(held(&mut longer, 0, &[]), (vec![], Some(at(120))));
        assert_eq!(held(&mut longer, 119, &[1]), (vec![add(1)], Some(at(120))));
        assert_eq!(held(&mut longer, 120, &[1]), (vec![add(1), add(2)], None));
    }
}
