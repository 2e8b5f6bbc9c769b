//! What the edge knows of links, and how soon.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ipnet::IpNet;
use leasehold::clock;
use leasehold::net::rtnl::links::Links;

use crate::world::{Speaker, Test, World, eth0, eventually, interface, run};

pub const TESTS: &[Test] = &[
    ("a_lost_carrier_is_seen_and_the_vip_is_gone_at_once", carrier_lost),
    ("links_addresses_and_gateways_are_kept_current", links_are_current),
    ("by_which_of_two_links_in_one_subnet_hosts_are_answered_is_what_the_kernel_does", ways),
    ("a_dump_that_changes_come_between_misses_nothing", interrupted),
    ("what_leads_out_of_a_node_is_told_from_what_is_for_its_containers", uplinks),
];

fn carrier(links: &Links) -> bool {
    links.get(&eth0()).is_some_and(|link| link.carrier)
}

fn carrier_lost(world: &World) -> Result<()> {
    let vip: IpAddr = Ipv4Addr::new(192, 0, 2, 100).into();
    world.node.speak(|speaker| async move {
        let mut links = speaker.edge.links.clone();
        let mut worst = Duration::ZERO;
        for _ in 0..5 {
            links.wait_for(carrier).await?;
            speaker.serve(&[vip], Duration::from_secs(20));
            speaker.have(&[vip], true).await?;
            // The other end of the cable goes down. The runtime is not blocked meanwhile.
            let lan = &world.lan;
            let cut = async {
                let start = clock::now();
                lan.ip("link set node down")?;
                Ok::<_, anyhow::Error>((start, clock::now()))
            };
            let (start, done) = cut.await?;
            links.wait_for(|links| !carrier(links)).await?;
            let seen = clock::now();
            speaker.serve(&[], Duration::ZERO);
            speaker.have(&[vip], false).await?;
            let gone = clock::now();
            println!(
                "cut within {:?}, seen {:?} and VIP gone {:?} after it",
                done.saturating_since(start),
                seen.saturating_since(done),
                gone.saturating_since(done),
            );
            worst = worst.max(gone.saturating_since(done));
            lan.ip("link set node up")?;
        }
        println!("{worst:?} at most");
        Ok(())
    })
}

async fn becomes(
    speaker: &Speaker,
    what: &str,
    condition: impl FnMut(&Links) -> bool,
) -> Result<()> {
    let mut links = speaker.edge.links.clone();
    let waited = tokio::time::timeout(Duration::from_secs(2), links.wait_for(condition)).await;
    waited.with_context(|| format!("{what}: {:?}", *speaker.edge.links.borrow()))??;
    Ok(())
}

fn links_are_current(world: &World) -> Result<()> {
    let node = &world.node;
    let gateway: IpAddr = Ipv4Addr::new(192, 0, 2, 254).into();
    let gateway_v6: IpAddr = "fd00::ff".parse()?;
    let mac = node.mac()?;
    node.speak(|speaker| async move {
        let links = speaker.edge.links.borrow().clone();
        let link = links.get(&eth0()).context("eth0 is missing")?;
        ensure!(link.mac == mac && link.carrier && !link.loopback, "{link:?}");
        ensure!(link.kind.as_deref() == Some("veth") && link.master.is_none(), "{link:?}");
        ensure!(link.reaches(gateway) && link.reaches(gateway_v6), "{link:?}");
        ensure!(!link.reaches(Ipv4Addr::new(198, 51, 100, 1).into()), "{link:?}");
        ensure!(link.link_local().is_some() && link.gateways.is_empty(), "{link:?}");
        let lo = links.get(&interface("lo")).context("lo is missing")?;
        ensure!(lo.loopback, "{lo:?}");

        let has = |ip: IpAddr| {
            move |links: &Links| links.get(&eth0()).is_some_and(|link| link.gateways.contains(&ip))
        };
        node.ip("route add default via 192.0.2.254")?;
        becomes(&speaker, "an IPv4 gateway", has(gateway)).await?;
        node.ip("-6 route add default via fd00::ff")?;
        becomes(&speaker, "an IPv6 gateway", has(gateway_v6)).await?;
        node.ip("link set eth0 down")?;
        becomes(&speaker, "no gateway without the link", |links| {
            links.get(&eth0()).is_some_and(|link| link.gateways.is_empty() && !link.carrier)
        })
        .await?;
        node.ip("link set eth0 up")?;
        node.ip("route add default nexthop via 192.0.2.254 nexthop via 192.0.2.253")?;
        becomes(&speaker, "one of two gateways", has(gateway)).await?;

        world.attach(node, "eth1", "second", None)?;
        node.ip("link add br7 type bridge")?;
        node.ip("link set eth1 master br7")?;
        becomes(&speaker, "a port", |links| {
            let bridge = links.get(&interface("br7")).map(|link| link.index);
            let port = links.get(&interface("eth1"));
            bridge.is_some() && port.is_some_and(|port| port.master == bridge)
        })
        .await?;
        node.ip("link set eth1 nomaster")?;
        becomes(&speaker, "no port", |links| {
            links.get(&interface("eth1")).is_some_and(|link| link.master.is_none())
        })
        .await?;
        node.ip("link set eth1 down")?;
        node.ip("link set eth1 name lan1")?;
        becomes(&speaker, "renamed", |links| {
            links.get(&interface("lan1")).is_some() && links.get(&interface("eth1")).is_none()
        })
        .await?;
        node.ip("link del lan1")?;
        becomes(&speaker, "deleted", |links| links.get(&interface("lan1")).is_none()).await?;
        many_changes(world, &speaker).await
    })
}

