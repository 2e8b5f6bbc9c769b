//! Who announces the addresses of a Service, for its condition.
//!
//! It is not told at once: writes to Services are to stay out of the way of a failover, an owner that has
//! just changed may change again, and where nobody owns an address somebody is about to take it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::desired::ServiceFacts;
use leasehold::explain::{self, View, nobody};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{LeaseName, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use leasehold_crds::policy::Governance;

use super::condition::Verdict;
use super::governing::Silence;
use super::governing::announces_without_endpoints;
use super::index::Index;
use super::service::{ServiceRow, Traffic};
use super::tell;
use crate::allocate::{Decision, Plan, ServiceKey};
use crate::clock::Instant;

/// For how long a claim has its owner before that is told.
const OWNED: Duration = Duration::from_secs(1);
/// For how long nobody has a claim before that is told.
pub(super) const UNOWNED: Duration = Duration::from_secs(2);
/// For how long that is put off at most because somebody else may be able to take it now.
const PUT_OFF: Duration = Duration::from_secs(3);
/// How often what nobody owns is looked at where no event tells that something has changed.
const AGAIN: Duration = Duration::from_secs(10);

/// What the condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// There is to be none.
    Nothing,
    /// What it says already: something else is known later.
    Later,
    /// This.
    Now(Verdict),
}

/// Who announces some of the addresses of a Service, and on which interface, or why nobody does.
pub(super) struct Part<'a> {
    pub(super) addresses: &'a AddressSet,
    pub(super) by: Result<Announcer<'a>, String>,
    /// Why the announcer does not answer the clients, where it says that it does not.
    pub(super) unanswered: Option<String>,
    /// The policy that cannot be read, so that no other node takes them.
    pub(super) unreadable: Option<&'a str>,
}

/// The owner of a claim, and the interface that carries its addresses.
pub(super) type Announcer<'a> = (&'a NodeName, Option<&'a InterfaceName>);

/// What matters of a claim to those who are told of it: its owner, and what it lists.
pub(super) type Announcement = (Option<(NodeName, Option<InterfaceName>)>, AddressSet);

/// The claims that have changed hands of late.
#[derive(Debug, Default)]
pub(super) struct Handed {
    claims: BTreeMap<LeaseName, Since>,
}

/// When a claim has changed hands.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// When it did.
    handed: Instant,
    /// When somebody else may have become able to take it; at first the same.
    counts_from: Instant,
}

impl Handed {
    /// A claim has another owner at `now`, or none.
    pub(super) fn note(&mut self, name: &LeaseName, now: Instant) {
        self.claims.insert(name.clone(), Since { handed: now, counts_from: now });
    }

    /// Somebody may be able to take at `now` a claim that nobody owns. Where that is so again and again it is
    /// told all the same, in time.
    pub(super) fn put_off(&mut self, name: &LeaseName, now: Instant) {
        let new = Since { handed: now, counts_from: now };
        let since = self.claims.entry(name.clone()).or_insert(new);
        since.counts_from = now.min(since.handed + PUT_OFF);
    }

    /// From when on it is to be told who owns a claim, or that nobody does; none: since long ago.
    fn told_at(&self, name: &LeaseName, owned: bool) -> Option<Instant> {
        let since = self.claims.get(name)?;
        Some(since.counts_from + if owned { OWNED } else { UNOWNED })
    }

    /// When something is to be told next, after `now`.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let since = self.claims.values().map(|since| since.counts_from);
        since.flat_map(|since| [since + OWNED, since + UNOWNED]).filter(|at| *at > now).min()
    }

    /// Forgets what was to be told by `now`.
    pub(super) fn forget(&mut self, now: Instant) {
        self.claims.retain(|_, since| since.counts_from + UNOWNED > now);
    }
}

