//! Endpoints: the Services that have one that serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use leasehold_core::desired::{News, Slice, SliceFacts, Slices};

use crate::allocate::ServiceKey;
use crate::clock::Instant;

/// The time for which a Service has no endpoint before that is reported: pods start, and are replaced.
const ABSENCE: Duration = Duration::from_secs(2);

/// The EndpointSlices, and the Services that have endpoints.
#[derive(Debug, Default)]
pub struct Endpoints {
    slices: Slices,
    listing: Slices,
    listed: bool,
    /// The number of slices of each Service that have an endpoint that serves.
    serving: BTreeMap<ServiceKey, usize>,
    /// Our Services that have none, with the time since which they have none.
    absent: BTreeMap<ServiceKey, Instant>,
}

/// The Services that a change of slices concerns.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    /// All of them: the slices were listed anew.
    All,
    /// Those that gained or lost their endpoints, and one whose endpoints may be on other nodes than before.
    These(BTreeSet<ServiceKey>, Option<ServiceKey>),
}

impl Endpoints {
    /// The slices.
    pub(super) const fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Whether the first list is complete.
    pub(super) const fn is_listed(&self) -> bool {
        self.listed
    }

    /// Takes in a change; returns the Services that it concerns.
    pub(super) fn apply(&mut self, event: Event<Slice>) -> Concerned {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(slice) => self.listing.extend(SliceFacts::of(&slice)),
            Event::InitDone => {
                let before = std::mem::replace(&mut self.slices, std::mem::take(&mut self.listing));
                if std::mem::replace(&mut self.listed, true) && before == self.slices {
                    return Concerned::These(BTreeSet::new(), None);
                }
                self.serving = BTreeMap::new();
                for (_, slice) in self.slices.iter().filter(|(_, slice)| slice.serves()) {
                    if let Some(service) = service_of(slice.service()) {
                        *self.serving.entry(service).or_default() += 1;
                    }
                }
                return Concerned::All;
            }
            Event::Apply(slice) => {
                let facts = SliceFacts::of(&slice).map(|(_, facts)| facts);
                return self.replace(&slice, facts.as_ref());
            }
            Event::Delete(slice) => return self.replace(&slice, None),
        }
        Concerned::These(BTreeSet::new(), None)
    }

    /// Replaces the facts of a slice; returns the Services that this concerns.
    fn replace(&mut self, slice: &Slice, facts: Option<&SliceFacts>) -> Concerned {
        let key = format!("{}/{}", slice.namespace().unwrap_or_default(), slice.name_any());
        let before = self.slices.get(&key).map(|slice| (slice.service(), slice.serves()));
        let before = before.and_then(|(service, serves)| Some((service_of(service)?, serves)));
        let now = facts.and_then(|it| Some((service_of(it.service())?, it.serves())));
        let moved = match facts {
            Some(facts) => self.slices.insert(&key, facts, false) == News::Nodes,
            None => self.slices.remove(&key),
        };
        let services = before.iter().chain(&now).map(|(service, _)| service.clone());
        let mut concerned: BTreeSet<_> =
            services.map(|service| (self.serves(&service), service)).collect();
        for (service, _) in before.iter().filter(|(_, serves)| *serves) {
            if let Some(count) = self.serving.get_mut(service) {
                *count -= 1;
                if *count == 0 {
                    self.serving.remove(service);
                }
            }
        }
        for (service, _) in now.into_iter().filter(|(_, serves)| *serves) {
            *self.serving.entry(service).or_default() += 1;
        }
        let moved = concerned.first().filter(|_| moved).map(|(_, service)| service.clone());
        concerned.retain(|(served, service)| *served != self.serves(service));
        Concerned::These(concerned.into_iter().map(|(_, service)| service).collect(), moved)
    }

    /// Whether a Service has an endpoint that serves.
    pub(super) fn serves(&self, service: &ServiceKey) -> bool {
        self.serving.contains_key(service)
    }

    /// Notes at `now` whether a Service is one of ours.
    pub(super) fn note(&mut self, service: &ServiceKey, ours: bool, now: Instant) {
        if !ours || self.serves(service) {
            self.absent.remove(service);
        } else if !self.absent.contains_key(service) {
            self.absent.insert(service.clone(), now);
        }
    }

    /// The time from which it is reported that a Service has no endpoint, if it has none.
    pub(super) fn reported_at(&self, service: &ServiceKey) -> Option<Instant> {
        self.absent.get(service).map(|since| *since + ABSENCE)
    }

    /// The time of the next report after `now`.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.absent.values().map(|since| *since + ABSENCE).filter(|at| *at > now).min()
    }
}

/// The Service that a slice names so.
fn service_of(name: &str) -> Option<ServiceKey> {
    let (namespace, name) = name.split_once('/')?;
    Some(ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() })
}
