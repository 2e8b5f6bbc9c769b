//! The claims that were published last, and marks for those that have changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::lease::io::checkpoint::OwnRecord;

/// How often the record is written at most while nothing is given up: it is written as a whole, …
pub(in crate::lease) const RECORD: Duration = Duration::from_millis(100);

/// … and with thousands of claims more rarely: so long for each.
pub(in crate::lease) const RECORD_PER_CLAIM: Duration = Duration::from_micros(200);

/// What was published, and what of it may have changed since.
#[derive(Debug)]
pub(in crate::lease) struct Published {
    /// Something that all claims rest on has changed, …
    pub(in crate::lease::output) all: bool,
    /// … or something about these.
    pub(in crate::lease::output) touched: BTreeSet<LeaseName>,
    /// The claims that count (`Tenure::counts`).
    pub(in crate::lease::output) rows: BTreeMap<LeaseName, Row>,
    /// How many of them this node owns, and how many of those lapse when the session is not renewed.
    pub(in crate::lease::output) owned: usize,
    pub(in crate::lease::output) drops: usize,
    /// How often anything of this has changed.
    pub(in crate::lease::output) changes: u64,
    pub(in crate::lease::output) record: Record,
}

/// The record for the next process.
#[derive(Debug, Default)]
pub(in crate::lease) struct Record {
    pub(in crate::lease::output) kept: Option<OwnRecord>,
    /// It may have changed; whether something is to be taken out of it.
    pub(in crate::lease::output) stale: bool,
    pub(in crate::lease::output) at_once: bool,
    pub(in crate::lease::output) written: Option<Instant>,
}

/// What counts of one claim.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::lease) struct Row {
    pub(in crate::lease::output) mine: bool,
    pub(in crate::lease::output) drops: bool,
    /// The addresses that are to be served, …
    pub(in crate::lease::output) served: Box<[IpAddr]>,
    /// … and those that the claim lists.
    pub(in crate::lease::output) listed: Box<[IpAddr]>,
}

impl Published {
    pub(in crate::lease) fn new(record: Option<OwnRecord>) -> Self {
        Self {
            all: true,
            touched: BTreeSet::new(),
            rows: BTreeMap::new(),
            owned: 0,
            drops: 0,
            changes: 0,
            record: Record { kept: record, ..Record::default() },
        }
    }

    /// Something that all claims rest on has changed.
    pub(in crate::lease) const fn touch_all(&mut self) {
        self.all = true;
    }

    /// How often anything of this has changed.
    pub(in crate::lease) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(in crate::lease) const fn note_change(&mut self) {
        self.changes += 1;
    }

    /// What is served of this claim, or what counts of it, may have changed.
    pub(in crate::lease) fn touch(&mut self, name: &LeaseName) {
        if !self.all && !self.touched.contains(name) {
            self.touched.insert(name.clone());
        }
    }

    /// Those who are to be told by the next process may be others.
    pub(in crate::lease) const fn touch_record(&mut self) {
        self.record.stale = true;
    }

    /// The record has changed; whether something is to be taken out of it.
    pub(in crate::lease) const fn touch_record_for(&mut self, removal: bool) {
        self.record.stale = true;
        self.record.at_once |= removal;
    }

    /// How many claims this node owned when that was last published.
    pub(in crate::lease) const fn count(&self) -> usize {
        self.owned
    }

    /// The claims that counted then.
    pub(in crate::lease) fn counting(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.keys()
    }

    /// Those that this node owned.
    pub(in crate::lease) fn owned(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.iter().filter(|(_, row)| row.mine).map(|(name, _)| name)
    }

    /// Whether any of them lapses when the session is not renewed.
    pub(in crate::lease) const fn drops_any(&self) -> bool {
        self.drops > 0
    }

    /// The addresses that the claims that count list.
    pub(in crate::lease) fn listed(&self) -> impl Iterator<Item = IpAddr> {
        self.rows.values().flat_map(|row| &row.listed).copied()
    }

    /// When the record is to be written.
    pub(in crate::lease) fn deadline(&self) -> Option<Instant> {
        let claims = u32::try_from(self.owned).unwrap_or(u32::MAX);
        let pause = RECORD.max(RECORD_PER_CLAIM.saturating_mul(claims));
        self.record.written.filter(|_| self.record.stale).map(|written| written + pause)
    }

    /// What counts of `name` is `row` now; returns what it was.
    pub(in crate::lease) fn replace(&mut self, name: &LeaseName, row: Option<Row>) -> Option<Row> {
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
