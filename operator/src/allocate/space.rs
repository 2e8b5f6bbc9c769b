//! The address space during one plan: held, leaving and free addresses.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::Peekable;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::{Family, IpRange};

use super::decision::Lost;
use super::failure::Failure;
use super::occupancy::Occupancy;
use super::pool_map::{Domain, Rules};
use super::sharing::{Apart, Borders, Clash, Holding, Meeting, Party};
use super::state::{Service, State};
use super::types::ServiceKey;
use super::usage::Usage;

/// The addresses during one plan. What is held stays in use until the plan is complete.
pub(super) struct Space<'a> {
    state: &'a State<'a>,
    held: BTreeMap<IpAddr, Holding<'a>>,
    /// The services that may still have an address although it is no longer, or will not be, theirs. No
    /// service that could not share it with them gets it before their status is written.
    leaving: BTreeMap<IpAddr, Vec<Party<'a>>>,
    meeting: Meeting<'a>,
    cursors: BTreeMap<(&'a str, Family), Cursor<'a>>,
    /// The addresses in quarantine, the first freed first.
    quarantine: BTreeMap<(&'a str, Family), VecDeque<IpAddr>>,
    former: BTreeMap<&'a ServiceKey, Vec<IpAddr>>,
    /// The claims under which services have addresses that are not named after them.
    lent: BTreeSet<&'a LeaseName>,
}

/// The position of the search for the lowest free address of a pool. It never goes back: no address becomes
/// free during a plan.
struct Cursor<'a> {
    ranges: &'a [IpRange],
    next: Option<IpAddr>,
    /// The occupied addresses, from there on.
    occupied: Peekable<Box<dyn Iterator<Item = IpAddr> + 'a>>,
    /// The first address that was passed over because it is still being given up.
    releasing: Option<IpAddr>,
}

impl<'a> Cursor<'a> {
    fn new(ranges: &'a [IpRange], occupancy: &'a Occupancy) -> Self {
        let next = ranges.first().map(IpRange::first);
        let occupied: Box<dyn Iterator<Item = IpAddr>> = match next {
            Some(first) => Box::new(occupancy.from(first)),
            None => Box::new(std::iter::empty()),
        };
        Self { ranges, next, occupied: occupied.peekable(), releasing: None }
    }

    /// Whether `ip` is occupied; each call is for a higher address.
    fn is_occupied(&mut self, ip: IpAddr) -> bool {
        while self.occupied.next_if(|occupied| *occupied < ip).is_some() {}
        self.occupied.peek() == Some(&ip)
    }

    fn advance(&mut self) {
        let (Some(ip), Some((range, rest))) = (self.next, self.ranges.split_first()) else {
            return;
        };
        self.next = range.next_after(ip);
        if self.next.is_none() {
            self.ranges = rest;
            self.next = rest.first().map(IpRange::first);
        }
    }
}

impl<'a> Space<'a> {
    pub(super) fn new(state: &'a State<'a>) -> Self {
        let mut space = Self {
            state,
            held: BTreeMap::new(),
            leaving: BTreeMap::new(),
            meeting: Meeting::default(),
            cursors: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            former: BTreeMap::new(),
            lent: BTreeSet::new(),
        };
        for departing in &state.departing {
            let party = Party { key: departing.key, terms: departing.sharing };
            space.leave(departing.address, party);
        }
        for service in state.services.values() {
            let claim = service.claim.as_ref().filter(|claim| **claim != service.own_claim);
            space.lent.extend(claim.filter(|_| !service.present.is_empty()));
        }
        let mut quarantine: Vec<_> = state.quarantine.iter().collect();
        quarantine.sort_by_key(|(ip, freed)| (freed.since, **ip));
        for (ip, freed) in quarantine {
            space.former.entry(&freed.former).or_default().push(*ip);
            if let Some(pool) = state.pool_map.owner(*ip) {
                space.quarantine.entry((pool, Family::of(*ip))).or_default().push_back(*ip);
            }
        }
        space
    }

    // === holders ===

