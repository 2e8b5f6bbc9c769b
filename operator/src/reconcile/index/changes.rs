//! Changes from the watches, and what follows from each for the rooms of the index.

use std::net::IpAddr;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use leasehold_core::desired::Slice;
use leasehold_crds::IPAddressPool;
use leasehold_crds::lease::LeaseName;

use super::Index;
use super::news::Before;
use super::owners::UNOWNED;
use crate::allocate::{PoolMap, ServiceKey};
use crate::clock::Instant;
use crate::reconcile::endpoints::Concerned;
use crate::reconcile::service::ServiceRow;
use crate::reconcile::watch::Change;

impl Index {
    /// Takes in a change at `now`; returns whether anything may need work because of it.
    pub fn apply(&mut self, change: Change, now: Instant) -> bool {
        self.now = now;
        match change {
            Change::Service(event) => self.apply_service(*event, now),
            Change::Namespace(event) => self.apply_namespace(*event),
            Change::Pool(event) => self.apply_pool(*event, now),
            Change::Policy(event) => {
                let changed = self.tables.apply_policy(*event);
                if changed {
                    self.update_governing();
                }
                changed
            }
            Change::Node(event) => self.apply_node(*event),
            Change::Slice(event) => self.apply_slice(*event),
            Change::Claim(event) => self.apply_claim(*event, now),
            Change::Session(event) => self.apply_session(*event, now),
            Change::Failed(..) => false,
        }
    }

