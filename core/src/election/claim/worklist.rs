//! Which claims a pass looks at.
//!
//! A claim is *settled* when a pass over it changes nothing and waits for nothing: another node owns
//! it, or this node does and serves it as it is asked to. It stays settled until its lease or its holder's
//! session changes, a request on it is answered, or something changes that all claims rest on. An unowned claim
//! *waits* for its turn, or for one of the writes that are under way to be answered (`waiting`), and is looked at before
//! that for the same reasons only. So an event costs what it concerns, and not as much as there are claims.
//!
//! Whatever else a pass reads of a settled claim has to be noted here where it changes: sessions (of all
//! that is settled elsewhere a pass reads the holder's alone), the own session and its ending, what is asked for,
//! interfaces, and of which addresses the kernel and what is served say anything.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::addresses::lists;
use crate::election::claim::state::timers::{For, Waiting};
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::io::event::Target;
use crate::election::placement::rank::weight;

impl Claims {
    /// The claims that this pass looks at, in the order of their names.
    pub(in crate::election) fn open_claims(
        &mut self,
        cx: &mut Context,
        now: Instant,
    ) -> Vec<LeaseName> {
        let open = &mut self.open;
        open.names.extend(open.waiting.take_due(now));
        open.all |= open.sessions != cx.sessions().revision()
            || open.session.as_ref() != cx.own().id()
            || open.ending != cx.own().ending();
        let nodes = std::mem::take(&mut open.nodes);
        if std::mem::take(&mut open.all) {
            if open.sessions != cx.sessions().revision() || !nodes.is_empty() {
                cx.watch_mut().note_all();
            }
            open.sessions = cx.sessions().revision();
            open.session = cx.own().id().cloned();
            open.ending = cx.own().ending();
            cx.published_mut().touch_all();
            open.waiting = Waiting::default();
            let known = cx.claims().iter().map(|(name, _)| name);
            let asked = cx.desired().into_iter().flat_map(|desired| desired.claims.keys());
            open.names = known.chain(asked).chain(self.tenures.keys()).cloned().collect();
        } else if !nodes.is_empty() {
            let concerned = |stored: &&Arc<Stored<Claim>>| {
                let holder = stored.record.holder.as_ref();
                holder.is_some_and(|it| *it == cx.config().node || nodes.contains(it.as_str()))
            };
            let concerned = cx.claims().stored().filter(concerned);
            let concerned: Vec<LeaseName> = concerned.map(|stored| stored.name.clone()).collect();
            for name in concerned {
                cx.watch_mut().note_claim(&name, true);
                open.names.insert(name);
            }
            open.names.extend(cx.published().counting().cloned());
            // Unowned claims rest on all sessions: those are their candidates.
            open.note_waiting();
            cx.published_mut().touch_record();
        }
        open.names.iter().cloned().collect()
    }

    /// What an unowned claim, or a claim that lists nothing yet, waits for, where nothing else is to be done about it.
    pub(in crate::election) fn waits_for(
        &self,
        cx: &Context,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
    ) -> Option<For> {
        let (tenure, claim) = (self.tenures.get(name)?, claim?);
        let stored = cx.claims().get(name);
        let nobodys = stored.is_none_or(|stored| {
            cx.owner(stored) == Owner::Nobody && stored.record.successor.is_none()
        });
        let idle = !tenure.is_mine()
            && !tenure.must_read()
            && tenure.leaving().is_none()
            && tenure.yielding().is_none()
            && tenure.provisional().is_none()
            && tenure.probing().is_none()
            && tenure.handover().is_none()
            && !cx.forsaken().contains_key(name)
            && !cx.is_pending(&Target::Claim(name.clone()));
        if !nobodys || !idle {
            return None;
        }
        let Some(unowned) = tenure.unowned() else {
            let listed = stored.is_some_and(|stored| lists(stored, claim));
            if listed && self.awaits_others(tenure, claim) {
                return self.joined_by().map(For::Time);
            }
            return (!listed).then_some(For::News);
        };
        let turn = Self::turn(cx, unowned).max(tenure.retry());
        let round_ends = Self::round_ends(cx, unowned);
        let due = turn.min(round_ends);
        if now < due {
            return Some(For::Time(due));
        }
        // Others whose turn it is as well begin with other claims.
        let order = || weight(name.as_str(), cx.config().node.as_str());
        let waits = unowned.place.is_some() && now < round_ends && !self.has_room(cx);
        waits.then(|| For::Room { turn, order: order(), round_ends })
    }
}
