//! The judgement: which packets of others come through, and which of this node's own.
//!
//! Each speaker sends to some others what it sends for others, and beside it what any network lets through. So who hears
//! nothing but the latter knows that the former is dropped, and says so; who is told that knows that it is its own packets.
//! One that says that they come through outweighs all that say that they do not: networks filter what a host sends where
//! it enters them.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::Instant;
use pnet_base::MacAddr;

use crate::net::nft::family::Family;

/// The rounds in a row in which packets are missing before they count as dropped.
const MISSED: u8 = 4;

/// The time for which a report of another speaker counts.
const LAPSE: Duration = Duration::from_secs(30);

/// Another speaker, by the interface on which it is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Other {
    pub(super) family: Family,
    pub(super) interface: u32,
    pub(super) mac: MacAddr,
}

/// The packets of a speaker that come through, where that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Those that have a client's address as their source: a node sends them as an owner.
    pub(super) forwarded: Option<bool>,
    /// Those that have an address of Services as their source: a node with endpoints sends them.
    pub(super) answers: Option<bool>,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From the sender's own address; whether it sends answers, too.
    Hello { answers: bool },
    /// From an address of nobody.
    Forwarded,
    /// From an address of Services.
    Answer,
    /// From the sender's own address: whether those of the receiver come through.
    Report(Report),
}

/// The first number of reports.
const REPORTS: u16 = 16;

impl Kind {
    /// The sequence number of its packet.
    pub(super) fn number(self) -> u16 {
        let of = |known: Option<bool>| known.map_or(0, |through| if through { 1 } else { 2 });
        match self {
            Self::Hello { answers: false } => 1,
            Self::Hello { answers: true } => 2,
            Self::Forwarded => 3,
            Self::Answer => 4,
            Self::Report(report) => REPORTS + 3 * of(report.forwarded) + of(report.answers),
        }
    }

    /// The kind of a packet with this sequence number.
    pub(super) fn of(number: u16) -> Option<Self> {
        let known = |number: u16| match number {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        };
        match (number, number.checked_sub(REPORTS)) {
            (1 | 2, _) => Some(Self::Hello { answers: number == 2 }),
            (3, _) => Some(Self::Forwarded),
            (4, _) => Some(Self::Answer),
            (_, Some(report @ 0..9)) => {
                let report = Report { forwarded: known(report / 3), answers: known(report % 3) };
                Some(Self::Report(report))
            }
            _ => None,
        }
    }
}

/// The packets of another speaker in this round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// A hello was heard, and it sends answers, too, if so.
    hello: Option<bool>,
    forwarded: bool,
    answer: bool,
    /// The last report, and how long it would be remembered yet.
    report: Option<(Report, Duration)>,
}

impl Round {
    /// Takes in a packet that would be remembered for so long yet: of two reports the later one counts.
    pub(super) fn hear(&mut self, kind: Kind, left: Duration) {
        match kind {
            Kind::Hello { answers } => self.hello = Some(answers || self.hello == Some(true)),
            Kind::Forwarded => self.forwarded = true,
            Kind::Answer => self.answer = true,
            Kind::Report(report) => {
                if self.report.is_none_or(|(_, known)| left > known) {
                    self.report = Some((report, left));
                }
            }
        }
    }
}

/// The state of another speaker.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The rounds since packets came through, if they ever have, or were expected to.
    forwarded: Count,
    answers: Count,
    report: Option<(Report, Instant)>,
}

/// Rounds without packets of a kind, once they are expected.
#[derive(Clone, Copy, Debug, Default)]
struct Count(Option<u8>);

impl Count {
    fn next(self, expected: bool, heard: bool) -> Self {
        if heard {
            return Self(Some(0));
        }
        Self(expected.then(|| self.0.unwrap_or(0).saturating_add(1)))
    }

    /// Says whether packets come through, where that is known.
    const fn comes_through(self) -> Option<bool> {
        match self.0 {
            Some(0) => Some(true),
            Some(missed) if missed >= MISSED => Some(false),
            _ => None,
        }
    }
}

/// The other speakers that are heard.
#[derive(Debug, Default)]
pub(super) struct Judge {
    others: BTreeMap<Other, Known>,
}

impl Judge {
    /// Takes in the packets of a round. Of a speaker that was not heard in it, nothing else is missing.
    pub(super) fn take(&mut self, now: Instant, heard: &BTreeMap<Other, Round>) {
        for (other, round) in heard {
            let known = self.others.entry(*other).or_default();
            if let Some(answers) = round.hello {
                known.forwarded = known.forwarded.next(true, round.forwarded);
                known.answers = known.answers.next(answers, round.answer);
            }
            known.report = round.report.map(|(report, _)| (report, now)).or(known.report);
        }
        self.others.retain(|other, known| {
            known.report.take_if(|(_, at)| now >= *at + LAPSE);
            heard.contains_key(other) || known.report.is_some()
        });
    }

