//! Address ranges as an `IPAddressPool` writes them: `192.0.2.0/24` or `192.0.2.10-192.0.2.20`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The version of IP that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of `ip`.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The length of an address in bits: 32 or 128.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    fn address(self, value: u128) -> IpAddr {
        match self {
            // A value of this family never has bits above the 32nd.
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(value).unwrap_or(u32::MAX))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(value)),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// `ip` as a number: IPv4 in the lower 32 bits.
const fn number(ip: IpAddr) -> u128 {
    match ip {
        // `u128::from` is not const.
        #[expect(clippy::as_conversions, reason = "u32 to u128 loses nothing")]
        IpAddr::V4(ip) => ip.to_bits() as u128,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// Why a range was refused. Each message says how to write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Neither a CIDR nor `first-last`.
    #[error(
        "`{0}` is neither a CIDR such as 192.0.2.0/24 nor a range such as 192.0.2.10-192.0.2.20"
    )]
    Shape(String),
    /// A single address without a prefix length.
    #[error("`{0}`: a single address needs a prefix length: write {0}/{1}")]
    Bare(IpAddr, u8),
    /// A prefix length that is not a number up to 32 (IPv4) or 128 (IPv6).
    #[error("`{entry}`: the prefix length must be a number from 0 to {max}")]
    Prefix {
        /// The entry as written.
        entry: String,
        /// The greatest length of its family.
        max: u8,
    },
    /// A CIDR with host bits set.
    #[error("`{entry}` has host bits set: write {first}/{length}, or a range")]
    HostBits {
        /// The entry as written.
        entry: String,
        /// The first address of the network.
        first: IpAddr,
        /// The prefix length.
        length: u8,
    },
    /// The two ends belong to different families.
    #[error("`{0}`: both ends of a range must be IPv4 or both IPv6")]
    Families(String),
    /// The last address comes before the first.
    #[error("`{entry}`: the first address comes after the last: write {last}-{first}")]
    Order {
        /// The entry as written.
        entry: String,
        /// The address that was written first.
        first: IpAddr,
        /// The address that was written last.
        last: IpAddr,
    },
}

/// A closed range of addresses of one family, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRange {
    family: Family,
    first: u128,
    last: u128,
}

/// Addresses that no host can have, whatever network it is in, and what they are for (RFC 1122, section 3.2.1.3;
/// RFC 3927; RFC 5771; RFC 4291).
pub const RESERVED: [(IpRange, &str); 10] = [
    (v4([0, 0, 0, 0], [0, 255, 255, 255]), "this network"),
    (v4([127, 0, 0, 0], [127, 255, 255, 255]), "loopback"),
    (v4([169, 254, 0, 0], [169, 254, 255, 255]), "link-local"),
    (v4([224, 0, 0, 0], [239, 255, 255, 255]), "multicast"),
    (v4([240, 0, 0, 0], [255, 255, 255, 255]), "future use and broadcast"),
    (v6(0, 0), "unspecified"),
    (v6(1, 1), "loopback"),
    (v6(0xffff << 32, (0xffff << 32) | 0xffff_ffff), "IPv4-mapped"),
    (v6(0xfe80 << 112, (0xfec0 << 112) - 1), "link-local"),
    (v6(0xff00 << 112, u128::MAX), "multicast"),
];

const fn v4(first: [u8; 4], last: [u8; 4]) -> IpRange {
    let (first, last) = (u32::from_be_bytes(first), u32::from_be_bytes(last));
    let (first, last) = (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last));
    IpRange { family: Family::V4, first: number(IpAddr::V4(first)), last: number(IpAddr::V4(last)) }
}

const fn v6(first: u128, last: u128) -> IpRange {
    IpRange { family: Family::V6, first, last }
}

