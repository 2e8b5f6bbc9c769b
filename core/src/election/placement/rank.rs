//! Which node is to have which claim: pure functions that every speaker computes alike.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

/// How much nodes are preferred to those that are not named.
pub type Preference = BTreeMap<NodeName, u32>;

/// A claim without an owner.
#[derive(Clone, Debug)]
pub struct Unowned<'a> {
    /// Its name.
    pub name: &'a LeaseName,
    /// How many addresses it brings.
    pub addresses: usize,
    /// Who may take it. Unowned claims that the same nodes may take had best share the list: what is looked up for
    /// it is looked up once.
    pub candidates: Rc<[&'a NodeName]>,
    /// Who of them is preferred.
    pub preference: &'a Preference,
    /// Who takes it only after others had their turn.
    pub last: Vec<(&'a NodeName, Late)>,
    /// Claims that are better not on the same node, with the owners of those that have one.
    pub apart: Vec<(&'a LeaseName, Option<&'a NodeName>)>,
}

/// Why a candidate takes an unowned claim only after others. The later comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Late {
    /// It does not.
    #[default]
    No,
    /// It is fenced again and again, or not ready.
    Unfit,
    /// It has just lost it. Where no other is fit either, each of them is more likely to live.
    Gone,
}

/// How many of those that come before a node are named, and before how many none is: one whose turn comes so
/// late waits for others than the first.
pub(in crate::election) const NAMED: usize = 3;

pub(in crate::election) const MANY: usize = 16;

/// When it is whose turn to take an unowned claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Who acts first; none where there is no candidate.
    pub first: Option<&'a NodeName>,
    /// How many act before the node that was asked for; none where it is no candidate.
    pub place: Option<usize>,
    /// The first of them, in their order; none where they are many.
    pub ahead: Vec<&'a NodeName>,
}

/// For each unowned claim its candidates, the first to act first.
///
/// The unowned claims are placed jointly, in the order of their names: each goes to the most preferred
/// candidate, among equals to one that has none of the claims from which it is better apart, then to the
/// one with the fewest addresses (`loads`, and what was placed before), ties by rendezvous hash of
/// (claim, node). So a node's unowned claims spread over all survivors.
pub fn rank(
    unowned: &[Unowned<'_>],
    loads: &BTreeMap<NodeName, usize>,
) -> BTreeMap<LeaseName, Vec<NodeName>> {
    let orders = place(unowned, loads, |list, hash, _| {
        let mut order: Vec<&Candidate<'_>> = list.candidates.iter().collect();
        order.sort_unstable_by(|one, other| one.compare(other, hash));
        order.into_iter().map(|candidate| candidate.node.clone()).collect()
    });
    unowned.iter().map(|unowned| unowned.name.clone()).zip(orders).collect()
}

/// For each of `unowned` when it is the turn of `node`, in the order that [`rank`] says.
pub fn turns<'a>(
    unowned: &[Unowned<'a>],
    loads: &BTreeMap<NodeName, usize>,
    node: &NodeName,
) -> Vec<Turn<'a>> {
    place(unowned, loads, |list, hash, first| {
        let first = first.map(|candidate| candidate.node);
        let (place, ahead) = list.find(node).map(|own| list.before(own, hash)).unzip();
        Turn { first, place, ahead: ahead.unwrap_or_default() }
    })
}

