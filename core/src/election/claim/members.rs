//! The nodes that packets for a claim are spread over, as its Lease names them.

use std::sync::Arc;

use leasehold_crds::lease::{CHANGES, Claim, LeaseName, Members, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::acquire::FORMER_OWNERS;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::Action;

impl Claims {
    /// Takes in over which nodes this one is to spread a claim of its own. Returns whether that is new.
    pub(in crate::election) fn set_members(
        &mut self,
        name: &LeaseName,
        asked: Option<Members>,
    ) -> bool {
        let changed = self.tenures.get_mut(name).is_some_and(|tenure| tenure.ask_members(asked));
        if changed {
            self.open.note(name);
        }
        changed
    }

    /// Takes in the set of nodes that this node has spread a claim of its own over, if its Lease has never named it.
    pub(in crate::election) fn set_unnamed_members(
        &mut self,
        name: &LeaseName,
        unnamed: Option<Members>,
    ) {
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if tenure.set_unnamed_members(unnamed) {
            self.open.note(name);
        }
    }

    /// Whether the Lease names the nodes that a claim of this node is spread over.
    pub(in crate::election) fn are_members_told(tenure: &Tenure, stored: &Stored<Claim>) -> bool {
        let same = |asked: &Members| *asked == stored.record.members;
        tenure.members().is_none_or(same) && tenure.unnamed_members().is_none()
    }

    /// Says so where it has changed; returns whether it has.
    pub(in crate::election) fn tell_members(
        &self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(tenure) = self.tenures.get(name) else { return false };
        let told = Self::are_members_told(tenure, stored);
        if told || now < tenure.retry() || !self.has_room(cx) {
            return false;
        }
        let record = self.held_record(cx, stored);
        Self::put_claim(cx, now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
        true
    }

    /// Puts the nodes that a claim of this node is spread over into its record, and the last changes of them.
    pub(in crate::election) fn note_members(
        &self,
        cx: &Context,
        name: &LeaseName,
        record: &mut Claim,
    ) {
        let Some((tenure, claim)) = self.tenures.get(name).zip(cx.desired_claim(name)) else {
            return;
        };
        let Some(asked) = tenure.members() else { return };
        if asked.is_empty() && !record.members.is_empty() {
            Self::unspread(cx.node(), claim, record);
            return;
        }
        if record.members.is_empty() {
            // Until now this node had all of it, if it had an endpoint.
            let own = cx.node();
            record.members = [(own.clone(), asked.weight(own).min(1))].into_iter().collect();
        }
        let kept = if claim.connection_handover.is_zero() { 0 } else { CHANGES };
        for set in tenure.unnamed_members().into_iter().chain([asked]) {
            let before = std::mem::replace(&mut record.members, set.clone());
            if *set == before || before.is_empty() {
                continue;
            }
            let changes = std::mem::take(&mut record.former_members).into_iter();
            let change = set.change_back_to(&before);
            record.former_members = [change].into_iter().chain(changes).take(kept).collect();
        }
    }

    /// Has the record of a claim that is no longer spread name its nodes as former owners: each of them may have open
    /// connections.
    pub(in crate::election) fn unspread(own: &NodeName, claim: &DesiredClaim, record: &mut Claim) {
        let members = std::mem::take(&mut record.members);
        record.former_members = Box::default();
        let former = std::mem::take(&mut record.former);
        let kept = if claim.connection_handover.is_zero() { 0 } else { FORMER_OWNERS };
        let others = members.iter().map(|(node, _)| node.clone()).filter(|node| node != own);
        let before = former.into_iter().filter(|node| members.weight(node) == 0);
        record.former = others.chain(before).take(kept).collect();
    }
}
