//! The claims that were published last, and marks for those that have changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::io::checkpoint::OwnRecord;

/// The shortest interval of writes of the record while nothing is given up: it is written as a whole, …
pub(in crate::election) const RECORD: Duration = Duration::from_millis(100);

/// … and with thousands of claims more rarely: so long for each.
pub(in crate::election) const RECORD_PER_CLAIM: Duration = Duration::from_micros(200);

/// The published rows, and those that may have changed since.
#[derive(Debug)]
pub(in crate::election) struct Published {
    /// Something that all claims rest on has changed, …
    pub(in crate::election::output) all: bool,
    /// … or something about these.
    pub(in crate::election::output) touched: BTreeSet<LeaseName>,
    /// The claims that count (`Tenure::counts`).
    pub(in crate::election::output) rows: BTreeMap<LeaseName, Row>,
    /// The number of claims that this node owns, and of those that lapse when the session is not renewed.
    pub(in crate::election::output) owned: usize,
    pub(in crate::election::output) drops: usize,
    /// The number of changes.
    pub(in crate::election::output) changes: u64,
    pub(in crate::election::output) record: Record,
}

/// The record for the next process.
#[derive(Debug, Default)]
pub(in crate::election) struct Record {
    pub(in crate::election::output) kept: Option<OwnRecord>,
    /// It may have changed; whether something is to be taken out of it.
    pub(in crate::election::output) stale: bool,
    pub(in crate::election::output) at_once: bool,
    pub(in crate::election::output) written: Option<Instant>,
}

/// The published state of one claim.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::election) struct Row {
    pub(in crate::election::output) mine: bool,
    pub(in crate::election::output) drops: bool,
    /// The addresses that are to be served, …
    pub(in crate::election::output) served: Box<[IpAddr]>,
    /// … and those that the claim lists.
    pub(in crate::election::output) listed: Box<[IpAddr]>,
}

impl Published {
    pub(in crate::election) fn new(record: Option<OwnRecord>) -> Self {
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
    pub(in crate::election) const fn touch_all(&mut self) {
        self.all = true;
    }

    /// How often anything of this has changed.
    pub(in crate::election) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(in crate::election) const fn note_change(&mut self) {
        self.changes += 1;
    }

    /// The row of this claim may have changed.
    pub(in crate::election) fn touch(&mut self, name: &LeaseName) {
        if !self.all && !self.touched.contains(name) {
            self.touched.insert(name.clone());
        }
    }

    /// Those who are to be told by the next process may be others.
    pub(in crate::election) const fn touch_record(&mut self) {
        self.record.stale = true;
    }

    /// The record has changed; whether something is to be taken out of it.
    pub(in crate::election) const fn touch_record_for(&mut self, removal: bool) {
        self.record.stale = true;
        self.record.at_once |= removal;
    }

    /// The number of claims that this node owned at the last publication.
    pub(in crate::election) const fn count(&self) -> usize {
        self.owned
    }

    /// The claims that counted then.
    pub(in crate::election) fn counting(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.keys()
    }

    /// Those that this node owned.
    pub(in crate::election) fn owned(&self) -> impl Iterator<Item = &LeaseName> {
        self.rows.iter().filter(|(_, row)| row.mine).map(|(name, _)| name)
    }

    /// Whether any of them lapses when the session is not renewed.
    pub(in crate::election) const fn drops_any(&self) -> bool {
        self.drops > 0
    }

    /// The addresses that the claims that count list.
    pub(in crate::election) fn listed(&self) -> impl Iterator<Item = IpAddr> {
        self.rows.values().flat_map(|row| &row.listed).copied()
    }

    /// When the record is to be written.
    pub(in crate::election) fn deadline(&self) -> Option<Instant> {
        let claims = u32::try_from(self.owned).unwrap_or(u32::MAX);
        let pause = RECORD.max(RECORD_PER_CLAIM.saturating_mul(claims));
        self.record.written.filter(|_| self.record.stale).map(|written| written + pause)
    }

    /// Replaces the row of `name`. Returns the row before.
    pub(in crate::election) fn replace(
        &mut self,
        name: &LeaseName,
        row: Option<Row>,
    ) -> Option<Row> {
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