    /// The reports that this node sends, and to whom.
    pub(super) fn reports(&self) -> impl Iterator<Item = (Other, Report)> {
        self.others.iter().map(|(other, known)| {
            let Known { forwarded, answers, .. } = known;
            let report =
                Report { forwarded: forwarded.comes_through(), answers: answers.comes_through() };
            (*other, report)
        })
    }

    /// Whether the network drops what this node sends for others.
    pub(super) fn is_filtered(&self) -> bool {
        let is_dropped = |of: fn(Report) -> Option<bool>| {
            let reports = self.others.values().filter_map(|known| known.report);
            let mut said = reports.filter_map(|(report, _)| of(report)).peekable();
            said.peek().is_some() && said.all(|through| !through)
        };
        is_dropped(|report| report.forwarded) || is_dropped(|report| report.answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100 + seconds))
    }

    fn other(last: u8) -> Other {
        Other { family: Family::V4, interface: 2, mac: MacAddr::new(2, 0, 0, 0, 0, last) }
    }

    const HELLO: Kind = Kind::Hello { answers: true };

    fn round(kinds: &[Kind]) -> Round {
        let mut round = Round::default();
        for kind in kinds {
            round.hear(*kind, Duration::from_secs(1));
        }
        round
    }

    fn report(forwarded: Option<bool>, answers: Option<bool>) -> Kind {
        Kind::Report(Report { forwarded, answers })
    }

    #[test]
    fn each_kind_has_its_number() {
        let known = [None, Some(true), Some(false)];
        let reports = known.iter().flat_map(|it| known.map(|answers| report(*it, answers)));
        let others = [HELLO, Kind::Hello { answers: false }, Kind::Forwarded, Kind::Answer];
        let all: Vec<Kind> = reports.chain(others).collect();
        let numbers: std::collections::BTreeSet<u16> = all.iter().map(|it| it.number()).collect();
        assert_eq!(numbers.len(), all.len());
        for kind in all {
            assert_eq!(Kind::of(kind.number()), Some(kind));
        }
        assert_eq!([0, 5, 15, 25].map(Kind::of), [None; 4]);
    }

    #[test]
    fn what_is_missing_beside_hellos_four_times_is_dropped() {
        let mut judge = Judge::default();
        let mut told = |seconds: u64, kinds: &[Kind]| {
            judge.take(at(seconds), &[(other(1), round(kinds))].into());
            let (_, report) = judge.reports().next().unwrap();
            (report.forwarded, report.answers)
        };
        for second in 0..3 {
            assert_eq!(told(second, &[HELLO, Kind::Answer]), (None, Some(true)));
        }
        assert_eq!(told(5, &[HELLO, Kind::Answer]), (Some(false), Some(true)));
        assert_eq!(told(6, &[HELLO, Kind::Forwarded]), (Some(true), None), "it comes through now");
        // It has no endpoints any more, and sends no answers.
        let hello = Kind::Hello { answers: false };
        assert_eq!(told(7, &[hello, Kind::Forwarded]), (Some(true), None));
        // Nothing is missing of one that is not heard.
        for second in 8..20 {
            assert_eq!(told(second, &[]), (Some(true), None));
        }
    }

    #[test]
    fn a_node_is_filtered_if_all_that_can_tell_say_so() {
        let (through, dropped) = (report(Some(true), None), report(Some(false), None));
        let no_answers = report(Some(true), Some(false));
        for (name, reports, filtered) in [
            ("nobody tells", vec![], false),
            ("nobody knows", vec![report(None, None)], false),
            ("all say so", vec![dropped, dropped, report(None, None)], true),
            ("one hears it", vec![dropped, through], false),
            ("answers are dropped", vec![no_answers, through], true),
            ("it comes through", vec![through], false),
        ] {
            let mut judge = Judge::default();
            let heard = (1..).zip(&reports).map(|(last, kind)| (other(last), round(&[*kind])));
            judge.take(at(0), &heard.collect());
            assert_eq!(judge.is_filtered(), filtered, "{name}");
            judge.take(at(29), &BTreeMap::new());
            assert_eq!(judge.is_filtered(), filtered, "{name}: later");
            judge.take(at(30), &BTreeMap::new());
            assert!(!judge.is_filtered(), "{name}: said too long ago");
            assert_eq!(judge.reports().count(), 0, "{name}: forgotten");
        }
    }

    #[test]
    fn the_last_report_of_a_speaker_counts() {
        for (first, second, filtered) in [(11, 6, true), (6, 11, false)] {
            let mut round = Round::default();
            round.hear(report(Some(false), None), Duration::from_secs(first));
            round.hear(report(Some(true), None), Duration::from_secs(second));
            let mut judge = Judge::default();
            judge.take(at(0), &[(other(1), round)].into());
            assert_eq!(judge.is_filtered(), filtered);
        }
    }
}
