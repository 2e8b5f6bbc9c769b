//! The addresses that claims list, and those of them that are served here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::context::Context;

/// Whether the lease lists any address that is asked for: until the operator has put one there, there
/// is nothing to take.
pub(in crate::election) fn lists(stored: &Stored<Claim>, claim: &DesiredClaim) -> bool {
    !stored.record.addresses.is_disjoint(&claim.addresses)
}

impl Claims {
    /// Of what no lease listed, what one lists now is governed by that.
    pub(in crate::election) fn give_up_listed(&mut self, cx: &Context, names: &[LeaseName]) {
        let unlisted = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|tenure| !tenure.unlisted().is_empty())
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
                tenure.forget_unlisted(|address| listed.contains(address));
            }
        }
    }

    /// Another host has `address`, which the Lease of this claim of ours does not list.
    pub(in crate::election) fn give_up_unlisted(
        &mut self,
        cx: &mut Context,
        name: &LeaseName,
        address: IpAddr,
    ) {
        self.with(cx, name, |tenure| tenure.forget_unlisted(|it| *it == address));
    }
}