/// Whether the kernel answers an ARP request of the client for the address of an interface of the node.
#[expect(clippy::disallowed_methods, reason = "on a thread of its own")]
fn answers(world: &World, ip: &str) -> Result<bool> {
    world.client.ip("neigh flush dev eth0")?;
    // What it sends makes it ask; whether that arrives does not matter.
    world.client.enter(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..10 {
            let _ = socket.send_to(&[0], (ip, 9));
            std::thread::sleep(Duration::from_millis(50));
            if world.client.neighbour(ip.parse()?)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

fn ways(world: &World) -> Result<()> {
    const BOTH: &str = "192.0.2.0/24";
    let node = &world.node;
    world.attach(node, "eth1", "second", None)?;
    node.ip("addr add 192.0.2.51/24 dev eth1")?;
    // Each answers for what it has alone, as a link with VIPs does.
    for (interface, filter) in [("all", "0"), ("eth0", "1"), ("eth1", "1")] {
        let conf = format!("/proc/sys/net/ipv4/conf/{interface}");
        node.write(&format!("{conf}/rp_filter"), filter)?;
        node.write(&format!("{conf}/arp_ignore"), "1")?;
    }
    let said = |name: &'static str, bypassed: bool, unanswered: bool| {
        move |links: &Links| {
            links.get(&interface(name)).is_some_and(|link| {
                let lists = |nets: &[IpNet]| nets.iter().any(|net| net.to_string() == BOTH);
                lists(&link.detours.bypassed) == bypassed
                    && lists(&link.detours.unanswered) == unanswered
            })
        }
    };
    node.speak(|speaker| async move {
        // The first route was there first.
        becomes(&speaker, "eth0 has the first route", said("eth0", false, false)).await?;
        becomes(&speaker, "eth1 has the second", said("eth1", true, true)).await?;
        ensure!(answers(world, "192.0.2.1")? && !answers(world, "192.0.2.51")?);

        node.ip("route del 192.0.2.0/24 dev eth0")?;
        node.ip("route add 192.0.2.0/24 dev eth0 src 192.0.2.1 metric 200")?;
        becomes(&speaker, "eth0 has the worse route", said("eth0", true, true)).await?;
        becomes(&speaker, "eth1 has the better one", said("eth1", false, false)).await?;
        ensure!(!answers(world, "192.0.2.1")? && answers(world, "192.0.2.51")?);

        // A route that is read again says so at once; a setting is looked at now and then.
        node.write("/proc/sys/net/ipv4/conf/all/rp_filter", "2")?;
        node.ip("route change 192.0.2.0/24 dev eth0 src 192.0.2.1 metric 200 mtu 1400")?;
        becomes(&speaker, "loose", said("eth0", true, false)).await?;
        ensure!(answers(world, "192.0.2.1")? && answers(world, "192.0.2.51")?);

        node.ip("link set eth1 down")?;
        becomes(&speaker, "alone", said("eth0", false, false)).await?;
        Ok(())
    })
}

fn uplinks(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        let leads_out = |name: &'static str, expected: bool| {
            move |links: &Links| {
                links.get(&interface(name)).is_some_and(|link| links.leads_out(link) == expected)
            }
        };
        becomes(&speaker, "the veth out of a namespace", leads_out("eth0", true)).await?;
        node.ip("link add tunnel7 type vxlan id 7 dev eth0 dstport 4789")?;
        becomes(&speaker, "a tunnel", leads_out("tunnel7", false)).await?;
        node.ip("link add veth7 type veth peer name veth8")?;
        becomes(&speaker, "a pair within", leads_out("veth7", false)).await?;
        node.ip("link add br7 type bridge")?;
        node.ip("link set veth7 master br7")?;
        becomes(&speaker, "a bridge of containers", leads_out("br7", false)).await?;
        node.ip("link add link eth0 name lan7 type macvlan mode bridge")?;
        becomes(&speaker, "a share of a link", leads_out("lan7", false)).await?;

        node.ip("addr add 198.51.100.1/24 dev br7")?;
        node.ip("link set veth8 up")?;
        node.ip("link set veth7 up")?;
        node.ip("link set br7 up")?;
        let default = |name: &'static str, expected: bool| {
            move |links: &Links| {
                links.get(&interface(name)).is_some_and(|link| link.default_routes.v4 == expected)
            }
        };
        node.ip("route add default via 198.51.100.254 metric 200")?;
        becomes(&speaker, "a bridge with the default route", leads_out("br7", true)).await?;
        becomes(&speaker, "the default route", default("br7", true)).await?;
        node.ip("route add default via 192.0.2.254 metric 100")?;
        becomes(&speaker, "a better default route", default("eth0", true)).await?;
        becomes(&speaker, "no default route any more", default("br7", false)).await?;
        becomes(&speaker, "a bridge that has another", leads_out("br7", true)).await?;
        node.ip("route del default via 192.0.2.254 metric 100")?;
        becomes(&speaker, "the default route again", default("br7", true)).await?;
        node.ip("route replace default dev br7 metric 200")?;
        becomes(&speaker, "a default route without a gateway", default("br7", true)).await
    })
}

