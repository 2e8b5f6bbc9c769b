//! The rows of a record: which entries are drawn.
//!
//! Not drawn are renewals of sessions and refreshes of claims that are answered, the watch events that a speaker
//! gets for its own writes, and the answers by which it knows that its segment hears it. A frame that is sent
//! several times, while the sender's suspicions and addresses stay the same, is one row, which has their number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Action, Answer, Event, Fact, Frame, RequestId, Write};

use super::labels;
use super::repeats::{Drawn, Repeats};
use super::rows::{Kind, Line, State, seconds, since};
use super::runs::Recording;
use crate::world::trace::Question;
use crate::world::{Place, Step, World};

const OWN: &str = "ARP request, own address";
const OWN_ALL: &str = "ARP requests, own addresses";

/// The state while the entries of a record are read.
pub(super) struct Reader<'a> {
    recording: &'a Recording,
    /// The first note.
    zero: Instant,
    rows: Vec<(Instant, Kind)>,
    /// The requests under way, by host.
    requests: BTreeMap<(usize, RequestId), Request>,
    /// The versions of Leases that renewals led to.
    renewals: BTreeSet<String>,
    /// The versions of Leases that a host knows from answers.
    known: BTreeSet<(usize, String)>,
    provisional: BTreeSet<usize>,
    having: BTreeMap<usize, BTreeSet<IpAddr>>,
    down: BTreeSet<Place>,
}

struct Request {
    /// `None`: a renewal, which is not drawn.
    text: Option<String>,
    read: bool,
    /// The name of a renewal.
    renewal: &'static str,
}

impl<'a> Reader<'a> {
    /// The time of the first note, and the content of the rows.
    pub(super) fn read(recording: &'a Recording) -> (Instant, Vec<(Instant, Kind)>) {
        let first = recording.steps.iter().find(|(_, step)| matches!(step, Step::Note { .. }));
        let mut reader = Self {
            recording,
            zero: first.map(|(at, _)| *at).unwrap_or_default(),
            rows: Vec::new(),
            requests: BTreeMap::new(),
            renewals: BTreeSet::new(),
            known: BTreeSet::new(),
            provisional: BTreeSet::new(),
            having: recording.serving.iter().cloned().collect(),
            down: BTreeSet::new(),
        };
        let mut repeats = Repeats::of(&recording.steps);
        for (at, step) in &recording.steps {
            match repeats.next(step) {
                None => reader.step(*at, step),
                Some(Drawn::Not) => {}
                Some(Drawn::Single) => reader.frame(*at, step, ""),
                Some(Drawn::First(times, last)) => {
                    let last = seconds(since(reader.zero, last));
                    let often = format!(", {times} times until {}", last.trim_start());
                    reader.frame(*at, step, &often);
                }
            }
        }
        (reader.zero, reader.rows)
    }

    fn step(&mut self, at: Instant, step: &Step) {
        match step {
            Step::Note { text, works } => self.note(at, text, *works),
            Step::Event(host, event) => self.event(at, *host, event),
            Step::Action(host, action) => self.action(at, *host, action),
            Step::Operator(event) => {
                if let Some(text) = labels::stored(event) {
                    let text = format!("operator writes {text}");
                    self.rows.push((at, Kind::Local { place: Place::Server, text, state: None }));
                }
            }
            Step::Addresses(host, ips) => self.addresses(at, *host, ips),
            Step::Question(_) | Step::Announcement { .. } => {}
        }
    }

    fn note(&mut self, at: Instant, text: &str, works: Option<(Place, bool)>) {
        match works {
            Some((place, false)) => {
                self.down.insert(place);
            }
            Some((place, true)) => {
                self.down.remove(&place);
            }
            None => {}
        }
        self.rows.push((at, Kind::Note { text: text.to_owned(), works }));
    }

    /// A frame; `often` says how often it is sent, if it is sent again.
    fn frame(&mut self, at: Instant, step: &Step, often: &str) {
        match step {
            Step::Announcement { from, ip, to } => {
                let (from, to) = (*from, to.clone());
                let text = format!("gratuitous ARP, {ip}{often}");
                self.rows.push((at, Kind::Arrow { from, to, text, line: Line::Frame }));
            }
            Step::Question(question) => self.question(at, *question, often),
            _ => {}
        }
    }

    fn question(&mut self, at: Instant, question: Question, often: &str) {
        let Question { from, ip, to, reply } = question;
        let from = Place::Host(from);
        if let (Some(to), Some(_)) = (to, reply)
            && self.is_own(ip)
            && often.is_empty()
        {
            return self.witness(at, from, to, ip);
        }
        let cast = if to.is_none() { "broadcast " } else { "" };
        let text = format!("{cast}ARP request, {}{often}", self.address(ip));
        let line = if reply.is_some() { Line::Replied } else { Line::Lost };
        let to = reply.or(to).map_or_else(|| self.stations(from), |to| vec![to]);
        self.rows.push((at, Kind::Arrow { from, to, text, line }));
    }

    /// One row for the hosts that are asked at once for their own addresses, and reply.
    fn witness(&mut self, at: Instant, from: Place, to: Place, ip: IpAddr) {
        if let Some((then, Kind::Arrow { from: same, to: others, text, line: Line::Replied })) =
            self.rows.last_mut()
            && (*then, *same) == (at, from)
            && (text == OWN_ALL || text.starts_with(OWN))
        {
            others.push(to);
            OWN_ALL.clone_into(text);
            return;
        }
        let text = format!("ARP request, {}", self.address(ip));
        self.arrow(at, from, to, text, Line::Replied);
    }

