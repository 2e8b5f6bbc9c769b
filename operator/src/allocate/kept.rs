//! What each service keeps of what it has, also where no pool would give it out any more.

use std::fmt;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::Family;

use super::families::ByFamily;
use super::plan::Wanting;
use super::request::Demand;
use super::scope::Admission;
use super::space::Space;
use super::unusable::Why;
use super::{Clash, Failure, ServiceKey};

/// An address that a service keeps although no pool would give it out to it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The address.
    pub address: IpAddr,
    /// Why no pool would.
    pub why: Unoffered,
}

/// Why no pool would give an address to the service that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unoffered {
    /// No pool holds it: it was deleted, or shrunk.
    NoPool,
    /// The service asks for a pool, and another holds the address by now.
    OtherPool(String),
    /// The pool does not admit the service.
    NotAdmitted {
        /// The pool.
        pool: String,
        /// Whom it serves, as a predicate.
        scope: String,
    },
    /// The pool leaves it out.
    LeftOut(String),
    /// No host can have it.
    Unusable(Why),
    /// The pool does not let services of several namespaces share it.
    NotShared(String),
    /// The pool gives out nothing. That is as it should be: told only where it is to be replaced.
    Disabled(String),
}

impl fmt::Display for Unoffered {
    /// What follows `it is kept although`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool => f.write_str("no IPAddressPool contains it anymore"),
            Self::OtherPool(pool) => write!(f, "it now belongs to pool {pool}"),
            Self::NotAdmitted { pool, scope } => write!(f, "pool {pool} {scope}"),
            Self::LeftOut(pool) => {
                write!(f, "pool {pool} excludes addresses that end in .0 or .255")
            }
            Self::Unusable(why) => write!(f, "no host can use it: it is {why}"),
            Self::NotShared(pool) => {
                write!(f, "pool {pool} allows sharing only within one namespace")
            }
            Self::Disabled(pool) => write!(f, "pool {pool} is disabled"),
        }
    }
}

/// An address that a service had and another has by a better right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The address.
    pub address: IpAddr,
    /// Who has it.
    pub owner: ServiceKey,
    /// Why they do not share it.
    pub clash: Clash,
}

/// What a service has during a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) addresses: ByFamily,
    /// The claim that governs all of them.
    pub(super) claim: Option<LeaseName>,
    /// What it has no longer.
    pub(super) lost: Vec<Lost>,
}

impl<'a> Wanting<'a> {
    /// What the service keeps of what it has; the rest is on its way out.
    pub(super) fn keep(&self, space: &mut Space<'a>) -> Held {
        // By a request that cannot be understood nothing is asked for that would be a reason to give it up.
        let demand = self.demand().unwrap_or_default();
        let mut held = Held::default();
        for &ip in &self.service.present {
            if held.addresses.contains(ip) {
                continue;
            }
            if self.fits(ip, &demand) && !held.addresses.has(Family::of(ip)) {
                let claim = self.claim_of(ip, &held, space);
                match space.keep(ip, self.party(), &claim) {
                    Ok(()) => {
                        held.addresses.insert(ip);
                        held.claim = Some(claim);
                        continue;
                    }
                    Err(lost) => held.lost.extend(lost),
                }
            }
            space.leave(ip, self.party());
        }
        held
    }

    /// The claim that governs an address that the service has: that of the others who have it, or
    /// the one on record.
    fn claim_of(&self, ip: IpAddr, held: &Held, space: &Space<'a>) -> LeaseName {
        if let Some(claim) = held.claim.clone().or_else(|| space.claim_of(ip)) {
            return claim;
        }
        let own = &self.service.own_claim;
        // A record that somebody edited: the claim that lists the address says better.
        let doubtful = |claim: &LeaseName| {
            claim != own && !self.state.listed.of(ip).any(|other| other == claim)
        };
        let recorded = self.service.claim.as_ref();
        if let Some(claim) = recorded.filter(|claim| !doubtful(claim)) {
            return claim.clone();
        }
        let listing = self.state.listed.only(ip).or(recorded);
        listing.cloned().unwrap_or_else(|| space.new_claim(self.service, ip))
    }

    /// The pool of an address that the service has.
    pub(super) fn pool_of(&self, ip: IpAddr, demand: &Demand<'a>) -> Option<&'a str> {
        let owner = self.state.territory.owner(ip);
        demand.pool.or(owner).or(self.service.allocated_from.as_deref())
    }

    /// The pool that the addresses of the service are from: the one on record as long as it has one.
    pub(super) fn pool_of_all(&self, addresses: &ByFamily, demand: &Demand<'a>) -> Option<&'a str> {
        let pools = || addresses.iter().filter_map(|ip| self.pool_of(ip, demand));
        let recorded = self.service.allocated_from.as_deref();
        pools().find(|pool| recorded == Some(pool)).or_else(|| pools().next())
    }

    /// Whether an address that the service has is one that it may keep.
    fn fits(&self, ip: IpAddr, demand: &Demand<'a>) -> bool {
        let territory = self.state.territory;
        let owner = territory.owner(ip);
        let recorded = self.service.allocated_from.as_deref();
        let adopted = || owner.is_some_and(|pool| self.admission(pool) != Admission::Refused);
        if !self.service.families.contains(&Family::of(ip)) || !(recorded.is_some() || adopted()) {
            return false;
        }
        if demand.pool.is_some_and(|pool| owner != Some(pool) && recorded != Some(pool)) {
            return false;
        }
        if let Some(asked) = demand.addresses.get(Family::of(ip)) {
            return asked == ip;
        }
        // All addresses of a service are from one pool: a request for an address of another pool
        // moves the other family, too.
        let pool = self.pool_of(ip, demand);
        let moves = |wanted: IpAddr| {
            !self.service.present.contains(&wanted)
                && territory.owner(wanted).is_some_and(|owner| Some(owner) != pool)
        };
        !demand.addresses.iter().any(moves)
    }

    /// Which of its addresses no pool would give out to the service any more.
    pub(super) fn unoffered(&self, held: &Held, space: &Space<'a>) -> Vec<Kept> {
        let kept = held.addresses.iter();
        kept.filter_map(|address| Some(Kept { address, why: self.why(address, space)? })).collect()
    }

    fn why(&self, ip: IpAddr, space: &Space<'a>) -> Option<Unoffered> {
        let Some((owner, domain)) = self.state.territory.holder(ip) else {
            return Some(Unoffered::NoPool);
        };
        let pool = owner.to_owned();
        let asked = self.service.request.as_ref().ok().and_then(|request| request.pool.as_ref());
        let abroad = || {
            let first = space.first_of(ip).map(|first| &first.namespace);
            first.is_some_and(|namespace| *namespace != self.key.namespace)
        };
        if asked.is_some_and(|asked| asked.what != owner) {
            Some(Unoffered::OtherPool(pool))
        } else if self.admission(owner) == Admission::Refused {
            Some(Unoffered::NotAdmitted { pool, scope: domain.rules.scope.to_string() })
        } else if let Some(why) = self.state.territory.unusable(ip) {
            Some(Unoffered::Unusable(why))
        } else if !domain.rules.offers(ip) {
            Some(Unoffered::LeftOut(pool))
        } else if domain.rules.sharing == Sharing::SameNamespace && abroad() {
            Some(Unoffered::NotShared(pool))
        } else if self.service.reassign && domain.rules.disabled {
            Some(Unoffered::Disabled(pool))
        } else {
            None
        }
    }

    /// What the service asks for.
    pub(super) fn demand(&self) -> Result<Demand<'a>, Failure> {
        Demand::of(self.service, self.state.territory)
    }
}
