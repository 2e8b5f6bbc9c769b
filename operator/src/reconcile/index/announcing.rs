//! The owners of the addresses of a Service, or the reasons for which they have none, for its condition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::desired::ServiceFacts;
use leasehold_core::explain::{self, View, nobody};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{LeaseName, Stored};
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{Governance, ReturnPath};

use super::data_path;
use super::governing::{Governing, announces_without_endpoints};
use super::owners::OwnerChanges;
use super::tables::Tables;
use crate::allocate::{Decision, ServiceKey};
use crate::clock::Instant;
use crate::reconcile::service::conditions::{self, Part, Report, Reports, Silence};
use crate::reconcile::service::{ServiceRow, Traffic};

/// The interval between two looks at an unowned claim where no event tells of a change.
const AGAIN: Duration = Duration::from_secs(10);

/// The questions about announcement, answered from these rooms.
#[derive(Clone, Copy)]
pub(super) struct Announcing<'a> {
    tables: &'a Tables,
    governing: &'a Governing,
    owners: &'a OwnerChanges,
}

/// An answer about one Service.
enum Known<'a> {
    /// Its condition, without a look at its owners.
    Report(Report),
    /// Its addresses by claim, whose owners may be reported; with what governs it.
    Split(BTreeMap<LeaseName, AddressSet>, &'a ServiceRow, Option<Governance<'a>>),
}

impl Known<'_> {
    /// Whether a policy has packets for its addresses spread over nodes.
    fn is_spread(&self) -> bool {
        match self {
            Known::Report(_) => false,
            Known::Split(_, row, governance) => {
                row.traffic == Traffic::Local && data_path::is_asked_for(*governance)
            }
        }
    }
}

impl<'a> Announcing<'a> {
    pub(super) const fn new(
        tables: &'a Tables,
        governing: &'a Governing,
        owners: &'a OwnerChanges,
    ) -> Self {
        Self { tables, governing, owners }
    }

    /// The reason for which the owner of a claim does not answer the clients of these addresses, if it
    /// reports one.
    fn unanswered(self, name: &LeaseName, addresses: &AddressSet) -> Option<String> {
        let (node, interface) = self.tables.announcer(name)?;
        let session = self.tables.sessions().get(&LeaseName::session(node))?;
        let mut interfaces = session.record.interfaces.iter();
        let carrying = interfaces.find(|listed| Some(&listed.name) == interface)?;
        let subnet = addresses.iter().find_map(|ip| carrying.leaves_unanswered(*ip))?;
        Some(explain::unanswered(subnet, &carrying.name))
    }

    /// The conditions about announcement and data path of each of these Services.
    pub(super) fn reports<'d>(
        self,
        decided: impl Iterator<Item = (&'d ServiceKey, &'d ServiceRow, &'d Decision)>,
        now: Instant,
    ) -> BTreeMap<ServiceKey, Reports>
    where
        'a: 'd,
    {
        let known: Vec<_> = decided
            .map(|(key, row, decision)| (key, self.known(key, row, decision, now)))
            .collect();
        let unowned = |name: &LeaseName| self.tables.announcer(name).is_none();
        let unannounced = known.iter().filter_map(|(key, known)| match known {
            Known::Split(split, row, _) => split.keys().any(unowned).then_some((*key, split, *row)),
            Known::Report(_) => None,
        });
        let world = world(self.tables, unannounced);
        let view = View::new(&world);
        let mut spread = known.iter().filter(|(_, known)| known.is_spread()).peekable();
        let endpoints = spread.peek().is_some().then(|| {
            let keys = spread.map(|(key, _)| key.to_string()).collect();
            data_path::with_endpoints(self.tables, &keys)
        });
        let report = |(key, known): (&ServiceKey, Known<'_>)| {
            let reports = match known {
                Known::Report(announced) => {
                    let later = announced == Report::Later;
                    let data_path = if later { Report::Later } else { Report::Nothing };
                    Reports { announced, data_path }
                }
                Known::Split(split, row, governance) => {
                    let nodes = endpoints.as_ref().and_then(|all| all.get(&key.to_string()));
                    let data_path = data_path::report(self.tables, &split, row, governance, nodes);
                    let unreadable = match governance {
                        Some(Governance::Unreadable(policy)) => Some(policy.name.as_str()),
                        _ => None,
                    };
                    let policy = governance.and_then(Governance::policy);
                    let return_path = policy.map(|policy| policy.return_path).unwrap_or_default();
                    let parts = split.iter().map(|(name, addresses)| Part {
                        addresses,
                        by: self.tables.announcer(name).ok_or_else(|| nobody(&view, name)),
                        unanswered: match return_path {
                            ReturnPath::Default => self.unanswered(name, addresses),
                            ReturnPath::Symmetric => None,
                        },
                        unreadable,
                    });
                    let announced = Report::Now(conditions::announced(&parts.collect::<Vec<_>>()));
                    Reports { announced, data_path }
                }
            };
            (key.clone(), reports)
        };
        known.into_iter().map(report).collect()
    }

