//! The addresses of one node: they outlive the speaker's process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold::announce::address::plan::{Kernel as Seen, Lifetime, Ours, Refusal, plan, view};
use leasehold::net::rtnl::addresses::AddressChange;
use leasehold::net::rtnl::links::Links;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Forwarding, KernelView, Serving, Spreading};

/// How often what could not be done is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How far a lifetime that another process set can be off what a dump says.
const SLACK: Duration = Duration::from_millis(200);
/// How late the kernel removes an address whose lifetime is over.
pub(crate) const LATE: Duration = Duration::from_millis(80);

/// One address with our mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    index: u32,
    /// The end of its lifetime, by the node's clock.
    pub(crate) ends: Instant,
    /// How much later it is removed.
    late: Duration,
    /// What the present process knows of it.
    known: Option<Ours>,
}

/// The addresses of one node, and what the speaker's process knows of them.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// With our mark.
    pub(crate) ours: BTreeMap<IpAddr, Held>,
    /// Without our mark.
    pub(crate) foreign: BTreeSet<IpAddr>,
    /// Whether additions fail.
    pub(crate) refuses: bool,
    /// Where packets of unknown connections go.
    pub(crate) forwarding: Arc<Forwarding>,
    /// How packets are spread.
    pub(crate) spreading: Arc<Spreading>,
    pub(crate) serving: Serving,
    pub(crate) view: KernelView,
    /// When to plan again, by the node's clock.
    pub(crate) wake: Option<Instant>,
    refused: BTreeMap<IpAddr, Refusal>,
    applied: u64,
    /// What the process was about to do when it was stopped.
    halfway: Vec<AddressChange>,
    /// When it did that, after it had gone on.
    pub(super) resumed: Option<Instant>,
}

impl Kernel {
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.ours.contains_key(&ip) || self.foreign.contains(&ip)
    }

    /// Plans and acts until nothing is left to do, by the speaker's own plan. `late` says how late
    /// each lifetime that is set now will end.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        links: &Links,
        late: &mut dyn FnMut() -> Duration,
    ) {
        for op in std::mem::take(&mut self.halfway) {
            self.resumed = Some(now);
            self.execute(now, op, late());
        }
        self.refused
            .retain(|ip, refusal| self.serving.vips.contains_key(ip) || now < refusal.retry_at);
        for _ in 0..8 {
            let seen = self.observe(now, links);
            let plan = plan(now, &self.serving, links, &seen, &self.refused);
            if plan.ops.is_empty() {
                self.applied = self.serving.generation;
                self.view =
                    view((self.applied, self.applied), &self.serving, links, &seen, &self.refused);
                self.wake = plan.wake;
                return;
            }
            for op in plan.ops {
                self.execute(now, op, late());
            }
        }
        panic!("the kernel's addresses and what is served do not come to agree: {self:?}");
    }

    /// The process is stopped between its look at the clock and what it does.
    pub(crate) fn stop_halfway(&mut self, now: Instant) {
        for (ip, held) in &self.ours {
            let Some(vip) = self.serving.vips.get(ip) else { continue };
            let seconds = u32::try_from(vip.until.saturating_since(now).as_secs()).unwrap();
            if let Some(seconds) = std::num::NonZeroU32::new(seconds) {
                self.halfway.push(AddressChange::Refresh { place: (held.index, *ip), seconds });
            }
        }
    }

    fn observe(&self, now: Instant, links: &Links) -> Seen {
        let index = links.0.values().map(|link| link.index).min().unwrap_or(0);
        let ours = self.ours.iter().map(|(ip, held)| {
            ((held.index, *ip), held.known.unwrap_or_else(|| estimated(now, held.ends)))
        });
        Seen {
            ours: ours.collect(),
            foreign: self.foreign.iter().map(|ip| (index, *ip)).collect(),
            ahead: BTreeMap::new(),
        }
    }

    fn execute(&mut self, now: Instant, op: AddressChange, late: Duration) {
        let (index, ip) = op.place();
        match op {
            AddressChange::Add { .. } if self.refuses => {
                let reason = "operation not permitted".to_owned();
                self.refused.insert(ip, Refusal { reason, retry_at: now + RETRY });
            }
            // In which order a link has its addresses is not simulated.
            AddressChange::Add { seconds, .. }
            | AddressChange::Refresh { seconds, .. }
            | AddressChange::PutBehind { seconds, .. } => {
                let ends = now + Duration::from_secs(seconds.get().into());
                let former = self.ours.get(&ip).and_then(|held| held.known);
                let resurrected = !matches!(op, AddressChange::Add { .. })
                    && former.is_none_or(|former| now >= former.lifetime.earliest);
                let lifetime = Lifetime { earliest: ends, latest: ends, exact: true };
                let known = Some(Ours { lifetime, resurrected });
                self.refused.remove(&ip);
                self.ours.insert(ip, Held { index, ends, late, known });
            }
            AddressChange::Delete { .. } => {
                self.ours.remove(&ip);
            }
        }
    }

    /// Removes what has expired; returns whether there was any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.ours.len();
        self.ours.retain(|_, held| now < held.ends + held.late);
        self.ours.len() != before
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.ours.values().map(|held| held.ends + held.late).min()
    }

    /// A new process knows nothing.
    pub(crate) fn forget_process(&mut self) {
        self.serving = Serving::default();
        self.view = KernelView::default();
        self.refused.clear();
        self.halfway.clear();
        self.applied = 0;
        self.wake = None;
        for held in self.ours.values_mut() {
            held.known = None;
        }
    }
}

/// What a dump says of an address that this process has not set: whole seconds, rounded up.
fn estimated(now: Instant, ends: Instant) -> Ours {
    let left = ends.saturating_since(now);
    let whole = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    let lifetime = Lifetime {
        earliest: now + whole.saturating_sub(Duration::from_secs(1) + SLACK),
        latest: now + whole + SLACK,
        exact: false,
    };
    Ours { lifetime, resurrected: false }
}
