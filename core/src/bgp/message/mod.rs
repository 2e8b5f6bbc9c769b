//! Messages of BGP-4 (RFC 4271, section 4).
//!
//! A speaker that only announces encodes OPEN, UPDATE, KEEPALIVE, NOTIFICATION and the marks of a route refresh. It
//! decodes the same ones; of an UPDATE it checks the lengths and counts the routes.
//!
//! | module | content |
//! |---|---|
//! | `frame` | marker, length and type |
//! | `notification` | the reason for which a session ends, in words |
//! | `open` | OPEN and capabilities |
//! | `update` | routes: attributes and prefixes, withdrawals, End-of-RIB |
//! | `octets` | a message that is being read |

mod frame;
mod notification;
mod octets;
mod open;
#[cfg(test)]
mod tests;
mod update;

use leasehold_crds::range::Family;

use self::frame::{HEADER, UNICAST, family, kind, message, number};
pub use self::frame::{LARGEST, length};
pub use self::notification::Notification;
pub use self::open::{Capabilities, GracefulRestart, Open, Refresh};
pub use self::update::{
    Announcement, Attributes, NextHop, Oversized, Received, end_of_rib, withdrawals,
};

/// A message of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The first message of a session.
    Open(Open),
    /// Routes, which are dropped.
    Update(Received),
    /// The session ends.
    Notification(Notification),
    /// The peer lives.
    Keepalive,
    /// A request for all routes, or a mark around them.
    RouteRefresh(RouteRefresh),
}

/// ROUTE-REFRESH (RFC 2918; RFC 7313, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// The family of the routes; none for one that is not announced.
    pub family: Option<Family>,
    /// The meaning of the message.
    pub mark: Mark,
}

/// The meaning of a ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A request for all routes.
    Request,
    /// All routes follow.
    Begin,
    /// Those were all routes.
    End,
    /// Unknown, to be ignored.
    Unknown,
}

/// Decodes a whole message, of which [`length()`] has accepted the header. The error is the answer, after which the
/// session ends.
pub fn read(message: &[u8]) -> Result<Incoming, Notification> {
    let Some((header, body)) = message.split_at_checked(HEADER) else {
        return Err(Notification::new(1, 2));
    };
    match header.last().copied().unwrap_or_default() {
        kind::OPEN => Open::read(body).map(Incoming::Open),
        kind::UPDATE => Received::read(body).map(Incoming::Update),
        kind::NOTIFICATION => {
            let notification = Notification::read(body);
            notification.map(Incoming::Notification).ok_or_else(|| Notification::new(1, 2))
        }
        kind::KEEPALIVE => Ok(Incoming::Keepalive),
        kind::ROUTE_REFRESH => match *body {
            [high, low, mark, safi] => {
                let family = family(u16::from_be_bytes([high, low]), safi);
                Ok(Incoming::RouteRefresh(RouteRefresh { family, mark: Mark::read(mark) }))
            }
            _ => Err(Notification::with(7, 1, message)),
        },
        other => Err(Notification::with(1, 3, &[other])),
    }
}

impl Mark {
    const fn read(octet: u8) -> Self {
        match octet {
            0 => Self::Request,
            1 => Self::Begin,
            2 => Self::End,
            _ => Self::Unknown,
        }
    }
}

/// Encodes an OPEN.
pub fn open(open: &Open) -> Vec<u8> {
    message(kind::OPEN, |body| open.write(body))
}

/// Encodes a NOTIFICATION.
pub fn notification(notification: &Notification) -> Vec<u8> {
    message(kind::NOTIFICATION, |body| notification.write(body))
}

/// Encodes a KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    message(kind::KEEPALIVE, |_| {})
}

/// Encodes the mark before or after all routes of a family, for a peer that has asked for them.
pub fn route_refresh(family: Family, end: bool) -> Vec<u8> {
    let mark = if end { 2 } else { 1 };
    message(kind::ROUTE_REFRESH, |body| {
        body.extend(number(family).to_be_bytes());
        body.extend([mark, UNICAST]);
    })
}