    fn apply_service(&mut self, event: Event<DeserializeGuard<Service>>, now: Instant) -> bool {
        let key = match &event {
            Event::Apply(service) | Event::Delete(service) => {
                let (namespace, name) = (service.namespace(), service.name_any());
                namespace.map(|namespace| ServiceKey { namespace, name })
            }
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        let Some(key) = key else { return self.apply_service_list(event, now) };
        let (had, before) = self.state_of(&key);
        let effective = self.effective(&key);
        let changed = self.tables.apply_service(event);
        self.compare(&key, before, &had, now);
        if changed {
            self.service_changed(&key);
        }
        // The echo of an own write is no news.
        if self.outstanding.services().contains_key(&key) {
            self.effective(&key) != effective
        } else {
            changed
        }
    }

    /// Takes in a part of a list of Services, or its end.
    fn apply_service_list(
        &mut self,
        event: Event<DeserializeGuard<Service>>,
        now: Instant,
    ) -> bool {
        let complete = matches!(event, Event::InitDone);
        let before: Vec<_> = if complete {
            let keys = self.tables.services().iter().map(|(key, _)| key);
            keys.map(|key| (key.clone(), self.state_of(key))).collect()
        } else {
            Vec::new()
        };
        let changed = self.tables.apply_service(event);
        for (key, (had, before)) in before {
            self.compare(&key, before, &had, now);
        }
        if complete {
            self.record.recall(&self.tables, std::mem::take(&mut self.recollection));
        }
        if changed {
            self.open_all();
        }
        changed
    }

    /// The addresses of a Service, and its state to compare with news of it.
    fn state_of(&self, key: &ServiceKey) -> (Vec<IpAddr>, Before) {
        (self.tables.present(key).to_vec(), Before::of(&self.tables, key))
    }

    fn apply_namespace(&mut self, event: Event<DeserializeGuard<Namespace>>) -> bool {
        let one = match &event {
            Event::Apply(namespace) | Event::Delete(namespace) => Some(namespace.name_any()),
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        let changed = self.tables.apply_namespace(event);
        match one {
            Some(name) if changed => self.ledger.open_namespace(&name, &self.pool_map),
            None if changed => self.open_all(),
            _ => {}
        }
        changed
    }

    fn apply_pool(&mut self, event: Event<DeserializeGuard<IPAddressPool>>, now: Instant) -> bool {
        let changed = self.tables.apply_pool(event, now);
        if changed {
            self.update_pool_map();
            self.update_governing();
        }
        changed
    }

    fn apply_node(&mut self, event: Event<DeserializeGuard<Node>>) -> bool {
        let changed = self.tables.apply_node(event);
        if changed {
            self.update_governing();
            self.open_unowned();
        }
        self.update_node_addresses(changed)
    }

    fn apply_slice(&mut self, event: Event<Slice>) -> bool {
        match self.tables.apply_slice(event) {
            Concerned::All => {
                self.open_all();
                true
            }
            Concerned::These(mut services, moved) => {
                services.extend(moved.filter(|service| self.is_spread(service)));
                for service in &services {
                    let claims = self.tables.services().get(service).and_then(ServiceRow::claims);
                    for claim in
                        claims.iter().flat_map(|it| it.by_address.iter().chain([&it.claim]))
                    {
                        self.owners.note(claim, self.now);
                    }
                    self.service_changed(service);
                }
                !services.is_empty()
            }
        }
    }

    fn apply_claim(&mut self, event: Event<DeserializeGuard<Lease>>, now: Instant) -> bool {
        let one: Option<LeaseName> = match &event {
            Event::Apply(lease) | Event::Delete(lease) => lease.name_any().parse().ok(),
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        let before = one.as_ref().map(|name| self.tables.announcement(name));
        let changed = self.tables.apply_claim(event);
        match (&one, before) {
            (Some(name), Some(before)) if self.tables.announcement(name) != before => {
                self.owners.note(name, now);
            }
            (None, _) if changed => self.put_off_unowned(),
            _ => {}
        }
        let before = self.outstanding.lists().len();
        self.resolve_listings();
        match one {
            Some(name) if changed => self.claim_changed(&name),
            None if changed => self.open_all(),
            _ => {}
        }
        changed || self.outstanding.lists().len() < before
    }

    fn apply_session(&mut self, event: Event<DeserializeGuard<Lease>>, now: Instant) -> bool {
        let one = self.note_session(&event, now);
        let links = |index: &Self, name| {
            let row = index.tables.sessions().get(name)?;
            let unanswered = row.record.interfaces.iter().map(|it| it.detours.unanswered.clone());
            Some((row.live.clone(), row.record.data_path, unanswered.collect::<Vec<_>>()))
        };
        let before = one.as_ref().map(|name| links(self, name));
        let announces = |index: &Self, name| {
            let row = index.tables.sessions().get(name);
            row.is_some_and(|row| row.record.ignores_exclude_label)
        };
        let ignored = one.as_ref().map(|name| announces(self, name));
        let changed = self.tables.apply_session(event);
        let same = one.is_some() && one.as_ref().map(|name| announces(self, name)) == ignored;
        if changed && !same {
            self.update_governing();
        }
        match (&one, before) {
            (Some(name), Some(before)) if links(self, name) != before => {
                for claim in self.tables.claims_of(name) {
                    self.owners.note(&claim, now);
                    self.claim_changed(&claim);
                }
            }
            (None, _) if changed => self.open_all(),
            _ => {}
        }
        if changed {
            self.families.doubt();
            self.open_unowned();
            self.open_not_spread();
        }
        self.update_node_addresses(changed)
    }

    /// Notes the time at which a session was seen; returns its name, unless the event is part of a list.
    fn note_session(
        &mut self,
        event: &Event<DeserializeGuard<Lease>>,
        now: Instant,
    ) -> Option<LeaseName> {
        let name = |lease: &DeserializeGuard<Lease>| lease.name_any().parse::<LeaseName>().ok();
        match event {
            Event::Apply(lease) | Event::InitApply(lease) => {
                let name = name(lease)?;
                self.tables.saw_session(name.clone(), now);
                Some(name).filter(|_| matches!(event, Event::Apply(_)))
            }
            Event::Delete(lease) => {
                let name = name(lease)?;
                self.tables.lost_session(&name);
                Some(name)
            }
            Event::Init | Event::InitDone => None,
        }
    }

    // === what follows ===

    /// Brings the pool map up to date with the pools and the subnets of the nodes.
    fn update_pool_map(&mut self) {
        let pools = self.tables.pools().iter();
        let pools = pools.map(|(name, row)| (name.clone(), row.pool.clone()));
        let pool_map = PoolMap::new(&pools.collect(), self.unusable.clone());
        // Not if only a status has changed.
        if pool_map != self.pool_map {
            self.pool_map = pool_map;
            self.open_all();
        }
    }

    /// Brings the governance up to date with the policies, pools, nodes and sessions.
    fn update_governing(&mut self) {
        self.families.doubt();
        if self.governing.update(&self.tables) {
            self.put_off_unowned();
            self.open_all();
        }
    }

    /// Brings the addresses of nodes up to date, if nodes or sessions `changed`; returns whether they did.
    fn update_node_addresses(&mut self, changed: bool) -> bool {
        if changed {
            self.tables.note_nodes();
            let unusable = self.tables.unusable();
            if unusable != self.unusable {
                self.unusable = unusable;
                self.update_pool_map();
            }
        }
        changed
    }

    /// Has Services without an owner be looked at again soon: other nodes may be able to take their claims
    /// now, or cannot for other reasons.
    fn open_unowned(&mut self) {
        self.put_off_unowned();
        let due = self.now + UNOWNED;
        for key in self.ledger.unowned().cloned().collect::<Vec<_>>() {
            self.ledger.look_by(key, due);
        }
    }

    /// Has Services that are not spread over all nodes be looked at again: the cause may be another one now.
    fn open_not_spread(&mut self) {
        let rows = self.tables.services().iter();
        let reported = rows.filter(|(_, row)| row.reports_not_spread());
        for key in reported.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.service_changed(&key);
        }
    }

    /// Whether packets for a Service are spread over nodes.
    fn is_spread(&self, service: &ServiceKey) -> bool {
        let claims = self.tables.services().get(service).and_then(ServiceRow::claims);
        let mut claims = claims.iter().flat_map(|it| it.by_address.iter().chain([&it.claim]));
        claims.any(|claim| {
            let row = self.tables.claims().get(claim);
            row.is_some_and(|row| !row.record.members.is_empty())
        })
    }

    /// Puts off the report of unowned claims, which another node may be about to take.
    fn put_off_unowned(&mut self) {
        for name in self.tables.unowned() {
            self.owners.put_off(&name, self.now);
        }
    }
}
