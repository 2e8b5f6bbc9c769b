use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use leasehold_crds::range::Family;
use proptest::prelude::*;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;

/// The octets of a hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|it| !it.is_whitespace()).collect();
    let octet = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// A message with this type and body.
fn framed(kind: u8, body: &str) -> Vec<u8> {
    message(kind, |to| to.extend(hex(body)))
}

fn full() -> Open {
    let families = BTreeSet::from([Family::V4, Family::V6]);
    let restart = GracefulRestart {
        restarted: true,
        notification: true,
        time: 15,
        families: BTreeMap::from([(Family::V4, true), (Family::V6, false)]),
    };
    Open {
        asn: 4_200_000_001,
        hold_time: 9,
        id: "10.0.0.1".parse().unwrap(),
        capabilities: Capabilities {
            families,
            v4_over_v6: true,
            four_octet_as: true,
            route_refresh: Refresh::Enhanced,
            graceful_restart: Some(restart),
        },
    }
}

#[test]
fn an_open_has_the_octets_of_the_rfcs_and_is_read_as_it_was_written() {
    let octets = open(&full());
    let body = "04 5ba0 0009 0a000001 2c 02 2a
        01 04 0001 00 01  01 04 0002 00 01
        05 06 0001 0001 0002
        02 00  46 00
        41 04 fa56ea01
        40 0a c00f 0001 01 80  0002 01 00";
    assert_eq!(octets, framed(1, body));
    assert_eq!(length(&octets), Ok(Some(octets.len())));
    assert_eq!(read(&octets), Ok(Incoming::Open(full())));
}

#[test]
fn an_open_without_capabilities_is_one_for_ipv4_and_short_as_numbers() {
    let open = read(&framed(1, "04 fde9 005a 0a000002 00"));
    let capabilities =
        Capabilities { families: BTreeSet::from([Family::V4]), ..Capabilities::default() };
    let expected =
        Open { asn: 65_001, hold_time: 90, id: "10.0.0.2".parse().unwrap(), capabilities };
    assert_eq!(open, Ok(Incoming::Open(expected)));
}

#[test]
fn extended_lengths_of_parameters_are_read_and_unknown_capabilities_ignored() {
    let open = read(&framed(1, "04 fde9 005a 0a000002 ff ff 000b  02 0008 41 04 00010000 49 00"));
    let Ok(Incoming::Open(open)) = open else { panic!("{open:?}") };
    assert_eq!(open.asn, 65_536);
}

#[test]
fn a_bad_open_is_answered_with_the_error_of_the_rfc() {
    for (body, code, subcode, data) in [
        ("03 fde9 005a 0a000002 00", 2, 1, "0004"),
        ("04 0000 005a 0a000002 00", 2, 2, ""),
        ("04 fde9 005a 00000000 00", 2, 3, ""),
        ("04 fde9 005a 0a000002 03 01 01 00", 2, 4, ""),
        ("04 fde9 0002 0a000002 00", 2, 6, ""),
        ("04 fde9 005a 0a000002 05 02 01 00", 2, 0, ""),
        ("04 fde9 005a 0a000002 04 02 02 01 04", 2, 0, ""),
        ("04 fde9 005a 0a000002 06 02 04 41 02 0001", 2, 0, ""),
        ("04 fde9 005a 0a000002 00 00", 2, 0, ""),
    ] {
        let expected = Notification::with(code, subcode, &hex(data));
        assert_eq!(read(&framed(1, body)), Err(expected), "{body}");
    }
}

