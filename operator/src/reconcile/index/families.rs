//! The claims of single addresses that a Service has beside its own: by policy, or one for each family.
//!
//! A claim is carried by one interface of one node. Where no node has an interface that can carry both
//! families, and some have one for either, each family has a claim of its own: it has an owner of its own, on
//! another interface of the same node or on another node, and one that no node can carry does not affect the
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::election::{Carried, carries, has_subnet_of};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::{Governance, Spread};

use super::governing::Governing;
use super::tables::Tables;
use crate::allocate::{Decision, ServiceKey};
use crate::clock::Instant;
use crate::reconcile::leases::SessionRow;
use crate::reconcile::service::ServiceRow;

/// The time for which no node can carry both before they are put apart: links come and go.
const APART: Duration = Duration::from_secs(5);
/// The time for which a node can carry both before they are joined again: nothing is lost until then.
const TOGETHER: Duration = Duration::from_secs(60);

/// The state of one Service with both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    apart: bool,
    /// The time since which the other state would be right.
    since: Option<Instant>,
}

/// The Services with both families, by their own claims.
#[derive(Debug, Default)]
pub(super) struct Families {
    pairs: BTreeMap<LeaseName, Pair>,
    /// Whether the first look is over: until then the claims on record count.
    begun: bool,
    /// Whether all Services are to be looked at again.
    doubtful: bool,
}

impl Families {
    /// Notes that the links or the eligibility of nodes have changed.
    pub(super) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// The time of the next turn, if nothing changes.
    fn next(&self) -> Option<Instant> {
        self.pairs.values().filter_map(|pair| Some(pair.since? + pair.delay())).min()
    }

    /// Looks at `now` at the nodes that can carry both families; returns the Services whose families are to
    /// be put apart or joined, and the time of the next look. `open`: the Services that changed.
    pub(super) fn weigh<'a>(
        &mut self,
        tables: &Tables,
        governing: &Governing,
        open: impl Iterator<Item = &'a ServiceKey>,
        now: Instant,
    ) -> (Vec<ServiceKey>, Option<Instant>) {
        let begun = std::mem::replace(&mut self.begun, true);
        let all = !begun || std::mem::take(&mut self.doubtful);
        let due = self.next().is_some_and(|at| at <= now);
        let keys: Vec<ServiceKey> = if all || due {
            tables.services().iter().map(|(key, _)| key.clone()).collect()
        } else {
            open.cloned().collect()
        };
        if all {
            let known = |own: &LeaseName| {
                let (namespace, name) = own.service()?;
                let key = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
                tables.services().get(&key)
            };
            self.pairs.retain(|own, _| known(own).is_some());
        }
        let mut turned = Vec::new();
        for key in keys {
            let Some(row) = tables.services().get(&key) else { continue };
            let addresses: AddressSet = row.present.iter().copied().collect();
            let own = LeaseName::claim(&key.namespace, &key.name);
            let Some(governance) = pairing(tables, governing, row, &addresses) else {
                self.pairs.remove(&own);
                continue;
            };
            let seen = are_apart(tables, governance, &addresses);
            let recorded = || row.claims().is_some_and(|claims| !claims.by_address.is_empty());
            let first =
                || Pair { apart: if begun { seen == Some(true) } else { recorded() }, since: None };
            let pair = self.pairs.entry(own).or_insert_with(first);
            if seen.is_none_or(|seen| seen == pair.apart) {
                pair.since = None;
                continue;
            }
            let since = *pair.since.get_or_insert(now);
            if now >= since + pair.delay() {
                *pair = Pair { apart: !pair.apart, since: None };
                turned.push(key);
            }
        }
        (turned, self.next())
    }

    /// The claims of single addresses that a Service is to have beside that of `decision`: of all but the
    /// first address where the policy demands it, or no node can carry both families, and the addresses are not
    /// shared.
    pub(super) fn by_address(
        &self,
        tables: &Tables,
        governing: &Governing,
        row: &ServiceRow,
        decision: &Decision,
    ) -> BTreeSet<LeaseName> {
        let request = tables.request(row);
        let policy = governing.of(request, decision).and_then(Governance::policy);
        let spread = policy.map_or(Spread::PerService, |policy| policy.spread);
        let own = request.is_some_and(|request| {
            request.sharing.is_none() && decision.claim.as_ref() == Some(&request.own_claim)
        });
        let apart =
            || spread != Spread::PerService || self.has_apart(tables, governing, row, decision);
        if !own || !apart() {
            return BTreeSet::new();
        }
        decision.addresses.iter().skip(1).map(|ip| LeaseName::address_claim(*ip)).collect()
    }

    /// Whether the families of a Service are to have claims of their own.
    fn has_apart(
        &self,
        tables: &Tables,
        governing: &Governing,
        row: &ServiceRow,
        decision: &Decision,
    ) -> bool {
        let addresses: AddressSet = decision.addresses.iter().copied().collect();
        let governance = pairing(tables, governing, row, &addresses);
        let (Some(request), Some(governance)) = (tables.request(row), governance) else {
            return false;
        };
        match self.pairs.get(&request.own_claim) {
            Some(pair) => pair.apart,
            None => are_apart(tables, governance, &addresses) == Some(true),
        }
    }
}