/// More events than the socket holds: what was lost is read again.
async fn many_changes(world: &World, speaker: &Speaker) -> Result<()> {
    let mut batch = String::new();
    for number in 0..30_000 {
        let (add, octet) = (number % 2 == 0, number / 2 % 250 + 1);
        let verb = if add { "add" } else { "del" };
        writeln!(batch, "addr {verb} 10.9.0.{octet}/32 dev eth0")?;
    }
    batch.push_str("addr add 10.9.1.1/32 dev eth0\n");
    let file = std::env::temp_dir().join(format!("leasehold-kernel-{}", std::process::id()));
    std::fs::write(&file, batch)?;
    // Blocks this thread, and with it the reader of the events.
    let done = world.node.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file)?;
    done?;
    let last: IpAddr = Ipv4Addr::new(10, 9, 1, 1).into();
    eventually("the last change is known, and only that", Duration::from_secs(5), || {
        let links = speaker.edge.links.borrow();
        let link = links.get(&eth0()).context("eth0")?;
        let known: Vec<IpAddr> = link
            .addresses
            .iter()
            .map(|address| address.ip)
            .filter(|ip| matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10))
            .collect();
        Ok(known == [last])
    })
    .await?;
    Ok(())
}

/// Each part of a dump begins by number where the last one ended: what comes or goes before that shifts rows.
fn interrupted(world: &World) -> Result<()> {
    const ADDRESSES: u32 = 800;
    let all: BTreeSet<IpAddr> =
        (0..ADDRESSES).map(|n| Ipv4Addr::from_bits(0x0a08_0000 + n).into()).collect();
    let mut batch = String::new();
    for ip in &all {
        writeln!(batch, "addr add {ip}/32 dev eth0")?;
    }
    let file = std::env::temp_dir().join(format!("leasehold-dumps-{}", std::process::id()));
    std::fs::write(&file, batch)?;
    let added = world.node.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file)?;
    added?;
    world.node.speak(|speaker| async move {
        let Speaker { edge, .. } = &speaker;
        let (stop, name) = (Arc::new(AtomicBool::new(false)), world.node.name().to_owned());
        let stopped = Arc::clone(&stop);
        let changes = std::thread::spawn(move || -> Result<u32> {
            let (mut changes, end) = (0, clock::now() + Duration::from_secs(20));
            while !stopped.load(Ordering::Relaxed) && clock::now() < end {
                // One of a link's scope is put before all others.
                for change in ["add", "del"] {
                    let address = "10.7.0.1/32 dev eth0 scope link";
                    let arguments = format!("-n {name} addr {change} {address}");
                    run("ip", &arguments.split_whitespace().collect::<Vec<_>>())?;
                    changes += 1;
                }
            }
            Ok(changes)
        });
        let mut missed = Vec::new();
        for dump in 0..300 {
            let rows = edge.netlink.addresses().await?;
            let of_all: Vec<IpAddr> =
                rows.iter().map(|row| row.ip).filter(|ip| all.contains(ip)).collect();
            let found: BTreeSet<IpAddr> = of_all.iter().copied().collect();
            if found.len() < all.len() || of_all.len() > all.len() {
                missed.push((dump, found.len(), of_all.len()));
            }
        }
        stop.store(true, Ordering::Relaxed);
        let changes = changes.join().map_err(|_| anyhow!("the changes panicked"))??;
        println!("300 dumps, {changes} changes");
        ensure!(missed.is_empty(), "(dump, addresses, rows) of {ADDRESSES}: {missed:?}");
        Ok(())
    })
}
