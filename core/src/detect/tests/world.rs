//! A segment with hosts that answer, or do not, and a detector that is woken on time, or is not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::SessionId;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::Detection;
use crate::detect::detector::Detector;
use crate::detect::question::{Question, Witnesses};
use crate::election::{Ownership, Silence, Voice, VoiceId, Watched, Watchlist};

/// The latency of a host's reply.
const LATENCY: Duration = Duration::from_micros(200);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn eth0() -> InterfaceName {
    "eth0".parse().unwrap()
}

/// The node address of host `number`.
pub fn node(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

/// A VIP.
pub fn vip(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, number).into()
}

pub fn mac(number: u8) -> MacAddr {
    MacAddr(2, 0, 0, 0, 0, number)
}

pub fn id(number: u8) -> VoiceId {
    VoiceId {
        interface: eth0(),
        node: format!("node-{number}").parse().unwrap(),
        session: SessionId { uid: format!("uid-{number}").into(), transitions: 1 },
        mac: mac(number),
    }
}

pub fn owned(transitions: i32) -> Ownership {
    Ownership { claim: "default.web".parse().unwrap(), transitions }
}

/// The fast profile.
pub fn fast() -> Detection {
    Detection { interval: ms(50), retry_interval: ms(10), misses: 4, wire: true }
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub addresses: BTreeSet<IpAddr>,
    /// Does not answer at all.
    pub dead: bool,
    /// Answers only this form over IPv4: named, or not.
    pub form: Option<bool>,
    /// Answers only questions to itself.
    pub unicast_only: bool,
}

#[derive(Debug)]
pub struct World {
    pub detector: Detector,
    pub watchlist: Watchlist,
    pub witnesses: Witnesses,
    pub hosts: BTreeMap<MacAddr, Host>,
    pub now: Instant,
    /// Nothing of this node arrives anywhere.
    pub cut: bool,
    /// By how much the next wake-ups are late; then on time.
    pub lateness: Vec<Duration>,
    /// At each wake-up the kernel had no room for a frame.
    pub dropping: bool,
    /// All questions so far.
    pub asked: Vec<(Instant, Question)>,
    /// All states of voices so far, in order.
    pub voices: Vec<(Instant, VoiceId, Voice)>,
    answers: Vec<(Instant, IpAddr, MacAddr, bool)>,
    pub wakeups: usize,
}

impl World {
    /// Owners 2, 3, … with the VIPs 20, 30, …, of which this node polls all, and a gateway, 254,
    /// that can bear witness.
    pub fn new(owners: u8, detection: Detection) -> Self {
        let mut world = Self::without_gateway(owners, detection);
        world.hosts.insert(mac(254), host(&[node(254)]));
        world.witnesses.insert(eth0(), [(node(254), mac(254))].into());
        world
    }

    pub fn without_gateway(owners: u8, detection: Detection) -> Self {
        let mut world = Self {
            detector: Detector::default(),
            watchlist: Watchlist::default(),
            witnesses: Witnesses::default(),
            hosts: BTreeMap::new(),
            now: Instant::from_boot(Duration::from_secs(1_000)),
            cut: false,
            lateness: Vec::new(),
            dropping: false,
            asked: Vec::new(),
            voices: Vec::new(),
            answers: Vec::new(),
            wakeups: 0,
        };
        world.speaks(mac(1), 1);
        for number in 2..2 + owners {
            world.speaks(mac(number), number);
            let watched = Watched {
                polled: true,
                detection,
                vips: [(vip(number * 10), owned(1))].into(),
                own: [node(number)].into(),
            };
            world.watchlist.owners.insert(id(number), Arc::new(watched));
            world.hosts.insert(mac(number), host(&[node(number), vip(number * 10)]));
        }
        world
    }

    /// Hands the watchlist and the witnesses to the detector.
    pub fn update(&mut self) {
        self.detector.update(self.now, &self.watchlist, &self.witnesses);
        self.note_voices();
    }

    /// A speaker has an interface with this MAC address.
    pub fn speaks(&mut self, mac: MacAddr, number: u8) {
        Arc::make_mut(&mut self.watchlist.speakers).insert(mac, id(number).node);
    }

    pub fn watched(&mut self, number: u8) -> &mut Watched {
        Arc::make_mut(self.watchlist.owners.get_mut(&id(number)).unwrap())
    }

