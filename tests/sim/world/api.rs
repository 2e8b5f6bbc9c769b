//! The way to the API server, and the watches back.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Answer, Event, RequestId, Target, Write};

use super::host::{Kind, Waiting};
use super::{Committed, Happening, Item, LATENCY, News, TIMEOUT, Work, World, slot};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// It is never carried out, and not answered.
    Lost,
    /// It is carried out, and not answered.
    AnswerLost,
    /// It is not answered, and carried out this long after it was sent.
    Late(Duration),
    Throttled,
    Refused,
}

/// The next writes that meet with trouble.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) host: Option<String>,
    pub(crate) hits: fn(&Write) -> bool,
    pub(crate) trouble: Trouble,
    pub(crate) times: u32,
}

/// How a server is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    /// Nothing answers.
    Silent,
    /// Connections are refused.
    Refusing,
}

/// How often requests meet with which trouble, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    pub(crate) lost: u64,
    pub(crate) answer_lost: u64,
    pub(crate) late: u64,
    pub(crate) throttled: u64,
    pub(crate) refused: u64,
}

/// The state of the API server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) down: Option<Down>,
    pub(crate) read_only: bool,
    /// How long one way takes, at least and at most.
    pub(crate) latency: (Duration, Duration),
    /// How much longer an answer takes.
    pub(crate) answers_late: Duration,
    pub(crate) troubles: Troubles,
    pub(crate) faults: Vec<Fault>,
    /// How often single leases were read.
    pub(crate) reads: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            down: None,
            read_only: false,
            latency: (LATENCY, LATENCY),
            answers_late: Duration::ZERO,
            troubles: Troubles::default(),
            faults: Vec::new(),
            reads: 0,
        }
    }
}

impl World {
    fn reaches(&self, id: usize) -> bool {
        self.server.down.is_none() && self.hosts[id].api
    }

    fn api_delay(&mut self) -> Duration {
        let (least, most) = self.server.latency;
        if least == most { least } else { self.dice.between(least, most) }
    }

    pub(super) fn request(&mut self, id: usize, request: RequestId, work: Work) {
        let claim_write = matches!(&work, Work::Write(Write::Claim(_)));
        let host = &mut self.hosts[id];
        let until = host.clock.at(self.now) + TIMEOUT;
        host.waiting.push(Waiting { request, until, claim_write });
        host.touch();
        host.claim_writes += usize::from(claim_write);
        host.most_claim_writes = host.most_claim_writes.max(host.claim_writes);
        let target = match &work {
            Work::Write(Write::Session(change)) => Some(Target::Session(change.name.clone())),
            Work::Write(Write::Claim(change)) => Some(Target::Claim(change.name.clone())),
            Work::Read(target) => Some(target.clone()),
            Work::List { .. } => None,
        };
        self.server.reads += usize::from(matches!(work, Work::Read(_)));
        if let Some(target) = target {
            self.laws.requested(self.now, id, target);
        }
        let delay = self.api_delay();
        if !self.reaches(id) {
            if self.hosts[id].api && self.server.down == Some(Down::Refusing) {
                let refused = Answer::Unknown("connection refused".to_owned());
                self.send(delay, id, Happening::Answer(request, refused));
            }
            return;
        }
        let trouble = match &work {
            Work::Write(_) if self.server.read_only => Some(Trouble::Refused),
            Work::Write(write) => self.trouble(id, write).or_else(|| self.throw_trouble(true)),
            Work::Read(_) | Work::List { .. } => self.throw_trouble(false),
        };
        let delay = match trouble {
            None | Some(Trouble::AnswerLost) => delay,
            Some(Trouble::Lost) => return,
            Some(Trouble::Late(delay)) => delay,
            Some(Trouble::Throttled) => {
                return self.send(delay * 2, id, Happening::Answer(request, Answer::Throttled));
            }
            Some(Trouble::Refused) => {
                let refused = Answer::Refused("full".to_owned());
                return self.send(delay * 2, id, Happening::Answer(request, refused));
            }
        };
        let (process, answer) = (self.hosts[id].process, trouble.is_none());
        self.later(delay, Item::Request { host: id, process, request, work, answer });
    }

    pub(super) fn request_lists(&mut self, id: usize, asked: Instant) {
        if self.reaches(id) {
            let process = self.hosts[id].process;
            let (request, work) = (RequestId(u64::MAX), Work::List { asked });
            let delay = self.api_delay();
            self.later(delay, Item::Request { host: id, process, request, work, answer: true });
        }
    }

    fn trouble(&mut self, id: usize, write: &Write) -> Option<Trouble> {
        let name = &self.hosts[id].name;
        let fault = self.server.faults.iter_mut().find(|fault| {
            fault.times > 0
                && fault.host.as_ref().is_none_or(|host| host == name)
                && (fault.hits)(write)
        })?;
        fault.times -= 1;
        Some(fault.trouble)
    }

    fn throw_trouble(&mut self, writes: bool) -> Option<Trouble> {
        let troubles = self.server.troubles;
        if troubles == Troubles::default() {
            return None;
        }
        let mut thrown = self.dice.next() % 100;
        let mut falls = |chance: u64| {
            let falls = thrown < chance;
            thrown = if falls { 100 } else { thrown - chance.min(thrown) };
            falls
        };
        if falls(troubles.lost) {
            Some(Trouble::Lost)
        } else if falls(troubles.answer_lost) {
            Some(Trouble::AnswerLost)
        } else if falls(troubles.late) && writes {
            let late = self.dice.between(Duration::from_millis(100), Duration::from_secs(6));
            Some(Trouble::Late(late))
        } else if falls(troubles.throttled) {
            Some(Trouble::Throttled)
        } else if falls(troubles.refused) && writes {
            Some(Trouble::Refused)
        } else {
            None
        }
    }