/// Places the unowned claims, one after another. What `look` says of the candidates of each, as they stand before
/// it counts for the first of them, is returned in the order of `unowned`; it is given the hash of the
/// unowned claim's name, and that first one.
pub(in crate::election) fn place<'a, T>(
    unowned: &[Unowned<'a>],
    loads: &BTreeMap<NodeName, usize>,
    look: impl Fn(&List<'a>, u64, Option<&Candidate<'a>>) -> T,
) -> Vec<T> {
    let apart = unowned.iter().any(|unowned| !unowned.apart.is_empty());
    let placing: BTreeSet<&LeaseName> =
        unowned.iter().filter(|_| apart).map(|unowned| unowned.name).collect();
    let mut placed: BTreeMap<&LeaseName, &NodeName> = BTreeMap::new();
    let mut burdens = Burdens { before: loads, placed: BTreeMap::new(), added: Vec::new() };
    let mut lists: BTreeMap<*const &NodeName, List<'a>> = BTreeMap::new();
    let mut ordered: Vec<(usize, &Unowned<'a>)> = unowned.iter().enumerate().collect();
    ordered.sort_by_key(|(_, unowned)| unowned.name);
    let mut seen = Vec::new();
    for (number, unowned) in ordered {
        let list = lists
            .entry(unowned.candidates.as_ptr())
            .or_insert_with(|| List::new(&unowned.candidates, &burdens));
        list.catch_up(&burdens);
        let owner = |(name, owner): &(&LeaseName, Option<&'a NodeName>)| {
            if placing.contains(name) { placed.get(name).copied() } else { *owner }
        };
        let beside = unowned.apart.iter().filter_map(owner);
        let marked = list.mark(unowned, beside);
        let hash = name_hash(unowned.name.as_str());
        let first = list.first(hash);
        seen.push((number, look(list, hash, first)));
        if let Some(first) = first {
            burdens.add(first.node, unowned.addresses);
            if apart {
                placed.insert(unowned.name, first.node);
            }
        }
        list.unmark(&marked);
    }
    seen.sort_unstable_by_key(|(number, _)| *number);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

/// How many addresses each node has, with what was placed.
pub(in crate::election) struct Burdens<'a, 'b> {
    pub(in crate::election) before: &'b BTreeMap<NodeName, usize>,
    pub(in crate::election) placed: BTreeMap<&'a NodeName, usize>,
    /// What was placed, one after another.
    pub(in crate::election) added: Vec<(&'a NodeName, usize)>,
}

impl<'a> Burdens<'a, '_> {
    pub(in crate::election) fn of(&self, node: &NodeName) -> usize {
        let of = |loads: Option<&usize>| loads.copied().unwrap_or(0);
        of(self.before.get(node)) + of(self.placed.get(node))
    }

    pub(in crate::election) fn add(&mut self, node: &'a NodeName, addresses: usize) {
        *self.placed.entry(node).or_default() += addresses;
        self.added.push((node, addresses));
    }
}

/// One of those that may take an unowned claim.
pub(in crate::election) struct Candidate<'a> {
    pub(in crate::election) node: &'a NodeName,
    /// Of its name.
    pub(in crate::election) hash: u64,
    pub(in crate::election) load: usize,
    pub(in crate::election) merit: Merit,
}

/// What counts before the load. The best comes first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::election) struct Merit {
    pub(in crate::election) late: Late,
    pub(in crate::election) preference: Reverse<u32>,
    pub(in crate::election) near: usize,
}

impl Candidate<'_> {
    /// Who comes before whom where the hash of the unowned claim's name is `hash`.
    pub(in crate::election) fn compare(&self, other: &Self, hash: u64) -> Ordering {
        let weight = |it: &Self| Reverse(combined(hash, it.hash));
        self.merit
            .cmp(&other.merit)
            .then_with(|| self.load.cmp(&other.load))
            .then_with(|| weight(self).cmp(&weight(other)))
            .then_with(|| self.node.cmp(other.node))
    }
}

/// A list of candidates.
pub(in crate::election) struct List<'a> {
    pub(in crate::election) candidates: Vec<Candidate<'a>>,
    pub(in crate::election) positions: BTreeMap<&'a NodeName, usize>,
    /// How much of what was added their loads include.
    pub(in crate::election) included: usize,
}

impl<'a> List<'a> {
    pub(in crate::election) fn new(nodes: &[&'a NodeName], burdens: &Burdens<'a, '_>) -> Self {
        let candidate = |node: &&'a NodeName| Candidate {
            node,
            hash: name_hash(node.as_str()),
            load: burdens.of(node),
            merit: Merit::default(),
        };
        Self {
            candidates: nodes.iter().map(candidate).collect(),
            positions: nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect(),
            included: burdens.added.len(),
        }
    }

