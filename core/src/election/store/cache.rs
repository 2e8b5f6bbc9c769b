//! The leases as this node knows them: from its watch, and from the answers to its own requests.
//!
//! A watch runs behind the answers. After an answer, what the watch says of that lease is passed
//! over until it has delivered the very version that was answered: versions are opaque, but a watch
//! delivers all of them in order. An answer that the watch has overtaken is passed over instead.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use leasehold_crds::lease::{LeaseName, Record, Stored};

use crate::clock::Instant;

/// How many versions of a lease the watch can be ahead of an answer.
pub(in crate::election) const OVERTAKEN: usize = 4;

/// All leases of one kind.
#[derive(Clone, Debug)]
pub(in crate::election) struct Cache<T> {
    pub(in crate::election) entries: BTreeMap<LeaseName, Entry<T>>,
    pub(in crate::election) listed: bool,
    /// Grows with each change of what a lease says; a renewal changes nothing.
    pub(in crate::election) revision: u64,
}

/// One lease.
#[derive(Clone, Debug)]
pub(in crate::election) struct Entry<T> {
    /// What is stored, as far as is known; `None`: nothing.
    pub(in crate::election) stored: Option<Arc<Stored<T>>>,
    /// When this node last saw it change.
    pub(in crate::election) changed: Instant,
    /// The greatest number of transitions ever seen under the name.
    pub(in crate::election) highest: i32,
    /// The greatest that was seen of the lease that is stored now.
    pub(in crate::election) highest_here: i32,
    /// The lease that was stored last.
    pub(in crate::election) uid: Option<Arc<str>>,
    /// The version up to which the watch is passed over.
    pub(in crate::election) awaiting: Option<Arc<str>>,
    /// The versions that the watch delivered last, and when the last one came.
    pub(in crate::election) delivered: VecDeque<Arc<str>>,
    pub(in crate::election) delivered_at: Option<Instant>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), listed: false, revision: 0 }
    }
}

impl<T: Record> Cache<T> {
    /// Whether a complete list has been seen.
    pub(in crate::election) const fn listed(&self) -> bool {
        self.listed
    }

    /// Differs whenever a lease says something else than before.
    pub(in crate::election) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(in crate::election) fn entry(&self, name: &LeaseName) -> Option<&Entry<T>> {
        self.entries.get(name)
    }

    pub(in crate::election) fn get<Name>(&self, name: &Name) -> Option<&Arc<Stored<T>>>
    where
        Name: Ord + ?Sized,
        LeaseName: Borrow<Name>,
    {
        self.entries.get(name).and_then(|entry| entry.stored.as_ref())
    }

    pub(in crate::election) fn highest(&self, name: &LeaseName) -> i32 {
        self.entries.get(name).map_or(0, |entry| entry.highest)
    }

    /// Whether the lease of this name was seen with more transitions than `stored` has: then somebody
    /// set it back.
    pub(in crate::election) fn is_set_back(&self, stored: &Stored<T>) -> bool {
        self.entries.get(&stored.name).is_some_and(|entry| entry.was_above(stored))
    }

    /// Remembers that this many transitions were seen under the name before this process began.
    pub(in crate::election) fn remember(&mut self, now: Instant, name: LeaseName, highest: i32) {
        let entry = self.entries.entry(name).or_insert_with(|| Entry::nothing(now));
        entry.highest = entry.highest.max(highest);
    }