    pub(super) fn carry_out(
        &mut self,
        id: usize,
        process: u64,
        request: RequestId,
        work: Work,
        answer: bool,
    ) {
        let happenings = match work {
            Work::Read(target) => vec![Happening::Answer(request, self.store.read(&target))],
            Work::List { asked } => vec![Happening::Event(Event::Listed {
                asked,
                sessions: self.store.sessions.values().cloned().collect(),
                claims: self.store.claims.values().cloned().collect(),
            })],
            Work::Write(write) => {
                let before = self.store.mark(&write);
                let (result, event) = self.store.write(&write);
                if let Some(event) = event {
                    self.check_write(&write, before, self.store.mark(&write));
                    if self.telling {
                        self.tell_commit(&self.hosts[id].name, &event);
                    }
                    if self.recording {
                        let host = self.hosts[id].name.clone();
                        self.committed.push(Committed { at: self.now, host, write });
                    }
                    self.publish(&event);
                }
                vec![Happening::Answer(request, result)]
            }
        };
        if answer && self.reaches(id) {
            let delay = self.api_delay() + self.server.answers_late;
            for happening in happenings {
                self.later(delay, Item::To { host: id, process, happening });
            }
        }
    }

    pub(super) fn answer(&mut self, id: usize, request: RequestId, answer: Answer) {
        let host = &mut self.hosts[id];
        if !host.api && !matches!(answer, Answer::Unknown(_)) {
            return;
        }
        let Some(place) = host.waiting.iter().position(|waiting| waiting.request == request) else {
            return;
        };
        let waiting = host.waiting.swap_remove(place);
        host.claim_writes -= usize::from(waiting.claim_write);
        self.feed(id, Event::Answered { request, answer });
    }

    /// Requests that have waited for too long.
    pub(super) fn give_up(&mut self, id: usize, local: Instant) {
        while let Some(waiting) =
            self.hosts[id].waiting.iter().filter(|w| w.until <= local).min_by_key(|w| w.until)
        {
            let request = waiting.request;
            self.answer(id, request, Answer::Unknown("timed out".to_owned()));
        }
    }

    /// The watches of all hosts are to deliver a change.
    pub(super) fn publish(&mut self, event: &Event) {
        self.laws.stored = true;
        self.laws.dirty = true;
        self.call_operator();
        let kind = match event {
            Event::Session(_) | Event::SessionGone(_) => Kind::Sessions,
            _ => Kind::Claims,
        };
        for id in 0..self.hosts.len() {
            self.publish_to(id, kind, News::Leases(event.clone()));
        }
    }

    pub(crate) fn publish_desired(&mut self) {
        self.laws.stored = true;
        self.laws.dirty = true;
        self.call_operator();
        let objects = self.objects();
        for id in 0..self.hosts.len() {
            self.publish_to(id, Kind::Desired, News::Objects(Arc::clone(&objects)));
        }
    }

    fn publish_to(&mut self, id: usize, kind: Kind, news: News) {
        let most = self.hosts[id].watch_delay;
        let delay =
            if self.jitter { self.dice.between(Duration::from_millis(1), most) } else { most };
        // Runs without jitter begin with what is asked for, and then do something about it.
        let delay = if !self.jitter && kind == Kind::Desired { LATENCY } else { delay };
        let now = self.now;
        let stream = &mut self.hosts[id].streams[slot(kind)];
        if !stream.open {
            return;
        }
        let at = (now + delay).max(stream.last);
        stream.last = at;
        let epoch = stream.epoch;
        self.send(at.saturating_since(now), id, Happening::Watched(kind, epoch, news));
    }

    pub(super) fn watched(&mut self, id: usize, kind: Kind, epoch: u64, news: News) {
        let reaches = self.reaches(id);
        let host = &mut self.hosts[id];
        let hung = host.watch_hung;
        let stream = &mut host.streams[slot(kind)];
        if stream.epoch != epoch || !reaches {
            return;
        }
        stream.stalled.push_back(news);
        while !hung && let Some(news) = self.hosts[id].streams[slot(kind)].stalled.pop_front() {
            self.learn(id, news);
        }
    }

    /// The watches of a host break; they are opened anew after a while.
    pub(crate) fn reset_watches(&mut self, id: usize, delay: Duration) {
        for kind in Kind::ALL {
            let more = if self.jitter {
                self.dice.between(Duration::ZERO, Duration::from_millis(200))
            } else {
                Duration::ZERO
            };
            self.reset_watch(id, kind, delay + more);
        }
    }

    fn reset_watch(&mut self, id: usize, kind: Kind, delay: Duration) {
        let host = &mut self.hosts[id];
        let stream = &mut host.streams[slot(kind)];
        stream.epoch += 1;
        stream.open = false;
        stream.stalled.clear();
        let (process, epoch) = (host.process, stream.epoch);
        self.later(delay, Item::Open { host: id, process, kind, epoch });
    }

    /// A list, and from there on the changes.
    pub(super) fn open(&mut self, id: usize, kind: Kind) {
        if !self.reaches(id) {
            self.reset_watch(id, kind, TIMEOUT);
            return;
        }
        let now = self.now;
        let delay = self.api_delay();
        let news = match kind {
            Kind::Sessions => News::Leases(self.store.list_sessions()),
            Kind::Claims => News::Leases(self.store.list_claims()),
            Kind::Desired => News::Objects(self.objects()),
        };
        let stream = &mut self.hosts[id].streams[slot(kind)];
        stream.open = true;
        self.laws.dirty = true;
        stream.last = now + delay;
        let epoch = stream.epoch;
        self.send(delay, id, Happening::Watched(kind, epoch, news));
    }
}
