//! The segments: who hears whom.

use std::net::IpAddr;
use std::time::Duration;

use leasehold::net::wire::Transmit;
use leasehold_core::detect::question::Question;
use leasehold_core::election::{Event, Frame, Heard, HeardFrame};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::trace::Question as Asking;
use super::{Happening, Item, Place, Step, World};

/// The station that is no speaker's node: a router, or a client.
pub(crate) const ROUTER: usize = 31;
/// How many segments there can be.
pub(crate) const SEGMENTS: usize = 2;
const STATIONS: usize = 32;

/// Frames that do not arrive, by segment, sender and receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts([[u32; STATIONS]; SEGMENTS]);

impl Cuts {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What `from` sends no longer arrives at `to`.
    pub(crate) fn one_way(&mut self, segment: usize, from: usize, to: usize) {
        self.0[segment][from] |= 1 << to;
    }

    pub(crate) fn both_ways(&mut self, segment: usize, one: usize, other: usize) {
        self.one_way(segment, one, other);
        self.one_way(segment, other, one);
    }

    /// Nothing that `station` sends arrives, nor anything that is sent to it.
    pub(crate) fn off(&mut self, segment: usize, station: usize) {
        self.deaf(segment, station);
        self.0[segment][station] = u32::MAX;
    }

    /// Nothing that is sent to `station` arrives.
    pub(crate) fn deaf(&mut self, segment: usize, station: usize) {
        for from in &mut self.0[segment] {
            *from |= 1 << station;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (segment, others) in self.0.iter_mut().zip(&other.0) {
            for (to, more) in segment.iter_mut().zip(others) {
                *to |= more;
            }
        }
    }

    fn cut(&self, segment: usize, from: usize, to: usize) -> bool {
        self.0[segment][from] & (1 << to) != 0
    }
}

/// A frame on its way to one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    pub(crate) segment: usize,
    pub(crate) ip: IpAddr,
    pub(crate) mac: MacAddr,
    pub(crate) announcement: bool,
    /// It answers a question of the core or of the edge.
    pub(crate) answer: bool,
    /// It answers a question in the receiver's name.
    pub(crate) named: bool,
}

/// A question: for which address, whether the core hears the answer, and whether it is asked in the name of
/// who asks; of IPv6 whether it says of nobody who asks, so that all are answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ip: IpAddr,
    answer: bool,
    named: bool,
    anonymous: bool,
}

impl Asked {
    const fn new(ip: IpAddr, answer: bool) -> Self {
        Self { ip, answer, named: false, anonymous: false }
    }
}

impl World {
    /// Whether `station` takes part in the segment at all.
    fn is_on(&self, segment: usize, station: usize) -> bool {
        if station == ROUTER {
            return self.router;
        }
        let host = &self.hosts[station];
        host.powered && !host.paused && host.nics.get(segment).is_some_and(|nic| nic.carrier)
    }

    /// Whether a frame from `from` arrives at `to`.
    pub(crate) fn arrives(&self, segment: usize, from: usize, to: usize) -> bool {
        from != to
            && self.is_on(segment, from)
            && self.is_on(segment, to)
            && !self.cuts.cut(segment, from, to)
    }

    pub(crate) fn connected(&self, segment: usize, one: usize, other: usize) -> bool {
        self.arrives(segment, one, other) && self.arrives(segment, other, one)
    }

    /// The segment to which an address belongs.
    pub(crate) fn segment_of(ip: IpAddr) -> usize {
        match ip {
            IpAddr::V4(ip) => usize::from(ip.octets()[1]),
            IpAddr::V6(_) => 0,
        }
    }

    fn wire_delay(&mut self) -> Duration {
        if self.jitter {
            self.dice.between(Duration::from_micros(100), Duration::from_millis(2))
        } else {
            super::WIRE
        }
    }

