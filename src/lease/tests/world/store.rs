//! The API server's store: versions, uids, compare-and-swap.

use std::collections::BTreeMap;

use leasehold_crds::lease::{Claim, LeaseName, Session, Stored};

use crate::lease::{Answer, Change, Event, Target, Write};

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) sessions: BTreeMap<LeaseName, Stored<Session>>,
    pub(crate) claims: BTreeMap<LeaseName, Stored<Claim>>,
    /// Counts all changes; uids and versions are made from it.
    pub(crate) version: u64,
}

impl Store {
    /// Carries out a compare-and-swap; the event is what watches deliver of it.
    pub(crate) fn write(&mut self, write: &Write) -> (Answer, Option<Event>) {
        match write {
            Write::Session(change) => match swap(&mut self.sessions, change, &mut self.version) {
                Some(new) => (Answer::Session(new.clone()), Some(Event::Session(new))),
                None => (Answer::Conflict, None),
            },
            Write::Claim(change) => match swap(&mut self.claims, change, &mut self.version) {
                Some(new) => (Answer::Claim(new.clone()), Some(Event::Claim(new))),
                None => (Answer::Conflict, None),
            },
        }
    }

    pub(crate) fn read(&self, target: &Target) -> Answer {
        match target {
            Target::Session(name) => {
                self.sessions.get(name).cloned().map_or(Answer::Absent, Answer::Session)
            }
            Target::Claim(name) => {
                self.claims.get(name).cloned().map_or(Answer::Absent, Answer::Claim)
            }
        }
    }

    pub(crate) fn lists(&self) -> [Event; 2] {
        [
            Event::Sessions(self.sessions.values().cloned().collect()),
            Event::Claims(self.claims.values().cloned().collect()),
        ]
    }

    /// Deletes by hand.
    pub(crate) fn delete(&mut self, target: &Target) -> Option<Event> {
        self.version += 1;
        match target {
            Target::Session(name) => {
                self.sessions.remove(name).map(|old| Event::SessionGone(old.name))
            }
            Target::Claim(name) => self.claims.remove(name).map(|old| Event::ClaimGone(old.name)),
        }
    }

    pub(crate) fn edit_session(
        &mut self,
        name: &LeaseName,
        edit: impl FnOnce(&mut Session),
    ) -> Event {
        Event::Session(edited(&mut self.sessions, name, edit, &mut self.version))
    }

    pub(crate) fn edit_claim(&mut self, name: &LeaseName, edit: impl FnOnce(&mut Claim)) -> Event {
        Event::Claim(edited(&mut self.claims, name, edit, &mut self.version))
    }
}

fn swap<T: Clone>(
    all: &mut BTreeMap<LeaseName, Stored<T>>,
    change: &Change<T>,
    version: &mut u64,
) -> Option<Stored<T>> {
    let current = all.get(&change.name);
    let uid = match (&change.base, current) {
        (None, None) => format!("uid-{}", *version + 1),
        (Some(base), Some(current))
            if base.uid == current.uid && base.resource_version == current.resource_version =>
        {
            current.uid.clone()
        }
        _ => return None,
    };
    *version += 1;
    let new = Stored {
        name: change.name.clone(),
        uid,
        resource_version: version.to_string(),
        acquired: None,
        record: change.record.clone(),
    };
    all.insert(change.name.clone(), new.clone());
    Some(new)
}

fn edited<T: Clone>(
    all: &mut BTreeMap<LeaseName, Stored<T>>,
    name: &LeaseName,
    edit: impl FnOnce(&mut T),
    version: &mut u64,
) -> Stored<T> {
    *version += 1;
    let stored = all.get_mut(name).unwrap();
    edit(&mut stored.record);
    stored.resource_version = version.to_string();
    stored.clone()
}