    pub(in crate::election) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &Entry<T>)> {
        self.entries.iter()
    }

    pub(in crate::election) fn stored(&self) -> impl Iterator<Item = &Arc<Stored<T>>> {
        self.entries.values().filter_map(|entry| entry.stored.as_ref())
    }

    /// A complete list with which a watch begins: what is newer will follow.
    pub(in crate::election) fn list(&mut self, now: Instant, all: Vec<Arc<Stored<T>>>) {
        self.listed = true;
        self.revision += 1;
        let mut all: BTreeMap<LeaseName, Arc<Stored<T>>> =
            all.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        for (name, entry) in &mut self.entries {
            entry.awaiting = None;
            entry.set(now, all.remove(name));
        }
        for (name, stored) in all {
            self.entries.insert(name, Entry::new(now, stored));
        }
    }

    /// A complete list that was asked for at `asked`. What has changed here since then is newer.
    pub(in crate::election) fn listed_at(
        &mut self,
        now: Instant,
        asked: Instant,
        all: Vec<Arc<Stored<T>>>,
    ) {
        self.listed = true;
        self.revision += 1;
        let mut all: BTreeMap<LeaseName, Arc<Stored<T>>> =
            all.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        for (name, entry) in &mut self.entries {
            let stored = all.remove(name);
            let version = stored.as_ref().map(|stored| &stored.resource_version);
            let delivered = version.is_some_and(|version| entry.delivered.contains(version));
            let known = entry.stored.as_ref().map(|stored| &stored.resource_version);
            if entry.changed < asked && !delivered && known != version {
                entry.awaiting = stored.as_ref().map(|stored| stored.resource_version.clone());
                entry.set(now, stored);
            }
        }
        for (name, stored) in all {
            let mut entry = Entry::new(now, stored);
            entry.awaiting = entry.stored.as_ref().map(|stored| stored.resource_version.clone());
            self.entries.insert(name, entry);
        }
    }

    /// The watch says that the lease is now this, or gone. Returns whether that was news.
    pub(in crate::election) fn watched(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: Option<Arc<Stored<T>>>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            let Some(stored) = stored else { return false };
            self.revision += 1;
            let mut entry = Entry::new(now, stored);
            entry.delivered.extend(entry.stored.as_ref().map(|s| s.resource_version.clone()));
            entry.delivered_at = Some(now);
            self.entries.insert(name.clone(), entry);
            return true;
        };
        if let Some(stored) = &stored {
            entry.delivered_at = Some(now);
            entry.delivered.truncate(OVERTAKEN - 1);
            entry.delivered.push_front(stored.resource_version.clone());
        }
        if let Some(version) = &entry.awaiting {
            if stored.as_ref().is_some_and(|stored| stored.resource_version == *version) {
                entry.awaiting = None;
            }
            return false;
        }
        self.revision += u64::from(entry.says_else(stored.as_deref()));
        entry.set(now, stored)
    }

    /// A request that was sent at `sent` was answered with this; returns whether that was news.
    pub(in crate::election) fn answered(
        &mut self,
        now: Instant,
        sent: Instant,
        name: &LeaseName,
        stored: Option<Arc<Stored<T>>>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            let Some(stored) = stored else { return false };
            self.revision += 1;
            let mut entry = Entry::new(now, stored);
            entry.awaiting = entry.stored.as_ref().map(|stored| stored.resource_version.clone());
            self.entries.insert(name.clone(), entry);
            return true;
        };
        // Created since, as the watch says: what is absent has no version that could tell.
        if stored.is_none() && entry.stored.is_some() && entry.changed >= sent {
            return false;
        }
        // Nothing to wait for where nothing is stored: the next that is created is news.
        entry.awaiting = None;
        let newest = entry.delivered_at.is_none_or(|at| at < sent);
        if let Some(found) = &stored {
            if entry.delivered.contains(&found.resource_version) {
                // Read after the watch last delivered, it is the newest; else the watch is ahead.
                if !newest {
                    return false;
                }
                self.revision += u64::from(entry.says_else(stored.as_deref()));
                return entry.set(now, stored);
            }
            let known = entry.stored.as_ref().map(|stored| &stored.resource_version);
            if known != Some(&found.resource_version) {
                entry.awaiting = Some(found.resource_version.clone());
            }
        }
        self.revision += u64::from(entry.says_else(stored.as_deref()));
        entry.set(now, stored)
    }

    /// Forgets a lease if it is gone.
    pub(in crate::election) fn prune(&mut self, name: &LeaseName) {
        if self.entries.get(name).is_some_and(|entry| entry.stored.is_none()) {
            self.entries.remove(name);
        }
    }
}

impl<T> Entry<T> {
    /// Whether the watch has delivered the version that was last answered.
    pub(in crate::election) const fn is_echoed(&self) -> bool {
        self.awaiting.is_none()
    }
}

impl<T: Record> Entry<T> {
    pub(in crate::election) const fn nothing(now: Instant) -> Self {
        Self {
            stored: None,
            changed: now,
            highest: 0,
            highest_here: 0,
            uid: None,
            awaiting: None,
            delivered: VecDeque::new(),
            delivered_at: None,
        }
    }

    pub(in crate::election) fn new(now: Instant, stored: Arc<Stored<T>>) -> Self {
        let highest = stored.record.transitions();
        let uid = Some(stored.uid.clone());
        Self {
            uid,
            stored: Some(stored),
            changed: now,
            highest,
            highest_here: highest,
            awaiting: None,
            delivered: VecDeque::new(),
            delivered_at: None,
        }
    }

