//! What the core wants of the kernel, and what it leaves for the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use super::election::Election;
use super::event::Action;
use super::record::OwnRecord;
use super::serving::{ServedVip, Serving};
use crate::clock::Instant;
use crate::desired::{Announcements, OnApiOutage};

/// How often the record is written at most while nothing is given up: it is written as a whole, …
const RECORD: Duration = Duration::from_millis(100);
/// … and with thousands of claims more rarely: so long for each.
const RECORD_PER_CLAIM: Duration = Duration::from_micros(200);

/// What was published, and what of it may have changed since.
#[derive(Debug)]
pub(super) struct Published {
    /// Something that all claims rest on has changed, …
    pub(super) all: bool,
    /// … or something about these.
    touched: BTreeSet<LeaseName>,
    /// The claims that count (`Tenure::counts`).
    rows: BTreeMap<LeaseName, Row>,
    /// How many of them this node owns, and how many of those lapse when the session is not renewed.
    owned: usize,
    drops: usize,
    /// How often anything of this has changed.
    pub(super) changes: u64,
    /// Until when what is served is.
    until: Option<(Instant, Instant, bool)>,
    /// Whether an address was yielded to another speaker.
    yielded: bool,
    record: Record,
}

/// The record for the next process.
#[derive(Debug, Default)]
struct Record {
    kept: Option<OwnRecord>,
    /// It may have changed; whether something is to be taken out of it.
    stale: bool,
    at_once: bool,
    written: Option<Instant>,
}

/// What counts of one claim.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    mine: bool,
    drops: bool,
    /// The addresses that are to be served, …
    served: Box<[IpAddr]>,
    /// … and those that the claim lists.
    listed: Box<[IpAddr]>,
}

impl Published {
    pub(super) fn new(record: Option<OwnRecord>) -> Self {
        Self {
            all: true,
            touched: BTreeSet::new(),
            rows: BTreeMap::new(),
            owned: 0,
            drops: 0,
            changes: 0,
            until: None,
            yielded: false,
            record: Record { kept: record, ..Record::default() },
        }
    }

    /// What is served of this claim, or what counts of it, may have changed.
    pub(super) fn touch(&mut self, name: &LeaseName) {
        if !self.all && !self.touched.contains(name) {
            self.touched.insert(name.clone());
        }
    }

    /// Those who are to be told by the next process may be others.
    pub(super) const fn touch_record(&mut self) {
        self.record.stale = true;
    }

    /// The record has changed; whether something is to be taken out of it.
    const fn touch_record_for(&mut self, removal: bool) {
        self.record.stale = true;
        self.record.at_once |= removal;
    }

    /// How many claims this node owned when that was last published.
    pub(super) const fn count(&self) -> usize {
        self.owned
    }

    /// The claims that counted then.
    pub(super) fn counting(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.keys()
    }

    /// Those that this node owned.
    pub(super) fn owned(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.iter().filter(|(_, row)| row.mine).map(|(name, _)| name)
    }

    /// Whether any of them lapses when the session is not renewed.
    pub(super) const fn drops_any(&self) -> bool {
        self.drops > 0
    }

    /// The addresses that the claims that count list.
    pub(super) fn listed(&self) -> impl Iterator<Item = IpAddr> {
        self.rows.values().flat_map(|row| &row.listed).copied()
    }

    /// When the record is to be written.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let claims = u32::try_from(self.owned).unwrap_or(u32::MAX);
        let pause = RECORD.max(RECORD_PER_CLAIM.saturating_mul(claims));
        self.record.written.filter(|_| self.record.stale).map(|written| written + pause)
    }

    /// What counts of `name` is `row` now; returns what it was.
    fn replace(&mut self, name: &LeaseName, row: Option<Row>) -> Option<Row> {
        if let Some(row) = &row {
            self.owned += usize::from(row.mine);
            self.drops += usize::from(row.drops);
        }
        let before = match row {
            Some(row) => self.rows.insert(name.clone(), row),
            None => self.rows.remove(name),
        };
        if let Some(before) = &before {
            self.owned -= usize::from(before.mine);
            self.drops -= usize::from(before.drops);
        }
        before
    }
}

