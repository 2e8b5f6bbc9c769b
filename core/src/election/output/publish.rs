//! The addresses that the kernel should have, and the record for the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::desired::{Announcement, OnApiOutage, ReturnPath};
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::io::checkpoint::OwnRecord;
use crate::election::io::event::Action;
use crate::election::io::serving::{Attachment, ServedVip};
use crate::election::output::state::publication::Output;
use crate::election::output::state::rows::Row;
use crate::election::wire::Wire;

impl Output {
    /// Publishes what is served, and the record for the next process, where they changed.
    pub(in crate::election) fn publish(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let complete = cx.is_informed() && cx.own().is_settled();
        let renewed_until = cx.own().renewed_until();
        let until = Some((cx.own().kernel_until(), renewed_until, now >= renewed_until));
        let moved = std::mem::replace(&mut self.until, until) != until;
        let yields = wire.yields().any();
        let yielded = std::mem::replace(&mut self.yielded, yields) || yields;
        let all = std::mem::take(&mut cx.published_mut().all);
        let touched = std::mem::take(&mut cx.published_mut().touched);
        let all = all || yielded || moved || !complete || !cx.serving().complete;
        if all || !Self::publish_touched(cx, claims, wire, now, &touched, actions) {
            Self::publish_all(cx, claims, wire, now, complete, actions);
        }
        debug_assert!(
            !complete || Self::is_published(cx, claims, wire, now),
            "what is served is not what was published"
        );
        if complete {
            cx.forget_adopted();
            Self::keep_record(cx, claims, wire, now, actions);
        }
    }

    /// Whether what is served follows from the claims as they are.
    pub(in crate::election) fn is_published(
        cx: &Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
    ) -> bool {
        let served = |(name, tenure)| Self::vips_of(cx, wire, now, name, tenure);
        let vips: BTreeMap<IpAddr, ServedVip> = claims.tenures().iter().flat_map(served).collect();
        let owned =
            claims.tenures().iter().filter(|(_, tenure)| tenure.is_mine()).map(|(name, _)| name);
        vips == cx.serving().vips && owned.eq(cx.published().owned())
    }

    pub(in crate::election) fn publish_all(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        complete: bool,
        actions: &mut Vec<Action>,
    ) {
        let counting = claims.tenures().iter().filter(|(_, tenure)| tenure.counts());
        let names: Vec<LeaseName> = counting.map(|(name, _)| name.clone()).collect();
        let before = std::mem::take(&mut cx.published_mut().rows);
        cx.published_mut().owned = 0;
        cx.published_mut().drops = 0;
        let mut vips = BTreeMap::new();
        let mut clash = false;
        for name in &names {
            let (row, served) = Self::row(cx, claims, wire, now, name);
            for (address, vip) in served {
                clash |= vips.insert(address, vip).is_some();
            }
            cx.published_mut().replace(name, row);
        }
        // Of two claims of the same address the later one has it: the next pass does all of this again.
        cx.published_mut().all = clash;
        if before != cx.published().rows {
            cx.published_mut().changes += 1;
            let gives_up = before.iter().any(|(name, row)| {
                let now = cx.published().rows.get(name);
                row.mine && now.is_none_or(|now| !now.mine)
            });
            cx.published_mut().touch_record_for(gives_up);
        }
        // It says more than what counts: interfaces, and what is still to be told.
        cx.published_mut().touch_record();
        let vips = if complete { vips } else { Self::adopted_vips(cx, wire, now) };
        let yielded = if complete { BTreeSet::new() } else { wire.yields().addresses() };
        let same = vips == cx.serving().vips && yielded == cx.serving().yielded;
        if !same || complete != cx.serving().complete {
            cx.published_mut().changes += 1;
            claims.open_mut().note_changed(&cx.serving().vips, &vips);
            cx.serve(vips, complete, yielded);
            actions.push(Action::Serve(cx.serving().clone()));
        }
    }