    /// Whether it was seen with more transitions than `stored` has.
    pub(in crate::election) fn was_above(&self, stored: &Stored<T>) -> bool {
        self.uid.as_ref() == Some(&stored.uid) && stored.record.transitions() < self.highest_here
    }

    /// Whether `stored` says something else than what is known to those who decide by it.
    pub(in crate::election) fn says_else(&self, stored: Option<&Stored<T>>) -> bool {
        match (&self.stored, stored) {
            (Some(known), Some(stored)) => {
                known.uid != stored.uid || !known.record.decides_as(&stored.record)
            }
            (known, stored) => known.is_some() != stored.is_some(),
        }
    }

    pub(in crate::election) fn set(
        &mut self,
        now: Instant,
        stored: Option<Arc<Stored<T>>>,
    ) -> bool {
        if self.stored == stored {
            return false;
        }
        if let Some(stored) = &stored {
            let transitions = stored.record.transitions();
            self.highest = self.highest.max(transitions);
            let same = self.uid.as_ref() == Some(&stored.uid);
            self.highest_here = if same { self.highest_here.max(transitions) } else { transitions };
            self.uid = Some(stored.uid.clone());
        }
        self.stored = stored;
        self.changed = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use leasehold_crds::lease::Session;

    use super::*;

    fn at(version: &str, transitions: i32) -> Arc<Stored<Session>> {
        Arc::new(Stored {
            name: "node-1".parse().unwrap(),
            uid: "u".into(),
            resource_version: version.into(),
            acquired: None,
            record: Session { transitions, ..Session::default() },
        })
    }

    #[test]
    fn a_late_watch_does_not_overwrite_an_answer() {
        let name: LeaseName = "node-1".parse().unwrap();
        let now = Instant::default();
        let mut cache = Cache::default();
        cache.list(now, vec![at("1", 1)]);
        assert!(cache.answered(now, now, &name, Some(at("4", 4))));
        for (version, transitions) in [("2", 2), ("3", 3), ("4", 4)] {
            assert!(!cache.watched(now, &name, Some(at(version, transitions))));
            assert_eq!(&*cache.get(&name).unwrap().resource_version, "4");
        }
        assert!(cache.watched(now, &name, Some(at("5", 5))));
        assert!(cache.watched(now, &name, None));
        assert_eq!(cache.highest(&name), 5);
    }

    #[test]
    fn an_answer_that_the_watch_delivered_before_holds_nothing_back() {
        let name: LeaseName = "node-1".parse().unwrap();
        let now = Instant::default();
        let mut cache = Cache::default();
        cache.list(now, vec![at("1", 1)]);
        cache.watched(now, &name, Some(at("2", 2)));
        assert!(!cache.answered(now, now, &name, Some(at("2", 2))));
        assert!(cache.watched(now, &name, Some(at("3", 3))));
    }

    #[test]
    fn a_number_for_people_is_no_news_to_those_who_decide() {
        let name: LeaseName = "node-1".parse().unwrap();
        let now = Instant::default();
        let mut cache = Cache::default();
        cache.list(now, vec![at("1", 1)]);
        let before = cache.revision();
        let mut counted = Stored::clone(&at("2", 1));
        counted.record.forwarded_connections = Some(7);
        assert!(cache.watched(now, &name, Some(Arc::new(counted))));
        assert_eq!(cache.revision(), before);
        assert_eq!(cache.get(&name).unwrap().record.forwarded_connections, Some(7));
        cache.watched(now, &name, Some(at("3", 2)));
        assert_ne!(cache.revision(), before);
    }

    #[test]
    fn an_answer_that_the_watch_has_overtaken_does_not_turn_back_time() {
        let name: LeaseName = "node-1".parse().unwrap();
        let now = Instant::default();
        let mut cache = Cache::default();
        cache.list(now, vec![at("1", 1)]);
        cache.watched(now, &name, Some(at("2", 2)));
        cache.watched(now, &name, Some(at("3", 3)));
        assert!(!cache.answered(now, now, &name, Some(at("2", 2))));
        assert_eq!(&*cache.get(&name).unwrap().resource_version, "3");
        assert!(cache.watched(now, &name, Some(at("4", 4))));
    }
}
