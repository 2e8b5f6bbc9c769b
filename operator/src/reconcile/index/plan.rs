//! The planning pass: the input of the allocation, assembled from all rooms.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::ledger::Ledger;
use super::outstanding::Outstanding;
use super::quarantine::Quarantine;
use super::record::{Record, Restoring};
use super::tables::Tables;
use crate::allocate::{self, Decision, Departing, Plan, PoolMap, ServiceKey, State};
use crate::reconcile::service::ServiceRow;

/// The rooms that a plan follows from.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) tables: &'a Tables,
    pub(super) outstanding: &'a Outstanding,
    pub(super) ledger: &'a Ledger,
    pub(super) record: &'a Record,
    pub(super) quarantine: &'a Quarantine,
    pub(super) pool_map: &'a PoolMap,
}

/// An open Service, its version, and the decision about it; none for one that is not ours.
pub(in crate::reconcile) type Decided<'a> =
    (&'a ServiceKey, u64, &'a ServiceRow, Option<&'a Decision>);

/// The open Services, with their versions.
fn open<'a>(
    tables: &'a Tables,
    ledger: &'a Ledger,
) -> impl Iterator<Item = (&'a ServiceKey, u64, &'a ServiceRow)> {
    ledger.open().filter_map(|key| tables.services().entry(key))
}

/// The open Services, with the decisions of `plan` about them.
pub(super) fn decided<'a>(
    tables: &'a Tables,
    ledger: &'a Ledger,
    plan: &'a Plan,
) -> impl Iterator<Item = Decided<'a>> {
    // Both are in the order of the names.
    let mut decisions = plan.services.iter().peekable();
    open(tables, ledger).map(move |(key, version, row)| {
        while decisions.next_if(|(other, _)| *other < key).is_some() {}
        let decision = decisions.next_if(|(other, _)| *other == key);
        let decision = decision.filter(|_| tables.request(row).is_some());
        (key, version, row, decision.map(|(_, decision)| decision))
    })
}

/// The request of a Service, as if its pending write were done.
pub(super) fn effective(
    tables: &Tables,
    outstanding: &Outstanding,
    key: &ServiceKey,
) -> Option<allocate::Service> {
    let request = tables.request(tables.services().get(key)?)?.clone();
    Some(match outstanding.services().get(key) {
        Some(pending) => pending.overlay(request),
        None => request,
    })
}

/// The plan for all open Services.
pub(super) fn plan(inputs: Inputs<'_>) -> Plan {
    let Inputs { tables, outstanding, ledger, record, quarantine, pool_map } = inputs;
    let pending = outstanding.services().keys();
    let overlays: BTreeMap<&ServiceKey, allocate::Service> =
        pending.filter_map(|key| Some((key, effective(tables, outstanding, key)?))).collect();
    let restored = open(tables, ledger).filter_map(|(key, _, row)| {
        let service = overlays.get(key).or_else(|| tables.request(row))?;
        let rooms = Restoring { tables, outstanding, pool_map };
        Some((key, record.restored(rooms, key, row, service)?))
    });
    let restored: BTreeMap<&ServiceKey, allocate::Service> = restored.collect();
    let mut services = Vec::new();
    // Addresses still in the status of a Service that is no longer ours, or about to be replaced by a pending
    // write.
    let mut departing = Vec::new();
    for (key, _, row) in open(tables, ledger) {
        let request = tables.request(row);
        let overlay = overlays.get(key);
        if let Some(service) = restored.get(key).or(overlay).or(request) {
            services.push((key, service));
        }
        if overlay.is_some() || (request.is_none() && row.marked) {
            let sharing = request.and_then(|request| request.sharing.as_deref());
            let leaves = |address: &IpAddr| Departing { address: *address, key, sharing };
            departing.extend(row.present.iter().map(leaves));
        }
    }
    let namespaces = tables.namespaces().iter();
    allocate::plan(&State {
        pool_map,
        namespaces: namespaces.map(|(name, row)| (name.as_str(), &row.labels)).collect(),
        services: services.into_iter().collect(),
        nodes: tables.foreign().nodes(),
        occupancy: ledger.occupancy(),
        foreign: tables.foreign().services(),
        departing,
        listed: record.listed(),
        quarantine: quarantine.addresses(),
    })
}
