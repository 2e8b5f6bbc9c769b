//! What claims list, and which of it is served here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::desired::DesiredClaim;
use crate::lease::claim::Claims;
use crate::lease::context::Context;

/// The services of a claim, and their addresses. Only the operator puts an address there, and only when
/// no other claim lists it: however old a speaker's view of the services is, an address is never on the
/// lists of two claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::lease) struct List {
    pub(in crate::lease) services: Vec<String>,
    pub(in crate::lease) uids: Vec<String>,
    pub(in crate::lease) addresses: AddressSet,
    pub(in crate::lease) pool: Option<String>,
    pub(in crate::lease) withdrawn: AddressSet,
}

impl List {
    pub(in crate::lease) fn is_of(&self, record: &Claim) -> bool {
        self.addresses == record.addresses
            && self.services == record.services
            && self.uids == record.uids
            && self.pool == record.pool
            && self.withdrawn == record.withdrawn
    }

    pub(in crate::lease) fn of(record: &Claim) -> Self {
        Self {
            services: record.services.clone(),
            uids: record.uids.clone(),
            addresses: record.addresses.clone(),
            pool: record.pool.clone(),
            withdrawn: record.withdrawn.clone(),
        }
    }

    /// What it is about, and no address.
    pub(in crate::lease) fn emptied(&self) -> Self {
        let (addresses, withdrawn) = Default::default();
        Self { addresses, withdrawn, ..self.clone() }
    }
}

/// Whether the lease lists any address that is asked for: until the operator has put one there, there
/// is nothing to take.
pub(in crate::lease) fn lists(stored: &Stored<Claim>, claim: &DesiredClaim) -> bool {
    !stored.record.addresses.is_disjoint(&claim.addresses)
}

impl Claims {
    /// Of what no lease listed, what one lists now is governed by that.
    pub(in crate::lease) fn give_up_listed(&mut self, cx: &Context, names: &[LeaseName]) {
        let unlisted = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|tenure| !tenure.unlisted.is_empty())
        };
        let names: Vec<&LeaseName> = names.iter().filter(unlisted).collect();
        if names.is_empty() {
            return;
        }
        let listed: BTreeSet<IpAddr> = cx
            .claims()
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
    pub(in crate::lease) fn give_up_unlisted(
        &mut self,
        cx: &mut Context,
        name: &LeaseName,
        address: IpAddr,
    ) {
        self.with(cx, name, |tenure| {
            tenure.unlisted.remove(&address);
        });
    }
}
