//! Whether kube-proxy has the rules for an address and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use leasehold::proxy::rules::Tables;
use leasehold_core::desired::{Protocol, ServicePort};
use leasehold_core::election::Rules;

use crate::world::{Namespace, Test, World};

pub const TESTS: &[Test] =
    &[("rules_are_found_by_address_and_port_and_unknown_without_tables", found_by_key)];

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100));

/// As kube-proxy makes them (`setupNFTables` in `pkg/proxy/nftables/proxier.go`).
fn tables(node: &Namespace) -> Result<()> {
    for family in ["ip", "ip6"] {
        let key = format!("type {family}v_addr . inet_proto . inet_service : verdict");
        let key = key.replace("ipv_addr", "ipv4_addr").replace("ip6v_addr", "ipv6_addr");
        for statement in [
            format!("add table {family} kube-proxy"),
            format!("add map {family} kube-proxy service-ips {{ {key} ; }}"),
            format!("add map {family} kube-proxy no-endpoint-services {{ {key} ; }}"),
            format!("add chain {family} kube-proxy external"),
        ] {
            node.nft(&[&statement])?;
        }
    }
    Ok(())
}

fn element(node: &Namespace, what: &str, family: &str, map: &str, element: &str) -> Result<()> {
    node.nft(&[&format!("{what} element {family} kube-proxy {map} {{ {element} }}")])?;
    Ok(())
}

fn found_by_key(world: &World) -> Result<()> {
    let node = &world.node;
    let port = |protocol, port| ServicePort { protocol, port };
    let (http, dns) = (port(Protocol::Tcp, 80), port(Protocol::Udp, 53));
    let mut looking = Tables::default();
    let mut is = |ports: &[(IpAddr, ServicePort)], expected: Rules| {
        let found = node.enter(|| Ok(looking.look(ports, false)))?;
        ensure!(found == expected, "{ports:?} are {found:?} and not {expected:?}");
        Ok(())
    };
    is(&[(V4, http)], Rules::Unknown)?;
    tables(node)?;
    is(&[(V4, http)], Rules::Absent)?;
    is(&[(V6, http)], Rules::Absent)?;
    is(&[], Rules::Unknown)?;

    let leads = "192.0.2.100 . tcp . 80 : goto external";
    element(node, "add", "ip", "service-ips", leads)?;
    is(&[(V4, http)], Rules::Present)?;
    is(&[(V4, dns)], Rules::Absent)?;
    is(&[(V4, http), (V4, dns)], Rules::Absent)?;
    is(&[(V4, http), (V6, http)], Rules::Absent)?;
    // What has no endpoint is refused, and that is a rule.
    let refused = "192.0.2.100 . udp . 53 : goto external";
    element(node, "add", "ip", "no-endpoint-services", refused)?;
    element(node, "add", "ip6", "service-ips", "fd00::100 . tcp . 80 : goto external")?;
    is(&[(V4, http), (V4, dns), (V6, http)], Rules::Present)?;

    element(node, "delete", "ip", "service-ips", "192.0.2.100 . tcp . 80")?;
    is(&[(V4, http)], Rules::Absent)?;
    node.nft(&["delete table ip kube-proxy"])?;
    is(&[(V4, http)], Rules::Unknown)?;
    // A kube-proxy of this mode has yet to make it, or something has taken it away.
    let expected = |port| node.enter(|| Ok(Tables::default().look(&[(V4, port)], true)));
    ensure!(expected(http)? == Rules::Absent, "rules are there without a table");
    Ok(())
}
