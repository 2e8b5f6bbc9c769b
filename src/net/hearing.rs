//! Detection of a node that is cut from a segment.
//!
//! A node that is cut from a segment with its carrier up notices nothing by itself. So it asks: each
//! 500 ms, per interface, one host that should be there - the gateways, other speakers' nodes, the
//! last hosts heard - in turn; as long as nobody answers, three. Any answer to any question of this
//! node counts, also to those that the core has asked; of each host the first one does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::net::rtnl::links::{Link, Links};
use crate::net::wire::{Heard, HeardKind};
use leasehold_core::clock::Instant;
use leasehold_core::detect::question::{ANSWER_WITHIN, Question, Witnesses};

/// Interval between two questions on an interface.
pub const ROUND: Duration = Duration::from_millis(500);
/// Number of hosts asked at once when the core asks whether the segment answers.
const ASKED_AT_ONCE: usize = 8;
/// Number of hosts asked in a round while no host answers.
const ASKED_IN_SILENCE: usize = 3;
/// Number of hosts remembered of those heard last.
const HOSTS: usize = 4;
/// After so many questions without an answer a remembered MAC is no longer trusted.
const TRUSTED_MISSES: u8 = 2;

/// Another speaker's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its own address on the segment.
    pub ip: IpAddr,
    /// Its MAC there.
    pub mac: MacAddr,
}

/// Interfaces, peers and addresses that the edge attends to. Written by the core, read by the edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// The interfaces that may carry VIPs; frames elsewhere are ignored.
    pub interfaces: BTreeSet<InterfaceName>,
    /// Nodes with a live session, on whatever segment.
    pub peers: BTreeSet<Peer>,
    /// The addresses about which the core wants to hear.
    pub vips: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    carrier: bool,
    heard_at: Option<Instant>,
    /// The last hosts heard there, the newest at the end.
    hosts: VecDeque<(IpAddr, MacAddr)>,
    /// The last question for each address.
    asked: BTreeMap<IpAddr, Asked>,
    /// The state of the hosts that are asked in turn.
    known: BTreeMap<IpAddr, Known>,
    turn: usize,
    named: bool,
}

#[derive(Clone, Debug)]
struct Asked {
    at: Instant,
    /// The hosts that have answered: each counts once, since polls of the listener may ask the same host ten times as often.
    answered: BTreeSet<MacAddr>,
}

impl Asked {
    const fn new(at: Instant) -> Self {
        Self { at, answered: BTreeSet::new() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    mac: MacAddr,
    misses: u8,
    /// Whether it has answered, or was only told of.
    answered: bool,
}

/// The schedule of the questions and what came of them. Pure: the edge sends and reads.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    segments: BTreeMap<InterfaceName, Segment>,
    attention: Attention,
    next_round: Instant,
}

impl Hearing {
    /// Takes over what changed. A new interface, or one whose carrier has come back, is asked on at
    /// once; what was heard before a carrier was lost is forgotten.
    pub fn update(&mut self, now: Instant, links: &Links, attention: &Attention) {
        self.attention = attention.clone();
        self.segments
            .retain(|name, _| attention.interfaces.contains(name) && links.get(name).is_some());
        for name in &attention.interfaces {
            let Some(link) = links.get(name) else { continue };
            let segment = self.segments.entry(name.clone()).or_default();
            if link.carrier != segment.carrier {
                *segment = Segment { carrier: link.carrier, ..Segment::default() };
                if link.carrier {
                    self.next_round = now;
                }
            }
        }
    }

    /// The time at which [`Hearing::ask`] is due.
    pub fn next_round(&self) -> Instant {
        self.next_round
    }

    /// The questions of a round; none before it is due.
    pub fn ask(&mut self, now: Instant, links: &Links) -> Vec<Question> {
        if now < self.next_round {
            return Vec::new();
        }
        self.next_round = now + ROUND;
        let mut questions = Vec::new();
        for (name, segment) in &mut self.segments {
            let Some(link) = links.get(name) else { continue };
            if link.carrier {
                let count = segment.round(now);
                questions.extend(segment.ask(now, link, &self.attention, count));
            }
        }
        questions
    }

