//! The repeats of frames.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Action, Fact};

use crate::world::trace::Question;
use crate::world::{Place, Step};

/// The number of equal frames that are drawn one by one.
const REPEATS: usize = 3;

/// The frames of a record that are not drawn yet, counted.
pub(super) struct Repeats {
    counts: BTreeMap<Key, Count>,
    chapters: Chapters,
}

/// A frame, and the chapter in which it is sent.
type Key = ((usize, usize), Repeated);

/// The number of equal frames of a chapter, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Count {
    times: usize,
    last: Instant,
}

/// The result for one frame.
pub(super) enum Drawn {
    /// An earlier row stands for it.
    Not,
    Single,
    /// One row for this many frames, and the time of the last one.
    First(usize, Instant),
}

impl Repeats {
    pub(super) fn of(steps: &[(Instant, Step)]) -> Self {
        let mut counts = BTreeMap::<Key, Count>::new();
        let mut chapters = Chapters::default();
        for (at, step) in steps {
            chapters.advance(step);
            if let Some(frame) = Repeated::of(step) {
                let count = counts.entry((chapters.of(&frame), frame)).or_default();
                count.times += 1;
                count.last = *at;
            }
        }
        Self { counts, chapters: Chapters::default() }
    }

    /// Takes the next entry of the record; `None` if it is no frame.
    pub(super) fn next(&mut self, step: &Step) -> Option<Drawn> {
        self.chapters.advance(step);
        let frame = Repeated::of(step)?;
        let key = (self.chapters.of(&frame), frame);
        Some(match self.counts.get(&key).copied().unwrap_or_default() {
            Count { times: 0, .. } => Drawn::Not,
            Count { times: 1..=REPEATS, .. } => Drawn::Single,
            Count { times, last } => {
                self.counts.remove(&key);
                Drawn::First(times, last)
            }
        })
    }
}

/// The parts of a record, by sender, between which the repeats of a frame are counted.
#[derive(Default)]
struct Chapters {
    notes: usize,
    own: BTreeMap<Place, usize>,
}

impl Chapters {
    fn advance(&mut self, step: &Step) {
        match step {
            Step::Note { .. } => self.notes += 1,
            Step::Action(host, Action::Report(Fact::Silent { .. })) | Step::Addresses(host, _) => {
                *self.own.entry(Place::Host(*host)).or_default() += 1;
            }
            _ => {}
        }
    }

    fn of(&self, repeated: &Repeated) -> (usize, usize) {
        let from = match repeated {
            Repeated::Question(question) => Place::Host(question.from),
            Repeated::Announcement(from, _) => *from,
        };
        (self.notes, self.own.get(&from).copied().unwrap_or_default())
    }
}

/// A frame, as it is compared with others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Repeated {
    Question(Question),
    Announcement(Place, IpAddr),
}

impl Repeated {
    fn of(step: &Step) -> Option<Self> {
        match step {
            Step::Question(question) => Some(Self::Question(*question)),
            Step::Announcement { from, ip, .. } => Some(Self::Announcement(*from, *ip)),
            _ => None,
        }
    }
}
