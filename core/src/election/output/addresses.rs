//! The addresses of a claim that this node serves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::desired::Announcement;
use crate::desired::OnApiOutage;
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::io::checkpoint::HeldClaim;
use crate::election::io::serving::{Attachment, ServedVip};
use crate::election::output::state::publication::Output;
use crate::election::wire::Wire;

impl Output {
    /// Whether `address` may be served under the claim. Exclusion is per address: only what the stored
    /// claim lists is, and what it listed before somebody deleted it.
    pub(in crate::election) fn may_serve(
        cx: &Context,
        name: &LeaseName,
        tenure: &Tenure,
        address: IpAddr,
    ) -> bool {
        let stored = cx.claims().get(name);
        let listed = stored.map_or(tenure.list().addresses(), |stored| &stored.record.addresses);
        listed.contains(&address) || tenure.unlisted().contains(&address)
    }

    /// The addresses of a claim that this node is to have now.
    pub(in crate::election) fn vips_of(
        cx: &Context,
        wire: &Wire,
        now: Instant,
        name: &LeaseName,
        tenure: &Tenure,
    ) -> Vec<(IpAddr, ServedVip)> {
        let yielding = tenure.yielding().is_some();
        let mine = tenure.is_mine() && tenure.leaving().is_none() && !cx.own().stands_still();
        let waits = tenure.probing().is_some() || tenure.awaits_rules();
        if !((mine || tenure.provisional().is_some()) && !waits || yielding) {
            return Vec::new();
        }
        let Some((interface, claim)) = tenure.interface().zip(cx.desired_claim(name)) else {
            return Vec::new();
        };
        let drops = claim.on_api_outage == OnApiOutage::Drop;
        if drops && now >= cx.own().renewed_until() {
            return Vec::new();
        }
        let here = |address: &&IpAddr| {
            Self::may_serve(cx, name, tenure, **address) && !wire.yields().contains(**address)
        };
        let vip = |address: &IpAddr| {
            let vip = ServedVip {
                claim: name.clone(),
                attachment: Attachment::OnLink { interface: interface.clone() },
                until: if drops { cx.own().dropped_at() } else { cx.own().kernel_until() },
                ownership: tenure.ownership(),
                announcement: if yielding { Announcement::Silent } else { claim.announcement },
                return_path: claim.return_path,
            };
            (*address, vip)
        };
        claim.addresses.iter().filter(here).map(vip).collect()
    }

    /// The claims that the next process must keep alive.
    pub(in crate::election) fn held_claims(
        cx: &Context,
        claims: &Claims,
        wire: &Wire,
    ) -> BTreeMap<LeaseName, HeldClaim> {
        cx.published()
            .owned()
            .filter_map(|name| {
                let tenure = claims.tenures().get(name)?;
                if !tenure.is_mine() || tenure.leaving().is_some() {
                    return None;
                }
                let claim = cx.desired_claim(name)?;
                let interface = tenure.interface().cloned()?;
                let drops = claim.on_api_outage == OnApiOutage::Drop;
                let served = |address: &&IpAddr| Self::may_serve(cx, name, tenure, **address);
                let addresses: Box<[IpAddr]> =
                    claim.addresses.iter().filter(served).copied().collect();
                let untold = wire.old_owners().untold(&interface, &addresses);
                Some((name.clone(), HeldClaim { addresses, interface, drops, untold }))
            })
            .collect()
    }
}
