//! NOTIFICATION: the reason for which a session ends (RFC 4271, sections 4.5 and 6).

use std::fmt;

use super::octets::Octets;

/// The most octets of a text about a shutdown (RFC 9003, section 2).
const TEXT: usize = 255;

/// The reason for which one side ends a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The error subcode.
    pub subcode: u8,
    /// The data of the error, of which the shape depends on the code.
    pub data: Vec<u8>,
}

impl Notification {
    /// A reason without data.
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// A reason with the octets that are at fault.
    pub fn with(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data.to_vec() }
    }

    /// No message has come for as long as the hold time (RFC 4271, section 6.5).
    pub const HOLD_TIMER_EXPIRED: Self = Self::new(4, 0);

    /// Another connection with the same peer is kept (RFC 4486; RFC 4271, section 6.8).
    pub const CONNECTION_COLLISION: Self = Self::new(6, 7);

    /// The peer is not configured any more (RFC 4486).
    pub const PEER_DECONFIGURED: Self = Self::new(6, 3);

    /// The configuration of the session has changed (RFC 4486).
    pub const CONFIGURATION_CHANGED: Self = Self::new(6, 6);

    /// BFD says that the path to the peer is down (RFC 9384).
    pub const BFD_DOWN: Self = Self::new(6, 10);

    /// A message that is not allowed in this state of the session (RFC 6608): 1 in `OpenSent`, 2 in `OpenConfirm`, 3 in
    /// `Established`.
    pub const fn unexpected_message(state: u8) -> Self {
        Self::new(5, state)
    }

    /// The administrator ends the session, with a text for the administrator of the peer (RFC 9003). A text that is too
    /// long is cut off between two characters.
    pub fn shutdown(text: &str) -> Self {
        let end = (0..=TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let text = text.get(..end.unwrap_or_default()).unwrap_or_default().as_bytes();
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        Self { code: 6, subcode: 2, data: [&[length], text].concat() }
    }

    /// Ends the session for a peer that would otherwise keep routes (RFC 8538, section 3.1).
    #[must_use]
    pub fn hard_reset(&self) -> Self {
        Self { code: 6, subcode: 9, data: [&[self.code, self.subcode], &self.data[..]].concat() }
    }

    /// Whether a peer with which RFC 8538 was agreed keeps no routes after it.
    pub const fn is_hard_reset(&self) -> bool {
        self.code == 6 && self.subcode == 9
    }

    /// The reason within a hard reset.
    fn inner(&self) -> Option<Self> {
        let mut data = Octets::new(&self.data);
        let (code, subcode) = (data.u8()?, data.u8()?);
        Some(Self::with(code, subcode, data.rest()))
    }

    /// The text of the peer's administrator.
    fn text(&self) -> Option<String> {
        let text = Octets::new(&self.data).part_of_u8()?.rest();
        let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
        Some(text).filter(|text| !text.trim().is_empty())
    }

    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut body = Octets::new(body);
        let (code, subcode) = (body.u8()?, body.u8()?);
        Some(Self::with(code, subcode, body.rest()))
    }

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend([self.code, self.subcode]);
        to.extend(&self.data);
    }

    /// The name of the code and the subcode (IANA, "BGP Error (Notification) Codes" and subcodes).
    const fn name(&self) -> Option<&'static str> {
        Some(match (self.code, self.subcode) {
            (1, 1) => "message header: connection not synchronized",
            (1, 2) => "message header: bad message length",
            (1, 3) => "message header: bad message type",
            (1, _) => "message header",
            (2, 1) => "OPEN: unsupported version number",
            (2, 2) => "OPEN: bad peer AS",
            (2, 3) => "OPEN: bad BGP identifier",
            (2, 4) => "OPEN: unsupported optional parameter",
            (2, 6) => "OPEN: unacceptable hold time",
            (2, 7) => "OPEN: unsupported capability",
            (2, 11) => "OPEN: role mismatch",
            (2, _) => "OPEN",
            (3, 1) => "UPDATE: malformed attribute list",
            (3, 2) => "UPDATE: unrecognized well-known attribute",
            (3, 3) => "UPDATE: missing well-known attribute",
            (3, 4) => "UPDATE: attribute flags error",
            (3, 5) => "UPDATE: attribute length error",
            (3, 6) => "UPDATE: invalid ORIGIN attribute",
            (3, 8) => "UPDATE: invalid NEXT_HOP attribute",
            (3, 9) => "UPDATE: optional attribute error",
            (3, 10) => "UPDATE: invalid network field",
            (3, 11) => "UPDATE: malformed AS_PATH",
            (3, _) => "UPDATE",
            (4, _) => "hold timer expired",
            (5, 1) => "unexpected message in OpenSent",
            (5, 2) => "unexpected message in OpenConfirm",
            (5, 3) => "unexpected message in Established",
            (5, _) => "finite state machine error",
            (6, 1) => "cease: maximum number of prefixes reached",
            (6, 2) => "cease: administrative shutdown",
            (6, 3) => "cease: peer de-configured",
            (6, 4) => "cease: administrative reset",
            (6, 5) => "cease: connection rejected",
            (6, 6) => "cease: other configuration change",
            (6, 7) => "cease: connection collision resolution",
            (6, 8) => "cease: out of resources",
            (6, 9) => "cease: hard reset",
            (6, 10) => "cease: BFD down",
            (6, _) => "cease",
            (7, _) => "ROUTE-REFRESH: invalid message length",
            _ => return None,
        })
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({}/{})", self.code, self.subcode)?,
            None => write!(f, "unknown error ({}/{})", self.code, self.subcode)?,
        }
        match (self.code, self.subcode) {
            (6, 9) => match self.inner() {
                Some(inner) if !inner.is_hard_reset() => write!(f, ": {inner}"),
                _ => Ok(()),
            },
            (6, 2 | 4) => match self.text() {
                Some(text) => write!(f, ": {text:?}"),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
