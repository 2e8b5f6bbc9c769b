use std::time::Duration;

use proptest::prelude::*;

use crate::bfd::packet::{Diagnostic, LENGTH, Packet, State};
use crate::bfd::session::{Parameters, Session};
use crate::clock::Instant;

const MILLI: Duration = Duration::from_millis(1);
/// The time of a packet on its way.
const WAY: Duration = Duration::from_micros(300);

fn parameters(millis: u64, multiplier: u8) -> Parameters {
    Parameters { interval: Duration::from_millis(millis), multiplier, passive: false }
}

/// Two sessions that face each other, and what is under way to each.
struct Pair {
    now: Instant,
    sides: [Session; 2],
    under_way: Vec<(Instant, usize, Packet)>,
    /// The packets that each has sent, with their times.
    sent: [Vec<(Instant, Packet)>; 2],
    /// Whether packets arrive.
    connected: bool,
    jitter: u8,
}

impl Pair {
    fn new(one: Parameters, other: Parameters) -> Self {
        let now = Instant::from_boot(Duration::from_secs(100));
        Self {
            now,
            sides: [Session::new(one, 7, now), Session::new(other, 9, now)],
            under_way: Vec::new(),
            sent: [Vec::new(), Vec::new()],
            connected: true,
            jitter: 0,
        }
    }

    fn send(&mut self, from: usize, packet: Packet) {
        let octets = packet.octets();
        assert_eq!(Packet::read(&octets), Some(packet));
        self.sent[from].push((self.now, packet));
        if self.connected {
            self.under_way.push((self.now + WAY, 1 - from, packet));
        }
    }

