//! The entries of a pool: MetalLB reads some that ours refuses.

use leasehold_crds::range::{Family, IpRange, RangeError};
use std::borrow::Cow;

/// An entry as our pools write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The addresses.
    pub range: IpRange,
    /// The addresses, in the notation of an `IPAddressPool`.
    pub text: String,
    /// Why that is not what was written before, if more has changed than the spelling.
    pub note: Option<String>,
}

/// Reads an entry as MetalLB does: the bits behind a prefix are ignored, and IPv6 addresses that stand
/// for IPv4 ones (`::ffff:192.0.2.1`) are IPv4. `Err` says why nothing is left of it.
pub fn read(written: &str) -> Result<Entry, String> {
    let (range, note) = match without_zeros(written).parse::<IpRange>() {
        Ok(range) => (range, None),
        Err(RangeError::HostBits { first, length, .. }) => (
            format!("{first}/{length}").parse().map_err(|error: RangeError| error.to_string())?,
            Some(format!("{written} has host bits set, which MetalLB ignores")),
        ),
        Err(RangeError::Bare(ip, _)) => (
            IpRange::new(ip, ip).ok_or_else(|| format!("{written} holds no address"))?,
            Some(format!("{written} has no prefix length")),
        ),
        Err(error) => return Err(error.to_string()),
    };
    let (first, last) = (range.first().to_canonical(), range.last().to_canonical());
    let mapped = Family::of(first) != range.family();
    let range = IpRange::new(first, last).ok_or_else(|| {
        format!("{written} mixes IPv4 addresses in IPv6 form with IPv6 addresses")
    })?;
    let text = match prefix_length(&range) {
        Some(length) if !written.contains('-') => format!("{first}/{length}"),
        _ => range.to_string(),
    };
    let note =
        note.or_else(|| mapped.then(|| format!("{written} contains IPv4 addresses in IPv6 form")));
    let note = note.map(|note| format!("{note}: converted to {text}"));
    Ok(Entry { range, text, note })
}

/// Without zeros before the prefix length, which MetalLB passes over (Go's `net.ParseCIDR`) and we refuse.
fn without_zeros(written: &str) -> Cow<'_, str> {
    match written.split_once('/') {
        Some((network, length)) if length.len() > 1 && length.starts_with('0') => {
            let length = length.trim_start_matches('0');
            let length = if length.is_empty() { "0" } else { length };
            Cow::Owned(format!("{network}/{length}"))
        }
        _ => Cow::Borrowed(written),
    }
}

/// The prefix length of a range that is a network.
fn prefix_length(range: &IpRange) -> Option<u8> {
    let size = range.len();
    // `::/0` is the one whose size is not a power of two: it saturates.
    let host = if size == u128::MAX { 128 } else { u8::try_from(size.ilog2()).ok()? };
    range.family().bits().checked_sub(host)
}

/// The same addresses in as few ranges as possible.
pub fn merge(entries: &[Entry]) -> Vec<Entry> {
    let mut ranges: Vec<IpRange> = entries.iter().map(|entry| entry.range).collect();
    ranges.sort_unstable();
    let mut merged: Vec<IpRange> = Vec::new();
    for range in ranges {
        match merged.last_mut().and_then(|last| Some((join(last, &range)?, last))) {
            Some((joined, last)) => *last = joined,
            None => merged.push(range),
        }
    }
    let entry = |range: IpRange| Entry { text: range.to_string(), range, note: None };
    merged.into_iter().map(entry).collect()
}