    /// A frame of a core or of an announcer.
    pub(crate) fn transmit(&mut self, from: usize, interface: &InterfaceName, frame: &Frame) {
        let Some(segment) = self.hosts[from].segment(interface) else { return };
        self.laws.transmitted(self.now, from);
        let mac = self.hosts[from].nics[segment].mac;
        match *frame {
            Frame::Announce(ip) => {
                let to = self.others(Some((segment, from)));
                self.trace(|| Step::Announcement { from: Place::Host(from), ip, to });
                for to in 0..self.hosts.len() {
                    if self.arrives(segment, from, to) {
                        let arriving = Arriving {
                            segment,
                            ip,
                            mac,
                            announcement: true,
                            answer: false,
                            named: false,
                        };
                        self.arrive(to, Duration::ZERO, arriving);
                    }
                }
            }
            Frame::Probe(ip) => {
                let anonymous = self.asks_anonymously(from, interface, ip);
                self.ask_all(from, segment, Asked { anonymous, ..Asked::new(ip, true) });
            }
            Frame::Ask(ip, to) => self.ask_one(from, segment, to, Asked::new(ip, true)),
            Frame::AskAround => {
                let answered = self.now + self.wire_delay() * 2;
                let host = &mut self.hosts[from];
                host.around = host.around.min(answered);
                host.touch();
            }
        }
        if self.recording {
            let sent = (self.now, self.hosts[from].name.clone(), frame.clone());
            self.sent.push(sent);
        }
    }

    /// A question of a listener.
    pub(crate) fn question(&mut self, from: usize, question: &Question) {
        let Some(segment) = self.hosts[from].segment(&question.interface) else { return };
        match question.mac {
            None => self.ask_all(from, segment, Asked::new(question.ip, false)),
            Some(mac) => {
                let named = question.named;
                self.ask_one(from, segment, mac, Asked { named, ..Asked::new(question.ip, false) });
            }
        }
    }

    /// Whether the probe of a speaker leaves from `::`, as the edge encodes it.
    fn asks_anonymously(&self, from: usize, interface: &InterfaceName, ip: IpAddr) -> bool {
        let probe = Transmit::Probe { ip, interface: interface.clone() };
        let frame = self.hosts[from].links.get(interface).and_then(|link| probe.encode(link));
        let heard = frame.and_then(|(kind, frame)| {
            leasehold::net::wire::Heard::decode(self.now, interface, kind, &frame)
        });
        ip.is_ipv6() && heard.is_some_and(|heard| heard.probe)
    }

    fn ask_all(&mut self, from: usize, segment: usize, asked: Asked) {
        let mut reply = None;
        for to in 0..self.hosts.len() {
            let mac = self.hosts[to].nics.get(segment).map(|nic| nic.mac);
            if mac.is_some_and(|mac| self.ask(from, to, segment, mac, asked)) {
                reply = Some(Place::Host(to));
            }
        }
        if self.ask(from, ROUTER, segment, Self::router_mac(segment), asked) {
            reply = Some(Place::Router);
        }
        let Asked { ip, answer, anonymous: announcement, .. } = asked;
        if let Some(mac) = self.strangers.get(&ip).copied()
            && self.is_on(segment, from)
        {
            let arriving = Arriving { segment, ip, mac, announcement, answer, named: false };
            self.arrive(from, Duration::ZERO, arriving);
            reply = Some(Place::Stranger);
        }
        self.trace(|| Step::Question(Asking { from, ip, to: None, reply }));
    }

    fn ask_one(&mut self, from: usize, segment: usize, mac: MacAddr, asked_for: Asked) {
        let asked = |host: &super::Host| host.nics.get(segment).is_some_and(|nic| nic.mac == mac);
        let station = (0..self.hosts.len()).find(|id| asked(&self.hosts[*id]));
        let router = (mac == Self::router_mac(segment)).then_some(ROUTER);
        if let Some(to) = station.or(router) {
            let replies = self.ask(from, to, segment, mac, asked_for);
            let to = if to == ROUTER { Place::Router } else { Place::Host(to) };
            let (ip, reply) = (asked_for.ip, replies.then_some(to));
            self.trace(|| Step::Question(Asking { from, ip, to: Some(to), reply }));
        }
    }

    /// Whether the question arrives and what the kernel there has decides now; the answer arrives
    /// after both ways. Returns whether there is an answer.
    fn ask(&mut self, from: usize, to: usize, segment: usize, mac: MacAddr, asked: Asked) -> bool {
        let Asked { ip, answer, named, anonymous } = asked;
        if !self.connected(segment, from, to) {
            return false;
        }
        let has = if to == ROUTER {
            ip == Self::router_ip(segment)
        } else {
            let host = &self.hosts[to];
            let nic = &host.nics[segment];
            (nic.own() == Some(ip) || host.kernel.has(ip)) && !(named && nic.answers_no_clients)
        };
        if !has {
            return false;
        }
        let back = self.wire_delay();
        let arriving = Arriving { segment, ip, mac, announcement: anonymous, answer, named };
        self.arrive(from, back, arriving);
        let others = (0..self.hosts.len()).filter(|id| anonymous && *id != from);
        for other in others.filter(|id| self.arrives(segment, to, *id)).collect::<Vec<_>>() {
            self.arrive(other, back, Arriving { answer: false, ..arriving });
        }
        true
    }

