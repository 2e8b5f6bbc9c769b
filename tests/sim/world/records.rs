//! What Services say of their addresses, which somebody may take off them, and what a speaker makes of that:
//! it decides what is asked for by the code of the real one, from the records and from what claims list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::desired::{Desired, DesiredClaim, Lists, Record, governed};
use leasehold_core::election::Event;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;

use super::World;

/// What somebody took off a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The annotation that names the claim.
    Claim,
    /// The addresses in the status.
    Addresses,
    /// Both.
    All,
}

impl Lost {
    pub(crate) const ANY: [Self; 3] = [Self::Claim, Self::Addresses, Self::All];
}

/// The cluster's objects, as they are stored.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    /// What they ask for, by their claims.
    desired: Desired,
    /// What of that the Services do not say, by claim.
    lost: BTreeMap<LeaseName, Lost>,
}

/// Something that a watch brings.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Leases(Event),
    Objects(Arc<Objects>),
}

/// What one process knows of the objects and of the lists.
#[derive(Debug, Default)]
pub(crate) struct Known {
    objects: Option<Arc<Objects>>,
    lists: Lists,
    listed: bool,
    told: Option<Arc<Desired>>,
}

/// A Service, with what it says.
struct Service(Record);

impl AsRef<Record> for Service {
    fn as_ref(&self) -> &Record {
        &self.0
    }
}

impl Objects {
    fn services(&self) -> BTreeMap<String, Service> {
        let mut said: BTreeMap<&String, (BTreeMap<LeaseName, AddressSet>, AddressSet)> =
            BTreeMap::new();
        for (name, claim) in &self.desired.claims {
            for service in &claim.services {
                let (claims, bare) = said.entry(service).or_default();
                match self.lost.get(name) {
                    None => {
                        claims.insert(name.clone(), claim.addresses.clone());
                    }
                    Some(Lost::Claim) => bare.extend(claim.addresses.clone()),
                    Some(Lost::Addresses | Lost::All) => {}
                }
            }
        }
        let service = |(name, (claims, bare)): (&String, _)| {
            (name.clone(), Service(Record::new("", claims, bare)))
        };
        said.into_iter().map(service).collect()
    }

    /// What a speaker that knows these `lists` takes to be asked for.
    fn asked(&self, lists: &Lists) -> Desired {
        let services = self.services();
        let mut claims: BTreeMap<LeaseName, DesiredClaim> = BTreeMap::new();
        for (service, governed) in governed(&services, lists) {
            for (name, addresses) in governed.iter() {
                let of_it =
                    |claim: &&Arc<DesiredClaim>| claim.services.iter().any(|it| it == service);
                let like = self.desired.claims.get(name).filter(of_it);
                let like = like.or_else(|| self.desired.claims.values().find(of_it)).unwrap();
                let claim = claims.entry(name.clone()).or_insert_with(|| DesiredClaim {
                    services: Vec::new(),
                    addresses: AddressSet::default(),
                    ..DesiredClaim::clone(like)
                });
                claim.services.push(service.to_owned());
                claim.addresses.extend(addresses.clone());
            }
        }
        let shared = |(name, claim): (LeaseName, DesiredClaim)| {
            let same = self.desired.claims.get(&name).filter(|same| ***same == claim);
            (name, same.cloned().unwrap_or_else(|| claim.into()))
        };
        let claims = claims.into_iter().map(shared).collect();
        let polls = Desired::polls_of(&claims);
        Desired { claims, polls, ..self.desired.clone() }
    }
}

impl Known {
    /// Takes in what the watch on the claims brings; whether something else may be asked for then.
    fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Claims(all) => {
                self.lists.replace(all.iter().map(|stored| (&stored.name, &stored.record)));
                self.listed = true;
                true
            }
            Event::Claim(stored) => self.lists.note(&stored.name, &stored.record),
            Event::ClaimGone(name) => self.lists.gone(name, |_| true),
            _ => false,
        }
    }

    /// What is asked for, if it is something else than was told.
    fn news(&mut self) -> Option<Arc<Desired>> {
        let objects = self.objects.as_ref().filter(|_| self.listed)?;
        let asked = objects.asked(&self.lists);
        if self.told.as_deref() == Some(&asked) {
            return None;
        }
        let asked = Arc::new(asked);
        self.told = Some(Arc::clone(&asked));
        Some(asked)
    }
}

impl World {
    /// Somebody takes this off the Service of a claim.
    pub(crate) fn lose_record(&mut self, name: &LeaseName, lost: Lost) {
        if self.desired.claims.contains_key(name) {
            self.tell_all(&format!("the Service of {name} loses its record: {lost:?}"));
            self.lost.insert(name.clone(), lost);
            self.publish_desired();
        }
    }

    /// Whether each Service says what it has.
    pub(crate) fn records_are_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// The operator writes again what Services have lost.
    pub(super) fn restore_records(&mut self) {
        if !self.lost.is_empty() {
            self.tell_all("the operator restores what Services have lost");
            self.lost.clear();
            self.publish_desired();
        }
    }

    pub(super) fn objects(&self) -> Arc<Objects> {
        let known: BTreeSet<&LeaseName> = self.desired.claims.keys().collect();
        let lost = self.lost.iter().filter(|(name, _)| known.contains(name));
        let lost = lost.map(|(name, lost)| (name.clone(), *lost)).collect();
        Arc::new(Objects { desired: self.desired.clone(), lost })
    }

    /// Hands what a watch brings to a speaker's process.
    pub(super) fn learn(&mut self, id: usize, news: News) {
        let open = match news {
            News::Objects(objects) => {
                self.hosts[id].known.objects = Some(objects);
                true
            }
            News::Leases(event) => {
                let open = self.hosts[id].known.note(&event);
                self.feed(id, event);
                open
            }
        };
        if open && let Some(asked) = self.hosts[id].known.news() {
            self.feed(id, Event::Desired(asked));
        }
    }
}