    pub(in crate::election) fn find(&self, node: &NodeName) -> Option<&Candidate<'a>> {
        self.candidates.get(*self.positions.get(node)?)
    }

    pub(in crate::election) fn find_mut(&mut self, node: &NodeName) -> Option<&mut Candidate<'a>> {
        self.candidates.get_mut(*self.positions.get(node)?)
    }

    /// Includes what was added since.
    pub(in crate::election) fn catch_up(&mut self, burdens: &Burdens<'a, '_>) {
        let new = burdens.added.get(self.included..).unwrap_or_default();
        if new.len() > self.candidates.len() {
            for candidate in &mut self.candidates {
                candidate.load = burdens.of(candidate.node);
            }
        } else {
            for (node, addresses) in new {
                if let Some(candidate) = self.find_mut(node) {
                    candidate.load += addresses;
                }
            }
        }
        self.included = burdens.added.len();
    }

    /// Notes what tells the candidates of `unowned` apart before their loads do, and returns whom it concerns.
    pub(in crate::election) fn mark<'b>(
        &mut self,
        unowned: &Unowned<'b>,
        beside: impl Iterator<Item = &'b NodeName>,
    ) -> Vec<&'b NodeName> {
        let last = unowned.last.iter().map(|(node, late)| (*node, Mark::Late(*late)));
        let preferred = unowned.preference.iter().map(|(node, it)| (node, Mark::Preferred(*it)));
        let near = beside.map(|node| (node, Mark::Near));
        let mut marked = Vec::new();
        for (node, mark) in last.chain(preferred).chain(near) {
            let Some(Candidate { merit, .. }) = self.find_mut(node) else { continue };
            match mark {
                Mark::Late(late) => merit.late = merit.late.max(late),
                Mark::Preferred(by) => merit.preference = Reverse(by),
                Mark::Near => merit.near += 1,
            }
            marked.push(node);
        }
        marked
    }

    pub(in crate::election) fn unmark(&mut self, marked: &[&NodeName]) {
        for node in marked {
            if let Some(candidate) = self.find_mut(node) {
                candidate.merit = Merit::default();
            }
        }
    }

    pub(in crate::election) fn first(&self, hash: u64) -> Option<&Candidate<'a>> {
        self.candidates.iter().min_by(|one, other| one.compare(other, hash))
    }

    /// How many come before `own`, and, where they are not many, the first of them.
    pub(in crate::election) fn before(
        &self,
        own: &Candidate<'_>,
        hash: u64,
    ) -> (usize, Vec<&'a NodeName>) {
        let ahead = || self.candidates.iter().filter(|it| it.compare(own, hash).is_lt());
        let count = ahead().count();
        if count > MANY {
            return (count, Vec::new());
        }
        let mut first: Vec<_> = ahead().collect();
        first.sort_unstable_by(|one, other| one.compare(other, hash));
        (count, first.into_iter().take(NAMED).map(|candidate| candidate.node).collect())
    }
}

/// What is known of one candidate of one unowned claim.
pub(in crate::election) enum Mark {
    Late(Late),
    Preferred(u32),
    Near,
}

pub(in crate::election) fn count(nodes: &[&NodeName], node: &NodeName) -> usize {
    nodes.iter().filter(|other| **other == node).count()
}

/// A claim that may go to a better node while its owner lives.
#[derive(Clone, Debug)]
pub struct Held<'a> {
    /// Its name.
    pub name: &'a LeaseName,
    /// How many addresses it brings.
    pub addresses: usize,
    /// Who has it.
    pub owner: &'a NodeName,
    /// Who else may have it, the owner left out.
    pub others: Vec<&'a NodeName>,
    /// Who is preferred.
    pub preference: &'a Preference,
    /// Whether it goes to a node that is preferred as much, but has fewer addresses.
    pub balance: bool,
    /// The owners of claims that are better not on the same node.
    pub apart: Vec<&'a NodeName>,
}

/// The claim that goes next, and to whom: first what a more preferred node may have, in the order of the
/// names; then what is beside a claim from which it is better apart; then what makes the greatest
/// difference between two nodes smaller, and brings none together.
///
/// Each move either raises the sum of the preferences or, at the same sum, parts more claims or, as many
/// being apart, makes the loads more even; so there is an end to them. Then of two nodes neither has two
/// addresses more than the other, as far as claims of one address, for which both are candidates alike
/// and which need not be apart from others, could change that.
pub fn next_move<'a>(
    claims: &[Held<'a>],
    loads: &BTreeMap<NodeName, usize>,
) -> Option<(&'a LeaseName, &'a NodeName)> {
    let load = |node: &NodeName| loads.get(node).copied().unwrap_or(0);
    let preferred =
        |claim: &Held<'_>, node: &NodeName| claim.preference.get(node).copied().unwrap_or(0);
    let better = claims.iter().filter_map(|claim| {
        let gain = |node: &&&NodeName| preferred(claim, node) > preferred(claim, claim.owner);
        let best = claim.others.iter().filter(gain).min_by_key(|node| {
            let weight = weight(claim.name.as_str(), node.as_str());
            (Reverse(preferred(claim, node)), load(node), Reverse(weight), **node)
        });
        Some((claim.name, *best?))
    });
    let evener = claims.iter().filter(|claim| claim.balance).flat_map(|claim| {
        let alike = |node: &&&NodeName| preferred(claim, node) == preferred(claim, claim.owner);
        claim.others.iter().filter(alike).filter_map(move |node| {
            let parted = count(&claim.apart, claim.owner).checked_sub(count(&claim.apart, node))?;
            let gain = load(claim.owner).checked_sub(load(node) + claim.addresses);
            let weight = weight(claim.name.as_str(), node.as_str());
            let better = parted > 0 || gain.is_some_and(|gain| gain > 0);
            better.then_some(((parted, gain, weight, Reverse(claim.name)), (claim.name, *node)))
        })
    });
    better.min().or_else(|| Some(evener.max()?.1))
}