    /// Questions for all that should be on one segment, whatever the schedule.
    pub fn ask_all(
        &mut self,
        now: Instant,
        interface: &InterfaceName,
        links: &Links,
    ) -> Vec<Question> {
        let (Some(link), Some(segment)) = (links.get(interface), self.segments.get_mut(interface))
        else {
            return Vec::new();
        };
        segment.ask(now, link, &self.attention, ASKED_AT_ONCE)
    }

    /// A question that was sent, of this schedule or of somebody else.
    pub fn asked(&mut self, now: Instant, interface: &InterfaceName, ip: IpAddr) {
        if let Some(segment) = self.segments.get_mut(interface) {
            segment.asked.insert(ip, Asked::new(now));
        }
    }

    /// Whether `heard` answers a question of this node.
    pub fn hear(&mut self, heard: &Heard, links: &Links) -> bool {
        let Some(link) = links.get(&heard.interface) else { return false };
        let peers = &self.attention.peers;
        let segment = self.segments.get_mut(&heard.interface);
        segment.is_some_and(|segment| segment.hear(heard, link, peers))
    }

    /// The hosts that answered the last question to them, as of the last round.
    pub fn witnesses(&self) -> Witnesses {
        let of = |segment: &Segment| {
            let trusted = |known: &&Known| known.answered && known.misses < TRUSTED_MISSES;
            let known = segment.known.iter().filter(|(_, known)| trusted(known));
            known.map(|(ip, known)| (*ip, known.mac)).collect()
        };
        self.segments.iter().map(|(name, segment)| (name.clone(), of(segment))).collect()
    }

    /// The time of the last answer on each interface.
    pub fn heard_at(&self) -> BTreeMap<InterfaceName, Instant> {
        let heard = |(name, segment): (&InterfaceName, &Segment)| {
            segment.heard_at.map(|at| (name.clone(), at))
        };
        self.segments.iter().filter_map(heard).collect()
    }
}

impl Segment {
    /// The number of hosts to ask in a round.
    fn round(&self, now: Instant) -> usize {
        let answered =
            self.heard_at.is_some_and(|at| now.saturating_since(at) <= ROUND + ROUND / 2);
        if answered { 1 } else { ASKED_IN_SILENCE }
    }

    fn ask(
        &mut self,
        now: Instant,
        link: &Link,
        attention: &Attention,
        most: usize,
    ) -> Vec<Question> {
        let name = &link.name;
        self.asked.retain(|_, asked| now.saturating_since(asked.at) < ANSWER_WITHIN);
        let targets = self.targets(link, attention);
        self.known.retain(|ip, _| targets.contains_key(ip));
        if targets.is_empty() {
            return Vec::new();
        }
        let count = most.min(targets.len());
        let targets: Vec<_> = targets.into_iter().collect();
        let mut questions = Vec::with_capacity(count);
        for _ in 0..count {
            let turn = self.turn % targets.len();
            self.turn = turn + 1;
            if turn == 0 {
                self.named = !self.named;
            }
            let Some(&(ip, told)) = targets.get(turn) else { continue };
            let mac = match self.known.get_mut(&ip) {
                Some(known) if known.misses >= TRUSTED_MISSES => None,
                Some(known) => {
                    known.misses += 1;
                    Some(known.mac)
                }
                None => {
                    if let Some(mac) = told {
                        self.known.insert(ip, Known { mac, misses: 1, answered: false });
                    }
                    told
                }
            };
            self.asked.insert(ip, Asked::new(now));
            questions.push(Question { interface: name.clone(), ip, mac, named: self.named });
        }
        questions
    }

    /// The hosts to ask, with the MAC if it is known.
    fn targets(&self, link: &Link, attention: &Attention) -> BTreeMap<IpAddr, Option<MacAddr>> {
        let gateways = link.gateways.iter().map(|ip| (*ip, None));
        let peers = attention.peers.iter();
        // An address of a link is told only of links without another.
        let of_a_link = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let reached =
            |peer: &&Peer| link.reaches(peer.ip) && (link.is_bare() || !of_a_link(peer.ip));
        let peers = peers.filter(reached).map(|peer| (peer.ip, Some(peer.mac)));
        let hosts = self.hosts.iter().map(|(ip, mac)| (*ip, Some(*mac)));
        // The later one wins: what is told of a gateway is only that it should be there.
        let mut targets: BTreeMap<_, _> = gateways.chain(hosts).chain(peers).collect();
        // Its own addresses, and those that it serves or is about to.
        let own = |ip: &IpAddr| link.addresses.iter().any(|address| address.ip == *ip);
        targets.retain(|ip, _| !attention.vips.contains(ip) && !own(ip));
        targets
    }