/// Both ranges as one, if nothing lies between them. `a` does not begin after `b`.
fn join(a: &IpRange, b: &IpRange) -> Option<IpRange> {
    let all = IpRange::new(a.first(), a.last().max(b.last()))?;
    let touches = all.len() <= a.len().saturating_add(b.len());
    (a.family() == b.family() && touches).then_some(all)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use kube::core::cel::validate_cel;
    use leasehold_crds::IPAddressPool;
    use leasehold_crds::pool::{AddressRange, IPAddressPoolSpec};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_that_metallb_reads_are_written_as_ours_read_them() {
        for (written, text, note) in [
            ("192.0.2.0/24", "192.0.2.0/24", None),
            ("192.0.2.7/32", "192.0.2.7/32", None),
            ("192.0.2.10-192.0.2.20", "192.0.2.10-192.0.2.20", None),
            ("192.0.2.0 - 192.0.2.255", "192.0.2.0-192.0.2.255", None),
            ("0.0.0.0/0", "0.0.0.0/0", None),
            ("::/0", "::/0", None),
            ("2001:DB8:0::/64", "2001:db8::/64", None),
            ("192.0.2.0/024", "192.0.2.0/24", None),
            ("::/00", "::/0", None),
            (
                "192.0.2.7/24",
                "192.0.2.0/24",
                Some(
                    "192.0.2.7/24 has host bits set, which MetalLB ignores: converted to 192.0.2.0/24",
                ),
            ),
            (
                "192.0.2.7",
                "192.0.2.7/32",
                Some("192.0.2.7 has no prefix length: converted to 192.0.2.7/32"),
            ),
            (
                "::ffff:192.0.2.0/120",
                "192.0.2.0/24",
                Some(
                    "::ffff:192.0.2.0/120 contains IPv4 addresses in IPv6 form: converted to \
                     192.0.2.0/24",
                ),
            ),
            (
                "::ffff:192.0.2.1-::ffff:192.0.2.9",
                "192.0.2.1-192.0.2.9",
                Some(
                    "::ffff:192.0.2.1-::ffff:192.0.2.9 contains IPv4 addresses in IPv6 form: converted \
                     to 192.0.2.1-192.0.2.9",
                ),
            ),
        ] {
            let entry = read(written).unwrap();
            assert_eq!((entry.text.as_str(), entry.note.as_deref()), (text, note));
            assert_eq!(text.parse::<IpRange>().unwrap(), entry.range, "{written}");
            let spec = IPAddressPoolSpec {
                addresses: vec![AddressRange(entry.text)],
                ..IPAddressPoolSpec::default()
            };
            validate_cel(&IPAddressPool::new("lan", spec)).unwrap();
        }
    }

    #[test]
    fn entries_that_metallb_cannot_read_are_refused_with_the_reason() {
        for (written, reason) in [
            ("web", "neither a CIDR"),
            ("192.0.2.0/33", "prefix length"),
            ("192.0.2.9-192.0.2.1", "after the last"),
            ("192.0.2.1-2001:db8::1", "both ends"),
            ("fe80::1%eth0-fe80::2%eth0", "neither a CIDR"),
            ("::fffe:ffff:ffff-::ffff:192.0.2.1", "mixes IPv4 addresses in IPv6 form"),
        ] {
            let refused = read(written).unwrap_err();
            assert!(refused.contains(reason), "{written}: {refused}");
        }
    }

    /// Whether MetalLB's parser of a CIDR (`net.ParseCIDR`) or a range, in numbers, puts `ip` into `written`.
    fn metallb_holds(written: &str, ip: IpAddr) -> bool {
        let number = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let address = |text: &str| text.trim().parse::<IpAddr>().unwrap();
        if let Some((first, last)) = written.split_once('-') {
            let ends = number(address(first))..=number(address(last));
            return address(first).is_ipv4() == ip.is_ipv4() && ends.contains(&number(ip));
        }
        let (network, length) = written.split_once('/').unwrap();
        let network = address(network);
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let host = bits - length.parse::<u32>().unwrap();
        let masked = |ip| number(ip).checked_shr(host).unwrap_or(0);
        network.is_ipv4() == ip.is_ipv4() && masked(network) == masked(ip)
    }

    fn ip(v6: bool, number: u32) -> IpAddr {
        if v6 {
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into()
        } else {
            Ipv4Addr::from_bits(number).into()
        }
    }

    prop_compose! {
        /// An entry as people write it, and addresses in it, at its edges and around.
        fn written()(
            v6 in any::<bool>(),
            first in any::<u32>(),
            more in 0..2000_u32,
            length in 0..=32_u8,
            cidr in any::<bool>(),
            near in prop::collection::vec(-3000..3000_i64, 8),
        ) -> (String, Vec<IpAddr>) {
            let last = first.saturating_add(more);
            let entry = if cidr {
                format!("{}/{}", ip(v6, first), if v6 { length + 96 } else { length })
            } else {
                format!("{}-{}", ip(v6, first), ip(v6, last))
            };
            let near = near.into_iter().filter_map(|by| u32::try_from(i64::from(first) + by).ok());
            (entry, near.chain([first, last]).map(|number| ip(v6, number)).collect())
        }
    }

    proptest! {
        #[test]
        fn an_address_is_in_our_entry_exactly_if_it_is_in_metallbs((entry, near) in written()) {
            let ours = read(&entry).unwrap();
            let read_back: IpRange = ours.text.parse().unwrap();
            prop_assert_eq!(read_back, ours.range);
            let around = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => {
                    [ip.to_bits().wrapping_sub(1), ip.to_bits().wrapping_add(1)].map(|n| Ipv4Addr::from_bits(n).into())
                }
                IpAddr::V6(ip) => {
                    [ip.to_bits() - 1, ip.to_bits() + 1].map(|n| Ipv6Addr::from_bits(n).into())
                }
            };
            let edges = [ours.range.first(), ours.range.last()];
            let edges = edges.into_iter().chain(edges.into_iter().flat_map(around));
            for ip in near.into_iter().chain(edges) {
                prop_assert_eq!(read_back.contains(ip), metallb_holds(&entry, ip), "{} {}", entry, ip);
            }
        }

        #[test]
        fn merged_entries_hold_the_same_addresses_and_do_not_touch(
            all in prop::collection::vec((any::<bool>(), 0..400_u32, 0..40_u32), 1..30),
        ) {
            let entry = |(v6, first, more): &(bool, u32, u32)| {
                read(&format!("{}-{}", ip(*v6, *first), ip(*v6, first + more))).unwrap()
            };
            let entries: Vec<Entry> = all.iter().map(entry).collect();
            let merged = merge(&entries);
            for (v6, number) in [false, true].into_iter().flat_map(|v6| (0..450).map(move |n| (v6, n))) {
                let holds = |entries: &[Entry]| {
                    entries.iter().any(|entry| entry.range.contains(ip(v6, number)))
                };
                prop_assert_eq!(holds(&entries), holds(&merged));
            }
            for pair in merged.windows(2) {
                prop_assert!(join(&pair[0].range, &pair[1].range).is_none());
            }
        }
    }
}
