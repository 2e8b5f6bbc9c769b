//! The index: the rooms of all that is known, kept consistent with each other.
//!
//! ```text
//!  Change ──► changes ──► tables ──► governing, families, owners, record ──┐
//!  answers ─► outstanding, rivals, quarantine ─────────────────────────────┼─► plan ──► Plan
//!                                    ledger (open, settled) ◄── settle ◄───┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`tables`] | the objects as last seen, one table for each kind |
//! | `foreign` | addresses that others have |
//! | [`outstanding`] | own writes whose outcome has not been seen |
//! | `record` | the addresses of Services by the lists of their claims, and by memory |
//! | `ledger` | open Services and claims, which may need work, and settled ones |
//! | `quarantine` | addresses that were freed recently |
//! | `owners` | recent changes of the owners of claims |
//! | `governing` | the policy of each Service |
//! | `families` | the claims of single addresses |
//! | `data_path` | the nodes that packets for a Service are spread over, for its condition |
//! | `announcing` | the owners of the addresses of a Service, for its condition |
//! | `news` | changes of a Service by own writes and by other clients |
//! | `plan` | the planning pass |
//! | `settle` | Services that leave the next plans |
//! | `changes` | changes from the watches, and what follows from each |
//!
//! Each room keeps its fields private and imports the rooms below it only; the [`Index`] alone owns them
//! all, and passes to each what it reads.

mod announcing;
mod changes;
mod data_path;
mod families;
mod foreign;
mod governing;
mod ledger;
mod news;
pub mod outstanding;
mod owners;
mod plan;
mod quarantine;
mod record;
mod settle;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;

use self::announcing::Announcing;
use self::families::Families;
use self::governing::Governing;
use self::ledger::Ledger;
use self::news::Before;
use self::outstanding::{Listing, Outstanding, Pending};
use self::owners::OwnerChanges;
use self::plan::Decided;
use self::quarantine::Quarantine;
pub use self::record::Recollection;
use self::record::{ListedFor, Record};
use self::tables::Tables;
use super::job::Target;
use super::leases::ClaimRow;
use super::service::ServiceRow;
use super::service::conditions::Reports;
use super::service::rivals::{Mark, Rivals};
use super::service::write::ServiceWrite;
use crate::allocate::{Decision, Listed, Plan, PoolMap, ServiceKey, Unusable};
use crate::clock::Instant;

/// The largest number of open Services up to which settled ones are opened to report their owners; the
/// number that are opened nevertheless; and the pause before the next.
const REPORTS_AT_ONCE: usize = 64;
const REPORTS_LEAST: usize = 8;
const REPORTS_PAUSE: Duration = Duration::from_millis(20);

/// All that is known.
#[derive(Debug, Default)]
pub struct Index {
    tables: Tables,
    outstanding: Outstanding,
    record: Record,
    ledger: Ledger,
    rivals: Rivals,
    quarantine: Quarantine,
    owners: OwnerChanges,
    pool_map: PoolMap,
    unusable: Unusable,
    governing: Governing,
    families: Families,
    /// The end of the last tenure, until Services are listed.
    recollection: Recollection,
    /// The time of the last change.
    now: Instant,
}

impl Index {
    /// An index that knows no objects yet. With `default_class`, Services without a class are ours.
    pub fn new(default_class: bool, recollection: Recollection) -> Self {
        Self { tables: Tables::new(default_class), recollection, ..Self::default() }
    }

    /// The states of Services for the next tenure of this process.
    pub fn into_recollection(self) -> Recollection {
        let mut recollection = self.recollection;
        self.record.recollect(&self.tables, &mut recollection);
        recollection
    }

    // === the rooms, to read ===

    /// The objects as last seen.
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The pool that owns each address.
    pub const fn pool_map(&self) -> &PoolMap {
        &self.pool_map
    }

    /// Writes to Services whose outcome is not known.
    pub fn pending(&self) -> &BTreeMap<ServiceKey, Pending> {
        self.outstanding.services()
    }

    /// Writes to the lists of claims that have not been seen.
    pub fn listings(&self) -> &BTreeMap<LeaseName, Listing> {
        self.outstanding.lists()
    }

    /// The claims under which each address is listed, or may be.
    pub fn listed(&self) -> &Listed {
        self.record.listed()
    }

    /// The controllers that repeatedly revert our writes.
    pub(super) const fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    /// The names and selectors of a policy that match nothing.
    pub fn unmatched(&self, policy: &str) -> &[String] {
        self.governing.unmatched(policy)
    }

    /// The number of Services that are left out of plans.
    pub fn settled(&self) -> usize {
        self.ledger.count()
    }

    /// The claims that may need work, with the versions of their leases.
    pub fn open_claims(&self) -> impl Iterator<Item = (&LeaseName, u64, &ClaimRow)> {
        self.ledger.claims().filter_map(|name| self.tables.claims().entry(name))
    }

    // === plans ===

