//! The hosts that answered requests for a VIP, and those that announced it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pnet_base::MacAddr;

/// A gratuitous ARP, or an unsolicited Neighbor Advertisement, that the observer heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// When.
    pub at: Instant,
    /// The host that claims the VIP.
    pub mac: MacAddr,
    /// Whether hosts take it that know another MAC address: ARP always, an advertisement with the
    /// Override flag.
    pub overrides: bool,
}

/// The answers to requests that were sent every few milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    pub(super) requests: Vec<Instant>,
    pub(super) replies: Vec<(Instant, MacAddr)>,
    pub(super) announcements: Vec<Announcement>,
}

impl Owners {
    /// For each request, in order: when it was sent and who answered before the next.
    fn answers(&self) -> Vec<(Instant, BTreeSet<MacAddr>)> {
        let mut answers: Vec<_> = self.requests.iter().map(|&at| (at, BTreeSet::new())).collect();
        for &(at, mac) in &self.replies {
            let after = self.requests.partition_point(|&request| request <= at);
            if let Some((_, macs)) = after.checked_sub(1).and_then(|i| answers.get_mut(i)) {
                macs.insert(mac);
            }
        }
        answers
    }

    /// Everybody who answered, in order of MAC address.
    pub fn macs(&self) -> BTreeSet<MacAddr> {
        self.replies.iter().map(|&(_, mac)| mac).collect()
    }

    /// The set of answering hosts over time: an entry for each change, empty where none did.
    pub fn changes(&self) -> Vec<(Instant, BTreeSet<MacAddr>)> {
        let mut changes: Vec<(Instant, BTreeSet<MacAddr>)> = Vec::new();
        for (at, macs) in self.answers() {
            if changes.last().is_none_or(|(_, last)| *last != macs) {
                changes.push((at, macs));
            }
        }
        changes
    }

    /// As [`Self::changes`], without what lasted less than `least`: an answer that was merely late
    /// counts for the next request.
    pub fn changes_lasting(&self, least: Duration) -> Vec<(Instant, BTreeSet<MacAddr>)> {
        let changes = self.changes();
        let ends = changes.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let mut lasting: Vec<(Instant, BTreeSet<MacAddr>)> = Vec::new();
        for ((at, macs), end) in changes.iter().zip(ends) {
            let short = end.is_some_and(|end| end.duration_since(*at) < least);
            if !short && lasting.last().is_none_or(|(_, last)| last != macs) {
                lasting.push((*at, macs.clone()));
            }
        }
        lasting
    }

    /// The total time during which two or more hosts answered.
    pub fn two_owners(&self) -> Duration {
        self.time_with(|macs| macs.len() > 1)
    }

    /// The total time during which no host answered.
    pub fn no_owner(&self) -> Duration {
        self.time_with(BTreeSet::is_empty)
    }

    /// The longest time in a row in which nobody answered: what a host without a neighbour entry
    /// waits before it can send at all.
    pub fn longest_without_owner(&self) -> Duration {
        let changes = self.changes();
        let ends = changes.iter().skip(1).map(|&(at, _)| at).chain(self.requests.last().copied());
        let spells = changes.iter().zip(ends).filter(|((_, macs), _)| macs.is_empty());
        spells.map(|(&(at, _), end)| end.duration_since(at)).max().unwrap_or_default()
    }

    fn time_with(&self, matches: impl Fn(&BTreeSet<MacAddr>) -> bool) -> Duration {
        let answers = self.answers();
        let ends = answers.iter().skip(1).map(|&(at, _)| at);
        answers
            .iter()
            .zip(ends)
            .filter(|((_, macs), _)| matches(macs))
            .map(|((at, _), end)| end.duration_since(*at))
            .sum()
    }

    /// The announcements of the VIP, in order.
    pub fn announcements(&self) -> &[Announcement] {
        &self.announcements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_owners_are_two_answers_to_one_request() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let (a, b) = (MacAddr::new(2, 0, 0, 0, 0, 1), MacAddr::new(2, 0, 0, 0, 0, 2));
        let owners = Owners {
            requests: [0, 5, 10, 15, 20].map(at).to_vec(),
            replies: vec![(at(1), a), (at(6), a), (at(7), b), (at(11), b)],
            announcements: Vec::new(),
        };
        assert_eq!(owners.two_owners(), Duration::from_millis(5));
        assert_eq!(owners.no_owner(), Duration::from_millis(5));
        assert_eq!(owners.longest_without_owner(), Duration::from_millis(5));
        assert_eq!(owners.changes().len(), 4);
        let lasting = owners.changes_lasting(Duration::from_millis(6));
        assert_eq!(lasting.last(), owners.changes().last());
        assert_eq!(lasting.len(), 1);
        assert_eq!(owners.macs(), BTreeSet::from([a, b]));
    }
}