    fn hear(&mut self, heard: &Heard, link: &Link, peers: &BTreeSet<Peer>) -> bool {
        let speaks_up =
            matches!(heard.kind, HeardKind::ArpReply | HeardKind::NeighborAdvertisement);
        let answer = speaks_up
            && self.asked.get_mut(&heard.sender_ip).is_some_and(|asked| {
                asked.at <= heard.at
                    && heard.at.saturating_since(asked.at) <= ANSWER_WITHIN
                    && asked.answered.insert(heard.sender_mac)
            });
        if answer {
            self.heard_at = self.heard_at.max(Some(heard.at));
            let known = Known { mac: heard.sender_mac, misses: 0, answered: true };
            self.known.insert(heard.sender_ip, known);
        }
        // An announced address may be a VIP that is on its way elsewhere; and so may any other that
        // a speaker has: its node is asked anyway.
        let speaker = || peers.iter().any(|peer| peer.mac == heard.sender_mac);
        let lasting = !heard.probe && !heard.announcement;
        let near = || link.reaches(heard.sender_ip) || link.is_bare() && heard.sender_ip.is_ipv4();
        if lasting && near() && !speaker() {
            self.hosts.retain(|(ip, _)| *ip != heard.sender_ip);
            self.hosts.push_back((heard.sender_ip, heard.sender_mac));
            if self.hosts.len() > HOSTS {
                self.hosts.pop_front();
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use leasehold_crds::lease::{DefaultRoutes, Detours};

    use super::*;
    use crate::net::rtnl::links::LinkAddress;

    const MAC: MacAddr = MacAddr(2, 0, 0, 0, 0, 9);

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    fn host(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn eth0() -> InterfaceName {
        "eth0".parse().unwrap()
    }

    fn links(gateways: &[u8], carrier: bool) -> Links {
        let own = LinkAddress { ip: host(1), prefix_len: 24, tentative: false };
        let link = Link {
            index: 2,
            name: eth0(),
            mac: MacAddr(2, 0, 0, 0, 0, 1),
            mtu: 1500,
            carrier,
            kind: None,
            master: None,
            lower: None,
            loopback: false,
            addresses: vec![own],
            gateways: gateways.iter().map(|last| host(*last)).collect(),
            default_routes: DefaultRoutes::NONE,
            detours: Detours::default(),
        };
        Links([(eth0(), link)].into())
    }

    fn attention(peers: &[IpAddr]) -> Attention {
        Attention {
            interfaces: [eth0()].into(),
            peers: peers.iter().map(|ip| Peer { ip: *ip, mac: MAC }).collect(),
            vips: BTreeSet::new(),
        }
    }

    fn heard(millis: u64, kind: HeardKind, ip: IpAddr) -> Heard {
        Heard {
            at: at(millis),
            interface: eth0(),
            kind,
            announcement: false,
            probe: false,
            answer: false,
            sender_mac: MAC,
            sender_ip: ip,
            target_ip: host(1),
        }
    }

    fn asked(hearing: &mut Hearing, millis: u64, links: &Links) -> Vec<(IpAddr, bool)> {
        let questions = hearing.ask(at(millis), links);
        questions.iter().map(|question| (question.ip, question.mac.is_some())).collect()
    }

    #[test]
    fn in_silence_three_are_asked_and_once_answered_one_in_turn() {
        let links = links(&[254], true);
        let elsewhere = Ipv4Addr::new(198, 51, 100, 7).into();
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[host(2), host(3), host(1), elsewhere]));
        // The gateway's MAC is not known; this node and what is elsewhere are not asked.
        let everybody = [(host(2), true), (host(3), true), (host(254), false)];
        assert_eq!(asked(&mut hearing, 0, &links), everybody);
        assert_eq!(asked(&mut hearing, 499, &links), [], "the next round is not due");
        assert_eq!(hearing.heard_at(), BTreeMap::new());

        assert!(hearing.hear(&heard(501, HeardKind::ArpReply, host(254)), &links));
        assert_eq!(hearing.heard_at(), BTreeMap::from([(eth0(), at(501))]));
        assert_eq!(asked(&mut hearing, 502, &links), [(host(2), true)]);
        hearing.hear(&heard(503, HeardKind::ArpReply, host(2)), &links);
        assert_eq!(asked(&mut hearing, 1_002, &links), [(host(3), true)]);
        hearing.hear(&heard(1_003, HeardKind::ArpReply, host(3)), &links);
        assert_eq!(asked(&mut hearing, 1_502, &links), [(host(254), true)], "by its MAC now");
        assert_eq!(asked(&mut hearing, 2_002, &links).len(), 3, "nobody answered that");
    }

    #[test]
    fn what_counts_as_an_answer() {
        let links = links(&[254], true);
        let rows = [
            ("an ARP reply", heard(10, HeardKind::ArpReply, host(254)), true),
            ("an advertisement", heard(10, HeardKind::NeighborAdvertisement, host(254)), true),
            ("a request of that host", heard(10, HeardKind::ArpRequest, host(254)), false),
            ("a host that was not asked", heard(10, HeardKind::ArpReply, host(7)), false),
            ("an answer that is too late", heard(2_001, HeardKind::ArpReply, host(254)), false),
        ];
        for (name, heard, expected) in rows {
            let mut hearing = Hearing::default();
            hearing.update(at(0), &links, &attention(&[]));
            assert_eq!(asked(&mut hearing, 0, &links).len(), 1, "{name}");
            assert_eq!(hearing.hear(&heard, &links), expected, "{name}");
            assert_eq!(hearing.heard_at().contains_key(&eth0()), expected, "{name}");
        }
    }

    #[test]
    fn the_first_answer_of_each_host_to_a_question_counts() {
        let links = links(&[254], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[]));
        let reply = |millis| heard(millis, HeardKind::ArpReply, host(254));
        let of_another = |millis| Heard { sender_mac: MacAddr(2, 0, 0, 0, 0, 7), ..reply(millis) };
        for (millis, again) in [(0, false), (500, true)] {
            assert_eq!(asked(&mut hearing, millis, &links).len(), 1);
            assert!(hearing.hear(&reply(millis + 1), &links), "the first, again: {again}");
            assert!(!hearing.hear(&reply(millis + 100), &links), "to a poll of the listener");
            assert!(hearing.hear(&of_another(millis + 101), &links), "another host has it, too");
            assert!(!hearing.hear(&of_another(millis + 200), &links));
        }
    }

    #[test]
    fn a_question_of_somebody_else_counts() {
        let links = links(&[], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[]));
        hearing.asked(at(100), &eth0(), host(50));
        assert!(hearing.hear(&heard(101, HeardKind::ArpReply, host(50)), &links));
    }

