//! Control packets of BFD (RFC 5880, section 4.1).

use std::time::Duration;

/// The octets of a packet without authentication.
pub const LENGTH: usize = 24;

/// The version of the protocol.
const VERSION: u8 = 1;

/// Flags in the second octet.
mod flag {
    pub(super) const POLL: u8 = 0x20;
    pub(super) const FINAL: u8 = 0x10;
    pub(super) const AUTHENTICATED: u8 = 0x04;
    pub(super) const DEMAND: u8 = 0x02;
    pub(super) const MULTIPOINT: u8 = 0x01;
}

/// The state of a session as one side sees it (RFC 5880, section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Held down on purpose: no failure.
    AdminDown,
    /// Down, or not yet up.
    Down,
    /// The other side is heard, and does not know it yet.
    Init,
    /// Both sides hear each other.
    Up,
}

/// The reason for the last change of the sender's state from up (RFC 5880, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Diagnostic {
    /// None.
    #[default]
    None,
    /// Nothing was received for the detection time.
    Expired,
    /// The other side said that the session is down.
    Neighbour,
    /// The path is down.
    Path,
    /// Held down on purpose.
    Administrative,
    /// Another reason, with its number.
    Other(u8),
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The state of the sender.
    pub state: State,
    /// The reason for the sender's last change from up.
    pub diagnostic: Diagnostic,
    /// Whether the sender asks for an answer at once.
    pub poll: bool,
    /// Whether it is such an answer.
    pub is_final: bool,
    /// Whether the sender wants no packets while both sides are up.
    pub demand: bool,
    /// The number of the sender's intervals without a packet after which it is gone.
    pub multiplier: u8,
    /// The number of the session at the sender, never 0.
    pub mine: u32,
    /// The number of the session at the receiver; 0 while the sender does not know it.
    pub yours: u32,
    /// The least interval in which the sender wants to send.
    pub desired_send: Duration,
    /// The least interval in which the sender can receive; 0 if it wants no packets.
    pub required_receive: Duration,
}

impl Packet {
    /// Decodes a payload; none for one that has to be discarded (RFC 5880, section 6.8.6).
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (fixed, _) = payload.split_first_chunk::<LENGTH>()?;
        let [first, second, multiplier, length, rest @ ..] = *fixed;
        let whole = (LENGTH..=payload.len()).contains(&usize::from(length));
        let unusable = flag::AUTHENTICATED | flag::MULTIPOINT;
        if first >> 5 != VERSION || !whole || multiplier == 0 || second & unusable != 0 {
            return None;
        }
        let (words, _) = rest.as_chunks::<4>();
        let [mine, yours, desired, required, _] = *words else { return None };
        let micros = |octets| Duration::from_micros(u32::from_be_bytes(octets).into());
        let state = State::of(second >> 6);
        let packet = Self {
            state,
            diagnostic: Diagnostic::of(first & 0x1f),
            poll: second & flag::POLL != 0,
            is_final: second & flag::FINAL != 0,
            demand: second & flag::DEMAND != 0,
            multiplier,
            mine: u32::from_be_bytes(mine),
            yours: u32::from_be_bytes(yours),
            desired_send: micros(desired),
            required_receive: micros(required),
        };
        let known = packet.yours != 0 || matches!(state, State::AdminDown | State::Down);
        (packet.mine != 0 && known).then_some(packet)
    }

    /// Encodes it.
    pub fn octets(&self) -> [u8; LENGTH] {
        let flags =
            [(self.poll, flag::POLL), (self.is_final, flag::FINAL), (self.demand, flag::DEMAND)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut octets = [0; LENGTH];
        let head = [
            VERSION << 5 | self.diagnostic.number(),
            self.state.bits() | flags,
            self.multiplier,
            24,
        ];
        let words = [
            self.mine,
            self.yours,
            micros(self.desired_send),
            micros(self.required_receive),
            // No echo.
            0,
        ];
        let all = head.into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes));
        for (place, octet) in octets.iter_mut().zip(all) {
            *place = octet;
        }
        octets
    }
}

impl State {
    const fn of(bits: u8) -> Self {
        match bits {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 0x40,
            Self::Init => 0x80,
            Self::Up => 0xc0,
        }
    }
}

impl Diagnostic {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Expired,
            3 => Self::Neighbour,
            5 => Self::Path,
            7 => Self::Administrative,
            other => Self::Other(other),
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Expired => 1,
            Self::Neighbour => 3,
            Self::Path => 5,
            Self::Administrative => 7,
            Self::Other(number) => number & 0x1f,
        }
    }
}
