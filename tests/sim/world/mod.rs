//! A world on virtual time: an API server, segments, and hosts with speakers.
//!
//! All chance comes from its dice: the same seed and the same calls lead to the same run. What every
//! step is checked for is in `laws`.

mod api;
mod bounds;
mod clock;
pub(crate) mod controls;
mod down;
mod forwarding;
pub(crate) mod host;
mod kernel;
pub(crate) mod laws;
pub(crate) mod listener;
mod operator;
mod outage;
mod proxy;
mod questions;
pub(crate) mod records;
pub(crate) mod spells;
pub(crate) mod spread;
pub(crate) mod store;
pub(crate) mod trace;
mod wire;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::desired::Desired;
use leasehold_core::election::{
    Action, Answer, Event, Fact, Frame, RequestId, Serving, Target, Write,
};
use leasehold_crds::lease::LeaseName;
use pnet_base::MacAddr;

pub(crate) use self::api::{Down, Server, Trouble, Troubles};
pub(crate) use self::clock::Clock;
pub(crate) use self::host::{Host, Hosts, Kind, Own};
pub(crate) use self::laws::Laws;
pub(crate) use self::operator::Operator;
pub(crate) use self::records::{Lost, News};
pub(crate) use self::spells::Spells;
pub(crate) use self::store::Store;
pub(crate) use self::trace::{Place, Step, Trace};
pub(crate) use self::wire::{Cuts, ROUTER};
use crate::agenda::Agenda;
use crate::dice::Dice;

/// From a request to its being carried out, and from there to the answer.
pub(crate) const LATENCY: Duration = Duration::from_millis(2);
/// After which time a request counts as unanswered.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(1500);
/// How long the kernel and the segment take.
const WIRE: Duration = Duration::from_millis(1);
/// How often hosts find out whether they are answered on the segment.
pub(crate) const HEARING: Duration = Duration::from_millis(500);

/// Of a hundred times, how often a process is busy with something else for some milliseconds, and then takes
/// what has come meanwhile together.
const BUSY: u64 = 5;

/// Something for the process of one host.
#[derive(Debug)]
pub(crate) enum Happening {
    Event(Event),
    Watched(Kind, u64, News),
    /// It has seen what is asked for.
    News(News),
    Answer(RequestId, Answer),
    Apply(Serving),
    /// It was busy, and takes what has come meanwhile.
    Turn,
}

#[derive(Debug)]
enum Item {
    /// For one process of one host.
    To {
        host: usize,
        process: u64,
        happening: Happening,
    },
    /// A request arrives at the API server.
    Request {
        host: usize,
        process: u64,
        request: RequestId,
        work: Work,
        answer: bool,
    },
    /// A watch is opened anew, with a list.
    Open {
        host: usize,
        process: u64,
        kind: Kind,
        epoch: u64,
    },
    Frame {
        to: usize,
        process: u64,
        arriving: wire::Arriving,
    },
    /// The operator looks at everything.
    Operate,
    /// A write of the operator arrives at the API server.
    Operation {
        work: operator::Work,
        restores: u32,
    },
}

#[expect(clippy::large_enum_variant, reason = "a few hundred exist at a time")]
#[derive(Clone, Debug)]
enum Work {
    Write(Write),
    Read(Target),
    List { asked: Instant },
}

/// A write that was carried out.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) at: Instant,
    pub(crate) host: String,
    pub(crate) write: Write,
}

