//! The task that owns the kernel's addresses.
//!
//! Level-triggered: at each change of what is served, of the links or of the addresses it dumps these, plans and
//! acts, until there is nothing left to do. What it has done itself it need not read again, unless something of
//! it was refused; nor, for a second, to add more: the kernel refuses to add what is there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use crate::announce::address::plan::{
    Kernel, Lifetime, Ours, Refusal, ahead, exposing, plan, view,
};
use crate::announce::counters::AnnouncementCounters;
use crate::announce::layer2::confine::Confinement;
use crate::clock;
use crate::clock::{rest_after, sleep_until};
use crate::datapath::gates::Gates;
use crate::net::rtnl::addresses::{AddressChange, Place, full_prefix};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::Links;
use crate::net::rtnl::netlink::Netlink;
use crate::net::rtnl::row::AddressRow;
use leasehold_core::clock::Instant;
use leasehold_core::election::{KernelView, Serving};

/// Time for reading and changing the addresses from which it is worth a line in the log: all of the kernel's networking
/// waits for one lock.
const SLOW: Duration = Duration::from_millis(500);
/// Interval between attempts to add a refused address while it is served.
const RETRY: Duration = Duration::from_secs(1);
/// Plans in a row before the channels are looked at again.
const PASSES: usize = 8;
/// Changes in a row before the plan is made anew: what is to be added meanwhile goes before the rest of
/// thousands that are refreshed.
const AT_ONCE: usize = 512;
/// Changes at once, with nothing else in between: less than a millisecond.
const TOGETHER: usize = 64;
/// Time after a dump during which further addresses may be added without another.
const FRESH: Duration = Duration::from_secs(1);
/// Pause after the addresses of a link were put behind the node's own: a program that sets those anew all the
/// time gets its way.
const REORDER_PAUSE: Duration = Duration::from_secs(1);
/// The greatest difference between a dump, in whole seconds of the kernel's own clock, and the lifetime that was
/// set.
const DUMP_SLACK: Duration = Duration::from_millis(200);

/// The task's state.
#[derive(Debug)]
pub struct Applier {
    netlink: Netlink,
    serving: watch::Receiver<Serving>,
    links: watch::Receiver<Links>,
    disturbed: watch::Receiver<u64>,
    gates: Gates,
    view: watch::Sender<KernelView>,
    /// The addresses in the kernel: the last dump, and the changes of this process since.
    known: Option<(Instant, Kernel)>,
    /// The lifetimes that this process last set.
    records: BTreeMap<Place, Ours>,
    refused: BTreeMap<IpAddr, Refusal>,
    /// The time at which the addresses of a link were last put behind the node's own.
    reordered: BTreeMap<u32, Instant>,
    /// The generation of what is served that the kernel was last brought in line with.
    applied: u64,
    /// The one that the kernel was last told, with nothing held back.
    told: u64,
    confinement: Confinement,
    counters: Arc<AnnouncementCounters>,
}

impl Applier {
    /// The task; nothing happens before it runs.
    pub fn new(
        netlink: Netlink,
        serving: watch::Receiver<Serving>,
        (links, disturbed): (watch::Receiver<Links>, watch::Receiver<u64>),
        gates: Gates,
        confinement: Confinement,
        view: watch::Sender<KernelView>,
        counters: Arc<AnnouncementCounters>,
    ) -> Self {
        Self {
            netlink,
            serving,
            links,
            disturbed,
            gates,
            view,
            known: None,
            records: BTreeMap::new(),
            refused: BTreeMap::new(),
            reordered: BTreeMap::new(),
            applied: 0,
            told: 0,
            confinement,
            counters,
        }
    }