    /// Whether it is an address of a node or of the gateway.
    fn is_own(&self, ip: IpAddr) -> bool {
        ip == World::router_ip(0) || self.recording.own.contains(&ip)
    }

    /// The other places of the segment that work.
    fn stations(&self, from: Place) -> Vec<Place> {
        let nodes = (0..self.recording.nodes.len()).map(Place::Host);
        nodes
            .chain([Place::Router])
            .filter(|place| *place != from && !self.down.contains(place))
            .collect()
    }

    fn address(&self, ip: IpAddr) -> String {
        let node = self.recording.own.iter().position(|own| *own == ip);
        match node {
            Some(node) => format!("own address of {}", self.recording.nodes[node]),
            None if ip == World::router_ip(0) => "own address of the gateway".to_owned(),
            None => ip.to_string(),
        }
    }

    fn event(&mut self, at: Instant, host: usize, event: &Event) {
        let version = match event {
            Event::Answered { request, answer } => return self.answer(at, host, *request, answer),
            Event::Session(stored) => &stored.resource_version,
            Event::Claim(stored) => &stored.resource_version,
            Event::SessionGone(_) | Event::ClaimGone(_) | Event::Desired(_) => "",
            _ => return,
        };
        if self.renewals.contains(version) || self.known.contains(&(host, version.to_owned())) {
            return;
        }
        let Some(text) = labels::stored(event) else { return };
        let text = format!("watch: {text}");
        // One row for all speakers that learn it at the same moment.
        let now = self.rows.iter_mut().rev().take_while(|(then, _)| *then == at);
        for (_, kind) in now {
            if let Kind::Arrow { to, text: same, line: Line::Watch, .. } = kind
                && *same == text
            {
                to.push(Place::Host(host));
                return;
            }
        }
        self.arrow(at, Place::Server, Place::Host(host), text, Line::Watch);
    }

    fn answer(&mut self, at: Instant, host: usize, request: RequestId, answer: &Answer) {
        let Some(Request { text, read, renewal }) = self.requests.remove(&(host, request)) else {
            return;
        };
        let version = match answer {
            Answer::Session(stored) => Some(stored.resource_version.to_string()),
            Answer::Claim(stored) => Some(stored.resource_version.to_string()),
            _ => None,
        };
        if let Some(version) = version {
            if text.is_none() {
                self.renewals.insert(version.clone());
            }
            self.known.insert((host, version));
        }
        let (host, lost) = (Place::Host(host), matches!(answer, Answer::Unknown(_)));
        if lost {
            let text = text.unwrap_or_else(|| renewal.to_owned());
            let text = format!("{text}: {}", labels::answer(answer, read));
            self.rows.push((at, Kind::Local { place: host, text, state: None }));
        } else if text.is_some() {
            self.arrow(at, Place::Server, host, labels::answer(answer, read), Line::Answer);
        }
    }

    fn action(&mut self, at: Instant, host: usize, action: &Action) {
        let name = &self.recording.nodes[host];
        let mut renewal = "renewal of the session";
        let (request, text, read) = match action {
            Action::Write { request, write } => {
                if matches!(write, Write::Claim(_)) {
                    renewal = "refresh of the claim";
                }
                (request, labels::write(name, write), false)
            }
            Action::Read { request, target } => (request, Some(labels::read(target)), true),
            Action::List { .. } => {
                let text = "LIST sessions, claims".to_owned();
                return self.request(at, host, text);
            }
            Action::Report(fact) => return self.fact(at, host, fact),
            Action::Transmit { frame: Frame::AskAround, .. } => {
                let text = "ARP requests to known hosts".to_owned();
                let (from, line) = (Place::Host(host), Line::Frame);
                let to = self.stations(from);
                return self.rows.push((at, Kind::Arrow { from, to, text, line }));
            }
            _ => return,
        };
        if let Some(text) = &text {
            self.request(at, host, text.clone());
        }
        self.requests.insert((host, *request), Request { text, read, renewal });
    }

    fn request(&mut self, at: Instant, host: usize, text: String) {
        let line = if self.down.contains(&Place::Server) { Line::Lost } else { Line::Request };
        self.arrow(at, Place::Host(host), Place::Server, text, line);
    }

    fn fact(&mut self, at: Instant, host: usize, fact: &Fact) {
        let place = Place::Host(host);
        let mut state = None;
        match fact {
            Fact::TookProvisionally { .. } => {
                self.provisional.insert(host);
            }
            Fact::Claimed { .. } if self.provisional.remove(&host) => {
                state = Some(State::Owned);
            }
            _ => {}
        }
        let text = labels::fact(fact).unwrap_or_default();
        if state.is_some() || !text.is_empty() {
            self.rows.push((at, Kind::Local { place, text, state }));
        }
    }

    fn addresses(&mut self, at: Instant, host: usize, ips: &BTreeSet<IpAddr>) {
        let place = Place::Host(host);
        let before = self.having.insert(host, ips.clone()).unwrap_or_default();
        let state = match self.provisional.contains(&host) {
            _ if ips.is_empty() => State::None,
            true => State::Provisional,
            false => State::Owned,
        };
        let list = |ips: Vec<String>| ips.join(", ");
        let added = list(ips.difference(&before).map(ToString::to_string).collect());
        let removed = list(before.difference(ips).map(ToString::to_string).collect());
        let text = if self.down.contains(&place) {
            String::new()
        } else if added.is_empty() {
            format!("removes {removed}")
        } else {
            format!("adds {added}")
        };
        self.rows.push((at, Kind::Local { place, text, state: Some(state) }));
    }

    fn arrow(&mut self, at: Instant, from: Place, to: Place, text: String, line: Line) {
        self.rows.push((at, Kind::Arrow { from, to: vec![to], text, line }));
    }
}
