//! OPEN: what each side is and can do (RFC 4271, section 4.2; capabilities: RFC 5492).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_crds::range::Family;

use super::frame::{UNICAST, family, number};
use super::notification::Notification;
use super::octets::Octets;

/// The version of the protocol.
const VERSION: u8 = 4;
/// Stands for an AS number that needs more than two octets (RFC 6793, section 9).
pub(super) const AS_TRANS: u16 = 23456;
/// The optional parameter that contains capabilities.
const CAPABILITIES: u8 = 2;
/// Says that lengths of optional parameters have two octets (RFC 9072).
const EXTENDED: u8 = 255;

/// The codes of capabilities (IANA, "Capability Codes").
mod code {
    pub(super) const MULTIPROTOCOL: u8 = 1;
    pub(super) const ROUTE_REFRESH: u8 = 2;
    pub(super) const EXTENDED_NEXT_HOP: u8 = 5;
    pub(super) const GRACEFUL_RESTART: u8 = 64;
    pub(super) const FOUR_OCTET_AS: u8 = 65;
    pub(super) const ENHANCED_ROUTE_REFRESH: u8 = 70;
}

/// One side of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its AS number.
    pub asn: u32,
    /// The proposed hold time in seconds: 0, or 3 at least.
    pub hold_time: u16,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

/// The capabilities that make a difference to a speaker that only announces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The families of which it takes routes (RFC 4760). A side that names none takes those of IPv4.
    pub families: BTreeSet<Family>,
    /// Whether it takes IPv4 routes with an IPv6 next hop (RFC 8950).
    pub v4_over_v6: bool,
    /// Whether it takes AS numbers of four octets (RFC 6793).
    pub four_octet_as: bool,
    /// The route refresh that it knows.
    pub route_refresh: Refresh,
    /// Graceful restart (RFC 4724).
    pub graceful_restart: Option<GracefulRestart>,
}

/// The capability to be asked for all routes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refresh {
    /// It is not.
    #[default]
    None,
    /// That of RFC 2918.
    Plain,
    /// The answer has a beginning and an end (RFC 7313).
    Enhanced,
}

/// The capability to restart without the loss of routes (RFC 4724, section 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GracefulRestart {
    /// Whether it has just restarted (R).
    pub restarted: bool,
    /// Whether routes are kept after a NOTIFICATION, too, unless it is a hard reset (N, RFC 8538).
    pub notification: bool,
    /// The time in seconds within which it is back, below 4096.
    pub time: u16,
    /// The families, and whether packets for their routes were forwarded during the restart (F).
    pub families: BTreeMap<Family, bool>,
}

impl Open {
    /// Reads the body of a message; the error is the answer.
    pub(super) fn read(body: &[u8]) -> Result<Self, Notification> {
        let short = || Notification::new(2, 0);
        let mut body = Octets::new(body);
        if body.u8().ok_or_else(short)? != VERSION {
            return Err(Notification::with(2, 1, &u16::from(VERSION).to_be_bytes()));
        }
        let asn = body.u16().ok_or_else(short)?;
        let hold_time = body.u16().ok_or_else(short)?;
        let id = Ipv4Addr::from(body.array().ok_or_else(short)?);
        let (mut seen, mut four) = (Capabilities::default(), None);
        let mut parameters = Parameters::read(&mut body).ok_or_else(short)?;
        while !parameters.rest.is_empty() {
            let (kind, mut parameter) = parameters.next().ok_or_else(short)?;
            if kind != CAPABILITIES {
                return Err(Notification::new(2, 4));
            }
            while !parameter.is_empty() {
                let code = parameter.u8().ok_or_else(short)?;
                let value = parameter.part_of_u8().ok_or_else(short)?;
                seen.take(code, value, &mut four).ok_or_else(short)?;
            }
        }
        if seen.families.is_empty() {
            seen.families.insert(Family::V4);
        }
        let asn = four.unwrap_or_else(|| u32::from(asn));
        if asn == 0 {
            return Err(Notification::new(2, 2));
        }
        if id.is_unspecified() {
            return Err(Notification::new(2, 3));
        }
        if matches!(hold_time, 1 | 2) {
            return Err(Notification::new(2, 6));
        }
        Ok(Self { asn, hold_time, id, capabilities: seen })
    }

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.push(VERSION);
        to.extend(u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
        to.extend(self.hold_time.to_be_bytes());
        to.extend(self.id.octets());
        let mut capabilities = Vec::new();
        self.capabilities.write(self.asn, &mut capabilities);
        // Two of each at most: far from 255 octets.
        let length = u8::try_from(capabilities.len()).unwrap_or(u8::MAX);
        to.extend([length.saturating_add(2), CAPABILITIES, length]);
        to.extend(capabilities);
    }
}