    /// Goes on to the next event, `limit` at the latest.
    fn step(&mut self, limit: Instant) {
        let arrivals = self.under_way.iter().map(|(at, ..)| *at);
        let deadlines = self.sides.iter().filter_map(Session::deadline);
        self.now = arrivals.chain(deadlines).chain([limit]).min().unwrap().max(self.now);
        let (arrived, rest) = self.under_way.iter().partition(|(at, ..)| *at <= self.now);
        self.under_way = rest;
        for (_, to, packet) in Vec::from_iter::<Vec<_>>(arrived) {
            if let Some(answer) = self.sides[to].receive(self.now, &packet) {
                assert!(answer.is_final && !answer.poll);
                self.send(to, answer);
            }
        }
        for side in 0..2 {
            self.jitter = self.jitter.wrapping_mul(73).wrapping_add(41);
            if let Some(packet) = self.sides[side].advance(self.now, self.jitter) {
                self.send(side, packet);
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
    }

    /// Runs until a side has this state; returns the time that it took.
    fn until(&mut self, side: usize, state: State) -> Duration {
        let (begin, limit) = (self.now, self.now + Duration::from_secs(60));
        while self.sides[side].state() != state && self.now < limit {
            self.step(limit);
        }
        assert_eq!(self.sides[side].state(), state);
        self.now.saturating_since(begin)
    }

    fn up(&mut self) {
        self.until(0, State::Up);
        self.until(1, State::Up);
        self.run(Duration::from_secs(3));
    }
}

#[test]
fn a_session_comes_up_within_two_slow_intervals_and_is_quick_then() {
    let mut pair = Pair::new(parameters(40, 3), parameters(50, 3));
    let took = pair.until(0, State::Up).max(pair.until(1, State::Up));
    assert!(took < Duration::from_secs(2), "{took:?}");
    pair.run(Duration::from_secs(3));
    for side in 0..2 {
        // The greater of what one wants to send and what the other can receive.
        assert_eq!(pair.sides[side].detection_time(), Some(Duration::from_millis(150)));
        pair.sent[side].clear();
    }
    pair.run(Duration::from_secs(10));
    for sent in &pair.sent {
        let gaps: Vec<_> = sent.windows(2).map(|two| two[1].0.saturating_since(two[0].0)).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(*least >= Duration::from_micros(37_500) && *most <= Duration::from_millis(50));
        assert!(
            most.saturating_sub(*least) > Duration::from_millis(8),
            "no jitter: {least:?} to {most:?}"
        );
        assert!(sent.iter().all(|(_, packet)| !packet.poll && !packet.is_final));
    }
}

#[test]
fn a_side_that_falls_silent_is_down_after_the_detection_time() {
    for (millis, multiplier) in [(10, 3), (40, 3), (300, 3), (100, 1)] {
        let mut pair = Pair::new(parameters(millis, multiplier), parameters(millis, multiplier));
        pair.up();
        pair.connected = false;
        let took = pair.until(0, State::Down);
        let detection = Duration::from_millis(millis) * u32::from(multiplier);
        assert!(took <= detection + WAY, "{millis} ms: {took:?}");
        assert!(took + Duration::from_millis(millis) >= detection, "{millis} ms: {took:?}");
        assert_eq!(pair.sides[0].diagnostic(), Diagnostic::Expired);
        pair.until(1, State::Down);
        pair.connected = true;
        pair.up();
        assert_eq!(pair.sides[0].diagnostic(), Diagnostic::None);
    }
}

#[test]
fn a_side_that_is_told_of_the_end_is_down_at_once_and_says_why() {
    let mut pair = Pair::new(parameters(300, 3), parameters(300, 3));
    pair.up();
    pair.sides[0].hold_down(pair.now, true);
    let took = pair.until(1, State::Down);
    assert!(took <= WAY, "{took:?}");
    assert_eq!(pair.sides[1].diagnostic(), Diagnostic::Neighbour);
    pair.run(Duration::from_secs(10));
    assert_eq!(pair.sides.each_ref().map(Session::state), [State::AdminDown, State::Down]);
    assert!(pair.sent[0].last().unwrap().1.diagnostic == Diagnostic::Administrative);
    pair.sides[0].hold_down(pair.now, false);
    pair.up();
}

#[test]
fn a_passive_side_does_not_begin_and_two_of_them_never_do() {
    let passive = Parameters { passive: true, ..parameters(40, 3) };
    let mut pair = Pair::new(passive, parameters(40, 3));
    let first = pair.until(0, State::Up);
    assert!(first < Duration::from_secs(3), "{first:?}");
    assert!(pair.sent[1][0].0 <= pair.sent[0][0].0);
    let mut pair = Pair::new(passive, passive);
    pair.run(Duration::from_secs(30));
    assert!(pair.sent.iter().all(Vec::is_empty));
}

#[test]
fn nothing_is_sent_to_a_side_that_wants_nothing() {
    let now = Instant::from_boot(Duration::from_secs(1));
    let mut session = Session::new(parameters(40, 3), 7, now);
    assert!(session.advance(now, 0).is_some());
    let theirs = Packet {
        state: State::Down,
        diagnostic: Diagnostic::None,
        poll: false,
        is_final: false,
        demand: false,
        multiplier: 3,
        mine: 9,
        yours: 7,
        desired_send: Duration::from_secs(1),
        required_receive: Duration::ZERO,
    };
    assert_eq!(session.receive(now, &theirs), None);
    for millis in 1..2_900 {
        assert_eq!(session.advance(now + MILLI * millis, 0), None, "{millis} ms");
    }
    // One that demands silence while both are up is answered.
    let theirs = Packet { required_receive: Duration::from_millis(40), ..theirs };
    let at = now + Duration::from_secs(3);
    session.receive(at, &Packet { state: State::Init, ..theirs });
    assert_eq!(session.state(), State::Up);
    let quiet = Packet { state: State::Up, demand: true, is_final: true, ..theirs };
    session.receive(at, &quiet);
    assert_eq!(session.advance(at + Duration::from_millis(500), 0), None);
    let answer = session.receive(at, &Packet { poll: true, is_final: false, ..quiet });
    assert!(answer.is_some_and(|it| it.is_final && it.state == State::Up));
}

#[test]
fn a_packet_has_the_octets_of_the_rfc_and_others_are_discarded() {
    let packet = Packet {
        state: State::Up,
        diagnostic: Diagnostic::Expired,
        poll: true,
        is_final: false,
        demand: false,
        multiplier: 3,
        mine: 0x0102_0304,
        yours: 0x0506_0708,
        desired_send: Duration::from_millis(40),
        required_receive: Duration::from_millis(50),
    };
    let octets = packet.octets();
    let expected =
        [0x21, 0xe0, 3, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x9c, 0x40, 0, 0, 0xc3, 0x50, 0, 0, 0, 0];
    assert_eq!(octets, expected);
    assert_eq!(Packet::read(&octets), Some(packet));
    // What follows is not looked at: Ethernet pads short frames.
    assert_eq!(Packet::read(&[&octets[..], &[1; 6]].concat()), Some(packet));
    for (place, octet, what) in [
        (0, 0x41, "another version"),
        (1, 0xe4, "authentication"),
        (1, 0xe1, "multipoint"),
        (2, 0, "no multiplier"),
        (3, 23, "too short"),
        (3, 25, "longer than the payload"),
    ] {
        let mut bad = octets;
        bad[place] = octet;
        assert_eq!(Packet::read(&bad), None, "{what}");
    }
    assert_eq!(Packet::read(&octets[..LENGTH - 1]), None);
    assert_eq!(Packet::read(&Packet { mine: 0, ..packet }.octets()), None);
    assert_eq!(Packet::read(&Packet { yours: 0, ..packet }.octets()), None);
    let down = Packet { yours: 0, state: State::Down, ..packet };
    assert_eq!(Packet::read(&down.octets()), Some(down));
}

proptest! {
    #[test]
    fn no_payload_is_too_much_and_what_is_read_is_written_alike(
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut payload = payload;
        if let Some(first) = payload.first_mut() {
            *first = *first & 0x1f | 0x20;
        }
        if let Some(packet) = Packet::read(&payload) {
            prop_assert_eq!(Packet::read(&packet.octets()), Some(packet));
        }
    }

    #[test]
    fn two_sides_come_up_again_whatever_was_lost(
        cuts in prop::collection::vec((any::<bool>(), 0..4_000_u64), 0..12),
        intervals in (10..400_u64, 10..400_u64),
        multipliers in (2..6_u8, 2..6_u8),
    ) {
        let one = parameters(intervals.0, multipliers.0);
        let mut pair = Pair::new(one, parameters(intervals.1, multipliers.1));
        for (connected, millis) in cuts {
            pair.connected = connected;
            pair.run(Duration::from_millis(millis));
        }
        pair.connected = true;
        // A detection time of the slow interval, then two of its packets each way.
        pair.run(Duration::from_secs(10));
        prop_assert_eq!(pair.sides.each_ref().map(Session::state), [State::Up, State::Up]);
        // And stay so.
        for _ in 0..200 {
            pair.run(Duration::from_millis(50));
            prop_assert_eq!(pair.sides.each_ref().map(Session::state), [State::Up, State::Up]);
        }
    }
}
