//! A small world on virtual time: an API server, one segment, and hosts with speakers.
//!
//! It has no randomness: the same calls lead to the same run. What every step is checked for is in
//! `laws`.

pub(super) mod controls;
mod host;
mod laws;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::Claim;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use self::host::Host;
use self::laws::Laws;
use self::store::Store;
use crate::clock::Instant;
use crate::desired::Desired;
use crate::lease::{
    Action, Answer, Event, Fact, Frame, Heard, HeardFrame, RequestId, Serving, Target, Write,
};

/// From a request to its being carried out, and from there to the answer.
const LATENCY: Duration = Duration::from_millis(2);
/// After which time a request counts as unanswered.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// How long the kernel and the segment take.
const WIRE: Duration = Duration::from_millis(1);
/// How often hosts find out whether they are answered on the segment.
const HEARING: Duration = Duration::from_millis(500);

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// It is never carried out, and not answered.
    Lost,
    /// It is carried out, and not answered.
    AnswerLost,
    /// It is not answered, and carried out this long after it was sent.
    Late(Duration),
    Throttled,
    Refused,
}

/// The next requests that meet with trouble.
#[derive(Debug)]
struct Fault {
    host: Option<String>,
    hits: fn(&Write) -> bool,
    trouble: Trouble,
    times: u32,
}

#[derive(Debug)]
enum Happening {
    Event(Event),
    Watched(u64, Event),
    Answer(RequestId, Answer, bool),
    Lists,
    Apply(Serving),
}

#[expect(clippy::large_enum_variant, reason = "a few hundred exist at a time")]
#[derive(Debug)]
enum Item {
    /// For one process of one host.
    To(String, u64, Happening),
    /// A request arrives at the API server.
    Request {
        host: String,
        process: u64,
        request: RequestId,
        work: Work,
        answer: bool,
    },
    Hearing,
}

#[expect(clippy::large_enum_variant, reason = "a few hundred exist at a time")]
#[derive(Clone, Debug)]
enum Work {
    Write(Write),
    Read(Target),
}

/// A write that was carried out.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) at: Instant,
    pub(super) host: String,
    pub(super) write: Write,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) store: Store,
    pub(super) desired: Desired,
    pub(super) hosts: BTreeMap<String, Host>,
    /// Pairs of hosts that do not hear each other.
    pub(super) cuts: BTreeSet<(String, String)>,
    /// Hosts that are no speakers.
    pub(super) strangers: BTreeMap<IpAddr, MacAddr>,
    pub(super) facts: Vec<(Instant, String, Fact)>,
    pub(super) committed: Vec<Committed>,
    pub(super) sent: Vec<(Instant, String, Frame)>,
    pub(super) laws: Laws,
    api: bool,
    read_only: bool,
    faults: Vec<Fault>,
    agenda: BTreeMap<(Instant, u64), Item>,
    count: u64,
}