    pub fn host(&mut self, number: u8) -> &mut Host {
        self.hosts.get_mut(&mac(number)).unwrap()
    }

    pub fn voice(&self, number: u8) -> &Voice {
        &self.detector.voices().owners[&id(number)]
    }

    pub fn silence(&self, number: u8) -> Option<&Silence> {
        match self.voice(number) {
            Voice::Silent(silence) => Some(silence),
            Voice::Unheard | Voice::Heard => None,
        }
    }

    /// Whether the owner was ever silent.
    pub fn was_silent(&self, number: u8) -> bool {
        let silent = |(_, of, voice): &(_, VoiceId, Voice)| {
            *of == id(number) && matches!(voice, Voice::Silent(_))
        };
        self.voices.iter().any(silent)
    }

    /// The questions for `ip` since `since`.
    pub fn asked_for(&self, since: Instant, ip: IpAddr) -> Vec<&(Instant, Question)> {
        self.asked.iter().filter(|(at, asked)| *at >= since && asked.ip == ip).collect()
    }

    /// Those of them that are polls from 0.0.0.0.
    pub fn polls(&self, since: Instant, ip: IpAddr) -> Vec<&(Instant, Question)> {
        let asked = self.asked_for(since, ip).into_iter();
        asked.filter(|(_, question)| question.mac.is_some() && !question.named).collect()
    }

    /// Lets time pass.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.run_until(end, |_| false);
    }

    /// Lets time pass until `condition` holds, and says how long that took.
    pub fn run_to(
        &mut self,
        at_most: Duration,
        condition: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let start = self.now;
        let held = self.run_until(start + at_most, condition);
        held.then(|| self.now.saturating_since(start))
    }

    fn run_until(&mut self, end: Instant, mut condition: impl FnMut(&Self) -> bool) -> bool {
        loop {
            let answer = self.answers.iter().map(|(at, ..)| *at).min();
            let due = self.detector.next().into_iter().chain(answer).min();
            let Some(due) = due.map(|due| due.max(self.now)).filter(|due| *due <= end) else {
                self.now = end;
                return false;
            };
            let late =
                if self.lateness.is_empty() { Duration::ZERO } else { self.lateness.remove(0) };
            self.wake(due + late);
            if condition(self) {
                return true;
            }
        }
    }

    /// Reads what has arrived, judges and asks.
    pub fn wake(&mut self, now: Instant) {
        self.now = now;
        self.wakeups += 1;
        let (arrived, later) = self.answers.drain(..).partition(|(at, ..)| *at <= now);
        self.answers = later;
        let arrived: Vec<(Instant, IpAddr, MacAddr, bool)> = arrived;
        for (_, ip, mac, named) in arrived {
            self.detector.hear(now, &eth0(), ip, mac, named);
        }
        if self.dropping {
            self.detector.dropped(1);
        }
        let mut questions = Vec::new();
        self.detector.advance(now, &mut questions);
        for question in questions {
            self.carry(&question);
        }
        self.note_voices();
    }

    fn carry(&mut self, question: &Question) {
        self.asked.push((self.now, question.clone()));
        if self.cut {
            return;
        }
        let named = question.mac.is_some() && question.named;
        for (mac, host) in &self.hosts {
            let reached = question.mac.map_or(!host.unicast_only, |to| to == *mac);
            let understood = host.form.is_none_or(|form| form == named);
            if reached && understood && !host.dead && host.addresses.contains(&question.ip) {
                self.answers.push((self.now + LATENCY, question.ip, *mac, named));
            }
        }
    }

    fn note_voices(&mut self) {
        for (id, voice) in self.detector.voices().owners.iter() {
            let last = self.voices.iter().rev().find(|(_, of, _)| of == id);
            if last.is_none_or(|(_, _, last)| last != voice) {
                self.voices.push((self.now, id.clone(), voice.clone()));
            }
        }
    }
}

pub fn host(addresses: &[IpAddr]) -> Host {
    Host { addresses: addresses.iter().copied().collect(), ..Host::default() }
}

/// Owners 2 and 3, heard for a while, and somebody who can bear witness.
pub fn heard(detection: Detection) -> World {
    let mut world = World::new(2, detection);
    world.update();
    world.run(ms(1_050));
    assert_eq!(*world.voice(2), Voice::Heard);
    world
}

/// The longest time to a suspicion.
pub fn longest(detection: Detection) -> Duration {
    detection.interval + detection.retry_interval * detection.misses
}