/// The rendezvous weight of a pair of names: the same on every node and in every version.
pub fn weight(first: &str, second: &str) -> u64 {
    combined(name_hash(first), name_hash(second))
}

/// What of a name its weights with others are made from.
pub(in crate::election) fn name_hash(name: &str) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    name.hash(&mut hasher);
    hasher.finish()
}

/// The weight of two names of these hashes.
pub(in crate::election) const fn combined(first: u64, second: u64) -> u64 {
    // FNV alone leaves the upper bits of short names alike; the finaliser of SplitMix64 spreads
    // them. Turned, the same name twice does not cancel itself out.
    let mut value = first ^ second.rotate_left(32);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a: std's default hasher may differ between versions of Rust.
pub(in crate::election) struct Fnv(pub(in crate::election) u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(i: usize) -> NodeName {
        format!("node-{i}").parse().unwrap()
    }

    fn claims(n: usize) -> Vec<LeaseName> {
        (0..n).map(|i| LeaseName::claim("web", &format!("service-{i}"))).collect()
    }

    /// A claim of one address that all of `nodes` may take.
    fn unowned<'a>(
        name: &'a LeaseName,
        nodes: &'a [NodeName],
        preference: &'a Preference,
    ) -> Unowned<'a> {
        let candidates = nodes.iter().collect();
        let (last, apart) = Default::default();
        Unowned { name, addresses: 1, candidates, preference, last, apart }
    }

    fn firsts(ranking: &BTreeMap<LeaseName, Vec<NodeName>>) -> BTreeMap<NodeName, usize> {
        let mut count = BTreeMap::new();
        for candidates in ranking.values() {
            *count.entry(candidates[0].clone()).or_default() += 1;
        }
        count
    }

    #[test]
    fn a_hundred_unowned_spread_evenly_over_the_survivors() {
        let names = claims(100);
        let nodes: Vec<NodeName> = (0..3).map(node).collect();
        let anyone = Preference::new();
        let unowned: Vec<Unowned<'_>> =
            names.iter().map(|name| unowned(name, &nodes, &anyone)).collect();
        let loads = BTreeMap::from([(node(0), 10)]);
        let count = firsts(&rank(&unowned, &loads));
        let mut totals = [count[&node(0)] + 10, count[&node(1)], count[&node(2)]];
        totals.sort_unstable();
        assert_eq!(totals, [36, 37, 37]);
    }

    #[test]
    fn the_last_owner_comes_after_all_others() {
        let name = LeaseName::claim("web", "shop");
        let nodes: Vec<NodeName> = (0..4).map(node).collect();
        for last in &nodes {
            let anyone = Preference::new();
            let gone = vec![(last, Late::Gone)];
            let all_unfit = nodes.iter().map(|node| (node, Late::Unfit)).chain(gone.clone());
            // Whatever is known of the others, and whatever it had to carry.
            for late in [gone.clone(), all_unfit.collect()] {
                let unowned = Unowned { last: late, ..unowned(&name, &nodes, &anyone) };
                let loads = nodes.iter().filter(|node| *node != last);
                let loads = loads.map(|node| (node.clone(), 9)).collect();
                assert_eq!(rank(&[unowned], &loads)[&name].last(), Some(last));
            }
        }
    }

    #[test]
    fn a_turn_names_the_first_of_those_that_come_before() {
        let names = claims(20);
        let nodes: Vec<NodeName> = (0..7).map(node).collect();
        let anyone = Preference::new();
        let unowned: Vec<Unowned<'_>> =
            names.iter().map(|name| unowned(name, &nodes, &anyone)).collect();
        let ranking = rank(&unowned, &BTreeMap::new());
        for own in &nodes {
            for (name, turn) in names.iter().zip(turns(&unowned, &BTreeMap::new(), own)) {
                let place = ranking[name].iter().position(|node| node == own);
                assert_eq!((turn.place, turn.first), (place, ranking[name].first()));
                let before = ranking[name].iter().take(place.unwrap()).take(NAMED);
                assert_eq!(turn.ahead, before.collect::<Vec<_>>());
            }
        }
    }

    /// The addresses of services, two each under a claim of its own.
    fn pairs(n: usize) -> Vec<[LeaseName; 2]> {
        let claim = |kind: &str, i| LeaseName::claim(kind, &format!("service-{i}"));
        (0..n).map(|i| [claim("first", i), claim("second", i)]).collect()
    }

    fn of_pairs<'a>(
        pairs: &'a [[LeaseName; 2]],
        nodes: &'a [NodeName],
        preference: &'a Preference,
    ) -> Vec<Unowned<'a>> {
        let both = pairs.iter().flat_map(|[a, b]| [(a, b), (b, a)]);
        let apart = |(name, other)| Unowned {
            apart: vec![(other, None)],
            ..unowned(name, nodes, preference)
        };
        both.map(apart).collect()
    }

    #[test]
    fn the_addresses_of_a_service_are_apart_and_first_ones_not_all_on_one_node() {
        for nodes in 2..6 {
            let pairs = pairs(30);
            let nodes: Vec<NodeName> = (0..nodes).map(node).collect();
            let anyone = Preference::new();
            let ranking = rank(&of_pairs(&pairs, &nodes, &anyone), &BTreeMap::new());
            let mut firsts: BTreeMap<&NodeName, usize> = BTreeMap::new();
            let mut loads: BTreeMap<&NodeName, usize> = BTreeMap::new();
            for [first, second] in &pairs {
                let (first, second) = (&ranking[first][0], &ranking[second][0]);
                assert_ne!(first, second);
                *firsts.entry(first).or_default() += 1;
                for node in [first, second] {
                    *loads.entry(node).or_default() += 1;
                }
            }
            assert_eq!(firsts.len(), nodes.len(), "{firsts:?}");
            let (max, min) = (loads.values().max().unwrap(), loads.values().min().unwrap());
            assert!(max - min <= 2, "{loads:?}");
        }
    }

    #[test]
    fn an_address_keeps_apart_from_one_that_has_an_owner_but_not_for_a_less_preferred_node() {
        let [[first, second]] = &pairs(1)[..] else { panic!("a pair") };
        let nodes: Vec<NodeName> = (0..3).map(node).collect();
        for owner in &nodes {
            let anyone = Preference::new();
            let apart = vec![(first, Some(owner))];
            let lost = Unowned { apart: apart.clone(), ..unowned(second, &nodes, &anyone) };
            assert_eq!(rank(&[lost], &BTreeMap::new())[second].last(), Some(owner));
            let preference = Preference::from([(owner.clone(), 1)]);
            let lost = Unowned { apart, ..unowned(second, &nodes, &preference) };
            assert_eq!(rank(&[lost], &BTreeMap::new())[second].first(), Some(owner));
        }
    }

    #[test]
    fn balance_parts_what_is_better_apart_and_brings_none_together() {
        let [[first, second]] = &pairs(1)[..] else { panic!("a pair") };
        let (a, b) = (node(0), node(1));
        let anyone = Preference::new();
        let held = |name, owner, other, beside| Held {
            name,
            addresses: 1,
            owner,
            others: vec![other],
            preference: &anyone,
            balance: true,
            apart: vec![beside],
        };
        let loads = |a_has, b_has| BTreeMap::from([(a.clone(), a_has), (b.clone(), b_has)]);
        let together = [held(first, &a, &b, &a), held(second, &a, &b, &a)];
        assert!(next_move(&together, &loads(2, 9)).is_some());
        let apart = [held(first, &a, &b, &b), held(second, &b, &a, &a)];
        assert_eq!(next_move(&apart, &loads(9, 1)), None);
    }

    #[test]
    fn the_weight_is_the_same_for_ever() {
        assert_eq!(weight("web.shop", "node-1"), 4_113_461_947_375_139_441);
    }

    /// Who has which claim, on which nodes; each claim brings one address, and everybody may have it.
    #[derive(Clone, Debug, Default)]
    struct Cluster {
        nodes: Vec<NodeName>,
        owners: BTreeMap<LeaseName, NodeName>,
        preference: Preference,
    }

    impl Cluster {
        fn loads(&self) -> BTreeMap<NodeName, usize> {
            let mut loads: BTreeMap<NodeName, usize> =
                self.nodes.iter().map(|node| (node.clone(), 0)).collect();
            for owner in self.owners.values() {
                *loads.get_mut(owner).unwrap() += 1;
            }
            loads
        }

        /// By how much the loads of two nodes that are preferred alike differ at most.
        fn spread(&self) -> usize {
            let loads = self.loads();
            let most = self.nodes.iter().map(|node| self.preferred(node)).max().unwrap_or(0);
            let alike = || self.nodes.iter().filter(|node| self.preferred(node) == most);
            let (max, min) = (alike().map(|n| loads[n]).max(), alike().map(|n| loads[n]).min());
            max.unwrap_or(0) - min.unwrap_or(0)
        }

        fn preferred(&self, node: &NodeName) -> u32 {
            self.preference.get(node).copied().unwrap_or(0)
        }

        /// Gives claims that nobody has to nodes, all at once.
        fn place(&mut self, names: &[LeaseName]) {
            if self.nodes.is_empty() {
                return;
            }
            let loads = self.loads();
            let unowned = names.iter().map(|name| unowned(name, &self.nodes, &self.preference));
            let ranking = rank(&unowned.collect::<Vec<_>>(), &loads);
            self.owners
                .extend(ranking.into_iter().map(|(name, mut nodes)| (name, nodes.remove(0))));
        }

        fn next(&self, balance: bool) -> Option<(LeaseName, NodeName)> {
            let held = self.owners.iter().map(|(name, owner)| Held {
                name,
                addresses: 1,
                owner,
                others: self.nodes.iter().filter(|node| *node != owner).collect(),
                preference: &self.preference,
                balance,
                apart: Vec::new(),
            });
            let (name, node) = next_move(&held.collect::<Vec<_>>(), &self.loads())?;
            Some((name.clone(), node.clone()))
        }

        /// A node goes; its claims are placed anew. Nodes that come get nothing by that alone.
        fn change(&mut self, step: Step) -> Vec<LeaseName> {
            match step {
                Step::Join(number) => {
                    let node = node(number);
                    if !self.nodes.contains(&node) {
                        self.nodes.push(node);
                    }
                    Vec::new()
                }
                Step::Leave(number) => {
                    let gone = node(number);
                    if self.nodes.len() < 2 || !self.nodes.contains(&gone) {
                        return Vec::new();
                    }
                    self.nodes.retain(|node| *node != gone);
                    let lost = self.owners.iter().filter(|(_, owner)| **owner == gone);
                    let lost: Vec<LeaseName> = lost.map(|(name, _)| name.clone()).collect();
                    self.owners.retain(|_, owner| *owner != gone);
                    self.place(&lost);
                    lost
                }
                Step::Create(number) => {
                    let name = LeaseName::claim("web", &format!("service-{number}"));
                    if self.owners.contains_key(&name) || self.nodes.is_empty() {
                        return Vec::new();
                    }
                    self.place(std::slice::from_ref(&name));
                    vec![name]
                }
                Step::Delete(number) => {
                    let name = LeaseName::claim("web", &format!("service-{number}"));
                    self.owners.remove(&name);
                    vec![name]
                }
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Join(usize),
        Leave(usize),
        Create(usize),
        Delete(usize),
    }

    fn walk() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            1 => (0usize..7).prop_map(Step::Join),
            1 => (0usize..7).prop_map(Step::Leave),
            4 => (0usize..80).prop_map(Step::Create),
            2 => (0usize..80).prop_map(Step::Delete),
        ];
        prop::collection::vec(step, 500)
    }

    #[test]
    fn a_hundred_new_services_on_five_nodes_differ_by_at_most_one() {
        let mut cluster = Cluster { nodes: (0..5).map(node).collect(), ..Cluster::default() };
        for number in 0..100 {
            cluster.change(Step::Create(number));
        }
        assert_eq!(cluster.loads().into_values().collect::<Vec<_>>(), [20; 5]);
    }

    #[test]
    fn preferred_nodes_come_first_and_are_returned_to() {
        let (a, b, c) = (node(0), node(1), node(2));
        let preference = Preference::from([(a.clone(), 10), (b.clone(), 10)]);
        let nodes = vec![a.clone(), b.clone(), c.clone()];
        let mut cluster = Cluster { nodes, preference, ..Cluster::default() };
        for number in 0..10 {
            cluster.change(Step::Create(number));
        }
        let counts = |cluster: &Cluster| cluster.loads().into_values().collect::<Vec<_>>();
        assert_eq!(counts(&cluster), [5, 5, 0]);
        cluster.change(Step::Leave(0));
        assert_eq!(counts(&cluster), [10, 0]);
        cluster.change(Step::Leave(1));
        assert_eq!(counts(&cluster), [10]);
        cluster.change(Step::Join(0));
        let mut moves = 0;
        while let Some((name, to)) = cluster.next(false) {
            assert_eq!(to, a);
            cluster.owners.insert(name, to);
            moves += 1;
        }
        assert_eq!((moves, counts(&cluster)), (10, vec![10, 0]));
        // Without `Balance` the other preferred node gets nothing back.
        cluster.change(Step::Join(1));
        assert_eq!(cluster.next(false), None);
        while let Some((name, to)) = cluster.next(true) {
            cluster.owners.insert(name, to);
        }
        assert_eq!(counts(&cluster), [5, 5, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_valid_owner_stays_whatever_else_happens(steps in walk()) {
            let nodes = (0..4).map(node).collect();
            let mut cluster = Cluster { nodes, ..Cluster::default() };
            for step in steps {
                let before = cluster.clone();
                let placed = cluster.change(step);
                for (name, owner) in &before.owners {
                    prop_assert!(placed.contains(name) || cluster.owners.get(name) == Some(owner));
                }
                // Whoever got something had no more than anybody else before the last of it.
                let loads = cluster.loads();
                let receivers = placed.iter().filter_map(|name| cluster.owners.get(name));
                let least = loads.values().min().copied().unwrap_or(0);
                for receiver in receivers {
                    prop_assert!(loads[receiver] <= least + 1, "{step:?}: {loads:?}");
                }
            }
        }

        #[test]
        fn balance_ends_with_nodes_that_differ_by_at_most_one(
            steps in walk(),
            preferred in prop::collection::vec(0usize..7, 0..3),
        ) {
            let preference = preferred.into_iter().map(|number| (node(number), 10)).collect();
            let nodes = (0..4).map(node).collect();
            let mut cluster = Cluster { nodes, preference, ..Cluster::default() };
            for step in steps {
                cluster.change(step);
                let loads = cluster.loads();
                let fair = cluster.owners.len() / cluster.nodes.len();
                let above: usize = loads.values().map(|load| load.saturating_sub(fair)).sum();
                let mut moves = 0;
                while let Some((name, to)) = cluster.next(true) {
                    prop_assert!(cluster.preferred(&to) >= cluster.preferred(&cluster.owners[&name]));
                    cluster.owners.insert(name, to);
                    moves += 1;
                    prop_assert!(moves <= 2 * cluster.owners.len(), "it never ends");
                }
                prop_assert!(cluster.spread() <= 1);
                // No more goes than has to.
                prop_assert!(!cluster.preference.is_empty() || moves <= above);
            }
        }

        #[test]
        fn the_order_of_the_input_does_not_matter(
            n in 1usize..40,
            nodes in 1usize..6,
            seed in any::<u64>(),
        ) {
            let names = claims(n);
            let nodes: Vec<NodeName> = (0..nodes).map(node).collect();
            let anyone = Preference::new();
            let unowned: Vec<Unowned<'_>> = names
                .iter()
                .map(|name| unowned(name, &nodes, &anyone))
                .collect();
            let mut shuffled = unowned.clone();
            shuffled.sort_by_key(|unowned| weight(unowned.name.as_str(), &seed.to_string()));
            for unowned in &mut shuffled {
                unowned.candidates = unowned.candidates.iter().rev().copied().collect();
            }
            prop_assert_eq!(
                rank(&unowned, &BTreeMap::new()),
                rank(&shuffled, &BTreeMap::new())
            );
        }
    }
}