    /// Notes that `party` may still have `ip`.
    pub(super) fn leave(&mut self, ip: IpAddr, party: Party<'a>) {
        self.leaving.entry(ip).or_default().push(party);
    }

    /// Lets `party` have `ip` under `claim`, as [`Space::obstacle`] allowed.
    pub(super) fn hold(&mut self, ip: IpAddr, party: Party<'a>, claim: &LeaseName) {
        match self.held.entry(ip) {
            Entry::Occupied(mut holding) => holding.get_mut().add(party),
            Entry::Vacant(vacant) => {
                self.meeting.open(ip, &party, claim);
                vacant.insert(Holding::new(claim.clone(), party));
            }
        }
    }

    /// Lets `party` keep `ip` under `claim`, if those that keep it already share it; else returns the one that
    /// does not, if that is the reason.
    pub(super) fn keep(
        &mut self,
        ip: IpAddr,
        party: Party<'a>,
        claim: &LeaseName,
    ) -> Result<(), Option<Lost>> {
        if let Some(holding) = self.held.get(&ip) {
            // Those that share it already may go on, whatever the pool says by now.
            let recorded = self.state.services.get(party.key).and_then(|it| it.claim.as_ref());
            let shared = recorded == Some(holding.claim());
            let borders = (!shared).then(|| self.borders(ip));
            if let Some((owner, clash)) = holding.clash(&party, borders) {
                return Err(Some(Lost { address: ip, owner: owner.clone(), clash }));
            }
            if holding.claim() != claim {
                return Err(None);
            }
        }
        self.hold(ip, party, claim);
        Ok(())
    }

    /// Takes `ip` from `party`, which has it still.
    pub(super) fn part(&mut self, ip: IpAddr, party: Party<'a>) {
        if self.held.get_mut(&ip).is_some_and(|holding| !holding.remove(party.key)) {
            self.held.remove(&ip);
        }
        self.leave(ip, party);
    }

    /// The claim under which a service has `ip`.
    pub(super) fn claim_of(&self, ip: IpAddr) -> Option<LeaseName> {
        let held = self.held.get(&ip).map(|holding| holding.claim().clone());
        let occupied = || self.state.occupancy.holder(ip);
        held.or_else(|| occupied().map(|key| LeaseName::claim(&key.namespace, &key.name)))
    }