impl IpRange {
    /// The purpose for which all addresses of the range are reserved, if there is one: no host can have any of them.
    pub fn reserved(&self) -> Option<&'static str> {
        let around = |(range, _): &&(Self, &str)| {
            range.family == self.family && range.first <= self.first && self.last <= range.last
        };
        RESERVED.iter().find(around).map(|(_, what)| *what)
    }

    /// The range from `first` to `last`, both included; `None` where the families differ or the
    /// order is wrong.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let family = Family::of(first);
        let range = Self { family, first: number(first), last: number(last) };
        (Family::of(last) == family && range.first <= range.last).then_some(range)
    }

    /// The family of all its addresses.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        self.family.address(self.first)
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        self.family.address(self.last)
    }

    /// The number of addresses in the range; saturates at `u128::MAX` for `::/0`.
    pub const fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Never: a range holds at least one address.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Whether `ip` lies in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        Family::of(ip) == self.family && (self.first..=self.last).contains(&number(ip))
    }

    /// Whether the two ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// The part that both ranges share.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            family: self.family,
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        })
    }

    /// The rest of this range without `other`: none, one or two ranges, in order.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        if !self.overlaps(other) {
            return vec![*self];
        }
        let mut rest = Vec::with_capacity(2);
        if self.first < other.first {
            rest.push(Self { last: other.first - 1, ..*self });
        }
        if other.last < self.last {
            rest.push(Self { first: other.last + 1, ..*self });
        }
        rest
    }

    /// The address after `ip` in this range; `None` behind the last and for addresses outside.
    pub fn next_after(&self, ip: IpAddr) -> Option<IpAddr> {
        (self.contains(ip) && number(ip) < self.last)
            .then(|| self.family.address(number(ip).saturating_add(1)))
    }

    /// All addresses in ascending order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let family = self.family;
        (self.first..=self.last).map(move |value| family.address(value))
    }
}

impl FromStr for IpRange {
    type Err = RangeError;

    fn from_str(entry: &str) -> Result<Self, RangeError> {
        if let Some((address, length)) = entry.split_once('/') {
            return cidr(entry, address, length);
        }
        if let Some((first, last)) = entry.split_once('-') {
            let shape = |_| RangeError::Shape(entry.to_owned());
            let first: IpAddr = first.trim().parse().map_err(shape)?;
            let last: IpAddr = last.trim().parse().map_err(shape)?;
            if Family::of(first) != Family::of(last) {
                return Err(RangeError::Families(entry.to_owned()));
            }
            return Self::new(first, last).ok_or(RangeError::Order {
                entry: entry.to_owned(),
                first,
                last,
            });
        }
        Err(entry.trim().parse().map_or_else(
            |_| RangeError::Shape(entry.to_owned()),
            |ip| RangeError::Bare(ip, Family::of(ip).bits()),
        ))
    }
}

fn cidr(entry: &str, address: &str, length: &str) -> Result<IpRange, RangeError> {
    let ip: IpAddr = address.parse().map_err(|_| RangeError::Shape(entry.to_owned()))?;
    let family = Family::of(ip);
    let max = family.bits();
    let prefix = || RangeError::Prefix { entry: entry.to_owned(), max };
    // `u8::from_str` takes a leading `+` and leading zeros, which the API server refuses (Go's
    // `netip.ParsePrefix`).
    let leading_zero = length.len() > 1 && length.starts_with('0');
    if leading_zero || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(prefix());
    }
    let length: u8 = length.parse().map_err(|_| prefix())?;
    if length > max {
        return Err(prefix());
    }
    let host = u128::MAX.checked_shr(128 - u32::from(max - length)).unwrap_or(0);
    let first = number(ip) & !host;
    if first != number(ip) {
        let first = family.address(first);
        return Err(RangeError::HostBits { entry: entry.to_owned(), first, length });
    }
    Ok(IpRange { family, first, last: first | host })
}