#[expect(clippy::struct_excessive_bools, reason = "settings of a run, one by one")]
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) dice: Dice,
    pub(crate) store: Store,
    pub(crate) desired: Desired,
    /// What of it the Services have lost, by claim.
    lost: BTreeMap<LeaseName, Lost>,
    pub(crate) operator: Operator,
    pub(crate) hosts: Hosts,
    pub(crate) cuts: Cuts,
    /// Whether there is a host on the segments that is no speaker's node.
    pub(crate) router: bool,
    /// Hosts that have addresses of services, and are no speakers.
    pub(crate) strangers: BTreeMap<IpAddr, MacAddr>,
    pub(crate) server: Server,
    /// Whether delays are thrown, or are always the same.
    pub(crate) jitter: bool,
    /// Whether what happens is kept for questions about it.
    pub(crate) recording: bool,
    /// Whether it is told as it happens.
    pub(crate) telling: bool,
    /// The record of the run, while it is kept.
    pub(crate) trace: Option<Trace>,
    pub(crate) facts: Vec<(Instant, String, Fact)>,
    pub(crate) committed: Vec<Committed>,
    pub(crate) sent: Vec<(Instant, String, Frame)>,
    pub(crate) laws: Laws,
    pub(crate) spells: Spells,
    agenda: Agenda<Box<Item>>,
    questions: Vec<leasehold_core::detect::question::Question>,
}

impl World {
    pub(crate) fn run(&mut self, duration: Duration) {
        self.run_to(self.now + duration);
    }

    pub(crate) fn run_to(&mut self, end: Instant) {
        while self.step(end) {}
        self.now = end;
    }