/// The governance of a Service that has addresses of both families; none where its claims do not depend on
/// them.
fn pairing<'a>(
    tables: &Tables,
    governing: &'a Governing,
    row: &ServiceRow,
    addresses: &AddressSet,
) -> Option<Governance<'a>> {
    let request = tables.request(row).filter(|request| request.sharing.is_none())?;
    let has = |is_ipv4| addresses.iter().any(|ip| ip.is_ipv4() == is_ipv4);
    if !has(true) || !has(false) {
        return None;
    }
    let pool = request.allocated_from.as_deref().unwrap_or_default();
    let governance = governing.governs(&request.labels, pool);
    let pairs = match governance {
        Governance::Policy(policy) | Governance::Unreadable(policy) => {
            policy.spread == Spread::PerService
        }
        Governance::Default => true,
        Governance::None => false,
    };
    pairs.then_some(governance)
}

/// Decides whether the families of these addresses need separate claims: no node can carry all of them by one
/// interface, and some node can carry those of one family; `None` where no node can carry any.
fn are_apart(tables: &Tables, governance: Governance<'_>, addresses: &AddressSet) -> Option<bool> {
    let policy = governance.policy();
    let interfaces = policy.map(|policy| policy.interfaces.as_slice()).unwrap_or_default();
    let return_path = policy.map(|policy| policy.return_path).unwrap_or_default();
    let allowed = |session: &SessionRow| {
        let holder = session.record.holder.as_ref();
        let node = holder.and_then(|node| tables.nodes().get(&node.to_string()));
        node.is_some_and(|node| {
            !node.is_excluded(Some(session))
                && policy.is_none_or(|policy| policy.allows_node(node.facts.labels()))
        })
    };
    let is_in_a_subnet =
        |ip: IpAddr| tables.sessions().iter().any(|(_, row)| has_subnet_of(&row.record, ip));
    let can = |addresses: &AddressSet| {
        let what = Carried { addresses, interfaces, return_path };
        let live = tables.sessions().iter().filter(|(_, row)| row.live.is_some());
        live.map(|(_, session)| session)
            .any(|session| allowed(session) && carries(what, &session.record, is_in_a_subnet))
    };
    if can(addresses) {
        return Some(false);
    }
    let family = |is_ipv4| -> AddressSet {
        addresses.iter().filter(|ip| ip.is_ipv4() == is_ipv4).copied().collect()
    };
    [true, false].into_iter().any(|it| can(&family(it))).then_some(true)
}

impl Pair {
    /// The time for which the other state has to be right before the pair turns to it.
    const fn delay(self) -> Duration {
        if self.apart { TOGETHER } else { APART }
    }
}