    #[test]
    fn hosts_that_speak_are_asked_but_not_addresses_that_are_announced() {
        let links = links(&[], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[]));
        assert_eq!(asked(&mut hearing, 0, &links), []);
        for last in 10..16 {
            hearing.hear(&heard(100, HeardKind::ArpRequest, host(last)), &links);
        }
        let vip = Heard { announcement: true, ..heard(101, HeardKind::ArpRequest, host(99)) };
        hearing.hear(&vip, &links);
        let mut hosts: Vec<_> = asked(&mut hearing, 500, &links);
        hosts.extend(asked(&mut hearing, 1_000, &links));
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts, [12, 13, 14, 15].map(|last| (host(last), true)), "the last four");
    }

    #[test]
    fn on_a_link_without_an_address_its_hosts_are_asked_and_the_links_of_peers() {
        let (link_local, far): (IpAddr, IpAddr) =
            ("fe80::9".parse().unwrap(), Ipv4Addr::new(198, 51, 100, 7).into());
        let own =
            |ip: &str| LinkAddress { ip: ip.parse().unwrap(), prefix_len: 64, tentative: false };
        let mut bare = links(&[], true);
        bare.0.get_mut(&eth0()).unwrap().addresses = vec![own("fe80::1")];
        let mut both = links(&[], true);
        both.0.get_mut(&eth0()).unwrap().addresses.push(own("fe80::1"));
        for (links, expected) in [(bare, vec![(far, true), (link_local, true)]), (both, vec![])] {
            let mut hearing = Hearing::default();
            let peer = Peer { ip: link_local, mac: MacAddr(2, 0, 0, 0, 0, 8) };
            let attention = Attention { peers: [peer].into(), ..attention(&[]) };
            hearing.update(at(0), &links, &attention);
            hearing.hear(&heard(1, HeardKind::ArpRequest, far), &links);
            assert_eq!(asked(&mut hearing, 500, &links), expected);
        }
    }

    #[test]
    fn a_mac_that_does_not_answer_is_not_trusted_for_long() {
        let links = links(&[], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[host(2)]));
        let by_mac: Vec<bool> = [0, 500, 1_000, 1_500]
            .iter()
            .flat_map(|millis| asked(&mut hearing, *millis, &links))
            .map(|(_, by_mac)| by_mac)
            .collect();
        assert_eq!(by_mac, [true, true, false, false]);
        hearing.hear(&heard(1_501, HeardKind::ArpReply, host(2)), &links);
        assert_eq!(asked(&mut hearing, 2_000, &links), [(host(2), true)]);
    }

    #[test]
    fn the_addresses_of_speakers_are_not_remembered_as_hosts() {
        let links = links(&[], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[host(2)]));
        hearing.asked(at(0), &eth0(), host(100));
        assert!(hearing.hear(&heard(1, HeardKind::ArpReply, host(100)), &links), "it is an answer");
        assert_eq!(asked(&mut hearing, 500, &links), [(host(2), true)], "but may move any time");
    }

    #[test]
    fn who_answered_the_last_questions_is_a_witness() {
        let links = links(&[254], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[host(2)]));
        let witnesses = |hearing: &Hearing| -> Vec<IpAddr> {
            let witnesses = hearing.witnesses();
            witnesses[&eth0()].iter().filter(|(_, mac)| **mac == MAC).map(|(ip, _)| *ip).collect()
        };
        asked(&mut hearing, 0, &links);
        assert!(witnesses(&hearing).is_empty(), "told of, but not heard");
        hearing.hear(&heard(1, HeardKind::ArpReply, host(2)), &links);
        hearing.hear(&heard(1, HeardKind::ArpReply, host(254)), &links);
        assert_eq!(witnesses(&hearing), [host(2), host(254)]);
        // Only the gateway goes on answering.
        for millis in (500..4_000).step_by(500) {
            if asked(&mut hearing, millis, &links).iter().any(|(ip, _)| *ip == host(254)) {
                hearing.hear(&heard(millis + 1, HeardKind::ArpReply, host(254)), &links);
            }
        }
        assert_eq!(witnesses(&hearing), [host(254)]);
    }

    #[test]
    fn the_carrier_decides_when_to_ask() {
        let mut hearing = Hearing::default();
        let (up, down) = (links(&[254], true), links(&[254], false));
        hearing.update(at(0), &up, &attention(&[]));
        asked(&mut hearing, 0, &up);
        hearing.hear(&heard(1, HeardKind::ArpReply, host(254)), &up);
        hearing.update(at(100), &down, &attention(&[]));
        assert_eq!(hearing.heard_at(), BTreeMap::new(), "what was heard before is forgotten");
        assert_eq!(asked(&mut hearing, 500, &down), []);
        hearing.update(at(600), &up, &attention(&[]));
        assert_eq!(asked(&mut hearing, 600, &up), [(host(254), false)], "at once");
        hearing.update(at(700), &up, &Attention::default());
        assert_eq!(asked(&mut hearing, 1_100, &up), [], "no longer attended to");
    }

    #[test]
    fn the_forms_of_a_question_alternate() {
        let links = links(&[254], true);
        let mut hearing = Hearing::default();
        hearing.update(at(0), &links, &attention(&[]));
        let named: Vec<bool> = [0, 500, 1_000]
            .iter()
            .flat_map(|millis| hearing.ask(at(*millis), &links))
            .map(|question| question.named)
            .collect();
        assert_eq!(named, [true, false, true]);
    }
}