    /// Does the next thing due before `end`; returns whether there was one.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        let item = self.agenda.next();
        let host = self
            .hosts
            .iter_mut()
            .enumerate()
            .filter_map(|(id, host)| Some((host.next()?, id)))
            .min();
        let times = [item, host.map(|(at, _)| at), self.laws.due];
        let Some(at) = times.into_iter().flatten().min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = self.now.max(at);
        if item == Some(at) {
            if let Some(item) = self.agenda.pop() {
                self.happen(*item);
            }
        } else if let Some((_, id)) = host.filter(|(due, _)| *due == at) {
            self.wake(id);
        }
        self.check();
        true
    }

    fn later(&mut self, delay: Duration, item: Item) {
        self.agenda.add(self.now + delay, Box::new(item));
    }

    /// Something for the present process of `host`.
    pub(crate) fn send(&mut self, delay: Duration, host: usize, happening: Happening) {
        let process = self.hosts[host].process;
        self.later(delay, Item::To { host, process, happening });
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::To { host, process, happening } => {
                if self.hosts[host].process == process {
                    self.happen_to(host, happening);
                }
            }
            Item::Request { host, process, request, work, answer } => {
                self.carry_out(host, process, request, work, answer);
            }
            Item::Open { host, process, kind, epoch } => {
                let stream = &self.hosts[host].streams[slot(kind)];
                if self.hosts[host].process == process && stream.epoch == epoch {
                    self.open(host, kind);
                }
            }
            Item::Frame { to, process, arriving } => {
                if self.hosts[to].process == process {
                    self.deliver_frame(to, arriving);
                }
            }
            Item::Operate => self.operate(),
            Item::Operation { work, restores } => self.carry_out_operation(work, restores),
        }
    }

    fn happen_to(&mut self, id: usize, happening: Happening) {
        let host = &mut self.hosts[id];
        if host.core.is_none() || !host.powered {
            return;
        }
        host.ending |= matches!(happening, Happening::Event(Event::Terminate { .. }));
        if host.stopped || host.paused {
            if host.inbox.len() < 2000 || matches!(happening, Happening::Turn) {
                host.inbox.push_back(happening);
            }
            return;
        }
        match happening {
            Happening::Event(event) => self.feed(id, event),
            Happening::Turn => self.turn(id),
            Happening::Watched(kind, epoch, news) => self.watched(id, kind, epoch, news),
            Happening::News(news) => self.learn(id, news),
            Happening::Answer(request, answer) => self.answer(id, request, answer),
            Happening::Apply(serving) => {
                // The latest counts.
                if serving.generation >= host.kernel.serving.generation {
                    host.kernel.serving = serving;
                    self.settle(id);
                }
            }
        }
    }

    /// What is due at a host.
    fn wake(&mut self, id: usize) {
        let now = self.now;
        let host = &mut self.hosts[id];
        host.touch();
        let local = host.clock.at(now);
        if host.kernel.next_expiry().is_some_and(|ends| ends <= local) && host.kernel.expire(local)
        {
            self.laws.dirty = true;
            self.trace_addresses(id);
            if self.telling {
                self.tell(id, "the kernel removes what has expired");
            }
            if self.hosts[id].is_running() {
                self.settle(id);
            }
        }
        if self.hosts[id].is_running() && self.hosts[id].waiting.iter().any(|w| w.until <= local) {
            self.give_up(id, local);
        }
        let host = &self.hosts[id];
        if !host.is_running() {
            return;
        }
        if host.listener.wake.is_some_and(|wake| wake <= now) {
            self.listen(id);
        }
        let host = &self.hosts[id];
        if host.is_running() && host.kernel.wake.is_some_and(|wake| wake <= local) {
            self.settle(id);
        }
        let host = &self.hosts[id];
        if host.is_running() && host.schedule.next().is_some_and(|due| due <= local) {
            self.announce(id);
        }
        let host = &self.hosts[id];
        if host.is_running() && host.around <= now {
            self.hosts[id].around = now + HEARING;
            self.ask_around(id);
        }
        let host = &self.hosts[id];
        if host.is_running() && host.tick.is_some_and(|tick| tick <= now) {
            self.laws.ticked(now, id);
            self.feed(id, Event::Tick);
        }
    }

    /// Hands one event to a speaker and carries out what it asks for.
    pub(crate) fn feed(&mut self, id: usize, event: Event) {
        if self.telling {
            self.tell_event(id, &event);
        }
        self.trace(|| Step::Event(id, event.clone()));
        let host = &mut self.hosts[id];
        host.touch();
        if host.core.is_none() {
            return;
        }
        let busy = !host.taken.is_empty();
        host.taken.push(event);
        if busy {
            return;
        }
        if self.jitter && self.dice.percent(BUSY) {
            host.tick = None;
            let delay = self.dice.between(Duration::ZERO, Duration::from_millis(5));
            self.send(delay, id, Happening::Turn);
        } else {
            self.turn(id);
        }
    }

    /// Hands a speaker what has come meanwhile, together.
    fn turn(&mut self, id: usize) {
        let now = self.now;
        let host = &mut self.hosts[id];
        host.touch();
        let events = std::mem::take(&mut host.taken);
        let Some(core) = host.core.as_mut() else { return };
        let mut actions = Vec::new();
        core.handle(host.clock.at(now), events, &mut actions);
        let due = core.next_deadline().and_then(|due| host.clock.when(due));
        host.tick = due;
        if !host.lag.is_zero() {
            let lag = host.lag;
            let late = self.dice.between(Duration::ZERO, lag);
            self.hosts[id].tick = due.map(|due| due.max(now) + late);
        }
        for action in actions {
            crate::fingerprint::note(id, now, &action);
            self.act(id, action);
        }
    }

    fn act(&mut self, id: usize, action: Action) {
        if self.telling {
            self.tell_action(id, &action);
        }
        self.trace(|| Step::Action(id, action.clone()));
        match action {
            Action::Write { request, write } => self.request(id, request, Work::Write(write)),
            Action::Read { request, target } => self.request(id, request, Work::Read(target)),
            Action::List { asked } => self.request_lists(id, asked),
            Action::Listen(watchlist) => {
                let host = &mut self.hosts[id];
                host.listener.watch(host.clock.at(self.now), watchlist);
                host.listener.wake_by(self.now);
                host.touch();
            }
            Action::Look(watched) => {
                if let Some(proxy) = &mut self.hosts[id].proxy {
                    proxy.asked = watched;
                }
                self.tell_proxy(id);
            }
            Action::Serve(serving) => {
                let delay = self.kernel_delay();
                self.send(delay, id, Happening::Apply(serving));
            }
            Action::Transmit { interface, frame } => self.transmit(id, &interface, &frame),
            Action::Forward(forwarding) => self.forward(id, forwarding),
            Action::Spread(spreading) => self.spread(id, spreading),
            Action::Down(down) => {
                self.check_lost(id, &down);
                self.hosts[id].down = down;
                self.laws.dirty = true;
            }
            Action::Persist(record) => self.hosts[id].record = Some(record),
            Action::Report(Fact::UnexpectedTransition { claim, from, to }) => {
                let what = format!("on host {id} {claim} went from {from} to {to}");
                laws::broken(self.now, "state", &what);
            }
            Action::Report(fact) => {
                if self.recording {
                    self.facts.push((self.now, self.hosts[id].name.clone(), fact));
                }
            }
            Action::Exit => {
                let host = &mut self.hosts[id];
                host.forget_process();
                host.exited = true;
                host.left_until = Some(self.now + bounds::GRACE);
                self.laws.dirty = true;
            }
        }
    }

    fn kernel_delay(&mut self) -> Duration {
        if self.jitter {
            self.dice.between(Duration::from_micros(200), Duration::from_millis(3))
        } else {
            WIRE
        }
    }

    /// Brings the kernel in line with what is served, as the speaker's process does.
    pub(crate) fn settle(&mut self, id: usize) {
        let host = &mut self.hosts[id];
        let now = host.clock.at(self.now);
        let (jitter, dice) = (self.jitter, &mut self.dice);
        let mut late = || {
            if !jitter {
                kernel::LATE
            } else if dice.percent(70) {
                dice.between(Duration::ZERO, Duration::from_millis(110))
            } else {
                dice.between(Duration::ZERO, Duration::from_millis(1030))
            }
        };
        let before = host.kernel.view.clone();
        host.kernel.settle(now, &host.links, &mut late);
        host.touch();
        self.trace_addresses(id);
        self.laws.dirty = true;
        self.schedule(id);
        if self.hosts[id].kernel.view != before {
            let view = self.hosts[id].kernel.view.clone();
            self.feed(id, Event::Kernel(view));
        }
    }

    /// Tells the announcer what is served, and has it announce what is due.
    pub(crate) fn schedule(&mut self, id: usize) {
        let host = &mut self.hosts[id];
        let now = host.clock.at(self.now);
        host.schedule.update(now, &host.kernel.serving, &host.kernel.view, &host.links);
        self.announce(id);
    }

    fn announce(&mut self, id: usize) {
        let host = &mut self.hosts[id];
        host.touch();
        let now = host.clock.at(self.now);
        for (ip, interface) in host.schedule.due(now) {
            self.transmit(id, &interface, &Frame::Announce(ip));
        }
    }

    /// One turn of the listener's thread.
    fn listen(&mut self, id: usize) {
        let mut questions = std::mem::take(&mut self.questions);
        let host = &mut self.hosts[id];
        let now = host.clock.at(self.now);
        let interfaces: Vec<_> = host.nics.iter().map(|nic| nic.name.clone()).collect();
        host.listener.wake = None;
        let changed = host.listener.turn(now, &interfaces, &mut questions);
        let next = host.listener.next().and_then(|next| host.clock.when(next));
        let lag = host.lag;
        let late =
            if lag.is_zero() { Duration::ZERO } else { self.dice.between(Duration::ZERO, lag) };
        let host = &mut self.hosts[id];
        host.listener.wake = next.map(|next| next.max(self.now) + late);
        host.touch();
        if next.is_some_and(|next| next <= self.now) {
            self.laws.turned(self.now, id);
        }
        for question in questions.drain(..) {
            self.question(id, &question);
        }
        self.questions = questions;
        if changed {
            let voices = self.hosts[id].listener.voices.clone();
            self.send(Duration::from_micros(100), id, Happening::Event(Event::Voices(voices)));
        }
    }
}

pub(crate) const fn slot(kind: Kind) -> usize {
    match kind {
        Kind::Sessions => 0,
        Kind::Claims => 1,
        Kind::Desired => 2,
    }
}