    /// Runs until a channel or the netlink connection closes.
    pub async fn run(mut self) {
        loop {
            let began = clock::now();
            let wake = match self.settle().await {
                Ok(wake) => wake,
                Err(NetlinkError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read or change the addresses: trying again");
                    Some(clock::now() + RETRY)
                }
            };
            let took = clock::now().saturating_since(began);
            if took >= SLOW {
                tracing::warn!(?took, "the kernel took long to read and change the addresses");
            }
            rest_after(began).await;
            let wake = wake.into_iter().chain(self.confinement.due()).min();
            let timer = async {
                match wake {
                    Some(wake) => sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            let (open, elsewhere) = tokio::select! {
                changed = self.links.changed() => {
                    self.confinement.look_again();
                    (changed.is_ok(), true)
                }
                changed = self.disturbed.changed() => (changed.is_ok(), true),
                changed = self.serving.changed() => (changed.is_ok(), false),
                changed = self.gates.changed() => (changed.is_ok(), false),
                () = timer => (true, true),
            };
            if !open {
                return;
            }
            if elsewhere {
                self.known = None;
            }
        }
    }

    /// Plans and acts until nothing is left to do; when to look again.
    async fn settle(&mut self) -> Result<Option<Instant>, NetlinkError> {
        let (mut looked, mut failed) = (false, false);
        for _ in 0..PASSES {
            let serving = self.serving.borrow_and_update().clone();
            let links = self.links.borrow_and_update().clone();
            let (seen_at, mut kernel) = match self.known.take() {
                Some(known) if looked || clock::now() < known.0 + FRESH => known,
                _ => {
                    looked = true;
                    (clock::now(), self.observe().await?)
                }
            };
            self.gates.guard(exposing(&serving, &links, &kernel));
            let now = clock::now();
            self.refused
                .retain(|ip, refusal| serving.vips.contains_key(ip) || now < refusal.retry_at);
            let mut plan = plan(now, &serving, &links, &kernel, &self.refused);
            if !looked && plan.ops.iter().any(|op| !matches!(op, AddressChange::Add { .. })) {
                continue;
            }
            if plan.ops.is_empty() {
                (self.applied, self.told) = (serving.generation, serving.generation);
            }
            let seen = view((self.applied, self.told), &serving, &links, &kernel, &self.refused);
            self.view.send_if_modified(|known| {
                let modified = *known != seen;
                *known = seen;
                modified
            });
            let carrying =
                serving.vips.values().filter_map(|vip| vip.attachment.interface()).collect();
            self.confinement.confine(&links, &carrying).await;
            let held = self.gates.hold(now, &mut plan.ops);
            if plan.ops.is_empty() {
                self.known = Some((seen_at, kernel));
                return Ok([plan.wake, held].into_iter().flatten().min());
            }
            let all = plan.ops.len() <= AT_ONCE;
            plan.ops.truncate(AT_ONCE);
            let done = match self.execute(&plan.ops, &mut kernel).await {
                // What was carried out of it, only the kernel knows.
                Err(error) if !failed && !matches!(error, NetlinkError::Closed) => {
                    tracing::warn!(%error, "cannot change the addresses: reading them again");
                    (looked, failed) = (false, true);
                    continue;
                }
                done => done?,
            };
            self.known = done.then_some((seen_at, kernel));
            if all && held.is_none() {
                self.told = serving.generation;
            }
        }
        // What keeps changing is looked at again soon, after the rest of the process had its turn.
        Ok(Some(clock::now() + Duration::from_millis(10)))
    }

    /// Dumps the addresses and joins them with what this process knows of them.
    async fn observe(&mut self) -> Result<Kernel, NetlinkError> {
        let began = clock::now();
        let addresses = self.netlink.addresses().await?;
        let ended = clock::now();
        let mut kernel = Kernel::default();
        // We only ever add single addresses.
        let is_ours = |row: &AddressRow| row.ours && row.prefix_len == full_prefix(row.ip);
        self.reordered.retain(|_, at| ended < *at + REORDER_PAUSE);
        let ahead = ahead(addresses.iter().map(|row| (row, is_ours(row))));
        kernel.ahead.extend(ahead.into_iter().map(|place| {
            let from = self.reordered.get(&place.0).map_or(ended, |at| *at + REORDER_PAUSE);
            (place, from)
        }));
        for address in addresses {
            let place = (address.index, address.ip);
            if is_ours(&address) {
                let known = self.records.get(&place);
                kernel.ours.insert(place, joined(address.valid, (began, ended), known));
            } else {
                kernel.foreign.insert(place);
            }
        }
        self.records.retain(|place, ours| {
            let there = kernel.ours.contains_key(place);
            if !there && ended < ours.lifetime.earliest {
                self.counters.vanished.fetch_add(1, Ordering::Relaxed);
            }
            there
        });
        Ok(kernel)
    }

    /// Carries these out, and brings `kernel` in line; returns whether nothing was refused.
    async fn execute(
        &mut self,
        ops: &[AddressChange],
        kernel: &mut Kernel,
    ) -> Result<bool, NetlinkError> {
        let mut all_done = true;
        for ops in ops.chunks(TOGETHER) {
            let before = clock::now();
            let results = match self.netlink.change(ops) {
                Ok(results) => results,
                Err(error) => {
                    self.forget_deleted(ops);
                    return Err(error);
                }
            };
            let after = clock::now();
            for (op, result) in ops.iter().zip(results) {
                all_done &= result.is_ok();
                self.note(op, kernel, (before, after), result);
                let place = op.place();
                if matches!(op, AddressChange::PutBehind { .. }) {
                    tracing::debug!(ip = %place.1, "an address was put behind the node's own");
                    kernel.ahead.remove(&place);
                    self.reordered.insert(place.0, after);
                }
                match self.records.get(&place) {
                    Some(ours) => drop(kernel.ours.insert(place, *ours)),
                    None => drop(kernel.ours.remove(&place)),
                }
            }
            // Frames are read on this thread, too.
            tokio::task::yield_now().await;
        }
        Ok(all_done)
    }

    /// Forgets the addresses that may have been deleted here: they have not vanished.
    fn forget_deleted(&mut self, ops: &[AddressChange]) {
        for op in ops {
            if let AddressChange::Delete { place } = op {
                self.records.remove(place);
            }
        }
    }

    fn note(
        &mut self,
        op: &AddressChange,
        kernel: &Kernel,
        (before, after): (Instant, Instant),
        result: Result<(), NetlinkError>,
    ) {
        let place = op.place();
        let (index, ip) = place;
        let interface = self.links.borrow().by_index(index).map(|link| link.name.to_string());
        if result.is_ok() {
            self.refused.remove(&ip);
        }
        match (*op, result) {
            (AddressChange::Add { seconds, .. }, Ok(())) => {
                tracing::debug!(%ip, interface, seconds, "address added");
                let lifetime = set(before, after, seconds);
                self.records.insert(place, Ours { lifetime, resurrected: false });
            }
            // Not found, it could not be deleted, and was added all the same.
            (AddressChange::PutBehind { seconds, .. }, Err(NetlinkError::NotFound)) => {
                let lifetime = set(before, after, seconds);
                self.records.insert(place, Ours { lifetime, resurrected: true });
            }
            (
                AddressChange::Refresh { seconds, .. } | AddressChange::PutBehind { seconds, .. },
                Ok(()),
            ) => {
                let former = kernel.ours.get(&place).map(|ours| ours.lifetime.earliest);
                let resurrected = former.is_none_or(|former| after >= former);
                let lifetime = set(before, after, seconds);
                self.records.insert(place, Ours { lifetime, resurrected });
            }
            (AddressChange::Delete { .. }, Ok(())) => {
                self.records.remove(&place);
                tracing::debug!(%ip, interface, "address removed");
            }
            // It went away, or came, since the dump: the next one tells.
            (
                AddressChange::Delete { .. },
                Err(NetlinkError::NotFound | NetlinkError::NoInterface),
            )
            | (
                AddressChange::Refresh { .. } | AddressChange::PutBehind { .. },
                Err(NetlinkError::NoInterface),
            ) => {}
            (
                AddressChange::Delete { .. }
                | AddressChange::Refresh { .. }
                | AddressChange::PutBehind { .. },
                Err(error),
            ) => {
                let reason = error.to_string();
                tracing::warn!(%ip, interface, reason, "an address could not be changed");
                self.refuse(ip, after, reason);
            }
            (AddressChange::Add { .. }, Err(error)) => {
                let reason = error.to_string();
                if self.refused.get(&ip).is_none_or(|known| known.reason != reason) {
                    tracing::warn!(%ip, interface, reason, "an address could not be added");
                }
                self.refuse(ip, after, reason);
            }
        }
    }

    fn refuse(&mut self, ip: IpAddr, now: Instant, reason: String) {
        self.refused.insert(ip, Refusal { reason, retry_at: now + RETRY });
    }
}

fn set(before: Instant, after: Instant, seconds: NonZeroU32) -> Lifetime {
    let length = Duration::from_secs(seconds.get().into());
    Lifetime { earliest: before + length, latest: after + length, exact: true }
}

/// An address of ours that a dump between two points has shown. What this process has set is believed as long
/// as the dump, which says how many seconds are left, rounded up, does not contradict it.
fn joined(
    valid: Option<Duration>,
    (began, ended): (Instant, Instant),
    known: Option<&Ours>,
) -> Ours {
    let valid = valid.unwrap_or(Duration::from_secs(u32::MAX.into()));
    let estimated = Lifetime {
        earliest: began + valid.saturating_sub(Duration::from_secs(1)) - DUMP_SLACK,
        latest: ended + valid + DUMP_SLACK,
        exact: false,
    };
    let believed = known.filter(|known| {
        known.lifetime.earliest <= estimated.latest && estimated.earliest <= known.lifetime.latest
    });
    believed.copied().unwrap_or(Ours { lifetime: estimated, resurrected: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(100_000 + millis))
    }

    /// 6 s were set at 100 s; a dump says something 2.5 s later, when 3.5 s are left.
    #[test]
    fn what_was_set_is_believed_until_a_dump_contradicts_it() {
        let known =
            Ours { lifetime: set(at(0), at(1), NonZeroU32::new(6).unwrap()), resurrected: false };
        let rows = [
            ("rounded up", Some(4), true),
            ("drawn in by somebody", Some(3), false),
            ("extended by somebody", Some(5), false),
            ("made endless by somebody", None, false),
        ];
        for (name, valid, believed) in rows {
            let valid = valid.map(Duration::from_secs);
            let dumped = (at(2_500), at(2_501));
            let ours = joined(valid, dumped, Some(&known));
            assert_eq!(ours == known, believed, "{name}: {ours:?}");
            assert_eq!(ours.lifetime.exact, believed, "{name}");
            let unknown = joined(valid, dumped, None).lifetime;
            assert!(!unknown.exact, "{name}");
            if believed {
                assert!(unknown.earliest <= known.lifetime.earliest, "{name}");
                assert!(known.lifetime.latest <= unknown.latest, "{name}");
            }
        }
    }
}
