//! One session of BFD (RFC 5880, section 6.8).

use std::time::Duration;

use crate::bfd::packet::{Diagnostic, Packet, State};
use crate::clock::Instant;

/// The least interval of packets while the session is not up (RFC 5880, section 6.8.3).
const SLOW: Duration = Duration::from_secs(1);

/// The parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The interval in which packets are sent and can be received while the session is up.
    pub interval: Duration,
    /// The number of intervals without a packet of ours after which we are gone for the other side.
    pub multiplier: u8,
    /// Whether the other side begins.
    pub passive: bool,
}

/// The state of one side.
#[derive(Clone, Debug)]
pub struct Session {
    parameters: Parameters,
    /// The number of this session here, never 0.
    mine: u32,
    state: State,
    diagnostic: Diagnostic,
    /// The last packet of the other side; none before the first, and after a detection time without one.
    heard: Option<Heard>,
    /// Whether the other side has not answered yet that it knows our intervals.
    polls: bool,
    /// The time of the next packet; none while there is to be none.
    send: Option<Instant>,
    /// The time of the last packet.
    sent: Option<Instant>,
}

/// A packet of the other side.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Instant,
    packet: Packet,
}

impl Session {
    /// A session that is down. `mine` is its number here, which no other session of this process has, and not 0.
    pub fn new(parameters: Parameters, mine: u32, now: Instant) -> Self {
        Self {
            parameters,
            mine,
            state: State::Down,
            diagnostic: Diagnostic::None,
            heard: None,
            polls: false,
            send: (!parameters.passive).then_some(now),
            sent: None,
        }
    }

    /// The number of this session here: that to which the other side sends, once it knows it.
    pub const fn number(&self) -> u32 {
        self.mine
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The reason for the last change from up.
    pub const fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// The time without a packet of the other side after which it is gone; none before its first one.
    pub fn detection_time(&self) -> Option<Duration> {
        self.heard.map(|heard| self.detection(&heard.packet))
    }

    fn detection(&self, packet: &Packet) -> Duration {
        packet.desired_send.max(self.parameters.interval) * u32::from(packet.multiplier)
    }

    /// The least interval in which packets are sent now.
    fn desired_send(&self) -> Duration {
        if self.state == State::Up {
            self.parameters.interval
        } else {
            self.parameters.interval.max(SLOW)
        }
    }

    /// The interval of packets; none while the other side wants none.
    fn interval(&self) -> Option<Duration> {
        let Some(Heard { packet, .. }) = self.heard else {
            return (!self.parameters.passive).then(|| self.desired_send());
        };
        let up = self.state == State::Up && packet.state == State::Up;
        let quiet = packet.demand && up && !self.polls;
        let wanted = !packet.required_receive.is_zero() && !quiet;
        wanted.then(|| self.desired_send().max(packet.required_receive))
    }

    /// Takes in a packet that was sent to this session; returns the answer that it asks for. The caller has found the
    /// session by [`Packet::yours`], or by the addresses where that is 0.
    pub fn receive(&mut self, now: Instant, packet: &Packet) -> Option<Packet> {
        if packet.yours != 0 && packet.yours != self.mine {
            return None;
        }
        self.heard = Some(Heard { at: now, packet: *packet });
        self.polls &= !packet.is_final;
        if self.state == State::AdminDown {
            self.reschedule(now);
            return None;
        }
        match (packet.state, self.state) {
            (State::AdminDown, State::Init | State::Up) | (State::Down, State::Up) => {
                self.change(State::Down, Diagnostic::Neighbour);
            }
            (State::Down, State::Down) => self.change(State::Init, self.diagnostic),
            (State::Init, State::Down) | (State::Init | State::Up, State::Init) => {
                self.change(State::Up, Diagnostic::None);
                // The interval is another one from now on.
                self.polls = true;
            }
            _ => {}
        }
        self.reschedule(now);
        packet.poll.then(|| Packet { poll: false, is_final: true, ..self.packet() })
    }

    /// Carries out what is due at `now`; returns the packet to send. `jitter` is a random number: it shortens the next
    /// interval by up to a quarter (RFC 5880, section 6.8.7).
    pub fn advance(&mut self, now: Instant, jitter: u8) -> Option<Packet> {
        if self.expires().is_some_and(|at| now >= at) {
            self.heard = None;
            if matches!(self.state, State::Init | State::Up) {
                self.change(State::Down, Diagnostic::Expired);
            }
            self.reschedule(now);
        }
        if self.send.is_none_or(|at| now < at) {
            return None;
        }
        self.sent = Some(now);
        self.send = self.interval().map(|interval| now + self.shortened(interval, jitter));
        Some(self.packet())
    }

    /// The time at which [`Session::advance`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.send.into_iter().chain(self.expires()).min()
    }

    /// Holds the session down on purpose, which is no failure for the other side (RFC 5882, section 3.2), or lets it come
    /// up again.
    pub fn hold_down(&mut self, now: Instant, down: bool) {
        match (down, self.state) {
            (true, State::AdminDown) => {}
            (true, _) => self.change(State::AdminDown, Diagnostic::Administrative),
            (false, State::AdminDown) => self.change(State::Down, Diagnostic::None),
            (false, _) => {}
        }
        // The other side is to know at once.
        self.send = self.interval().map(|_| now);
    }

    fn expires(&self) -> Option<Instant> {
        self.heard.map(|heard| heard.at + self.detection(&heard.packet))
    }

    fn change(&mut self, state: State, diagnostic: Diagnostic) {
        (self.state, self.diagnostic) = (state, diagnostic);
        self.polls = false;
        // Told at once: the next packet goes no earlier than is allowed, and no later than is due.
        self.sent = None;
    }

    /// Brings the time of the next packet in line with the interval that is right now.
    fn reschedule(&mut self, now: Instant) {
        let next = self.interval().map(|interval| self.sent.map_or(now, |sent| sent + interval));
        self.send = match (self.send, next) {
            (Some(before), Some(next)) => Some(before.min(next)),
            (_, next) => next,
        };
    }

    /// The interval, shortened by up to 25 %; with a multiplier of 1 by 10 to 25 %.
    fn shortened(&self, interval: Duration, jitter: u8) -> Duration {
        let (least, most) = if self.parameters.multiplier == 1 { (100, 250) } else { (0, 250) };
        let thousandths = least + u32::from(jitter) * (most - least) / u32::from(u8::MAX);
        interval.saturating_sub(interval * thousandths / 1000)
    }

    fn packet(&self) -> Packet {
        Packet {
            state: self.state,
            diagnostic: self.diagnostic,
            poll: self.polls,
            is_final: false,
            demand: false,
            multiplier: self.parameters.multiplier,
            mine: self.mine,
            yours: self.heard.map_or(0, |heard| heard.packet.mine),
            desired_send: self.desired_send(),
            required_receive: self.parameters.interval,
        }
    }
}
