//! UPDATE: routes (RFC 4271, section 4.3; other families: RFC 4760, section 3).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use leasehold_crds::range::Family;

use super::frame::{HEADER, LARGEST, UNICAST, family, kind, message, number};
use super::notification::Notification;
use super::octets::Octets;
use super::open::AS_TRANS;

/// The types of path attributes (IANA, "BGP Path Attributes").
mod kind_of {
    pub(super) const ORIGIN: u8 = 1;
    pub(super) const AS_PATH: u8 = 2;
    pub(super) const NEXT_HOP: u8 = 3;
    pub(super) const MULTI_EXIT_DISC: u8 = 4;
    pub(super) const LOCAL_PREF: u8 = 5;
    pub(super) const COMMUNITIES: u8 = 8;
    pub(super) const MP_REACH_NLRI: u8 = 14;
    pub(super) const MP_UNREACH_NLRI: u8 = 15;
    pub(super) const AS4_PATH: u8 = 17;
    pub(super) const LARGE_COMMUNITY: u8 = 32;
}

/// Flags of attributes.
mod flag {
    pub(super) const OPTIONAL: u8 = 0x80;
    pub(super) const TRANSITIVE: u8 = 0x40;
    pub(super) const EXTENDED: u8 = 0x10;
}

/// A segment of an AS path whose numbers are in order.
const SEQUENCE: u8 = 2;
/// The most AS numbers of a segment.
const SEGMENT: usize = 255;
/// The two lengths in a body.
const LENGTHS: usize = 4;

/// The attributes of an announcement, beside its next hop (RFC 4271, section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// `AS_PATH`: the own AS number as often as it is to count; empty within an AS.
    pub as_path: Vec<u32>,
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    /// `LOCAL_PREF`, within an AS only.
    pub local_pref: Option<u32>,
    /// `COMMUNITIES` (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// `LARGE_COMMUNITY` (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
}

/// The address that packets for the routes are to be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, or two of the same host (RFC 2545, section 3).
    V6 {
        /// The global one, or the link-local one where there is no other.
        global: Ipv6Addr,
        /// The link-local one, for a peer on the same link.
        link_local: Option<Ipv6Addr>,
    },
}

/// The attributes leave no room for a prefix in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized;

/// Routes that have the same attributes.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Their attributes.
    pub attributes: &'a Attributes,
    /// Their next hop. An IPv4 one is for IPv4 routes only; an IPv6 one is for IPv4 routes where RFC 8950 was agreed.
    pub next_hop: NextHop,
    /// Whether the peer takes AS numbers of four octets (RFC 6793).
    pub four_octet_as: bool,
}

