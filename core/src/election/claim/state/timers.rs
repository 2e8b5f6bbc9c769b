//! Claims at which nothing is to be done before their time: an event that does not concern them costs
//! nothing for them, however many they are.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;

/// The event for which a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::election) enum For {
    /// Its turn.
    Time(Instant),
    /// Its turn has come, then, and too many writes are under way. Among those whose turn came at the same
    /// time the number decides; the round that the turn belongs to ends then.
    Room { turn: Instant, order: u64, round_ends: Instant },
    /// Any news of it.
    News,
}

/// The claims that wait.
#[derive(Debug, Default)]
pub(in crate::election) struct Waiting {
    claims: BTreeMap<LeaseName, For>,
    /// The same, by time; those that wait for room are looked at when their round ends.
    times: BTreeSet<(Instant, LeaseName)>,
    /// Those that wait for room, in their order.
    room: BTreeSet<(Instant, u64, LeaseName)>,
}

impl Waiting {
    pub(in crate::election) fn insert(&mut self, name: LeaseName, what: For) {
        self.remove(&name);
        match what {
            For::Time(at) => {
                self.times.insert((at, name.clone()));
            }
            For::Room { turn, order, round_ends } => {
                self.times.insert((round_ends, name.clone()));
                self.room.insert((turn, order, name.clone()));
            }
            For::News => {}
        }
        self.claims.insert(name, what);
    }

    pub(in crate::election) fn remove(&mut self, name: &LeaseName) {
        let Some((name, what)) = self.claims.remove_entry(name) else { return };
        match what {
            For::Time(at) => {
                self.times.remove(&(at, name));
            }
            For::Room { turn, order, round_ends } => {
                self.room.remove(&(turn, order, name.clone()));
                self.times.remove(&(round_ends, name));
            }
            For::News => {}
        }
    }

    pub(in crate::election) fn names(&self) -> impl Iterator<Item = &LeaseName> {
        self.claims.keys()
    }

    pub(in crate::election) fn contains(&self, name: &LeaseName) -> bool {
        self.claims.contains_key(name)
    }

    /// All of them; none waits any more.
    pub(in crate::election) fn into_names(self) -> impl Iterator<Item = LeaseName> {
        self.claims.into_keys()
    }

    /// When the first is due, room or not.
    pub(in crate::election) fn first_due(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Takes out those that are due.
    pub(in crate::election) fn take_due(&mut self, now: Instant) -> Vec<LeaseName> {
        let due = self.times.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<LeaseName> = due.map(|(_, name)| name.clone()).collect();
        for name in &due {
            self.remove(name);
        }
        due
    }

    /// Takes out the one that has waited longest for room.
    pub(in crate::election) fn next_for_room(&mut self) -> Option<LeaseName> {
        let (_, _, name) = self.room.first().cloned()?;
        self.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    fn claim(number: u64) -> LeaseName {
        LeaseName::claim("default", &format!("web-{number}"))
    }

    fn room(turn: u64, order: u64) -> For {
        For::Room { turn: at(turn), order, round_ends: at(1_000) }
    }

    #[test]
    fn each_is_taken_out_once_by_time_or_for_room() {
        let mut waiting = Waiting::default();
        waiting.insert(claim(1), For::Time(at(20)));
        waiting.insert(claim(2), For::Time(at(10)));
        waiting.insert(claim(3), room(5, 2));
        waiting.insert(claim(4), room(5, 1));
        waiting.insert(claim(5), room(4, 9));
        waiting.insert(claim(6), For::News);
        assert_eq!(waiting.first_due(), Some(at(10)));
        assert_eq!(waiting.take_due(at(9)), []);
        assert_eq!(waiting.take_due(at(10)), [claim(2)]);
        // Said again, it waits for what was said last.
        waiting.insert(claim(3), For::Time(at(30)));
        assert_eq!(waiting.next_for_room(), Some(claim(5)));
        assert_eq!(waiting.next_for_room(), Some(claim(4)));
        assert_eq!(waiting.next_for_room(), None);
        waiting.insert(claim(4), room(5, 1));
        assert_eq!(waiting.take_due(at(1_000)), [claim(1), claim(3), claim(4)]);
        assert_eq!(waiting.next_for_room(), None);
        assert_eq!(waiting.names().collect::<Vec<_>>(), [&claim(6)]);
        waiting.remove(&claim(6));
        assert_eq!((waiting.names().count(), waiting.first_due()), (0, None));
    }
}
