//! The cause and the beginning of a change of owner.

use std::time::Duration;

use leasehold_crds::lease::{EvidenceKind, LeaseName, Silenced};

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::io::event::{Action, Fact};
use crate::election::io::transition::{Cause, OwnerId};

impl Claims {
    /// Why a claim has no owner, and since when.
    pub(in crate::election) fn first_sign(
        &self,
        cx: &Context,
        now: Instant,
        name: &LeaseName,
    ) -> (Cause, Instant) {
        if let Some(forsaken) = cx.forsaken().get(name) {
            return (Cause::Silence, cx.voices().first(&forsaken.id).unwrap_or(now));
        }
        let last = self.tenures.get(name).and_then(|tenure| tenure.last());
        let Some(last) = last else { return (Cause::New, now) };
        let ended = cx.sessions().get(last.node.as_str()).filter(|stored| {
            stored.uid == last.session.uid && stored.record.transitions > last.session.transitions
        });
        match ended.and_then(|session| session.record.silence) {
            Some(Silenced { evidence: EvidenceKind::Wire, lasted }) => {
                let own = cx.voices().first_of(&last.node, &last.session);
                (Cause::Silence, own.unwrap_or(now - lasted))
            }
            Some(Silenced { evidence: EvidenceKind::Lease, lasted }) => {
                (Cause::Expiry, now - lasted)
            }
            None if self.edited_owner(cx, name).is_some() => (Cause::Edit, now),
            None => (Cause::Release, now),
        }
    }

    /// The owner of this claim before this node.
    pub(in crate::election) fn former_owner(
        &self,
        cx: &Context,
        name: &LeaseName,
    ) -> Option<OwnerId> {
        let last = self.tenures.get(name)?.last()?;
        let former = OwnerId { node: last.node.clone(), session: last.session.transitions };
        (former.node != cx.config().node).then_some(former)
    }

    /// Compares the state of the claim with the table, and tells how long a change took, once the kernel has all addresses of the claim: they are
    /// announced in the same moment.
    pub(in crate::election) fn tell_served(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        Self::check_state(name, tenure, actions);
        if tenure.story().is_none() {
            return;
        }
        let serves = tenure.is_mine() || tenure.provisional().is_some();
        let (Some(claim), Some(interface), true) =
            (cx.desired_claim(name), tenure.interface().cloned(), serves)
        else {
            return;
        };
        let listed = |ip: &&std::net::IpAddr| {
            tenure.provisional().is_some() || tenure.list().addresses.contains(ip)
        };
        let addresses: Vec<_> = claim.addresses.iter().filter(listed).copied().collect();
        let present = addresses
            .iter()
            .all(|address| cx.is_served(*address) && cx.kernel().ours.contains_key(address));
        if addresses.is_empty() || !present {
            return;
        }
        let Some(story) = self.tenures.get_mut(name).and_then(Tenure::take_story) else {
            return;
        };
        // As leases have it: whole milliseconds.
        let millis = now.saturating_since(story.began).as_millis();
        let took = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self.with(cx, name, |tenure| tenure.set_took(took));
        let services = cx.claims().get(name).map(|stored| stored.record.services.clone());
        let (claim, services) = (name.clone(), services.unwrap_or_default());
        Context::report(
            Fact::Serving { claim, services, addresses, interface, story, took },
            actions,
        );
    }
}
