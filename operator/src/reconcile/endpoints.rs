//! Which Services have an endpoint that serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use leasehold::desired::SliceFacts;
use leasehold_crds::names::NodeName;

use super::table::{Row, Table};
use crate::allocate::ServiceKey;
use crate::clock::Instant;

/// For how long a Service has no endpoint before anybody is told: pods start, and are replaced.
const ABSENCE: Duration = Duration::from_secs(2);

/// What is kept of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRow {
    service: ServiceKey,
    serves: bool,
    /// The nodes with an endpoint, and whether one is ready there.
    nodes: Box<[(NodeName, bool)]>,
}

impl SliceRow {
    /// What decides on which nodes its Service may be announced.
    pub(super) fn facts(&self) -> SliceFacts {
        SliceFacts::on(self.service.to_string(), self.serves, self.nodes.iter().cloned())
    }

    /// Its Service.
    pub(super) const fn service(&self) -> &ServiceKey {
        &self.service
    }
}

impl Row for SliceRow {
    type Key = ServiceKey;
    type Object = EndpointSlice;

    fn read(slice: &EndpointSlice) -> Option<Self> {
        let (_, facts) = SliceFacts::of(slice)?;
        let (namespace, name) = facts.service().split_once('/')?;
        let service = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
        let nodes = facts.nodes().map(|(node, ready)| (node.clone(), ready)).collect();
        Some(Self { service, serves: facts.serves(), nodes })
    }

    /// Its own namespace and name.
    fn key(meta: &ObjectMeta) -> Option<ServiceKey> {
        Some(ServiceKey { namespace: meta.namespace.clone()?, name: meta.name.clone()? })
    }
}

/// Which Services have endpoints.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// The slices.
    pub slices: Table<SliceRow>,
    /// How many slices of each Service have an endpoint that serves.
    serving: BTreeMap<ServiceKey, usize>,
    /// The Services of ours that have none, and since when.
    absent: BTreeMap<ServiceKey, Instant>,
}

/// What a change of slices means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    All,
    These(BTreeSet<ServiceKey>),
}

impl Endpoints {
    /// Takes a change in; returns the Services that have endpoints now, or none any more.
    pub(super) fn apply(&mut self, event: Event<DeserializeGuard<EndpointSlice>>) -> Concerned {
        let key = match &event {
            Event::Apply(slice) | Event::Delete(slice) => {
                let (namespace, name) = (slice.namespace(), slice.name_any());
                namespace.map(|namespace| ServiceKey { namespace, name })
            }
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        let Some(key) = key else {
            if !self.slices.apply(event) {
                return Concerned::These(BTreeSet::new());
            }
            self.serving = BTreeMap::new();
            for (_, slice) in self.slices.iter().filter(|(_, slice)| slice.serves) {
                *self.serving.entry(slice.service.clone()).or_default() += 1;
            }
            return Concerned::All;
        };
        let before = self.slices.get(&key).cloned();
        self.slices.apply(event);
        let now = self.slices.get(&key).cloned();
        let services = before.iter().chain(&now).map(|slice| slice.service.clone());
        let mut concerned: BTreeSet<_> =
            services.map(|service| (self.serves(&service), service)).collect();
        for slice in before.iter().filter(|slice| slice.serves) {
            if let Some(count) = self.serving.get_mut(&slice.service) {
                *count -= 1;
                if *count == 0 {
                    self.serving.remove(&slice.service);
                }
            }
        }
        for slice in now.into_iter().filter(|slice| slice.serves) {
            *self.serving.entry(slice.service).or_default() += 1;
        }
        concerned.retain(|(served, service)| *served != self.serves(service));
        Concerned::These(concerned.into_iter().map(|(_, service)| service).collect())
    }

    /// Whether a Service has an endpoint that serves.
    pub(super) fn serves(&self, service: &ServiceKey) -> bool {
        self.serving.contains_key(service)
    }

    /// Notes a Service as it is at `now`, if it is one of ours.
    pub(super) fn note(&mut self, service: &ServiceKey, ours: bool, now: Instant) {
        if !ours || self.serves(service) {
            self.absent.remove(service);
        } else if !self.absent.contains_key(service) {
            self.absent.insert(service.clone(), now);
        }
    }

    /// From when on it is to be told that a Service has no endpoint, if it has none.
    pub(super) fn told_at(&self, service: &ServiceKey) -> Option<Instant> {
        self.absent.get(service).map(|since| *since + ABSENCE)
    }

    /// When something is to be told next, after `now`.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.absent.values().map(|since| *since + ABSENCE).filter(|at| *at > now).min()
    }
}