    /// The condition of a Service as far as it does not depend on its owners, else its claims.
    fn known<'d>(
        self,
        key: &ServiceKey,
        row: &'d ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Known<'d>
    where
        'a: 'd,
    {
        if decision.addresses.is_empty() {
            let report =
                conditions::nothing_to_announce(decision).map_or(Report::Nothing, Report::Now);
            return Known::Report(report);
        }
        let later = Known::Report(Report::Later);
        let split = self.settled(row, decision, now);
        if let Some(silence) = self.silence(key, row, decision, now) {
            // The tables may not have a policy or a node yet that was created together with the Service.
            let waits = matches!(silence, Silence::NoPolicy | Silence::NoNode(_))
                && !row.reports_announcement()
                && split.is_none();
            let report = Report::Now(conditions::silence(silence));
            return if waits { later } else { Known::Report(report) };
        }
        let absent = self.tables.endpoints().reported_at(key).is_some_and(|at| at > now);
        let (Some(split), false) = (split, absent) else { return later };
        Known::Split(split, row, self.governing.of(self.tables.request(row), decision))
    }

    /// The addresses of a Service by claim, once each claim lists them and has had its owner, or none, for long
    /// enough.
    fn settled(
        self,
        row: &ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Option<BTreeMap<LeaseName, AddressSet>> {
        let claims = row.claims().filter(|_| row.present == decision.addresses)?;
        let split = claims.split(row.present.iter().copied());
        let settled = |(name, addresses): (&LeaseName, &AddressSet)| {
            let owned = self.tables.announcer(name).is_some();
            let reported_at = self.owners.reported_at(name, owned);
            // An address that is not listed is about to be.
            let claim = self.tables.claims().get(name);
            claim.is_some_and(|claim| addresses.is_subset(&claim.record.addresses))
                && reported_at.is_none_or(|at| now >= at)
        };
        split.iter().all(settled).then_some(split)
    }

    /// The time of the next look at the owners of a Service that is settled otherwise.
    pub(super) fn looked_at(
        self,
        key: &ServiceKey,
        row: &ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Option<Instant> {
        let claims = row.claims()?.split(row.present.iter().copied());
        let owned = |name: &LeaseName| self.tables.announcer(name).is_some();
        if !matches!(self.known(key, row, decision, now), Known::Report(Report::Later)) {
            // The nodes of its endpoints may take it, and no event tells when these come and go.
            let local = row.traffic == Traffic::Local && !claims.keys().all(owned);
            return local.then_some(now + AGAIN);
        }
        let owners = claims.keys().filter_map(|name| self.owners.reported_at(name, owned(name)));
        let endpoints = self.tables.endpoints().reported_at(key);
        let due = owners.chain(endpoints).filter(|at| *at > now).min();
        Some(due.unwrap_or(now + AGAIN))
    }

    /// The reason for which no node may announce a Service that has an address, as far as it is to be reported
    /// at `now`.
    fn silence(
        self,
        key: &ServiceKey,
        row: &ServiceRow,
        decision: &Decision,
        now: Instant,
    ) -> Option<Silence<'a>> {
        let governance = self.governing.of(self.tables.request(row), decision)?;
        let absent = || {
            let reported_at = self.tables.endpoints().reported_at(key)?;
            let reported = now >= reported_at || row.reports_no_endpoint();
            (reported && !announces_without_endpoints(governance)).then_some(Silence::NoEndpoint)
        };
        self.governing.silence(governance).or_else(absent)
    }
}

/// The objects that decide which nodes may announce these Services.
fn world<'a>(
    tables: &Tables,
    services: impl Iterator<
        Item = (&'a ServiceKey, &'a BTreeMap<LeaseName, AddressSet>, &'a ServiceRow),
    >,
) -> explain::World {
    let mut world = explain::World::default();
    let mut keys = BTreeSet::new();
    for (key, split, row) in services {
        let request = tables.request(row);
        let labels = request.map(|request| request.labels.clone()).unwrap_or_default();
        let pool = request.and_then(|request| request.allocated_from.clone());
        let facts =
            ServiceFacts::placed(split.clone(), pool, labels, row.traffic == Traffic::Local);
        world.snapshot.services.insert(key.to_string(), facts);
        for (name, row) in split.keys().filter_map(|it| Some((it, tables.claims().get(it)?))) {
            world.snapshot.lists.note(name, &row.record);
        }
        keys.insert(key.to_string());
    }
    if keys.is_empty() {
        return world;
    }
    let slices = tables.endpoints().slices().iter();
    let slices = slices.filter(|(_, slice)| keys.contains(slice.service()));
    world.snapshot.slices = slices.map(|(key, slice)| (key.to_owned(), slice.facts())).collect();
    let nodes = tables
        .nodes()
        .iter()
        .filter_map(|(name, row)| Some((name.parse::<NodeName>().ok()?, row.facts.clone())));
    world.snapshot.nodes = nodes.collect();
    let policies = tables.policies().iter();
    world.snapshot.policies =
        policies.map(|(name, row)| (name.clone(), row.object.clone())).collect();
    let pools = tables.pools().iter();
    world.snapshot.pools = pools.map(|(name, row)| (name.clone(), row.labels.clone())).collect();
    world.snapshot.note_nodes();
    let sessions = tables.sessions().iter().filter_map(|(name, row)| {
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