/// What is known of a Service.
enum Known<'a> {
    Telling(Telling),
    /// Under these claims it has these addresses, and they may be told; a policy may govern it that cannot be
    /// read.
    Split(BTreeMap<LeaseName, AddressSet>, &'a ServiceRow, Option<&'a str>),
}

impl Index {
    /// Who owns the claim of this name.
    pub(super) fn announcer(&self, name: &LeaseName) -> Option<Announcer<'_>> {
        let claim = self.claims.get(name).filter(|claim| self.is_valid(claim))?;
        Some((claim.record.holder.as_ref()?, claim.record.interface.as_ref()))
    }

    /// Why the owner of a claim does not answer the clients of these addresses, where it says that it does not.
    fn unanswered(&self, name: &LeaseName, addresses: &AddressSet) -> Option<String> {
        let (node, interface) = self.announcer(name)?;
        let listed = &self.sessions.get(&LeaseName::session(node))?.record.interfaces;
        let carrying = listed.iter().find(|listed| Some(&listed.name) == interface)?;
        let subnet = addresses.iter().find_map(|ip| carrying.leaves_unanswered(*ip))?;
        Some(explain::unanswered(subnet, &carrying.name))
    }

    /// Who announces what under the claim of this name; none: there is no such lease.
    pub(super) fn announcement(&self, name: &LeaseName) -> Option<Announcement> {
        let addresses = self.claims.get(name)?.record.addresses.clone();
        let announcer = self.announcer(name);
        Some((announcer.map(|(node, interface)| (node.clone(), interface.cloned())), addresses))
    }

    /// What the condition of each open Service is to say of who announces it.
    pub fn tellings(&self, plan: &Plan, now: Instant) -> BTreeMap<ServiceKey, Telling> {
        let decided = self.decided(plan);
        let known: Vec<_> = decided
            .filter_map(|(key, _, row, decision)| Some((key, self.known(key, row, decision?, now))))
            .collect();
        let unowned = |name: &LeaseName| self.announcer(name).is_none();
        let unannounced = known.iter().filter_map(|(key, known)| match known {
            Known::Split(split, row, _) => split.keys().any(unowned).then_some((*key, split, *row)),
            Known::Telling(_) => None,
        });
        let world = self.world(unannounced);
        let view = View::new(&world);
        let tell = |(key, known): (&ServiceKey, Known<'_>)| {
            let telling = match known {
                Known::Telling(telling) => telling,
                Known::Split(split, _, unreadable) => {
                    let parts = split.iter().map(|(name, addresses)| Part {
                        addresses,
                        by: self.announcer(name).ok_or_else(|| nobody(&view, name)),
                        unanswered: self.unanswered(name, addresses),
                        unreadable,
                    });
                    Telling::Now(tell::announced(&parts.collect::<Vec<_>>()))
                }
            };
            (key.clone(), telling)
        };
        known.into_iter().map(tell).collect()
    }

    fn known<'a>(
        &'a self,
        key: &ServiceKey,
        row: &'a ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Known<'a> {
        if decision.addresses.is_empty() {
            let telling =
                tell::nothing_to_announce(decision).map_or(Telling::Nothing, Telling::Now);
            return Known::Telling(telling);
        }
        if let Some(silence) = self.silence(key, row, decision, now) {
            return Known::Telling(Telling::Now(tell::silence(silence)));
        }
        let later = Known::Telling(Telling::Later);
        let absent = self.endpoints.told_at(key).is_some_and(|at| at > now);
        let claims = row.claims().filter(|_| row.present == decision.addresses);
        let (Some(claims), false) = (claims, absent) else { return later };
        let split = claims.split(row.present.iter().copied());
        let known = |(name, addresses): (&LeaseName, &AddressSet)| {
            let told_at = self.handed.told_at(name, self.announcer(name).is_some());
            // What is not listed is about to be.
            let claim = self.claims.get(name);
            claim.is_some_and(|claim| addresses.is_subset(&claim.record.addresses))
                && told_at.is_none_or(|at| now >= at)
        };
        let unreadable = match self.governance(row, decision) {
            Some(Governance::Unreadable(policy)) => Some(policy.name.as_str()),
            _ => None,
        };
        if split.iter().all(known) { Known::Split(split, row, unreadable) } else { later }
    }

    /// When it is to be looked at again who announces a Service about which nothing is to be done now.
    pub(super) fn looked_at(
        &self,
        key: &ServiceKey,
        row: &ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Option<Instant> {
        let claims = row.claims()?.split(row.present.iter().copied());
        let owned = |name: &LeaseName| self.announcer(name).is_some();
        if !matches!(self.known(key, row, decision, now), Known::Telling(Telling::Later)) {
            // Its endpoints say who may take it, and nobody tells when they come and go.
            let local = row.traffic == Traffic::Local && !claims.keys().all(owned);
            return local.then_some(now + AGAIN);
        }
        let handed = claims.keys().filter_map(|name| self.handed.told_at(name, owned(name)));
        let due = handed.chain(self.endpoints.told_at(key)).filter(|at| *at > now).min();
        Some(due.unwrap_or(now + AGAIN))
    }

    /// Why nobody is to announce a Service that has an address, as far as it is to be told at `now`.
    fn silence(
        &self,
        key: &ServiceKey,
        row: &ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Option<Silence<'_>> {
        let governance = self.governance(row, decision)?;
        let absent = || {
            let told_at = self.endpoints.told_at(key)?;
            let told = now >= told_at || row.is_told_of_no_endpoint();
            (told && !announces_without_endpoints(governance)).then_some(Silence::NoEndpoint)
        };
        self.governing.silence(governance).or_else(absent)
    }

    /// What decides who may announce these Services.
    fn world<'a>(
        &self,
        services: impl Iterator<
            Item = (&'a ServiceKey, &'a BTreeMap<LeaseName, AddressSet>, &'a ServiceRow),
        >,
    ) -> explain::World {
        let mut world = explain::World::default();
        let mut keys = BTreeSet::new();
        for (key, split, row) in services {
            let wish = self.wish(row);
            let labels = wish.map(|wish| wish.labels.clone()).unwrap_or_default();
            let pool = wish.and_then(|wish| wish.allocated_from.clone());
            let facts =
                ServiceFacts::placed(split.clone(), pool, labels, row.traffic == Traffic::Local);
            world.snapshot.services.insert(key.to_string(), facts);
            for (name, row) in split.keys().filter_map(|it| Some((it, self.claims.get(it)?))) {
                world.snapshot.lists.note(name, &row.record);
            }
            keys.insert(key.to_string());
        }
        if keys.is_empty() {
            return world;
        }
        let slices = self.endpoints.slices().iter();
        let slices = slices.filter(|(_, slice)| keys.contains(slice.service()));
        world.snapshot.slices =
            slices.map(|(key, slice)| (key.to_owned(), slice.facts())).collect();
        let nodes = self
            .nodes
            .iter()
            .filter_map(|(name, row)| Some((name.parse::<NodeName>().ok()?, row.facts.clone())));
        world.snapshot.nodes = nodes.collect();
        let policies = self.policies.iter();
        world.snapshot.policies =
            policies.map(|(name, row)| (name.clone(), row.object.clone())).collect();
        let pools = self.pools.iter();
        world.snapshot.pools =
            pools.map(|(name, row)| (name.clone(), row.labels.clone())).collect();
        world.snapshot.note_nodes();
        let sessions = self.sessions.iter().filter_map(|(name, row)| {
            let stored = Stored {
                name: name.clone(),
                uid: row.uid.clone(),
                resource_version: "".into(),
                acquired: None,
                record: row.record.clone(),
            };
            Some((name.as_str().parse().ok()?, explain::SessionRow { stored }))
        });
        world.sessions = sessions.collect();
        world
    }
}