    /// The places where a frame from a host arrives that is sent to all; from no host, those of all.
    pub(crate) fn others(&self, from: Option<(usize, usize)>) -> Vec<Place> {
        let arrives =
            |to: usize| from.is_none_or(|(segment, from)| self.arrives(segment, from, to));
        let hosts = (0..self.hosts.len()).filter(|to| arrives(*to)).map(Place::Host);
        hosts.chain(arrives(ROUTER).then_some(Place::Router)).collect()
    }

    pub(super) fn arrive(&mut self, to: usize, more: Duration, arriving: Arriving) {
        let delay = self.wire_delay() + more;
        let process = self.hosts[to].process;
        self.later(delay, Item::Frame { to, process, arriving });
    }

    /// Handed to the listener's socket and, where the core wants it, to the core.
    pub(crate) fn deliver_frame(&mut self, to: usize, arriving: Arriving) {
        let (now, jitter) = (self.now, self.jitter);
        let host = &mut self.hosts[to];
        let Some(core) = host.core.as_ref().filter(|_| host.powered && !host.paused) else {
            return;
        };
        let Arriving { segment, ip, mac, announcement, answer, named } = arriving;
        let Some(nic) = host.nics.get(segment) else { return };
        if nic.mac == mac {
            return;
        }
        let interface = nic.name.clone();
        let wanted = answer || core.heeded().any(|heeded| heeded == ip);
        // What a host says unasked is no answer.
        if !announcement {
            host.listener.receive(segment, ip, mac, named);
            if !host.stopped {
                let lag = host.lag;
                let wait =
                    if jitter { self.dice.between(Duration::ZERO, lag) } else { Duration::ZERO };
                host.listener.wake_by(now + wait);
                host.touch();
            }
        }
        if wanted {
            let frame = HeardFrame { ip, mac, announcement };
            let heard = Event::Heard(Heard { interface, frame });
            let dropped = host.overflows > 0 && self.dice.percent(host.overflows);
            let event = if dropped { Event::Missed } else { heard };
            self.happen_to(to, Happening::Event(event));
        }
    }

    pub(crate) fn router_mac(segment: usize) -> MacAddr {
        MacAddr::new(2, 0, 0, u8::try_from(segment).unwrap(), 0, 0xfe)
    }

    pub(crate) fn router_ip(segment: usize) -> IpAddr {
        IpAddr::from([10, u8::try_from(segment).unwrap(), 255, 254])
    }

    /// Each host asks around on its segments now and then.
    pub(crate) fn ask_around(&mut self, id: usize) {
        let stations: Vec<usize> = (0..self.hosts.len()).chain([ROUTER]).collect();
        for segment in 0..self.hosts[id].nics.len() {
            let answering: Vec<(IpAddr, MacAddr)> = stations
                .iter()
                .filter(|other| self.connected(segment, id, **other))
                .filter_map(|other| match *other {
                    ROUTER => Some((Self::router_ip(segment), Self::router_mac(segment))),
                    other => {
                        let nic = &self.hosts[other].nics[segment];
                        Some((nic.own()?, nic.mac))
                    }
                })
                .collect();
            let host = &mut self.hosts[id];
            let now = host.clock.at(self.now);
            if !answering.is_empty() {
                host.hearing.insert(host.nics[segment].name.clone(), now);
            }
            let name = host.nics[segment].name.clone();
            host.listener.heard_around(now, &name, &answering);
        }
        let hearing = self.hosts[id].hearing.clone();
        self.feed(id, Event::Hearing(hearing));
        // What answers the edge's own question is handed on: one host in turn.
        self.hosts[id].turn += 1;
        let turn = self.hosts[id].turn;
        for segment in 0..self.hosts[id].nics.len() {
            let nodes: Vec<usize> =
                (0..self.hosts.len()).filter(|to| self.connected(segment, id, *to)).collect();
            if let Some(to) = nodes.get(turn % nodes.len().max(1)) {
                let nic = &self.hosts[*to].nics[segment];
                let (Some(ip), mac) = (nic.own(), nic.mac) else { continue };
                let arriving =
                    Arriving { segment, ip, mac, announcement: false, answer: true, named: false };
                self.arrive(id, Duration::ZERO, arriving);
            }
        }
    }
}
