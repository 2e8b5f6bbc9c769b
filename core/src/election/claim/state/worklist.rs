//! The claims that the next pass looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::{LeaseName, SessionId};

use crate::clock::Instant;
use crate::desired::Desired;
use crate::election::claim::state::timers::{For, Waiting};
use crate::election::session::state::own::Ending;

/// The claims that are not settled, as far as is known.
#[derive(Debug)]
pub(in crate::election) struct Open {
    pub(in crate::election::claim) names: BTreeSet<LeaseName>,
    /// Those at which nothing is to be done before their time.
    pub(in crate::election::claim) waiting: Waiting,
    /// Something has changed that all claims rest on: each of them is looked at.
    pub(in crate::election::claim) all: bool,
    /// The nodes whose sessions have changed since the last pass.
    pub(in crate::election::claim) nodes: BTreeSet<LeaseName>,
    /// The revision of the sessions up to which that is known.
    pub(in crate::election::claim) sessions: u64,
    /// The facts on which all claims rest, as they were at the last pass.
    pub(in crate::election::claim) session: Option<SessionId>,
    pub(in crate::election::claim) ending: Ending,
    /// The claims that govern each address that is asked for.
    governing: BTreeMap<IpAddr, Vec<LeaseName>>,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            names: BTreeSet::new(),
            waiting: Waiting::default(),
            all: true,
            nodes: BTreeSet::new(),
            sessions: 0,
            session: None,
            ending: Ending::No,
            governing: BTreeMap::new(),
        }
    }
}

impl Open {
    /// The next pass looks at this claim.
    pub(in crate::election) fn note(&mut self, name: &LeaseName) {
        if !self.names.contains(name) {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The next pass looks at all that waits.
    pub(in crate::election) fn note_waiting(&mut self) {
        self.names.extend(std::mem::take(&mut self.waiting).into_names());
    }

    /// The next pass looks at all claims.
    pub(in crate::election) const fn note_all(&mut self) {
        self.all = true;
    }

    /// Something was said of this session, which has taken the revision of all from `before` to `now`: the
    /// next pass looks at what its node holds.
    pub(in crate::election) fn note_session(&mut self, name: LeaseName, before: u64, now: u64) {
        if before != now && self.sessions == before {
            self.sessions = now;
            self.nodes.insert(name);
        }
    }

    /// The next pass looks at the claims of the addresses of which one map says something and the
    /// other does not.
    pub(in crate::election) fn note_changed<T, U>(
        &mut self,
        before: &BTreeMap<IpAddr, T>,
        now: &BTreeMap<IpAddr, U>,
    ) {
        let gone = before.keys().filter(|address| !now.contains_key(address));
        let new = now.keys().filter(|address| !before.contains_key(address));
        for address in gone.chain(new) {
            self.note_address(*address);
        }
    }

    /// The next pass looks at the claims of this address.
    pub(in crate::election) fn note_address(&mut self, address: IpAddr) {
        for name in self.governing.get(&address).into_iter().flatten() {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The cluster asks for something else of these claims, or, where nodes have changed, of all.
    pub(in crate::election) fn note_desired(
        &mut self,
        before: Option<&Desired>,
        desired: &Desired,
        changed: &[LeaseName],
    ) {
        self.all |= before.is_none_or(|before| before.nodes != desired.nodes);
        for name in changed {
            let addresses = |desired: &Desired| {
                let claim = desired.claims.get(name);
                claim.map(|claim| claim.addresses.clone()).unwrap_or_default()
            };
            for address in before.map(addresses).into_iter().flatten() {
                if let Some(names) = self.governing.get_mut(&address) {
                    names.retain(|known| known != name);
                    if names.is_empty() {
                        self.governing.remove(&address);
                    }
                }
            }
            for address in addresses(desired) {
                let names = self.governing.entry(address).or_insert_with(|| Vec::with_capacity(1));
                let at = names.partition_point(|known| known < name);
                names.insert(at, name.clone());
            }
            self.note(name);
        }
    }

    /// The claims that are not settled, in the order of their names.
    pub(in crate::election) fn iter(&self) -> impl Iterator<Item = &LeaseName> {
        self.names.iter()
    }

    /// Those that wait, and are not looked at before their time.
    pub(in crate::election) fn waiting(&self) -> impl Iterator<Item = &LeaseName> {
        self.waiting.names()
    }

    /// When the first of them is due.
    pub(in crate::election) fn first_due(&self) -> Option<Instant> {
        self.waiting.first_due()
    }

    /// Takes out the unowned claim that has waited longest for a write to be answered; the next pass looks at it.
    pub(in crate::election) fn next_for_room(&mut self) -> Option<LeaseName> {
        let name = self.waiting.next_for_room()?;
        self.names.insert(name.clone());
        Some(name)
    }

    /// Nothing is to be done about this claim.
    pub(in crate::election) fn close(&mut self, name: &LeaseName) {
        self.names.remove(name);
    }

    /// Nothing is to be done about this claim before that.
    pub(in crate::election) fn wait(&mut self, name: &LeaseName, what: For) {
        self.names.remove(name);
        self.waiting.insert(name.clone(), what);
    }

    /// Whether the next pass looks at this claim, or one that comes.
    pub(in crate::election) fn contains(&self, name: &LeaseName) -> bool {
        self.names.contains(name) || self.waiting.contains(name)
    }

    /// The claims that are asked for with this address.
    pub(in crate::election) fn governing(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = &LeaseName> {
        self.governing.get(&address).into_iter().flatten()
    }
}