#[test]
fn a_bad_header_is_answered_and_an_incomplete_one_waited_for() {
    let whole = keepalive();
    for end in 0..whole.len() {
        assert_eq!(length(&whole[..end]), Ok(None), "{end}");
    }
    assert_eq!(length(&whole), Ok(Some(19)));
    let with = |place: usize, octets: &[u8]| {
        let mut message = whole.clone();
        message.splice(place..place + octets.len(), octets.iter().copied());
        length(&message)
    };
    assert_eq!(with(3, &[0]), Err(Notification::new(1, 1)));
    assert_eq!(with(16, &[0, 18]), Err(Notification::with(1, 2, &[0, 18])));
    assert_eq!(with(16, &[0, 20]), Err(Notification::with(1, 2, &[0, 20])));
    assert_eq!(with(16, &[0x10, 1, 2]), Err(Notification::with(1, 2, &[0x10, 1])));
    assert_eq!(with(18, &[1]), Err(Notification::with(1, 2, &[0, 19])));
    assert_eq!(with(18, &[6]), Err(Notification::with(1, 3, &[6])));
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn attributes() -> Attributes {
    Attributes {
        as_path: vec![4_200_000_001, 65_001],
        med: Some(100),
        local_pref: Some(200),
        communities: BTreeSet::from([0xffff_0000, 0xfde9_0001]),
        large_communities: BTreeSet::from([[65_536, 1, 2]]),
    }
}

#[test]
fn an_announcement_has_the_octets_of_the_rfcs() {
    let (attributes, global) = (attributes(), "2001:db8::1".parse().unwrap());
    let hop = NextHop::V4("10.0.0.1".parse().unwrap());
    let v4 = Announcement { attributes: &attributes, next_hop: hop, four_octet_as: true };
    let common = "40 01 01 00  40 02 0a 02 02 fa56ea01 0000fde9";
    let rest = "80 04 04 00000064  40 05 04 000000c8  c0 08 08 fde90001 ffff0000
        c0 20 0c 00010000 00000001 00000002";
    let prefixes = [net("192.0.2.1/32"), net("198.51.100.0/23")];
    let body = format!("0000 0040 {common} 40 03 04 0a000001 {rest} 20 c0000201 17 c63364");
    assert_eq!(v4.encode(Family::V4, &prefixes), Ok(vec![framed(2, &body)]));

    // To a peer with short AS numbers.
    let body = "0000 0049 40 01 01 00  40 02 06 02 02 5ba0 fde9  40 03 04 0a000001
        80 04 04 00000064  40 05 04 000000c8  c0 08 08 fde90001 ffff0000
        c0 11 0a 02 02 fa56ea01 0000fde9  c0 20 0c 00010000 00000001 00000002  20 c0000201";
    let short = Announcement { four_octet_as: false, ..v4 };
    let expected = framed(2, body);
    assert_eq!(short.encode(Family::V4, &prefixes[..1]), Ok(vec![expected]));

    let next_hop = NextHop::V6 { global, link_local: None };
    let v6 = Announcement { next_hop, ..v4 };
    let hop = "20010db8 00000000 00000000 00000001";
    let nlri = "80 20010db8 00000000 00000000 00000053";
    let reach = format!("90 0e 0026 0002 01 10 {hop} 00 {nlri}");
    let body = format!("0000 0063 {reach} {common} {rest}");
    assert_eq!(v6.encode(Family::V6, &[net("2001:db8::53/128")]), Ok(vec![framed(2, &body)]));

    // IPv4 over IPv6, to a peer on the same link.
    let link_local = Some("fe80::1".parse().unwrap());
    let both = Announcement { next_hop: NextHop::V6 { global, link_local }, ..v4 };
    let reach =
        format!("90 0e 002a 0001 01 20 {hop} fe800000 00000000 00000000 00000001 00 20 c0000201");
    let body = format!("0000 0067 {reach} {common} {rest}");
    assert_eq!(both.encode(Family::V4, &prefixes[..1]), Ok(vec![framed(2, &body)]));
}

#[test]
fn withdrawals_and_the_end_of_the_first_routes_have_the_octets_of_the_rfcs() {
    assert_eq!(
        withdrawals(Family::V4, &[net("192.0.2.1/32")]),
        [framed(2, "0005 20c0000201 0000")]
    );
    let body = "0000 0010 90 0f 000c 0002 01 40 20010db800000001";
    assert_eq!(withdrawals(Family::V6, &[net("2001:db8:0:1::/64")]), [framed(2, body)]);
    assert_eq!(end_of_rib(Family::V4), framed(2, "0000 0000"));
    assert_eq!(end_of_rib(Family::V6), framed(2, "0000 0007 90 0f 0003 0002 01"));
    for family in [Family::V4, Family::V6] {
        let received = Received { end_of_rib: Some(family), ..Received::default() };
        assert_eq!(read(&end_of_rib(family)), Ok(Incoming::Update(received)));
        assert!(withdrawals(family, &[]).is_empty());
    }
}

#[test]
fn ten_thousand_routes_fill_messages_to_the_last_octets() {
    for (family, step) in [(Family::V4, "10.0.0.0/32"), (Family::V6, "2001:db8::/128")] {
        let first = net(step).addr();
        let prefixes: Vec<IpNet> = (0..10_000_u32)
            .map(|number| match first {
                IpAddr::V4(ip) => {
                    IpNet::from(IpAddr::from(Ipv4Addr::from_bits(ip.to_bits() + number)))
                }
                IpAddr::V6(ip) => IpNet::from(IpAddr::from(Ipv6Addr::from_bits(
                    ip.to_bits() + u128::from(number),
                ))),
            })
            .collect();
        let attributes = attributes();
        let next_hop = match family {
            Family::V4 => NextHop::V4("10.0.0.1".parse().unwrap()),
            Family::V6 => NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None },
        };
        let routes = Announcement { attributes: &attributes, next_hop, four_octet_as: true };
        let announced = routes.encode(family, &prefixes).unwrap();
        let withdrawn = withdrawals(family, &prefixes);
        let longest = if family == Family::V4 { 5 } else { 17 };
        for (messages, is_announced) in [(&announced, true), (&withdrawn, false)] {
            let mut count = 0;
            for (number, message) in messages.iter().enumerate() {
                assert_eq!(length(message), Ok(Some(message.len())));
                let full = message.len() > LARGEST - longest;
                assert!(full || number + 1 == messages.len(), "{number}: {}", message.len());
                let Ok(Incoming::Update(received)) = read(message) else { panic!("{number}") };
                count += if is_announced { received.announced } else { received.withdrawn };
            }
            assert_eq!(count, prefixes.len(), "{family:?}");
        }
    }
}