    /// Publishes what has changed of these claims. Where another claim has an address of theirs it does
    /// nothing and returns false: then all has to be published.
    pub(in crate::election) fn publish_touched(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        touched: &BTreeSet<LeaseName>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let rows: Vec<_> =
            touched.iter().map(|name| (name, Self::row(cx, claims, wire, now, name))).collect();
        let clashes = |(address, new): &(IpAddr, ServedVip)| {
            cx.serving().vips.get(address).is_some_and(|vip| vip.claim != new.claim)
        };
        if rows.iter().flat_map(|(_, (_, served))| served).any(clashes) {
            return false;
        }
        let mut changed = false;
        for (name, (row, served)) in rows {
            let gives_up = row.as_ref().is_none_or(|row| !row.mine);
            let before = cx.published_mut().replace(name, row);
            if before.as_ref() != cx.published().rows.get(name) {
                cx.published_mut().changes += 1;
                cx.published_mut()
                    .touch_record_for(gives_up && before.as_ref().is_some_and(|row| row.mine));
            }
            for address in before.iter().flat_map(|row| &row.served) {
                if !served.iter().any(|(served, _)| served == address) {
                    changed |= cx.remove_served(*address);
                    claims.open_mut().note_address(*address);
                }
            }
            for (address, vip) in served {
                if cx.serving().vips.get(&address) == Some(&vip) {
                    continue;
                }
                changed = true;
                if cx.add_served(address, vip) {
                    claims.open_mut().note_address(address);
                }
            }
        }
        if changed {
            cx.published_mut().changes += 1;
            cx.count_generation();
            actions.push(Action::Serve(cx.serving().clone()));
        }
        true
    }

    /// The row of a claim, and the addresses of it to serve.
    pub(in crate::election) fn row(
        cx: &Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
        name: &LeaseName,
    ) -> (Option<Row>, Vec<(IpAddr, ServedVip)>) {
        let Some(tenure) = claims.tenures().get(name).filter(|tenure| tenure.counts()) else {
            return (None, Vec::new());
        };
        let served = Self::vips_of(cx, wire, now, name, tenure);
        let claim = cx.desired_claim(name);
        let listed = cx.claims().get(name).map(|stored| &stored.record.addresses);
        let row = Row {
            mine: tenure.is_mine(),
            drops: tenure.is_mine()
                && claim.is_some_and(|it| it.on_api_outage == OnApiOutage::Drop),
            served: served.iter().map(|(address, _)| *address).collect(),
            listed: listed.into_iter().flatten().copied().collect(),
        };
        (Some(row), served)
    }

    /// Writes the record for the next process where it differs: at once where something is to be taken out
    /// of it, and what comes one after another together.
    pub(in crate::election) fn keep_record(
        cx: &mut Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let (session, transitions) = (cx.own().id(), cx.sessions().highest(cx.own_name()));
        let record = &cx.published().record;
        let kept = record.kept.as_ref();
        let same =
            kept.is_some_and(|it| it.session.as_ref() == session && it.transitions == transitions);
        let soon = cx.published().deadline().is_some_and(|due| now < due);
        let waits = !record.at_once && (!record.stale || soon && !cx.own().is_ending());
        if same && waits {
            return;
        }
        let session = session.cloned();
        cx.published_mut().record.stale = false;
        cx.published_mut().record.at_once = false;
        let record = OwnRecord {
            node: cx.config().node.clone(),
            incarnation: cx.config().incarnation.clone(),
            session,
            transitions,
            claims: Self::held_claims(cx, claims, wire),
        };
        if cx.published().record.kept.as_ref() != Some(&record) {
            actions.push(Action::Persist(record.clone()));
            cx.published_mut().record.kept = Some(record);
            cx.published_mut().record.written = Some(now);
        }
    }

    /// The addresses that a former process left, as long as the kernel has them.
    pub(in crate::election) fn adopted_vips(
        cx: &Context,
        wire: &Wire,
        now: Instant,
    ) -> BTreeMap<IpAddr, ServedVip> {
        let mut vips = BTreeMap::new();
        for (claim, held) in cx.adopted().iter().flat_map(|record| &record.claims) {
            for address in &held.addresses {
                let Some(present) = cx.kernel().ours.get(address) else { continue };
                if now >= present.until || wire.yields().contains(*address) {
                    continue;
                }
                vips.insert(
                    *address,
                    ServedVip {
                        claim: claim.clone(),
                        attachment: Attachment::OnLink { interface: present.interface.clone() },
                        until: if held.drops {
                            present.until
                        } else {
                            cx.own().kernel_until().max(present.until)
                        },
                        ownership: 0,
                        announcement: Announcement::default(),
                        return_path: ReturnPath::default(),
                    },
                );
            }
        }
        vips
    }

    /// Ends the process once what it was asked to leave behind is in place.
    pub(in crate::election) fn finish(
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if !cx.own().is_ending() {
            return;
        }
        let kept = cx.serving().vips.iter().all(|(address, vip)| {
            // The kernel counts whole seconds.
            cx.kernel()
                .ours
                .get(address)
                .is_some_and(|present| present.until + Duration::from_millis(1100) >= vip.until)
        });
        let clear =
            claims.tenures().values().all(|tenure| !tenure.is_mine()) && cx.is_kernel_clear();
        if cx.own_mut().may_exit(now, kept, clear) {
            actions.push(Action::Exit);
        }
    }
}