impl fmt::Display for IpRange {
    /// `first-last`, whichever way it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first(), self.last())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_read_as_pools_write_them() {
        for (entry, shown, len) in [
            ("192.0.2.0/24", "192.0.2.0-192.0.2.255", 256),
            ("192.0.2.7/32", "192.0.2.7-192.0.2.7", 1),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255", 1 << 32),
            ("192.0.2.10-192.0.2.20", "192.0.2.10-192.0.2.20", 11),
            ("192.0.2.10 - 192.0.2.10", "192.0.2.10-192.0.2.10", 1),
            ("2001:db8::/64", "2001:db8::-2001:db8::ffff:ffff:ffff:ffff", 1 << 64),
            ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", u128::MAX),
        ] {
            let range: IpRange = entry.parse().unwrap();
            assert_eq!(range.to_string(), shown, "{entry}");
            assert_eq!(range.len(), len, "{entry}");
        }
    }

    #[test]
    fn malformed_ranges_say_how_to_write_them() {
        for (entry, message) in [
            (
                "192.0.2.7",
                "`192.0.2.7`: a single address needs a prefix length: write 192.0.2.7/32",
            ),
            (
                "2001:db8::1",
                "`2001:db8::1`: a single address needs a prefix length: write 2001:db8::1/128",
            ),
            ("192.0.2.7/24", "`192.0.2.7/24` has host bits set: write 192.0.2.0/24, or a range"),
            ("192.0.2.0/33", "`192.0.2.0/33`: the prefix length must be a number from 0 to 32"),
            ("192.0.2.0/024", "`192.0.2.0/024`: the prefix length must be a number from 0 to 32"),
            ("0.0.0.0/00", "`0.0.0.0/00`: the prefix length must be a number from 0 to 32"),
            (
                "2001:db8::/064",
                "`2001:db8::/064`: the prefix length must be a number from 0 to 128",
            ),
            ("192.0.2.0/", "`192.0.2.0/`: the prefix length must be a number from 0 to 32"),
            ("192.0.2.0/+8", "`192.0.2.0/+8`: the prefix length must be a number from 0 to 32"),
            (
                "192.0.2.0-2001:db8::1",
                "`192.0.2.0-2001:db8::1`: both ends of a range must be IPv4 or both IPv6",
            ),
            (
                "192.0.2.9-192.0.2.1",
                "`192.0.2.9-192.0.2.1`: the first address comes after the last: write 192.0.2.1-192.0.2.9",
            ),
            (
                "web",
                "`web` is neither a CIDR such as 192.0.2.0/24 nor a range such as 192.0.2.10-192.0.2.20",
            ),
        ] {
            assert_eq!(entry.parse::<IpRange>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn ranges_of_reserved_addresses_alone_are_told_from_others() {
        for (entry, reserved) in [
            ("0.0.0.0/0", None),
            ("0.0.0.0/8", Some("this network")),
            ("0.0.0.0-1.0.0.0", None),
            ("127.0.0.1-127.0.0.9", Some("loopback")),
            ("224.0.0.0/4", Some("multicast")),
            ("224.0.0.0/3", None),
            ("169.254.0.0/16", Some("link-local")),
            ("255.255.255.255/32", Some("future use and broadcast")),
            ("192.0.2.0/24", None),
            ("::/128", Some("unspecified")),
            ("::/127", None),
            ("fe80::/10", Some("link-local")),
            ("fec0::/10", None),
            ("febf:ffff::/32", Some("link-local")),
            ("ff00::/8", Some("multicast")),
            ("2001:db8::/64", None),
        ] {
            assert_eq!(entry.parse::<IpRange>().unwrap().reserved(), reserved, "{entry}");
        }
    }

    fn range() -> impl Strategy<Value = IpRange> {
        (any::<bool>(), 0u32..2000, 0u32..500).prop_map(|(v6, first, len)| {
            let address = |n: u32| -> IpAddr {
                if v6 {
                    Ipv6Addr::from_bits(u128::from(n)).into()
                } else {
                    Ipv4Addr::from_bits(n).into()
                }
            };
            IpRange::new(address(first), address(first + len)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_range_without_another_shares_nothing_with_it(a in range(), b in range()) {
            let rest = a.without(&b);
            let shared = a.intersection(&b).map_or(0, |range| range.len());
            prop_assert_eq!(rest.iter().map(IpRange::len).sum::<u128>() + shared, a.len());
            prop_assert!(rest.iter().all(|range| !range.overlaps(&b)));
        }

        #[test]
        fn what_is_shown_reads_back(a in range()) {
            prop_assert_eq!(a.to_string().parse::<IpRange>().unwrap(), a);
        }

        #[test]
        fn parsing_never_panics(text in ".{0,90}") {
            let _ = text.parse::<IpRange>();
        }
    }
}
