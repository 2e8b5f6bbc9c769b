//! The API server's store: versions, uids, and what it makes of a PUT.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use leasehold_core::election::{Answer, Change, Event, Target, Write};
use leasehold_crds::lease::{Claim, LeaseName, Record, Session, SessionId, Stored, new_lease};

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) sessions: BTreeMap<LeaseName, Arc<Stored<Session>>>,
    pub(crate) claims: BTreeMap<LeaseName, Arc<Stored<Claim>>>,
    /// The claims that were edited by hand, each with the version that it had then.
    edited: BTreeMap<LeaseName, Arc<str>>,
    /// Counts all changes; uids and versions are made from it.
    pub(crate) version: u64,
    /// How often a backup was restored.
    pub(crate) restores: u32,
}

impl Store {
    /// Carries out a write as the API server would; the event is what watches deliver of it.
    pub(crate) fn write(&mut self, write: &Write) -> (Answer, Option<Event>) {
        match write {
            Write::Session(change) => match put(&mut self.sessions, change, &mut self.version) {
                Some(new) => (Answer::Session(new.clone()), Some(Event::Session(new))),
                None => (Answer::Conflict, None),
            },
            Write::Claim(change) => match put(&mut self.claims, change, &mut self.version) {
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

    pub(crate) fn list_sessions(&self) -> Event {
        Event::Sessions(self.sessions.values().cloned().collect())
    }

    pub(crate) fn list_claims(&self) -> Event {
        Event::Claims(self.claims.values().cloned().collect())
    }

    /// Deletes by hand.
    pub(crate) fn delete(&mut self, target: &Target) -> Option<Event> {
        self.version += 1;
        match target {
            Target::Session(name) => {
                self.sessions.remove(name).map(|old| Event::SessionGone(old.name.clone()))
            }
            Target::Claim(name) => {
                self.claims.remove(name).map(|old| Event::ClaimGone(old.name.clone()))
            }
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
        let stored = edited(&mut self.claims, name, edit, &mut self.version);
        self.edited.insert(name.clone(), Arc::clone(&stored.resource_version));
        Event::Claim(stored)
    }

    /// Everything is again as it was in `backup`; versions go on.
    pub(crate) fn restore(&mut self, backup: &Self) {
        self.restores += 1;
        self.sessions.clone_from(&backup.sessions);
        self.claims.clone_from(&backup.claims);
        for stored in self.sessions.values_mut() {
            self.version += 1;
            Arc::make_mut(stored).resource_version = self.version.to_string().into();
        }
        for stored in self.claims.values_mut() {
            self.version += 1;
            Arc::make_mut(stored).resource_version = self.version.to_string().into();
        }
    }

    /// What must not change as a write might change it: the uid under the name, and the number of
    /// transitions.
    pub(crate) fn mark(&self, write: &Write) -> Option<(u64, i32)> {
        let mark = |uid: &str, number| (uid.trim_start_matches("uid-").parse().unwrap(), number);
        match write {
            Write::Session(change) => {
                self.sessions.get(&change.name).map(|s| mark(&s.uid, s.record.transitions))
            }
            Write::Claim(change) => {
                self.claims.get(&change.name).map(|s| mark(&s.uid, s.record.transitions))
            }
        }
    }

    /// The claims that are valid.
    pub(crate) fn valid_claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values().filter(|stored| self.is_valid(stored)).map(|stored| &stored.record)
    }

    pub(crate) fn is_valid(&self, claim: &Stored<Claim>) -> bool {
        let Claim { holder: Some(holder), session: Some(under), .. } = &claim.record else {
            return false;
        };
        self.sessions.get(holder.as_str()).is_some_and(|session| {
            session.record.holder.as_ref() == Some(holder)
                && session.uid == under.uid
                && session.record.transitions == under.transitions
        })
    }

    /// The claims that are valid, and as speakers and operator wrote them.
    pub(crate) fn unedited_claims(&self) -> impl Iterator<Item = &Arc<Stored<Claim>>> {
        let valid = self.claims.values().filter(|stored| self.is_valid(stored));
        let edited = |stored: &Stored<Claim>| {
            self.edited.get(&stored.name) == Some(&stored.resource_version)
        };
        valid.filter(move |stored| !edited(stored))
    }

    /// The session that lives under this name.
    /// The record of a session.
    pub(crate) fn session(&self, name: &LeaseName) -> Option<&Session> {
        self.sessions.get(name).map(|stored| &stored.record)
    }

    pub(crate) fn live(&self, name: &LeaseName) -> Option<SessionId> {
        let stored = self.sessions.get(name)?;
        stored.record.holder.as_ref()?;
        Some(SessionId { uid: stored.uid.clone(), transitions: stored.record.transitions })
    }
}

/// What a speaker sends is made by the same code as the real one's; what the server does with it is
/// what kube-apiserver does with Leases: without a version it overwrites, and without a uid it
/// creates what is not there.
fn put<T: Record + Clone>(
    all: &mut BTreeMap<LeaseName, Arc<Stored<T>>>,
    change: &Change<T>,
    version: &mut u64,
) -> Option<Arc<Stored<T>>> {
    let wall = Timestamp::UNIX_EPOCH;
    let mut lease: Lease = match &change.base {
        Some(base) => base.replace_with(&change.record, "sim", wall),
        None => new_lease(&change.name, &change.record, "sim", wall),
    };
    let creates = change.base.is_none();
    let uid = match all.get(&change.name) {
        Some(_) if creates => return None,
        Some(current) => {
            let meta = &lease.metadata;
            let other_uid = meta.uid.as_ref().is_some_and(|uid| **uid != *current.uid);
            let other_version =
                meta.resource_version.as_ref().is_some_and(|v| **v != *current.resource_version);
            if other_uid || other_version {
                return None;
            }
            current.uid.to_string()
        }
        None if creates || lease.metadata.uid.is_none() => format!("uid-{}", *version + 1),
        None => return None,
    };
    *version += 1;
    lease.metadata.uid = Some(uid);
    lease.metadata.resource_version = Some(version.to_string());
    let new = Arc::new(Stored::from_lease(&lease).unwrap());
    all.insert(change.name.clone(), Arc::clone(&new));
    Some(new)
}

fn edited<T: Clone>(
    all: &mut BTreeMap<LeaseName, Arc<Stored<T>>>,
    name: &LeaseName,
    edit: impl FnOnce(&mut T),
    version: &mut u64,
) -> Arc<Stored<T>> {
    *version += 1;
    let shared = all.get_mut(name).unwrap();
    let stored = Arc::make_mut(shared);
    edit(&mut stored.record);
    stored.resource_version = version.to_string().into();
    Arc::clone(shared)
}
