//! The frame of a message: marker, length and type (RFC 4271, section 4.1), and the numbers of families.

use leasehold_crds::range::Family;

use super::notification::Notification;
use super::octets::Octets;

/// The marker, the length and the type.
pub(super) const HEADER: usize = 19;
const MARKER: [u8; 16] = [0xff; 16];
/// The most octets of a message: RFC 8654 is not offered.
pub const LARGEST: usize = 4096;
/// The subsequent address family of unicast routes.
pub(super) const UNICAST: u8 = 1;

/// The types of messages.
pub(super) mod kind {
    pub(in crate::bgp::message) const OPEN: u8 = 1;
    pub(in crate::bgp::message) const UPDATE: u8 = 2;
    pub(in crate::bgp::message) const NOTIFICATION: u8 = 3;
    pub(in crate::bgp::message) const KEEPALIVE: u8 = 4;
    pub(in crate::bgp::message) const ROUTE_REFRESH: u8 = 5;
}

/// The number of an address family (IANA, "Address Family Numbers").
pub(super) const fn number(family: Family) -> u16 {
    match family {
        Family::V4 => 1,
        Family::V6 => 2,
    }
}

/// The family of unicast routes with these numbers.
pub(super) const fn family(afi: u16, safi: u8) -> Option<Family> {
    match (afi, safi) {
        (1, UNICAST) => Some(Family::V4),
        (2, UNICAST) => Some(Family::V6),
        _ => None,
    }
}

/// The length of the first message in `octets` as they have come; none while too few have to know it. The error is the
/// answer, after which the session ends.
pub fn length(octets: &[u8]) -> Result<Option<usize>, Notification> {
    let mut header = Octets::new(octets);
    let Some(marker) = header.array::<16>() else { return Ok(None) };
    if marker != MARKER {
        return Err(Notification::new(1, 1));
    }
    let (Some(length), Some(kind)) = (header.u16(), header.u8()) else { return Ok(None) };
    let bad_length = Err(Notification::with(1, 2, &length.to_be_bytes()));
    let whole = usize::from(length);
    let least = match kind {
        kind::OPEN => HEADER + 10,
        kind::UPDATE => HEADER + 4,
        kind::NOTIFICATION => HEADER + 2,
        kind::KEEPALIVE | kind::ROUTE_REFRESH => HEADER,
        _ => return Err(Notification::with(1, 3, &[kind])),
    };
    let most = if kind == kind::KEEPALIVE { HEADER } else { LARGEST };
    if (least..=most).contains(&whole) { Ok(Some(whole)) } else { bad_length }
}

/// A message with the body that `write` appends. All callers keep below [`LARGEST`].
pub(super) fn message(kind: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = MARKER.to_vec();
    message.extend([0, 0, kind]);
    write(&mut message);
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();
    if let Some(place) = message.get_mut(16..18) {
        place.copy_from_slice(&length);
    }
    message
}
