//! Settling: Services that are as the plan says, and that no job is about, leave the next plans.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::Governance;

use super::announcing::Announcing;
use super::governing::Governing;
use super::ledger::{Ledger, Settled};
use super::outstanding::Outstanding;
use super::plan::decided;
use super::record::Record;
use super::tables::Tables;
use crate::allocate::{Decision, Plan, ServiceKey};
use crate::clock::Instant;
use crate::reconcile::job::Target;
use crate::reconcile::leases::ClaimRow;
use crate::reconcile::service::ServiceRow;
use crate::reconcile::service::rivals::Rivals;

/// The rooms that decide whether a Service is settled.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) tables: &'a Tables,
    pub(super) outstanding: &'a Outstanding,
    pub(super) ledger: &'a Ledger,
    pub(super) record: &'a Record,
    pub(super) rivals: &'a Rivals,
    pub(super) governing: &'a Governing,
    pub(super) announcing: Announcing<'a>,
}

/// A Service to settle, and the time of the next look at its owners.
pub(super) type ToSettle = (ServiceKey, Settled, Option<Instant>);

/// The numbers of open Services that have or may have each address, and name each claim.
struct Shares<'a> {
    addresses: BTreeMap<IpAddr, usize>,
    claims: BTreeMap<&'a LeaseName, usize>,
}

impl<'a> Shares<'a> {
    fn of(inputs: Inputs<'a>) -> Self {
        let mut shares = Self { addresses: BTreeMap::new(), claims: BTreeMap::new() };
        for key in inputs.ledger.open() {
            let row = inputs.tables.services().get(key);
            let pending = inputs.outstanding.services().get(key);
            let named = row.iter().flat_map(|row| &row.present);
            for ip in named.chain(pending.iter().flat_map(|pending| &pending.addresses)) {
                *shares.addresses.entry(*ip).or_insert(0) += 1;
            }
            let named = row.and_then(ServiceRow::claim);
            let sent = pending.and_then(|it| it.claims.as_ref()).map(|claims| &claims.claim);
            for claim in named.into_iter().chain(sent) {
                *shares.claims.entry(claim).or_insert(0) += 1;
            }
        }
        shares
    }

    /// Whether no other open Service has or may have a part in the addresses or the claim of this one.
    fn is_alone(&self, own: &LeaseName, row: &ServiceRow) -> bool {
        self.claims.get(own) == Some(&1)
            && row.present.iter().all(|ip| self.addresses.get(ip) == Some(&1))
    }
}

/// The open Services to settle: `busy` are the targets of jobs.
pub(super) fn to_settle(
    inputs: Inputs<'_>,
    plan: &Plan,
    busy: &BTreeSet<Target>,
    now: Instant,
) -> Vec<ToSettle> {
    let shares = Shares::of(inputs);
    let Inputs { tables, governing, announcing, .. } = inputs;
    let mut settled = Vec::new();
    for (key, _, row, decision) in decided(tables, inputs.ledger, plan) {
        let (Some(request), Some(decision)) = (tables.request(row), decision) else { continue };
        let own = &request.own_claim;
        if decision.is_final(request)
            && !is_contested(inputs, key, row)
            && shares.is_alone(own, row)
            && is_written(inputs, key, row, own, busy)
            && !has_further_claims(inputs, key, row)
        {
            let policy = governing.of(Some(request), decision).and_then(Governance::policy);
            let entry = Settled {
                addresses: row.present.clone(),
                policy: policy.map(|policy| policy.name.clone()),
                unowned: tables.announcer(own).is_none(),
            };
            let look = announcing.looked_at(key, row, decision, now);
            settled.push((key.clone(), entry, look));
        }
    }
    settled
}

/// Whether the claim lists exactly the addresses of the Service, and no write to either is due or pending.
fn is_written(
    inputs: Inputs<'_>,
    key: &ServiceKey,
    row: &ServiceRow,
    own: &LeaseName,
    busy: &BTreeSet<Target>,
) -> bool {
    let Inputs { tables, outstanding, .. } = inputs;
    let is_listed = |claim: &ClaimRow| {
        claim.record.addresses.iter().eq(row.present.iter().collect::<BTreeSet<_>>())
    };
    tables.claims().get(own).is_some_and(is_listed)
        && !outstanding.lists().contains_key(own)
        && !outstanding.services().contains_key(key)
        && !busy.contains(&Target::Service(key.clone()))
        && !busy.contains(&Target::Claim(own.clone()))
}

/// Whether another claim than its own is or may be involved.
fn has_further_claims(inputs: Inputs<'_>, key: &ServiceKey, row: &ServiceRow) -> bool {
    row.claims().is_some_and(|claims| !claims.by_address.is_empty())
        || inputs.record.is_named_elsewhere(key)
}

/// Whether a rival writes to it, or its condition says so.
fn is_contested(inputs: Inputs<'_>, key: &ServiceKey, row: &ServiceRow) -> bool {
    inputs.rivals.contest(key).is_some() || row.reports_contest()
}

/// The number of Services with an address that each policy governs.
pub(super) fn governed(
    tables: &Tables,
    ledger: &Ledger,
    governing: &Governing,
    plan: &Plan,
) -> BTreeMap<String, usize> {
    let mut governed = ledger.governed().clone();
    let of = |row: &ServiceRow, decision: &Decision| governing.of(tables.request(row), decision);
    for (_, _, row, decision) in decided(tables, ledger, plan) {
        let governance = decision.and_then(|decision| of(row, decision));
        if let Some(policy) = governance.and_then(Governance::policy) {
            *governed.entry(policy.name.clone()).or_default() += 1;
        }
    }
    governed
}