    /// The service that has `ip` by the best right.
    pub(super) fn first_of(&self, ip: IpAddr) -> Option<&'a ServiceKey> {
        self.held.get(&ip)?.first()
    }

    /// Whether `key` has `ip`.
    pub(super) fn has(&self, ip: IpAddr, key: &ServiceKey) -> bool {
        self.held.get(&ip).is_some_and(|holding| holding.has(key))
    }

    /// The claim for a service that gets `ip` and has nothing yet: its own, unless others have
    /// addresses under that.
    pub(super) fn new_claim(&self, service: &Service, ip: IpAddr) -> LeaseName {
        match self.own_claim(service) {
            Some(own) => own.clone(),
            None => LeaseName::address_claim(ip),
        }
    }

    /// The reason for which `party` does not share the address of this family that the older services of its
    /// key have; none where it has that, or could.
    pub(super) fn apart(&self, party: &Party<'a>, family: Family) -> Option<Apart> {
        let address = self.meeting.eldest(party, family)?;
        let holding = self.held.get(&address).filter(|_| !self.has(address, party.key))?;
        let (owner, clash) = holding.clash(party, None)?;
        // A service does not expect to share with one of another namespace.
        let near = owner.namespace == party.key.namespace
            || self.borders(address).sharing == Sharing::AnyNamespace;
        near.then(|| Apart { address, owner: owner.clone(), clash })
    }

    /// The claim that is named after the service, unless others have addresses under it.
    pub(super) fn own_claim<'s>(&self, service: &'s Service) -> Option<&'s LeaseName> {
        (!self.lent.contains(&service.own_claim)).then_some(&service.own_claim)
    }

    /// The rules of the pool that owns `ip` about sharing.
    fn borders(&self, ip: IpAddr) -> Borders<'a> {
        match self.state.pool_map.holder(ip) {
            Some((pool, domain)) => Borders { pool: Some(pool), sharing: domain.rules.sharing },
            None => Borders { pool: None, sharing: Sharing::SameNamespace },
        }
    }

    // === obstacles ===

    /// The obstacle that keeps `party` from getting `ip` under `claim`.
    pub(super) fn obstacle(
        &self,
        ip: IpAddr,
        party: &Party<'a>,
        claim: &LeaseName,
    ) -> Option<Failure> {
        let in_use = |owner: &ServiceKey, clash| {
            Some(Failure::InUse { address: ip, owner: owner.to_string(), clash })
        };
        let borders = Some(self.borders(ip));
        let holding = self.held.get(&ip);
        if let Some((owner, clash)) = holding.and_then(|holding| holding.clash(party, borders)) {
            return in_use(owner, clash);
        }
        if let Some(owner) = self.state.occupancy.holder(ip) {
            return in_use(owner, Clash::NoKey);
        }
        if let Some(owner) = self.state.foreign.get(&ip).and_then(BTreeSet::last) {
            return in_use(owner, Clash::Foreign);
        }
        if let Some(node) = self.state.nodes.get(&ip) {
            return Some(Failure::OfNode { address: ip, node: node.clone() });
        }
        if let Some(why) = self.state.pool_map.unusable(ip) {
            return Some(Failure::Unusable { address: ip, why });
        }
        if let Some((pool, domain)) = self.state.pool_map.holder(ip)
            && !domain.rules.offers(ip)
        {
            return Some(Failure::LeftOut { address: ip, pool: pool.to_owned() });
        }
        let stays = |other: &&Party<'a>| {
            other.key != party.key && (holding.is_none() || party.clash(other, borders).is_some())
        };
        if let Some(other) = self.leaving.get(&ip).into_iter().flatten().find(stays) {
            return Some(Failure::Releasing { address: ip, by: format!("service {}", other.key) });
        }
        let other = self.state.listed.of(ip).find(|other| *other != claim)?;
        Some(Failure::Releasing { address: ip, by: format!("claim {other}") })
    }

    // === free addresses ===

    /// An address that others of its kind have under `claim` and `party` may join.
    pub(super) fn joinable(
        &self,
        pool: &str,
        family: Family,
        party: &Party<'a>,
        claim: &LeaseName,
    ) -> Option<IpAddr> {
        party.terms?;
        let of_pool = |ip: &IpAddr| self.is_of(*ip, pool, family) && !self.has(*ip, party.key);
        let mut addresses = self.meeting.under(claim).iter().copied().filter(of_pool);
        addresses
            .find(|ip| self.held.contains_key(ip) && self.obstacle(*ip, party, claim).is_none())
    }

    /// The first of the addresses that `party` may find room at, by [`Space::candidate`].
    pub(super) fn first_candidate(&mut self, party: &Party<'a>) -> usize {
        self.meeting.start(party, &self.held)
    }

    /// One of the addresses that others of the kind of `party` have.
    pub(super) fn candidate(&self, party: &Party<'a>, index: usize) -> Option<IpAddr> {
        self.meeting.candidate(party, index)
    }

    /// An address of `pool` that `claim` alone lists.
    pub(super) fn listed_alone(
        &self,
        pool: &str,
        family: Family,
        party: &Party<'a>,
        claim: &LeaseName,
    ) -> Option<IpAddr> {
        let mut addresses = self.state.listed.under(claim);
        addresses.find(|ip| {
            self.state.listed.only(*ip).is_some() && self.is_vacant(*ip, pool, family, party, claim)
        })
    }

    /// An address of `pool` that `party` itself had a moment ago.
    pub(super) fn formerly_own(
        &self,
        pool: &str,
        family: Family,
        party: &Party<'a>,
        claim: Option<&LeaseName>,
    ) -> Option<IpAddr> {
        let mut addresses = self.former.get(party.key)?.iter().rev().copied();
        addresses.find(|ip| {
            let own = || LeaseName::address_claim(*ip);
            let claim = claim.cloned().unwrap_or_else(own);
            self.is_vacant(*ip, pool, family, party, &claim)
        })
    }

    fn is_vacant(
        &self,
        ip: IpAddr,
        pool: &str,
        family: Family,
        party: &Party<'a>,
        claim: &LeaseName,
    ) -> bool {
        self.is_of(ip, pool, family)
            && !self.is_held(ip)
            && self.obstacle(ip, party, claim).is_none()
    }

    fn is_of(&self, ip: IpAddr, pool: &str, family: Family) -> bool {
        Family::of(ip) == family && self.state.pool_map.owner(ip) == Some(pool)
    }

    /// The lowest free address of `pool` that is not in quarantine; else the one that was freed first. It is
    /// not held yet.
    pub(super) fn vacant(&mut self, pool: &'a str, family: Family) -> Option<IpAddr> {
        let domain = self.state.pool_map.domain(pool)?;
        let mut cursor = self
            .cursors
            .remove(&(pool, family))
            .unwrap_or_else(|| Cursor::new(domain.ranges(family), self.state.occupancy));
        while let Some(ip) = cursor.next {
            if !cursor.is_occupied(ip) && !self.is_used(ip, &domain.rules) {
                if self.is_releasing(ip) {
                    cursor.releasing = cursor.releasing.or(Some(ip));
                } else if !self.state.quarantine.contains_key(&ip) {
                    break;
                }
            }
            cursor.advance();
        }
        let found = cursor.next;
        self.cursors.insert((pool, family), cursor);
        found.or_else(|| self.quarantined(pool, domain, family))
    }

    /// The usable address in quarantine that was freed first.
    fn quarantined(&mut self, pool: &'a str, domain: &Domain, family: Family) -> Option<IpAddr> {
        loop {
            let ip = self.quarantine.get(&(pool, family))?.front().copied()?;
            let usable = self.state.pool_map.unusable(ip).is_none();
            if usable && !self.is_used(ip, &domain.rules) && !self.is_releasing(ip) {
                return Some(ip);
            }
            self.quarantine.get_mut(&(pool, family))?.pop_front();
        }
    }

    /// An address of `pool` that becomes free soon, after [`Space::vacant`] found none.
    pub(super) fn soon_vacant(&self, pool: &str, family: Family) -> Option<Failure> {
        let address = self.cursors.get(&(pool, family))?.releasing?;
        let by = match self.leaving.get(&address).and_then(|parties| parties.first()) {
            Some(party) => format!("service {}", party.key),
            None => format!("claim {}", self.state.listed.of(address).next()?),
        };
        Some(Failure::Releasing { address, by })
    }

    /// Whether a service has `ip`.
    fn is_held(&self, ip: IpAddr) -> bool {
        self.held.contains_key(&ip) || self.state.occupancy.holder(ip).is_some()
    }

    /// Whether `ip` stays in use, not only for the moment.
    fn is_used(&self, ip: IpAddr, rules: &Rules) -> bool {
        !rules.offers(ip)
            || self.is_held(ip)
            || self.state.nodes.contains_key(&ip)
            || self.state.foreign.contains_key(&ip)
    }

    /// Whether `ip` is still being given up.
    fn is_releasing(&self, ip: IpAddr) -> bool {
        self.leaving.contains_key(&ip) || self.state.listed.of(ip).next().is_some()
    }

    /// The usage of each pool.
    pub(super) fn usage(&self) -> BTreeMap<String, Usage> {
        let State { pool_map, occupancy, nodes, foreign, .. } = self.state;
        let mut tally = occupancy.tally().clone();
        for ip in self.held.keys() {
            tally.add(*ip, pool_map);
        }
        let nodes = nodes.keys().filter(|ip| !foreign.contains_key(ip));
        for ip in nodes.chain(foreign.keys()).filter(|ip| !self.is_held(**ip)) {
            tally.block(*ip, pool_map);
        }
        tally.usage(pool_map)
    }
}