impl Announcement<'_> {
    /// The messages that announce `prefixes`, all of one family: as many in each as there is room for.
    pub fn encode(&self, family: Family, prefixes: &[IpNet]) -> Result<Vec<Vec<u8>>, Oversized> {
        let mut fixed = Vec::new();
        self.write(family, &mut fixed);
        let hop = self.hop();
        let plain = self.is_plain(family);
        // The header of MP_REACH_NLRI, the family, the next hop and a reserved octet.
        let reach = if plain { 0 } else { 4 + 3 + 1 + hop.len() + 1 };
        let used = HEADER + LENGTHS + fixed.len() + reach;
        let room = LARGEST.checked_sub(used).ok_or(Oversized)?;
        let parts = parts(prefixes, room).ok_or(Oversized)?;
        let encode = |nlri: Vec<u8>| {
            message(kind::UPDATE, |body| {
                body.extend([0, 0]);
                let mut attributes = Vec::with_capacity(fixed.len() + reach);
                if !plain {
                    // First: RFC 7606, section 5.1.
                    let [high, low] = number(family).to_be_bytes();
                    let length = u8::try_from(hop.len()).unwrap_or(u8::MAX);
                    let head = [&[high, low, UNICAST, length][..], &hop, &[0]].concat();
                    let value = [head, nlri.clone()].concat();
                    attribute(
                        flag::OPTIONAL | flag::EXTENDED,
                        kind_of::MP_REACH_NLRI,
                        &value,
                        &mut attributes,
                    );
                }
                attributes.extend(&fixed);
                body.extend(length_of(&attributes));
                body.extend(attributes);
                if plain {
                    body.extend(nlri);
                }
            })
        };
        Ok(parts.into_iter().map(encode).collect())
    }

    /// Whether the routes are those of RFC 4271 itself.
    const fn is_plain(&self, family: Family) -> bool {
        matches!((family, self.next_hop), (Family::V4, NextHop::V4(_)))
    }

    /// The octets of the next hop.
    fn hop(&self) -> Vec<u8> {
        match self.next_hop {
            NextHop::V4(ip) => ip.octets().to_vec(),
            NextHop::V6 { global, link_local } => {
                let local = link_local.iter().flat_map(Ipv6Addr::octets);
                global.octets().into_iter().chain(local).collect()
            }
        }
    }

    /// Appends all attributes but `MP_REACH_NLRI`, in the order of their types.
    fn write(&self, family: Family, to: &mut Vec<u8>) {
        let Attributes { as_path, med, local_pref, communities, large_communities } =
            self.attributes;
        attribute(flag::TRANSITIVE, kind_of::ORIGIN, &[0], to);
        let path = |octets: &dyn Fn(u32) -> Vec<u8>| -> Vec<u8> {
            let segment = |asns: &[u32]| {
                let count = u8::try_from(asns.len()).unwrap_or(u8::MAX);
                [vec![SEQUENCE, count], asns.iter().flat_map(|asn| octets(*asn)).collect()].concat()
            };
            as_path.chunks(SEGMENT).flat_map(segment).collect()
        };
        let four = |asn: u32| asn.to_be_bytes().to_vec();
        let two = |asn: u32| u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes().to_vec();
        let value = if self.four_octet_as { path(&four) } else { path(&two) };
        attribute(flag::TRANSITIVE, kind_of::AS_PATH, &value, to);
        if let (NextHop::V4(ip), true) = (self.next_hop, self.is_plain(family)) {
            attribute(flag::TRANSITIVE, kind_of::NEXT_HOP, &ip.octets(), to);
        }
        if let Some(med) = med {
            attribute(flag::OPTIONAL, kind_of::MULTI_EXIT_DISC, &med.to_be_bytes(), to);
        }
        if let Some(local_pref) = local_pref {
            attribute(flag::TRANSITIVE, kind_of::LOCAL_PREF, &local_pref.to_be_bytes(), to);
        }
        if !communities.is_empty() {
            let value: Vec<u8> = communities.iter().flat_map(|it| it.to_be_bytes()).collect();
            attribute(flag::OPTIONAL | flag::TRANSITIVE, kind_of::COMMUNITIES, &value, to);
        }
        if !self.four_octet_as && as_path.iter().any(|asn| u16::try_from(*asn).is_err()) {
            attribute(flag::OPTIONAL | flag::TRANSITIVE, kind_of::AS4_PATH, &path(&four), to);
        }
        if !large_communities.is_empty() {
            let parts = large_communities.iter().flatten();
            let value: Vec<u8> = parts.flat_map(|it| it.to_be_bytes()).collect();
            attribute(flag::OPTIONAL | flag::TRANSITIVE, kind_of::LARGE_COMMUNITY, &value, to);
        }
    }
}

/// The messages that withdraw `prefixes`, all of one family.
pub fn withdrawals(family: Family, prefixes: &[IpNet]) -> Vec<Vec<u8>> {
    let head = match family {
        Family::V4 => 0,
        Family::V6 => 4 + 3,
    };
    let room = LARGEST - HEADER - LENGTHS - head;
    let encode = |nlri: Vec<u8>| match family {
        Family::V4 => message(kind::UPDATE, |body| {
            body.extend(length_of(&nlri));
            body.extend(nlri);
            body.extend([0, 0]);
        }),
        Family::V6 => unreachable(family, &nlri),
    };
    parts(prefixes, room).unwrap_or_default().into_iter().map(encode).collect()
}

/// The end of the first routes of a family (RFC 4724, section 2).
pub fn end_of_rib(family: Family) -> Vec<u8> {
    match family {
        Family::V4 => message(kind::UPDATE, |body| body.extend([0; LENGTHS])),
        Family::V6 => unreachable(family, &[]),
    }
}

/// A message that withdraws encoded prefixes by `MP_UNREACH_NLRI`.
fn unreachable(family: Family, nlri: &[u8]) -> Vec<u8> {
    let [high, low] = number(family).to_be_bytes();
    let value = [&[high, low, UNICAST], nlri].concat();
    let mut attributes = Vec::new();
    attribute(flag::OPTIONAL | flag::EXTENDED, kind_of::MP_UNREACH_NLRI, &value, &mut attributes);
    message(kind::UPDATE, |body| {
        body.extend([0, 0]);
        body.extend(length_of(&attributes));
        body.extend(attributes);
    })
}