impl World {
    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.step(end) {}
        self.now = end;
    }

    /// Does the next thing due before `end`; returns whether there was one.
    fn step(&mut self, end: Instant) -> bool {
        let item = self.agenda.keys().next().copied();
        let tick = self
            .hosts
            .iter()
            .filter_map(|(name, host)| Some((host.core.as_ref()?.next_deadline()?, name.clone())))
            .min();
        let expiry = self.hosts.values().filter_map(|host| host.kernel.next_expiry()).min();
        let times = [item.map(|(at, _)| at), tick.as_ref().map(|(at, _)| *at), expiry];
        let Some(at) = times.into_iter().flatten().min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = self.now.max(at);
        if expiry == Some(at) {
            self.expire();
        } else if let Some(key) = item.filter(|(due, _)| *due == at) {
            let item = self.agenda.remove(&key).unwrap();
            self.happen(item);
        } else if let Some((_, host)) = tick {
            self.laws.ticked(self.now, &host);
            self.feed(&host, Event::Tick);
        }
        self.check();
        true
    }

    fn later(&mut self, delay: Duration, item: Item) {
        self.count += 1;
        self.agenda.insert((self.now + delay, self.count), item);
    }

    /// Something for the present process of `host`.
    fn send(&mut self, delay: Duration, host: &str, happening: Happening) {
        let process = self.hosts[host].process;
        self.later(delay, Item::To(host.to_owned(), process, happening));
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::To(host, process, happening) => {
                if self.hosts[&host].process == process {
                    self.happen_to(&host, happening);
                }
            }
            Item::Request { host, process, request, work, answer } => {
                self.carry_out(&host, process, request, &work, answer);
            }
            Item::Hearing => {
                self.hear_all();
                self.later(HEARING, Item::Hearing);
            }
        }
    }

    fn happen_to(&mut self, name: &str, happening: Happening) {
        let host = self.hosts.get_mut(name).unwrap();
        match happening {
            Happening::Event(event) => self.feed(name, event),
            Happening::Watched(version, event) => {
                if host.api && !host.watch_hung && version > host.listed {
                    self.feed(name, event);
                }
            }
            Happening::Answer(request, answer, claim) => {
                host.claim_writes -= usize::from(claim);
                self.feed(name, Event::Answered { request, answer });
            }
            Happening::Lists => {
                if !(self.api && host.api) {
                    self.send(TIMEOUT, name, Happening::Lists);
                    return;
                }
                host.listed = self.store.version;
                for event in self.store.lists() {
                    self.feed(name, event);
                }
                let desired = Arc::new(self.desired.clone());
                self.feed(name, Event::Desired(desired));
            }
            Happening::Apply(serving) => {
                let announced = host.kernel.apply(self.now, serving);
                let view = host.kernel.view();
                for ip in announced {
                    self.transmit(name, &Frame::Announce(ip));
                }
                self.feed(name, Event::Kernel(view));
            }
        }
    }

    fn expire(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            let host = self.hosts.get_mut(&name).unwrap();
            if host.kernel.expire(self.now) {
                let view = host.kernel.view();
                self.feed(&name, Event::Kernel(view));
            }
        }
    }

    /// Hands one event to a speaker and carries out what it asks for.
    pub(super) fn feed(&mut self, name: &str, event: Event) {
        let Some(core) = self.hosts.get_mut(name).unwrap().core.as_mut() else { return };
        let mut actions = Vec::new();
        core.handle(self.now, event, &mut actions);
        for action in actions {
            self.act(name, action);
        }
    }

    fn act(&mut self, name: &str, action: Action) {
        match action {
            Action::Write { request, write } => self.request(name, request, Work::Write(write)),
            Action::Read { request, target } => self.request(name, request, Work::Read(target)),
            Action::List => {
                if self.api && self.hosts[name].api {
                    for event in self.store.lists() {
                        self.send(LATENCY, name, Happening::Event(event));
                    }
                }
            }
            Action::Listen(_) => {}
            Action::Serve(serving) => self.send(WIRE, name, Happening::Apply(serving)),
            Action::Transmit { frame, .. } => {
                self.transmit(name, &frame);
                self.sent.push((self.now, name.to_owned(), frame));
            }
            Action::Persist(record) => self.hosts.get_mut(name).unwrap().record = Some(record),
            Action::Report(fact) => self.facts.push((self.now, name.to_owned(), fact)),
            Action::Exit => {
                let host = self.hosts.get_mut(name).unwrap();
                host.exited = true;
                host.core = None;
                host.process += 1;
            }
        }
    }

    fn request(&mut self, name: &str, request: RequestId, work: Work) {
        let claim = matches!(&work, Work::Write(Write::Claim(_)));
        let host = self.hosts.get_mut(name).unwrap();
        host.claim_writes += usize::from(claim);
        host.most_claim_writes = host.most_claim_writes.max(host.claim_writes);
        let (process, reaches) = (host.process, host.api && self.api);
        let target = match &work {
            Work::Write(Write::Session(change)) => Target::Session(change.name.clone()),
            Work::Write(Write::Claim(change)) => Target::Claim(change.name.clone()),
            Work::Read(target) => target.clone(),
        };
        self.laws.requested(self.now, name, &target);
        let trouble = match &work {
            _ if !reaches => Some(Trouble::Lost),
            Work::Write(_) if self.read_only => Some(Trouble::Refused),
            Work::Write(write) => self.trouble(name, write),
            Work::Read(_) => None,
        };
        let mut answer = |delay, answer| {
            self.send(delay, name, Happening::Answer(request, answer, claim));
        };
        let none = || Answer::Unknown("timed out".to_owned());
        let carried_out_after = match trouble {
            None => Some(LATENCY),
            Some(Trouble::Throttled) => return answer(LATENCY, Answer::Throttled),
            Some(Trouble::Refused) => return answer(LATENCY, Answer::Refused("full".to_owned())),
            Some(Trouble::Lost) => return answer(TIMEOUT, none()),
            Some(Trouble::AnswerLost) => {
                answer(TIMEOUT, none());
                Some(LATENCY)
            }
            Some(Trouble::Late(delay)) => {
                answer(TIMEOUT, none());
                Some(delay)
            }
        };
        if let Some(delay) = carried_out_after {
            let (host, answer) = (name.to_owned(), trouble.is_none());
            self.later(delay, Item::Request { host, process, request, work, answer });
        }
    }

    fn trouble(&mut self, name: &str, write: &Write) -> Option<Trouble> {
        let fault = self.faults.iter_mut().find(|fault| {
            fault.times > 0
                && fault.host.as_deref().is_none_or(|host| host == name)
                && (fault.hits)(write)
        })?;
        fault.times -= 1;
        Some(fault.trouble)
    }

    fn carry_out(
        &mut self,
        name: &str,
        process: u64,
        request: RequestId,
        work: &Work,
        answer: bool,
    ) {
        let (result, claim) = match work {
            Work::Read(target) => (self.store.read(target), false),
            Work::Write(write) => {
                let (result, event) = self.store.write(write);
                if let Some(event) = event {
                    let write = write.clone();
                    let host = name.to_owned();
                    self.committed.push(Committed { at: self.now, host, write });
                    self.publish(&event);
                }
                (result, matches!(write, Write::Claim(_)))
            }
        };
        if answer {
            let answered = Happening::Answer(request, result, claim);
            self.later(LATENCY, Item::To(name.to_owned(), process, answered));
        }
    }

    /// The watches of all hosts are to deliver a change.
    pub(super) fn publish(&mut self, event: &Event) {
        let version = self.store.version;
        let names: Vec<(String, Duration)> =
            self.hosts.iter().map(|(name, host)| (name.clone(), host.watch_delay)).collect();
        for (name, delay) in names {
            self.send(delay, &name, Happening::Watched(version, event.clone()));
        }
    }

    fn connected(&self, one: &str, other: &str) -> bool {
        let cut = |a: &str, b: &str| self.cuts.contains(&(a.to_owned(), b.to_owned()));
        one != other
            && self.hosts[one].carrier
            && self.hosts[other].carrier
            && !cut(one, other)
            && !cut(other, one)
    }

    fn neighbours(&self, name: &str) -> Vec<String> {
        self.hosts.keys().filter(|other| self.connected(name, other)).cloned().collect()
    }

    fn transmit(&mut self, name: &str, frame: &Frame) {
        let mac = self.hosts[name].mac;
        for other in self.neighbours(name) {
            let host = &self.hosts[&other];
            match frame {
                Frame::Announce(ip) => self.hear(&other, *ip, mac, true),
                Frame::Probe(ip) if host.kernel.has(*ip) => self.hear(name, *ip, host.mac, false),
                Frame::Ask(ip, to) if host.mac == *to && host.kernel.has(*ip) => {
                    self.hear(name, *ip, *to, false);
                }
                Frame::Probe(_) | Frame::Ask(..) => {}
            }
        }
        if let Frame::Probe(ip) = frame
            && let Some(mac) = self.strangers.get(ip).copied()
            && self.hosts[name].carrier
        {
            self.hear(name, *ip, mac, false);
        }
    }

    fn hear(&mut self, name: &str, ip: IpAddr, mac: MacAddr, announcement: bool) {
        let interface: InterfaceName = "eth0".parse().unwrap();
        let heard = Heard { interface, frame: HeardFrame { ip, mac, announcement } };
        self.send(WIRE, name, Happening::Event(Event::Heard(heard)));
    }

    fn hear_all(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            if !self.neighbours(&name).is_empty() {
                let hearing = BTreeMap::from([("eth0".parse().unwrap(), self.now)]);
                self.feed(&name, Event::Hearing(hearing));
            }
        }
    }

    /// The claims that are valid, with their owners.
    pub(super) fn valid_claims(&self) -> impl Iterator<Item = (&Claim, &str)> {
        self.store.claims.values().filter_map(|claim| {
            let (holder, under) = (claim.record.holder.as_ref()?, claim.record.session.as_ref()?);
            let session = self.store.sessions.get(&holder.as_str().parse().ok()?)?;
            let live = session.record.holder.as_ref() == Some(holder)
                && session.uid == under.uid
                && session.record.transitions == under.transitions;
            live.then_some((&claim.record, holder.as_str()))
        })
    }
}
