//! The limit on the events about Services that no node announces: a policy, or the end of all speakers,
//! silences thousands at once. The condition of each Service says the same.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;

/// The number of events with the same note within [`TIME`].
const SAME: usize = 10;
/// The number of events in all within [`TIME`], so that no cause takes the share of another.
const ALL: usize = 100;
const TIME: Duration = Duration::from_secs(60);

/// The events of the last minute.
#[derive(Debug, Default)]
pub struct Quota {
    published: VecDeque<(Instant, String)>,
}

impl Quota {
    /// Whether an event with this note may be published at `now`; if so, it is counted.
    pub fn take(&mut self, note: &str, now: Instant) -> bool {
        while self.published.front().is_some_and(|(at, _)| *at + TIME <= now) {
            self.published.pop_front();
        }
        let same = self.published.iter().filter(|(_, published)| published == note).count();
        let may = same < SAME && self.published.len() < ALL;
        if may {
            self.published.push_back((now, note.to_owned()));
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(quota: &mut Quota, note: &str, now: Instant) -> usize {
        (0..1000).filter(|_| quota.take(note, now)).count()
    }

    #[test]
    fn a_cause_that_silences_thousands_leaves_room_for_another() {
        let mut quota = Quota::default();
        let now = Duration::from_secs(1000);
        assert_eq!(taken(&mut quota, "policy a sets `mode: None`", now), SAME);
        assert_eq!(taken(&mut quota, "policy b sets `mode: None`", now), SAME);
        assert_eq!(taken(&mut quota, "policy a sets `mode: None`", now + TIME), SAME);
    }

    #[test]
    fn events_with_different_notes_are_limited_too() {
        let mut quota = Quota::default();
        let now = Duration::from_secs(1000);
        let count = (0..1000).filter(|it| quota.take(&format!("node {it}"), now)).count();
        assert_eq!(count, ALL);
        assert!(quota.take("node 0", now + TIME));
    }
}
