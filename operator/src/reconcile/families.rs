//! Services with an address of each family: whether one claim governs both.
//!
//! A claim is carried by one interface of one node. Where no node has an interface that can carry both
//! families, and some have one for either, each family has a claim of its own: it lives by itself, on another
//! interface of the same node or on another node, and one that nobody can carry takes the other nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold::lease::{Carried, carries, has_subnet_of};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::{Governance, Spread};

use super::index::Index;
use super::leases::SessionRow;
use super::service::ServiceRow;
use crate::allocate::{Decision, ServiceKey};
use crate::clock::Instant;

/// For how long no node must have been able to carry both before they are put apart: links come and go.
const APART: Duration = Duration::from_secs(5);
/// For how long one must have been able to before they are joined again: until then nobody misses anything.
const TOGETHER: Duration = Duration::from_secs(60);

/// What is known of one Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    apart: bool,
    /// Since when it should be otherwise.
    since: Option<Instant>,
}

/// Which Services have their families apart, by their own claims.
#[derive(Debug, Default)]
pub(super) struct Families {
    pairs: BTreeMap<LeaseName, Pair>,
    /// Whether the first look is over: until then Services have what is on record.
    begun: bool,
    doubtful: bool,
}

impl Families {
    /// What nodes can carry, or who may, has changed.
    pub(super) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    fn next(&self) -> Option<Instant> {
        self.pairs.values().filter_map(|pair| Some(pair.since? + pair.delay())).min()
    }
}

impl Index {
    /// Looks at `now` which nodes can carry what; opens the Services whose families are to be put apart or
    /// joined. Returns when to look again.
    pub fn weigh_families(&mut self, now: Instant) -> Option<Instant> {
        let mut families = std::mem::take(&mut self.families);
        let begun = std::mem::replace(&mut families.begun, true);
        let all = !begun || std::mem::take(&mut families.doubtful);
        let due = families.next().is_some_and(|at| at <= now);
        let keys: Vec<ServiceKey> = if all || due {
            self.services.iter().map(|(key, _)| key.clone()).collect()
        } else {
            self.ledger.open().cloned().collect()
        };
        if all {
            let known = |own: &LeaseName| {
                let (namespace, name) = own.service()?;
                let key = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
                self.services.get(&key)
            };
            families.pairs.retain(|own, _| known(own).is_some());
        }
        let mut turned = Vec::new();
        for key in keys {
            let Some(row) = self.services.get(&key) else { continue };
            let addresses: AddressSet = row.present.iter().copied().collect();
            let own = LeaseName::claim(&key.namespace, &key.name);
            let Some(governance) = self.pairing(row, &addresses) else {
                families.pairs.remove(&own);
                continue;
            };
            let seen = self.are_apart(governance, &addresses);
            let recorded = || row.claims().is_some_and(|claims| !claims.by_address.is_empty());
            let first =
                || Pair { apart: if begun { seen == Some(true) } else { recorded() }, since: None };
            let pair = families.pairs.entry(own).or_insert_with(first);
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
        let next = families.next();
        self.families = families;
        for key in &turned {
            self.ledger.open_again(key, &self.pool_map);
        }
        next
    }

    /// Whether the families of a Service are to have claims of their own.
    pub(super) fn has_families_apart(&self, row: &ServiceRow, decision: &Decision) -> bool {
        let addresses: AddressSet = decision.addresses.iter().copied().collect();
        let (Some(wish), Some(governance)) = (self.wish(row), self.pairing(row, &addresses)) else {
            return false;
        };
        match self.families.pairs.get(&wish.own_claim) {
            Some(pair) => pair.apart,
            None => self.are_apart(governance, &addresses) == Some(true),
        }
    }

    /// What governs a Service that has addresses of both families; none where something else says which claims
    /// it has.
    fn pairing(&self, row: &ServiceRow, addresses: &AddressSet) -> Option<Governance<'_>> {
        let wish = self.wish(row).filter(|wish| wish.sharing.is_none())?;
        let has = |is_ipv4| addresses.iter().any(|ip| ip.is_ipv4() == is_ipv4);
        if !has(true) || !has(false) {
            return None;
        }
        let pool = wish.allocated_from.as_deref().unwrap_or_default();
        let governance = self.governing.governs(&wish.labels, pool);
        let pairs = match governance {
            Governance::Policy(policy) | Governance::Unreadable(policy) => {
                policy.spread == Spread::PerService
            }
            Governance::Default => true,
            Governance::None => false,
        };
        pairs.then_some(governance)
    }

    /// Whether no node can carry all of these addresses by one interface, and some node those of a family;
    /// none where no node can carry anything: then nothing is known.
    fn are_apart(&self, governance: Governance<'_>, addresses: &AddressSet) -> Option<bool> {
        let policy = governance.policy();
        let interfaces = policy.map(|policy| policy.interfaces.as_slice()).unwrap_or_default();
        let allowed = |session: &SessionRow| {
            let holder = session.record.holder.as_ref();
            let node = holder.and_then(|node| self.nodes.get(&node.to_string()));
            node.is_some_and(|node| {
                !node.is_excluded(Some(session))
                    && policy.is_none_or(|policy| policy.allows_node(node.facts.labels()))
            })
        };
        let can = |addresses: &AddressSet| {
            let what = Carried { addresses, interfaces };
            let live = self.sessions.iter().filter(|(_, row)| row.live.is_some());
            live.map(|(_, session)| session).any(|session| {
                allowed(session) && carries(what, &session.record, |ip| self.is_in_a_subnet(ip))
            })
        };
        if can(addresses) {
            return Some(false);
        }
        let family = |is_ipv4| -> AddressSet {
            addresses.iter().filter(|ip| ip.is_ipv4() == is_ipv4).copied().collect()
        };
        [true, false].into_iter().any(|it| can(&family(it))).then_some(true)
    }

    fn is_in_a_subnet(&self, ip: IpAddr) -> bool {
        self.sessions.iter().any(|(_, row)| has_subnet_of(&row.record, ip))
    }
}

impl Pair {
    const fn delay(self) -> Duration {
        if self.apart { TOGETHER } else { APART }
    }
}