/// Two octets with the length of what follows.
fn length_of(octets: &[u8]) -> [u8; 2] {
    u16::try_from(octets.len()).unwrap_or(u16::MAX).to_be_bytes()
}

/// Appends an attribute; its length has two octets where it needs them.
fn attribute(flags: u8, kind: u8, value: &[u8], to: &mut Vec<u8>) {
    match u8::try_from(value.len()) {
        Ok(length) if flags & flag::EXTENDED == 0 => to.extend([flags, kind, length]),
        _ => {
            to.extend([flags | flag::EXTENDED, kind]);
            to.extend(length_of(value));
        }
    }
    to.extend(value);
}

/// The encoded prefixes, in parts of at most `room` octets; none where one alone is too large.
fn parts(prefixes: &[IpNet], room: usize) -> Option<Vec<Vec<u8>>> {
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        let octets = encoded(prefix);
        if octets.len() > room {
            return None;
        }
        if part.len() + octets.len() > room {
            parts.push(std::mem::take(&mut part));
        }
        part.extend(octets);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    Some(parts)
}

/// The length in bits, and as many octets as that needs; bits behind it are 0.
fn encoded(prefix: &IpNet) -> Vec<u8> {
    let octets = match prefix.network() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let count = usize::from(prefix.prefix_len()).div_ceil(8);
    [prefix.prefix_len()].into_iter().chain(octets.into_iter().take(count)).collect()
}

/// The number of routes in an UPDATE of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Announced ones.
    pub announced: usize,
    /// Withdrawn ones.
    pub withdrawn: usize,
    /// The family whose first routes have ended.
    pub end_of_rib: Option<Family>,
}

impl Received {
    /// Checks the lengths in the body of a message, and counts its routes. Their content is not looked at: no route is
    /// used.
    pub(super) fn read(body: &[u8]) -> Result<Self, Notification> {
        let malformed = || Notification::new(3, 1);
        let mut body = Octets::new(body);
        let withdrawn = body.part_of_u16().ok_or_else(malformed)?;
        let mut attributes = body.part_of_u16().ok_or_else(malformed)?;
        let bad_prefix = || Notification::new(3, 10);
        let mut received = Self {
            announced: count(body, Family::V4).ok_or_else(bad_prefix)?,
            withdrawn: count(withdrawn, Family::V4).ok_or_else(bad_prefix)?,
            end_of_rib: None,
        };
        let mut plain = attributes.is_empty();
        while !attributes.is_empty() {
            let (flags, kind) = (attributes.u8(), attributes.u8());
            let (Some(flags), Some(kind)) = (flags, kind) else { return Err(malformed()) };
            let value = if flags & flag::EXTENDED == 0 {
                attributes.part_of_u8()
            } else {
                attributes.part_of_u16()
            };
            let value = value.ok_or_else(malformed)?;
            match kind {
                kind_of::MP_REACH_NLRI => {
                    received.reach(value).ok_or_else(|| Notification::new(3, 9))?;
                }
                kind_of::MP_UNREACH_NLRI => {
                    received.unreach(value).ok_or_else(|| Notification::new(3, 9))?;
                }
                _ => {}
            }
        }
        plain &= received == Self::default();
        if plain {
            received.end_of_rib = Some(Family::V4);
        }
        Ok(received)
    }

    fn reach(&mut self, mut value: Octets<'_>) -> Option<()> {
        let (afi, safi) = (value.u16()?, value.u8()?);
        value.part_of_u8()?;
        value.u8()?;
        if let Some(family) = family(afi, safi) {
            self.announced += count(value, family)?;
        }
        Some(())
    }

    fn unreach(&mut self, mut value: Octets<'_>) -> Option<()> {
        let (afi, safi) = (value.u16()?, value.u8()?);
        if let Some(family) = family(afi, safi) {
            if value.is_empty() && *self == Self::default() {
                self.end_of_rib = Some(family);
            }
            self.withdrawn += count(value, family)?;
        }
        Some(())
    }
}

/// The number of encoded prefixes; none if a length is wrong.
fn count(mut prefixes: Octets<'_>, family: Family) -> Option<usize> {
    let mut count = 0;
    while !prefixes.is_empty() {
        let bits = prefixes.u8().filter(|bits| *bits <= family.bits())?;
        prefixes.part(usize::from(bits).div_ceil(8))?;
        count += 1;
    }
    Some(count)
}