impl Election {
    /// Publishes what is served, and the record for the next process, where they changed.
    pub(super) fn publish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let complete = self.is_informed() && self.own.is_settled();
        let renewed_until = self.own.renewed_until();
        let until = Some((self.own.kernel_until, renewed_until, now >= renewed_until));
        let moved = std::mem::replace(&mut self.published.until, until) != until;
        let yields = self.yields.any();
        let yielded = std::mem::replace(&mut self.published.yielded, yields) || yields;
        let all = std::mem::take(&mut self.published.all);
        let touched = std::mem::take(&mut self.published.touched);
        let all = all || yielded || moved || !complete || !self.serving.complete;
        if all || !self.publish_touched(now, &touched, actions) {
            self.publish_all(now, complete, actions);
        }
        debug_assert!(
            !complete || self.is_published(now),
            "what is served is not what was published"
        );
        if complete {
            self.adopted = None;
            self.keep_record(now, actions);
        }
    }

    /// Whether what is served follows from the claims as they are.
    fn is_published(&self, now: Instant) -> bool {
        let served = |(name, tenure)| self.vips_of(now, name, tenure);
        let vips: BTreeMap<IpAddr, ServedVip> = self.tenures.iter().flat_map(served).collect();
        let owned = self.tenures.iter().filter(|(_, tenure)| tenure.mine).map(|(name, _)| name);
        vips == self.serving.vips && owned.eq(self.published.owned())
    }

    fn publish_all(&mut self, now: Instant, complete: bool, actions: &mut Vec<Action>) {
        let counting = self.tenures.iter().filter(|(_, tenure)| tenure.counts());
        let names: Vec<LeaseName> = counting.map(|(name, _)| name.clone()).collect();
        let before = std::mem::take(&mut self.published.rows);
        (self.published.owned, self.published.drops) = (0, 0);
        let mut vips = BTreeMap::new();
        let mut clash = false;
        for name in &names {
            let (row, served) = self.row(now, name);
            for (address, vip) in served {
                clash |= vips.insert(address, vip).is_some();
            }
            self.published.replace(name, row);
        }
        // Of two claims of the same address the later one has it: the next pass does all of this again.
        self.published.all = clash;
        if before != self.published.rows {
            self.published.changes += 1;
            self.published.touch_record_for(before.iter().any(|(name, row)| {
                let now = self.published.rows.get(name);
                row.mine && now.is_none_or(|now| !now.mine)
            }));
        }
        // It says more than what counts: interfaces, and what is still to be told.
        self.published.touch_record();
        let vips = if complete { vips } else { self.adopted_vips(now) };
        let yielded = if complete { BTreeSet::new() } else { self.yields.addresses() };
        let same = vips == self.serving.vips && yielded == self.serving.yielded;
        if !same || complete != self.serving.complete {
            self.published.changes += 1;
            self.open.note_changed(&self.serving.vips, &vips);
            let generation = self.serving.generation + 1;
            self.serving = Serving { generation, vips, complete, yielded };
            actions.push(Action::Serve(self.serving.clone()));
        }
    }

    /// Publishes what has changed of these claims. Where another claim has an address of theirs it does
    /// nothing and returns false: then all has to be published.
    fn publish_touched(
        &mut self,
        now: Instant,
        touched: &BTreeSet<LeaseName>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let rows: Vec<_> = touched.iter().map(|name| (name, self.row(now, name))).collect();
        let clashes = |(address, new): &(IpAddr, ServedVip)| {
            self.serving.vips.get(address).is_some_and(|vip| vip.claim != new.claim)
        };
        if rows.iter().flat_map(|(_, (_, served))| served).any(clashes) {
            return false;
        }
        let mut changed = false;
        for (name, (row, served)) in rows {
            let gives_up = row.as_ref().is_none_or(|row| !row.mine);
            let before = self.published.replace(name, row);
            if before.as_ref() != self.published.rows.get(name) {
                self.published.changes += 1;
                self.published
                    .touch_record_for(gives_up && before.as_ref().is_some_and(|row| row.mine));
            }
            for address in before.iter().flat_map(|row| &row.served) {
                if !served.iter().any(|(served, _)| served == address) {
                    changed |= self.serving.vips.remove(address).is_some();
                    self.open.note_address(*address);
                }
            }
            for (address, vip) in served {
                if self.serving.vips.get(&address) == Some(&vip) {
                    continue;
                }
                changed = true;
                if self.serving.vips.insert(address, vip).is_none() {
                    self.open.note_address(address);
                }
            }
        }
        if changed {
            self.published.changes += 1;
            self.serving.generation += 1;
            actions.push(Action::Serve(self.serving.clone()));
        }
        true
    }

    /// What counts of a claim, and what is to be served of it.
    fn row(&self, now: Instant, name: &LeaseName) -> (Option<Row>, Vec<(IpAddr, ServedVip)>) {
        let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.counts()) else {
            return (None, Vec::new());
        };
        let served = self.vips_of(now, name, tenure);
        let claim = self.desired_claim(name);
        let listed = self.claims.get(name).map(|stored| &stored.record.addresses);
        let row = Row {
            mine: tenure.mine,
            drops: tenure.mine && claim.is_some_and(|it| it.on_api_outage == OnApiOutage::Drop),
            served: served.iter().map(|(address, _)| *address).collect(),
            listed: listed.into_iter().flatten().copied().collect(),
        };
        (Some(row), served)
    }

    /// Writes the record for the next process where it differs: at once where something is to be taken out
    /// of it, and what comes one after another together.
    fn keep_record(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (session, transitions) = (&self.own.id, self.sessions.highest(&self.own_name));
        let record = &self.published.record;
        let kept = record.kept.as_ref();
        let same = kept.is_some_and(|it| it.session == *session && it.transitions == transitions);
        let soon = self.published.deadline().is_some_and(|due| now < due);
        let waits = !record.at_once && (!record.stale || soon && !self.own.is_ending());
        if same && waits {
            return;
        }
        (self.published.record.stale, self.published.record.at_once) = (false, false);
        let record = OwnRecord {
            node: self.config.node.clone(),
            incarnation: self.config.incarnation.clone(),
            session: session.clone(),
            transitions,
            claims: self.held_claims(),
        };
        if self.published.record.kept.as_ref() != Some(&record) {
            actions.push(Action::Persist(record.clone()));
            self.published.record.kept = Some(record);
            self.published.record.written = Some(now);
        }
    }

    /// What a former process left, as long as the kernel still has it.
    fn adopted_vips(&self, now: Instant) -> BTreeMap<IpAddr, ServedVip> {
        let mut vips = BTreeMap::new();
        for (claim, held) in self.adopted.iter().flat_map(|record| &record.claims) {
            for address in &held.addresses {
                let Some(present) = self.kernel.ours.get(address) else { continue };
                if now >= present.until || self.yields.contains(*address) {
                    continue;
                }
                vips.insert(
                    *address,
                    ServedVip {
                        claim: claim.clone(),
                        interface: present.interface.clone(),
                        until: if held.drops {
                            present.until
                        } else {
                            self.own.kernel_until.max(present.until)
                        },
                        ownership: 0,
                        announced: Some(Announcements::default()),
                    },
                );
            }
        }
        vips
    }

    /// Whether the kernel is known to hold `address` no longer since it was last published without.
    pub(super) fn is_removed(&self, address: IpAddr) -> bool {
        !self.serving.vips.contains_key(&address)
            && self.kernel.applied >= self.serving.generation
            && !self.kernel.ours.contains_key(&address)
    }

    /// Whether the kernel holds none of our addresses, and is to hold none.
    pub(super) fn is_kernel_clear(&self) -> bool {
        self.serving.vips.is_empty()
            && self.serving.complete
            && self.kernel.applied >= self.serving.generation
            && self.kernel.ours.is_empty()
    }

    pub(super) fn is_served(&self, address: IpAddr) -> bool {
        self.serving.vips.contains_key(&address)
    }

    /// Ends the process once what it was asked to leave behind is in place.
    pub(super) fn finish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.own.is_ending() {
            return;
        }
        let kept = self.serving.vips.iter().all(|(address, vip)| {
            // The kernel counts whole seconds.
            self.kernel
                .ours
                .get(address)
                .is_some_and(|present| present.until + Duration::from_millis(1100) >= vip.until)
        });
        let clear = self.tenures.values().all(|tenure| !tenure.mine) && self.is_kernel_clear();
        if self.own.may_exit(now, kept, clear) {
            actions.push(Action::Exit);
        }
    }
}