    /// The plan for all open Services.
    pub fn plan(&self) -> Plan {
        plan::plan(plan::Inputs {
            tables: &self.tables,
            outstanding: &self.outstanding,
            ledger: &self.ledger,
            record: &self.record,
            quarantine: &self.quarantine,
            pool_map: &self.pool_map,
        })
    }

    /// The open Services, their versions, and the decisions of `plan` about them; none about those that are
    /// not ours.
    pub(super) fn decided<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = Decided<'a>> {
        plan::decided(&self.tables, &self.ledger, plan)
    }

    /// The conditions about announcement and data path of each open Service.
    pub fn reports(&self, plan: &Plan, now: Instant) -> BTreeMap<ServiceKey, Reports> {
        let decided = self.decided(plan);
        let decided = decided.filter_map(|(key, _, row, decision)| Some((key, row, decision?)));
        self.announcing().reports(decided, now)
    }

    /// The number of Services with an address that each policy governs.
    pub fn governed(&self, plan: &Plan) -> BTreeMap<String, usize> {
        settle::governed(&self.tables, &self.ledger, &self.governing, plan)
    }

    /// The claims of single addresses that a Service is to have beside that of `decision`.
    pub fn by_address(&self, row: &ServiceRow, decision: &Decision) -> BTreeSet<LeaseName> {
        self.families.by_address(&self.tables, &self.governing, row, decision)
    }

    /// The claims that name a Service, with the addresses that each lists for it.
    pub(super) fn listed_for(&self, key: &ServiceKey, row: &ServiceRow) -> Vec<ListedFor<'_>> {
        self.record.listed_for(&self.tables, key, row)
    }

    /// The addresses that a Service had before a plan, whatever others have written to its status.
    pub(super) fn had(&self, key: &ServiceKey, row: &ServiceRow) -> Vec<IpAddr> {
        self.record.had(&self.tables, key, row)
    }

    fn announcing(&self) -> Announcing<'_> {
        Announcing::new(&self.tables, &self.governing, &self.owners)
    }

    /// Leaves out of the next plans the Services that are as `plan` says, and that no job is about.
    pub(super) fn settle(&mut self, plan: &Plan, busy: &BTreeSet<Target>, now: Instant) {
        let inputs = settle::Inputs {
            tables: &self.tables,
            outstanding: &self.outstanding,
            ledger: &self.ledger,
            record: &self.record,
            rivals: &self.rivals,
            governing: &self.governing,
            announcing: self.announcing(),
        };
        for (key, settled, look) in settle::to_settle(inputs, plan, busy, now) {
            if let Some(at) = look {
                self.ledger.look_at(key.clone(), at);
            }
            self.ledger.settle(key, settled, &self.pool_map);
        }
    }

    // === time ===

    /// Opens some of the settled Services whose owners are to be reported by `now`: few at a time, so that
    /// plans stay cheap.
    pub fn open_due(&mut self, now: Instant) {
        // Those that share an address are always open.
        let open = self.ledger.open().count();
        let room = REPORTS_AT_ONCE.saturating_sub(open).max(REPORTS_LEAST);
        self.ledger.open_due(now, room, &self.pool_map);
    }

    /// The time of the next report about a Service after `now`.
    pub fn reported_at(&self, now: Instant) -> Option<Instant> {
        let looks = self.ledger.next_look().map(|at| at.max(now + REPORTS_PAUSE));
        let endpoints = self.tables.endpoints().next(now);
        endpoints.into_iter().chain(self.owners.next(now)).chain(looks).min()
    }

    /// Looks at `now` at the nodes that can carry both families, and opens the Services whose families are to
    /// be put apart or joined. Returns the time of the next look.
    pub fn weigh_families(&mut self, now: Instant) -> Option<Instant> {
        let open = self.ledger.open();
        let (turned, next) = self.families.weigh(&self.tables, &self.governing, open, now);
        for key in &turned {
            self.ledger.open_again(key, &self.pool_map);
        }
        next
    }

    /// Forgets at `now` the addresses in quarantine, the contests and the changes of owners that are over.
    pub fn forget(&mut self, now: Instant) {
        self.quarantine.forget(now);
        self.rivals.forget(now);
        self.owners.forget(now);
    }

    // === own writes ===

    /// Notes that a write to a Service is under way.
    pub fn sent(&mut self, key: &ServiceKey, pending: Pending) {
        self.outstanding.send(key, pending);
        self.service_changed(key);
    }

    /// Forgets the write to a Service that is known not to have been carried out.
    pub fn failed(&mut self, key: &ServiceKey) {
        if self.outstanding.forget(key) {
            self.service_changed(key);
        }
    }

    /// Drops the pending write of a Service once a newer version than it replaces was seen.
    pub fn resolve(&mut self, key: &ServiceKey) {
        if self.outstanding.is_resolved(key, self.tables.services().version(key)) {
            self.failed(key);
        }
    }

    /// Takes in the answer to an own write or read of a Service, at `now`; returns whether it is news.
    pub fn answered(&mut self, key: &ServiceKey, service: Service, now: Instant) -> bool {
        let effective = self.effective(key);
        let (had, before) = (self.tables.present(key).to_vec(), Before::of(&self.tables, key));
        self.tables.answered_service(service);
        self.compare(key, before, &had, now);
        self.service_changed(key);
        self.resolve(key);
        self.effective(key) != effective
    }

    /// Notes that a write to a Service was carried out at `now`, as this version of it; returns whether it
    /// reverted a change of others.
    pub(super) fn written(
        &mut self,
        key: &ServiceKey,
        write: &ServiceWrite,
        version: Option<u64>,
        now: Instant,
    ) -> bool {
        let Some(row) = self.tables.services().get(key) else { return false };
        let (mark, rival) = (row.mark(), row.rival().cloned());
        let newer = self.tables.services().version(key) > version;
        // Another client was faster than the answer: the state as written is not known.
        let ours = if newer { Mark { whole: 0, shape: 0 } } else { mark };
        let restored = self.rivals.written(key, write.given(), ours, write.reports_contest(), now);
        if newer {
            self.rivals.changed(key, mark, rival.as_ref(), now);
        }
        restored
    }

    /// Notes that a write to the list of a claim is under way.
    pub fn list_sent(&mut self, name: &LeaseName, listing: Listing) {
        self.outstanding.send_list(name, listing);
        self.claim_changed(name);
    }

    /// The addresses that a claim lists, and those that it lists once our write to it is carried out.
    pub fn expected_lists(&self, name: &LeaseName) -> Vec<AddressSet> {
        let listed = self.tables.claims().get(name).map(|row| &row.record.addresses);
        let written = self.outstanding.lists().get(name).map(|listing| &listing.addresses);
        listed.into_iter().chain(written).cloned().collect()
    }

    /// Notes that a write to the list of a claim may still be carried out.
    pub fn list_unanswered(&mut self, name: &LeaseName) {
        self.outstanding.list_unanswered(name);
    }

    /// Forgets a write to the list of a claim that was not carried out.
    pub fn list_failed(&mut self, name: &LeaseName) {
        self.outstanding.forget_list(name);
        self.claim_changed(name);
    }

    /// Takes in the answer to an own write of a claim.
    pub fn claim_answered(&mut self, lease: Lease) {
        let name: Option<LeaseName> = lease.name_any().parse().ok();
        let changed = self.tables.answered_claim(lease);
        if let Some(name) = name.filter(|_| changed) {
            self.claim_changed(&name);
        }
        self.resolve_listings();
    }

    /// Forgets the writes of lists that are resolved.
    fn resolve_listings(&mut self) {
        for name in self.outstanding.resolved_lists(|name| self.tables.claims().version(name)) {
            self.list_failed(&name);
        }
    }

    // === consequences of a change ===

    /// The request of a Service, as if its pending write were done.
    fn effective(&self, key: &ServiceKey) -> Option<crate::allocate::Service> {
        plan::effective(&self.tables, &self.outstanding, key)
    }

    /// Notes at `now` how a Service has changed since `before`, when it `had` these addresses.
    fn compare(&mut self, key: &ServiceKey, before: Before, had: &[IpAddr], now: Instant) {
        let Self { tables, outstanding, record, rivals, quarantine, .. } = self;
        before.compare(key, tables, outstanding, record, rivals, now);
        quarantine.note(key, had, tables.present(key), now);
    }

    /// Has a Service, or the write to it, be looked at again.
    fn service_changed(&mut self, key: &ServiceKey) {
        self.tables.note_service(key, self.now);
        let row = self.tables.services().get(key);
        let row = row.map(|row| (row, self.tables.request(row).is_some()));
        let pending = self.outstanding.services().get(key);
        self.ledger.service(key, row, pending, &self.pool_map);
    }

    /// Has a claim, or the write to its list, be looked at again.
    fn claim_changed(&mut self, name: &LeaseName) {
        let row = self.tables.claims().get(name);
        let seen = row.iter().flat_map(|row| &row.record.addresses);
        let sent = self.outstanding.lists().get(name);
        let addresses = seen.chain(sent.iter().flat_map(|listing| &listing.addresses));
        let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
        for key in self.record.set(name, addresses, row) {
            self.ledger.open_again(&key, &self.pool_map);
        }
        self.ledger.claim(name, row.is_some(), &self.pool_map);
    }

    /// Has all Services and claims be looked at again.
    fn open_all(&mut self) {
        self.ledger.clear();
        self.record.clear_lists();
        self.tables.clear_foreign_services();
        let keys: Vec<_> = self.tables.services().iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.service_changed(&key);
        }
        let names = self.tables.claims().iter().map(|(name, _)| name);
        let names = names.chain(self.outstanding.lists().keys());
        for name in names.cloned().collect::<Vec<_>>() {
            self.claim_changed(&name);
        }
    }
}