#[test]
fn attributes_that_fill_a_message_alone_are_refused() {
    let communities: BTreeSet<u32> = (0..1_020).collect();
    let attributes = Attributes { communities, ..Attributes::default() };
    let next_hop = NextHop::V4("10.0.0.1".parse().unwrap());
    let routes = Announcement { attributes: &attributes, next_hop, four_octet_as: true };
    assert_eq!(routes.encode(Family::V4, &[net("192.0.2.1/32")]), Err(Oversized));
}

#[test]
fn the_lengths_in_an_update_are_checked() {
    for (body, code, subcode) in [
        ("0005 0000", 3, 1),
        ("0000 0001", 3, 1),
        ("0000 0003 40 01 05", 3, 1),
        ("0000 0000 21 c000020100", 3, 10),
        ("0002 20c0 0000", 3, 10),
        ("0000 0006 80 0e 03 0001 01", 3, 9),
        ("0000 0008 80 0f 05 0001 01 20c0", 3, 9),
    ] {
        assert_eq!(read(&framed(2, body)), Err(Notification::new(code, subcode)), "{body}");
    }
    // Of a family that is not announced nothing is known.
    let other = read(&framed(2, "0000 000a 80 0e 07 0019 46 00 00 aabb"));
    assert_eq!(other, Ok(Incoming::Update(Received::default())));
}