/// The optional parameters that are still to be read.
struct Parameters<'a> {
    rest: Octets<'a>,
    extended: bool,
}

impl<'a> Parameters<'a> {
    fn read(body: &mut Octets<'a>) -> Option<Self> {
        let length = body.u8()?;
        let mut ahead = *body;
        let extended = length == EXTENDED && ahead.u8() == Some(EXTENDED);
        let rest = if extended {
            *body = ahead;
            body.part_of_u16()?
        } else {
            body.part(usize::from(length))?
        };
        body.is_empty().then_some(Self { rest, extended })
    }

    /// The kind and the value of the next one; none where its length is wrong.
    fn next(&mut self) -> Option<(u8, Octets<'a>)> {
        let kind = self.rest.u8()?;
        let value = if self.extended { self.rest.part_of_u16() } else { self.rest.part_of_u8() };
        Some((kind, value?))
    }
}

impl Capabilities {
    /// Takes in one capability; none if it has the wrong length. `asn` is the AS number in four octets.
    fn take(&mut self, code: u8, mut value: Octets<'_>, asn: &mut Option<u32>) -> Option<()> {
        match code {
            code::MULTIPROTOCOL => {
                let (afi, _, safi) = (value.u16()?, value.u8()?, value.u8()?);
                self.families.extend(family(afi, safi));
            }
            code::EXTENDED_NEXT_HOP => {
                while !value.is_empty() {
                    let (afi, safi, hop) = (value.u16()?, value.u16()?, value.u16()?);
                    let safi = u8::try_from(safi).unwrap_or_default();
                    self.v4_over_v6 |=
                        family(afi, safi) == Some(Family::V4) && hop == number(Family::V6);
                }
            }
            code::ROUTE_REFRESH => self.route_refresh = self.route_refresh.max(Refresh::Plain),
            code::ENHANCED_ROUTE_REFRESH => self.route_refresh = Refresh::Enhanced,
            code::FOUR_OCTET_AS => {
                self.four_octet_as = true;
                *asn = Some(value.u32()?);
            }
            code::GRACEFUL_RESTART => self.graceful_restart = Some(GracefulRestart::read(value)?),
            _ => {}
        }
        Some(())
    }

    fn write(&self, asn: u32, to: &mut Vec<u8>) {
        for family in &self.families {
            let [high, low] = number(*family).to_be_bytes();
            to.extend([code::MULTIPROTOCOL, 4, high, low, 0, UNICAST]);
        }
        if self.v4_over_v6 {
            let ([a, b], [c, d]) =
                (number(Family::V4).to_be_bytes(), number(Family::V6).to_be_bytes());
            to.extend([code::EXTENDED_NEXT_HOP, 6, a, b, 0, UNICAST, c, d]);
        }
        if self.route_refresh >= Refresh::Plain {
            to.extend([code::ROUTE_REFRESH, 0]);
        }
        if self.route_refresh == Refresh::Enhanced {
            to.extend([code::ENHANCED_ROUTE_REFRESH, 0]);
        }
        if self.four_octet_as {
            to.extend([code::FOUR_OCTET_AS, 4]);
            to.extend(asn.to_be_bytes());
        }
        if let Some(restart) = &self.graceful_restart {
            restart.write(to);
        }
    }
}

impl GracefulRestart {
    const RESTARTED: u16 = 0x8000;
    const NOTIFICATION: u16 = 0x4000;
    const TIME: u16 = 0x0fff;
    const FORWARDED: u8 = 0x80;

    fn read(mut value: Octets<'_>) -> Option<Self> {
        let flags = value.u16()?;
        let mut families = BTreeMap::new();
        while !value.is_empty() {
            let (afi, safi, forwarding) = (value.u16()?, value.u8()?, value.u8()?);
            families.extend(family(afi, safi).map(|it| (it, forwarding & Self::FORWARDED != 0)));
        }
        Some(Self {
            restarted: flags & Self::RESTARTED != 0,
            notification: flags & Self::NOTIFICATION != 0,
            time: flags & Self::TIME,
            families,
        })
    }

    fn write(&self, to: &mut Vec<u8>) {
        let restarted = if self.restarted { Self::RESTARTED } else { 0 };
        let notification = if self.notification { Self::NOTIFICATION } else { 0 };
        let [high, low] = (restarted | notification | self.time.min(Self::TIME)).to_be_bytes();
        let length = u8::try_from(self.families.len() * 4 + 2).unwrap_or(u8::MAX);
        to.extend([code::GRACEFUL_RESTART, length, high, low]);
        for (family, forwarded) in &self.families {
            let [a, b] = number(*family).to_be_bytes();
            to.extend([a, b, UNICAST, if *forwarded { Self::FORWARDED } else { 0 }]);
        }
    }
}
