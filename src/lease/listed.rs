//! What claims list, and which of it is served here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Stored};

use super::election::Election;
use super::record::HeldClaim;
use super::serving::ServedVip;
use super::tenure::Tenure;
use crate::clock::Instant;
use crate::desired::{DesiredClaim, OnApiOutage};

/// The services of a claim, and their addresses. Only the operator puts an address there, and only when
/// no other claim lists it: however old a speaker's view of the services is, an address is never on the
/// lists of two claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) services: Vec<String>,
    pub(super) uids: Vec<String>,
    pub(super) addresses: AddressSet,
    pub(super) pool: Option<String>,
    pub(super) withdrawn: AddressSet,
}

impl List {
    pub(super) fn is_of(&self, record: &Claim) -> bool {
        self.addresses == record.addresses
            && self.services == record.services
            && self.uids == record.uids
            && self.pool == record.pool
            && self.withdrawn == record.withdrawn
    }

    pub(super) fn of(record: &Claim) -> Self {
        Self {
            services: record.services.clone(),
            uids: record.uids.clone(),
            addresses: record.addresses.clone(),
            pool: record.pool.clone(),
            withdrawn: record.withdrawn.clone(),
        }
    }

    /// What it is about, and no address.
    pub(super) fn emptied(&self) -> Self {
        let (addresses, withdrawn) = Default::default();
        Self { addresses, withdrawn, ..self.clone() }
    }
}

/// Whether the lease lists any address that is asked for: until the operator has put one there, there
/// is nothing to take.
pub(super) fn lists(stored: &Stored<Claim>, claim: &DesiredClaim) -> bool {
    !stored.record.addresses.is_disjoint(&claim.addresses)
}

impl Election {
    /// Of what no lease listed, what one lists now is governed by that.
    pub(super) fn give_up_listed(&mut self, names: &[LeaseName]) {
        let unlisted = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|tenure| !tenure.unlisted.is_empty())
        };
        let names: Vec<&LeaseName> = names.iter().filter(unlisted).collect();
        if names.is_empty() {
            return;
        }
        let listed: BTreeSet<IpAddr> = self
            .claims
            .stored()
            .flat_map(|stored| stored.record.addresses.iter().copied())
            .collect();
        for name in names {
            if let Some(tenure) = self.tenures.get_mut(name) {
                tenure.unlisted.retain(|address| !listed.contains(address));
            }
        }
    }

    /// Somebody else has `address`, which the lease of this claim of ours does not list.
    pub(super) fn give_up_unlisted(&mut self, name: &LeaseName, address: IpAddr) {
        self.with(name, |tenure| {
            tenure.unlisted.remove(&address);
        });
    }

    /// Whether `address` may be served under the claim. Exclusion is per address: only what the stored
    /// claim lists is, and what it listed before somebody deleted it.
    fn may_serve(&self, name: &LeaseName, tenure: &Tenure, address: IpAddr) -> bool {
        let stored = self.claims.get(name);
        let listed = stored.map_or(&tenure.list.addresses, |stored| &stored.record.addresses);
        listed.contains(&address) || tenure.unlisted.contains(&address)
    }

    /// The addresses of a claim that this node is to have now.
    pub(super) fn vips_of(
        &self,
        now: Instant,
        name: &LeaseName,
        tenure: &Tenure,
    ) -> Vec<(IpAddr, ServedVip)> {
        let yielding = tenure.yielding.is_some();
        let mine = tenure.mine && tenure.leaving.is_none() && self.own.stood_still.is_none();
        let waits = tenure.probing.is_some() || tenure.unproxied;
        if !((mine || tenure.provisional.is_some()) && !waits || yielding) {
            return Vec::new();
        }
        let Some((interface, claim)) = tenure.interface.as_ref().zip(self.desired_claim(name))
        else {
            return Vec::new();
        };
        let drops = claim.on_api_outage == OnApiOutage::Drop;
        if drops && now >= self.own.renewed_until() {
            return Vec::new();
        }
        let here = |address: &&IpAddr| {
            self.may_serve(name, tenure, **address) && !self.yields.contains(**address)
        };
        let vip = |address: &IpAddr| {
            let vip = ServedVip {
                claim: name.clone(),
                interface: interface.clone(),
                until: if drops { self.own.dropped_at() } else { self.own.kernel_until },
                ownership: tenure.ownership,
                announced: (!yielding).then_some(claim.announcements),
            };
            (*address, vip)
        };
        claim.addresses.iter().filter(here).map(vip).collect()
    }

    /// What the next process is to keep alive.
    pub(super) fn held_claims(&self) -> BTreeMap<LeaseName, HeldClaim> {
        self.published
            .owned()
            .filter_map(|name| {
                let tenure = self.tenures.get(name)?;
                if !tenure.mine || tenure.leaving.is_some() {
                    return None;
                }
                let claim = self.desired_claim(name)?;
                let interface = tenure.interface.clone()?;
                let drops = claim.on_api_outage == OnApiOutage::Drop;
                let served = |address: &&IpAddr| self.may_serve(name, tenure, **address);
                let addresses: Box<[IpAddr]> =
                    claim.addresses.iter().filter(served).copied().collect();
                let untold = self.old_owners.untold(&interface, &addresses);
                Some((name.clone(), HeldClaim { addresses, interface, drops, untold }))
            })
            .collect()
    }
}