#[test]
fn notifications_say_in_words_why_a_session_ends() {
    for (notification, text) in [
        (Notification::HOLD_TIMER_EXPIRED, "hold timer expired (4/0)"),
        (Notification::with(2, 2, &[0xfd, 0xe9]), "OPEN: bad peer AS (2/2)"),
        (Notification::BFD_DOWN, "cease: BFD down (6/10)"),
        (Notification::unexpected_message(3), "unexpected message in Established (5/3)"),
        (Notification::shutdown(""), "cease: administrative shutdown (6/2)"),
        (
            Notification::shutdown("maintenance\u{7}, see \"OPS-1\""),
            r#"cease: administrative shutdown (6/2): "maintenance , see \"OPS-1\"""#,
        ),
        (
            Notification::shutdown("back at 12:00").hard_reset(),
            "cease: hard reset (6/9): cease: administrative shutdown (6/2): \"back at 12:00\"",
        ),
        (Notification::new(99, 1), "unknown error (99/1)"),
    ] {
        assert_eq!(notification.to_string(), text);
        let octets = super::notification(&notification);
        assert_eq!(read(&octets), Ok(Incoming::Notification(notification)));
    }
    let long = Notification::shutdown(&"\u{00e9}".repeat(200));
    assert_eq!(long.data.len(), 255, "254 octets of text: no half of a character");
    assert!(Notification::new(6, 2).hard_reset().is_hard_reset());
}

#[test]
fn a_route_refresh_names_a_family_and_its_beginning_and_end() {
    for family in [Family::V4, Family::V6] {
        for (end, mark) in [(false, Mark::Begin), (true, Mark::End)] {
            let expected = RouteRefresh { family: Some(family), mark };
            assert_eq!(read(&route_refresh(family, end)), Ok(Incoming::RouteRefresh(expected)));
        }
    }
    let asked = RouteRefresh { family: Some(Family::V6), mark: Mark::Request };
    assert_eq!(read(&framed(5, "0002 00 01")), Ok(Incoming::RouteRefresh(asked)));
    let other = RouteRefresh { family: None, mark: Mark::Unknown };
    assert_eq!(read(&framed(5, "0019 07 46")), Ok(Incoming::RouteRefresh(other)));
    let short = framed(5, "0002 00");
    assert_eq!(read(&short), Err(Notification::with(7, 1, &short)));
}

proptest! {
    #[test]
    fn no_octets_of_a_peer_are_too_much(
        kind in 1..6_u8,
        body in prop::collection::vec(any::<u8>(), 0..200),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let _ = length(&noise);
        let _ = read(&noise);
        let octets = message(kind, |to| to.extend(&body));
        if let Ok(Some(whole)) = length(&octets) {
            prop_assert_eq!(whole, octets.len());
        }
        // What is understood can be said in words, and is the same when it was written again.
        match read(&octets) {
            Ok(Incoming::Open(it)) => {
                let again = read(&open(&it));
                prop_assert!(it.capabilities.graceful_restart.is_some() || again == Ok(Incoming::Open(it)));
            }
            Ok(Incoming::Notification(it)) => {
                let _ = it.to_string();
                prop_assert_eq!(notification(&it), octets);
            }
            Ok(_) => {}
            Err(answer) => prop_assert!(!answer.to_string().starts_with("unknown")),
        }
    }

    #[test]
    fn what_is_announced_is_counted_alike_by_the_decoder(
        bits in prop::collection::vec((any::<u32>(), 0..=32_u8), 0..2000),
        communities in 0..700_u32,
    ) {
        let prefixes: Vec<IpNet> = bits
            .into_iter()
            .map(|(ip, length)| IpNet::new(Ipv4Addr::from_bits(ip).into(), length).unwrap())
            .collect();
        let communities = (0..communities).collect();
        let attributes = Attributes { communities, ..attributes() };
        let next_hop = NextHop::V4(Ipv4Addr::LOCALHOST);
        let routes = Announcement { attributes: &attributes, next_hop, four_octet_as: false };
        let mut count = 0;
        for octets in routes.encode(Family::V4, &prefixes).unwrap() {
            prop_assert_eq!(length(&octets), Ok(Some(octets.len())));
            let Ok(Incoming::Update(received)) = read(&octets) else { panic!() };
            count += received.announced;
        }
        prop_assert_eq!(count, prefixes.len());
    }
}
