//! Answers that leave by the interface that carries their address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::clock;
use leasehold::datapath::return_path::{Returned, TABLE};
use leasehold::host::StateFolder;
use leasehold_core::desired::ReturnPath;
use leasehold_core::election::{
    BUCKETS, Forwarding, Layout, Member, Order, Serving, SpreadAddress, Spreading, Way,
};
use pnet_base::MacAddr;

use crate::hosts::{Reached, Servers, pings, tcp};
use crate::pods::{DNS, HTTP, POD, Pod, ask, connect, flow, repeats, who};
use crate::world::{Namespace, Speaker, Test, World, eventually, interface};

pub const TESTS: &[Test] = &[
    ("answers_leave_by_the_interface_that_carries_the_address", reached),
    ("a_return_path_changes_no_way_of_pods_and_of_the_node_itself", within),
    ("answers_leave_by_one_of_two_links_in_one_subnet", one_subnet),
    ("each_of_two_links_has_a_return_path_of_its_own", two_links),
    ("a_return_path_leaves_nothing", nothing_left),
    ("a_return_path_that_somebody_removes_is_put_back", put_back),
    ("a_return_path_outlives_a_restart_and_what_is_left_is_removed", restart),
    ("a_return_path_leaves_tables_and_marks_of_others_alone", taken),
    ("a_return_path_without_a_gateway_is_told", without_gateway),
    ("what_is_forwarded_to_a_former_owner_is_answered_by_the_return_path", handed_over),
    ("what_an_owner_spreads_over_other_nodes_is_answered_by_the_return_path", spread),
];

/// The addresses of the Service, on the second link.
const VIPS: [&str; 2] = ["198.51.100.100", "fd02::100"];
const SOON: Duration = Duration::from_secs(30);
/// The number of the pod.
const POD_NUMBER: u8 = 9;
const LONG: Duration = Duration::from_secs(60);

fn vips() -> Result<[IpAddr; 2]> {
    let [v4, v6] = VIPS;
    Ok([v4.parse()?, v6.parse()?])
}

/// A node with two links: `eth0`, by which its default route leads, and `eth1`, behind whose router is a client. Reverse
/// path filtering is strict.
struct Site {
    /// The router of the second link.
    router: Namespace,
    /// The client behind it.
    far: Namespace,
    _pod: Pod,
}

impl Site {
    fn new(world: &World) -> Result<Self> {
        let node = &world.node;
        for setting in
            ["ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=1"]
        {
            let (path, value) = setting.split_once('=').context("no value")?;
            node.write(&format!("/proc/sys/net/{path}"), value)?;
        }
        let router = world.behind(node, "router", "eth1")?;
        let far = world.behind(&router, "far", "eth1")?;
        for (host, link, ends) in [
            (node, "eth1", ["198.51.100.1/24", "fd02::1/64"]),
            (&router, "eth0", ["198.51.100.254/24", "fd02::254/64"]),
            (&router, "eth1", ["203.0.113.254/24", "fd03::254/64"]),
            (&far, "eth0", ["203.0.113.2/24", "fd03::2/64"]),
        ] {
            let [v4, v6] = ends;
            host.ip(&format!("addr add {v4} dev {link}"))?;
            host.ip(&format!("addr add {v6} dev {link} nodad"))?;
        }
        router.write("/proc/sys/net/ipv4/ip_forward", "1")?;
        router.write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
        for (host, route) in [
            (&far, "default via 203.0.113.254"),
            (&far, "default via fd03::254"),
            (node, "default via 192.0.2.2 dev eth0"),
            (node, "default via fd00::2 dev eth0"),
            (node, "default via 198.51.100.254 dev eth1 metric 5000"),
            (node, "default via fd02::254 dev eth1 metric 5000"),
        ] {
            host.ip(&format!("route add {route}"))?;
        }
        let pod = pod_behind(world, node)?;
        Ok(Self { router, far, _pod: pod })
    }
}

/// A pod behind the node, and what kube-proxy makes of its Service.
fn pod_behind(world: &World, node: &Namespace) -> Result<Pod> {
    let pod = world.behind(node, "pod", "pod0")?;
    for (end, link, last) in [(node, "pod0", 1), (&pod, "eth0", 2)] {
        end.ip(&format!("addr add 10.0.9.{last}/24 dev {link}"))?;
        end.ip(&format!("addr add fd01:9::{last}/64 dev {link} nodad"))?;
    }
    pod.ip("route add default via 10.0.9.1")?;
    pod.ip("route add default via fd01:9::1")?;
    for (vip, family, to) in [
        (VIPS[0], "ip", format!("10.0.9.2:{POD}")),
        (VIPS[1], "ip6", format!("[fd01:9::2]:{POD}")),
        ("192.0.2.100", "ip", format!("10.0.9.2:{POD}")),
    ] {
        let rules = |hook: &str| {
            format!(
                "chain {hook} {{ type nat hook {hook} priority -100;
                   {family} daddr {vip} tcp dport {HTTP} meta mark set meta mark | 0x4000 dnat to {to}
                   {family} daddr {vip} udp dport {DNS} dnat to {to}
                 }}"
            )
        };
        let name = vip.replace([':', '.'], "-");
        node.nft(&[&format!(
            "table {family} kube-proxy-{name} {{\n{}\n{}\n}}",
            rules("prerouting"),
            rules("output")
        )])?;
    }
    Pod::start(pod, POD_NUMBER)
}

/// Serves these addresses, each on its interface.
fn serve(speaker: &Speaker, vips: &[(&str, IpAddr)], return_path: ReturnPath) {
    let until = clock::now() + LONG;
    speaker.serving.send_modify(|serving| {
        let generation = serving.generation + 1;
        *serving = Serving { generation, complete: true, ..Serving::default() };
        for (name, ip) in vips {
            let mut vip = crate::world::served(&interface(name), until);
            vip.return_path = return_path;
            serving.vips.insert(*ip, vip);
        }
    });
}

fn on<'a>(name: &'a str, vips: &[IpAddr]) -> Vec<(&'a str, IpAddr)> {
    vips.iter().map(|ip| (name, *ip)).collect()
}

/// Waits until the view is as `condition` wants it.
async fn seen(speaker: &Speaker, condition: impl FnMut(&Returned) -> bool) -> Result<Returned> {
    let mut view = speaker.return_paths.returned.clone();
    let seen = tokio::time::timeout(SOON, view.wait_for(condition)).await;
    Ok(seen.with_context(|| format!("{:?}", *speaker.return_paths.returned.borrow()))??.clone())
}

/// Serves these addresses so that answers leave by these interfaces, and waits until that is in place.
async fn serve_symmetric(speaker: &Speaker, vips: &[(&str, IpAddr)]) -> Result<Returned> {
    serve(speaker, vips, ReturnPath::Symmetric);
    let wanted: BTreeMap<IpAddr, _> =
        vips.iter().map(|(name, ip)| (*ip, interface(name))).collect();
    let seen = seen(speaker, |view| view.applied == wanted).await?;
    ensure!(seen.failure.is_none(), "{:?}", seen.failure);
    let all: Vec<IpAddr> = vips.iter().map(|(_, ip)| *ip).collect();
    speaker.have(&all, true).await?;
    Ok(seen)
}

/// The client reaches the pod, or does not.
async fn reaches(client: &Namespace, ip: IpAddr, expected: Option<u8>) -> Result<()> {
    if expected.is_none() {
        let found = who(client, ip)?;
        ensure!(found.is_none(), "{ip}: pod {found:?} answers");
        return Ok(());
    }
    let reached = || Ok(who(client, ip)? == expected);
    eventually(&format!("{ip} leads to {expected:?}"), SOON, reached).await?;
    Ok(())
}

fn reached(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let _servers = Servers::start(&world.node, &[90], &[])?;
    world.node.speak(async |speaker| {
        serve(&speaker, &on("eth1", &vips), ReturnPath::Default);
        speaker.have(&vips, true).await?;
        for vip in vips {
            reaches(&site.far, vip, None).await?;
            ensure!(!pings(&site.far, vip)?, "{vip} answers an echo request");
            ensure!(tcp(&site.far, vip, 90)? == Reached::Silent, "{vip}: the node answers");
            ensure!(who(&site.router, vip)? == Some(POD_NUMBER), "{vip}: nor to the router");
        }
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        for vip in vips {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
            let flow = flow(&site.far, vip)?;
            eventually("UDP", SOON, || Ok(ask(&flow) == Some(POD_NUMBER))).await?;
            eventually("an echo", SOON, || pings(&site.far, vip)).await?;
            for (port, expected) in [(90, Reached::Yes), (91, Reached::Refused)] {
                let found = tcp(&site.far, vip, port)?;
                ensure!(found == expected, "{vip}: port {port} is {found:?}");
            }
            ensure!(who(&site.router, vip)? == Some(POD_NUMBER), "{vip}: not to the router");
        }
        // As `wg-quick` sets it: then the sources of pods' answers are looked up with their mark, too.
        world.node.write("/proc/sys/net/ipv4/conf/all/src_valid_mark", "1")?;
        for vip in vips {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
        }
        // Without the settings it is as before.
        world.node.write("/proc/sys/net/ipv4/conf/all/src_valid_mark", "0")?;
        let setting = "/proc/sys/net/ipv4/conf/eth1/src_valid_mark";
        ensure!(read(&world.node, setting)? == "1", "src_valid_mark is not set");
        world.node.write(setting, "0")?;
        reaches(&site.far, vips[0], None).await?;
        Ok(())
    })
}

fn within(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let other = world.behind(&world.node, "other", "pod1")?;
    for (end, link, last) in [(&world.node, "pod1", 1), (&other, "eth0", 2)] {
        end.ip(&format!("addr add 10.0.8.{last}/24 dev {link}"))?;
        end.ip(&format!("addr add fd01:8::{last}/64 dev {link} nodad"))?;
    }
    other.ip("route add default via 10.0.8.1")?;
    other.ip("route add default via fd01:8::1")?;
    world.node.speak(async |speaker| {
        serve(&speaker, &on("eth1", &vips), ReturnPath::Default);
        speaker.have(&vips, true).await?;
        let reached_before = |vip: IpAddr| -> Result<[Option<u8>; 2]> {
            Ok([who(&other, vip)?, who(&world.node, vip)?])
        };
        let before = [reached_before(vips[0])?, reached_before(vips[1])?];
        ensure!(before == [[Some(POD_NUMBER); 2]; 2], "{before:?}");
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        for vip in vips {
            reaches(&other, vip, Some(POD_NUMBER)).await?;
            reaches(&world.node, vip, Some(POD_NUMBER)).await?;
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
        }
        Ok(())
    })
}

fn one_subnet(world: &World) -> Result<()> {
    let node = &world.node;
    node.write("/proc/sys/net/ipv4/conf/all/rp_filter", "1")?;
    node.write("/proc/sys/net/ipv4/ip_forward", "1")?;
    world.attach(node, "eth1", "node1", None)?;
    node.ip("addr add 192.0.2.3/24 dev eth1")?;
    let _pod = pod_behind(world, node)?;
    let vip: IpAddr = "192.0.2.100".parse()?;
    node.speak(async |speaker| {
        serve(&speaker, &on("eth1", &[vip]), ReturnPath::Default);
        speaker.have(&[vip], true).await?;
        reaches(&world.client, vip, None).await?;
        let asked = world.client.neighbour(vip)?;
        ensure!(asked.is_none(), "{asked:?} answers ARP requests");
        serve_symmetric(&speaker, &on("eth1", &[vip])).await?;
        reaches(&world.client, vip, Some(POD_NUMBER)).await?;
        eventually("an echo", SOON, || pings(&world.client, vip)).await?;
        // What leaves by the other link is dropped there.
        node.nft(&["table netdev other {
            chain out { type filter hook egress device eth0 priority 0
              ip saddr 192.0.2.100 counter drop
            }
          }"])?;
        reaches(&world.client, vip, Some(POD_NUMBER)).await?;
        eventually("an echo", SOON, || pings(&world.client, vip)).await?;
        Ok(())
    })
}

fn two_links(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let [v4, v6] = vips()?;
    let near: IpAddr = "192.0.2.100".parse()?;
    world.node.speak(async |speaker| {
        let both = [("eth1", v4), ("eth1", v6), ("eth0", near)];
        serve_symmetric(&speaker, &both).await?;
        reaches(&site.far, v4, Some(POD_NUMBER)).await?;
        reaches(&world.client, near, Some(POD_NUMBER)).await?;
        let rules = world.node.ip("rule")?;
        ensure!(rules.contains("lookup 7601") && rules.contains("lookup 7602"), "{rules}");

        // The number of an interface stays, whatever becomes of the other.
        serve_symmetric(&speaker, &[("eth1", v4)]).await?;
        reaches(&site.far, v4, Some(POD_NUMBER)).await?;
        let gone = || Ok(!world.node.ip("rule")?.contains("lookup 7601"));
        eventually("the rule of the other is gone", SOON, gone).await?;
        let routes = world.node.ip("route show table all proto 76")?;
        ensure!(!routes.contains("eth0"), "{routes}");
        ensure!(world.node.ip("-6 route show table all proto 76")?.is_empty(), "{routes}");

        serve_symmetric(&speaker, &[("eth0", near), ("eth1", v4), ("eth1", v6)]).await?;
        for vip in [v4, v6] {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
        }
        Ok(())
    })
}

fn read(host: &Namespace, path: &str) -> Result<String> {
    host.enter(|| Ok(std::fs::read_to_string(path)?.trim().to_owned()))
}

/// All that a return path may change, but counters.
fn state(node: &Namespace) -> Result<String> {
    let mut all: Vec<String> = Vec::new();
    for question in ["rule", "-6 rule", "route show table all", "-6 route show table all"] {
        let mut lines: Vec<String> = node.ip(question)?.lines().map(str::to_owned).collect();
        // The addresses of the Service go at their own time, and link-local ones come at theirs.
        let others = |line: &String| {
            !VIPS.iter().any(|vip| line.contains(vip))
                && !["fe80", "multicast"].iter().any(|word| line.contains(word))
        };
        lines.retain(others);
        lines.sort();
        all.extend([format!("{question}\n"), lines.join("\n"), "\n".to_owned()]);
    }
    for family in ["inet", "arp"] {
        let there = node.nft(&["list", "table", family, TABLE]).is_ok();
        all.push(format!("{family} {TABLE}: {there}\n"));
    }
    for name in ["eth0", "eth1"] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/src_valid_mark");
        all.push(format!("{path} {}\n", read(node, &path)?));
    }
    Ok(all.concat())
}

/// Waits until nothing is left.
async fn is_as(node: &Namespace, before: &str) -> Result<()> {
    let same = eventually("nothing is left", SOON, || Ok(state(node)? == before)).await;
    let left = || Ok(format!("before:\n{before}\nafter:\n{}", state(node)?));
    match same {
        Ok(_) => Ok(()),
        Err(error) => left().and_then(|left: String| Err(error.context(left))),
    }
}

fn nothing_left(world: &World) -> Result<()> {
    let _site = Site::new(world)?;
    let vips = vips()?;
    let before = state(&world.node)?;
    world.node.speak(async |mut speaker| {
        for _ in 0..3 {
            serve_symmetric(&speaker, &on("eth1", &vips)).await?;
            let there = state(&world.node)?;
            ensure!(there != before, "nothing is there: {there}");
            serve(&speaker, &on("eth1", &vips), ReturnPath::Default);
            is_as(&world.node, &before).await?;
        }
        // A setting that was there stays.
        let setting = "/proc/sys/net/ipv4/conf/eth1/src_valid_mark";
        world.node.write(setting, "1")?;
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        serve(&speaker, &[], ReturnPath::Default);
        seen(&speaker, |view| view.applied.is_empty()).await?;
        ensure!(read(&world.node, setting)? == "1", "src_valid_mark was not set by us");
        world.node.write(setting, "0")?;

        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        speaker.return_paths.remove().await;
        is_as(&world.node, &before).await?;
        Ok(())
    })
}

fn put_back(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    node.speak(async |speaker| {
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        for vip in vips {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
        }
        let there = state(node)?;
        let damages: [(&str, &dyn Fn() -> Result<()>); 6] = [
            ("a rule", &|| node.ip("rule del pref 763").map(drop)),
            ("a rule of IPv6", &|| node.ip("-6 rule del pref 763").map(drop)),
            ("the table", &|| node.ip("route flush table 7601").map(drop)),
            ("the table of IPv6", &|| node.ip("-6 route flush table 7601").map(drop)),
            ("the marks", &|| node.nft(&["delete", "table", "inet", TABLE]).map(drop)),
            ("one mark", &|| node.nft(&["flush", "map", "inet", TABLE, "answering4"]).map(drop)),
        ];
        for (what, damage) in damages {
            damage()?;
            ensure!(state(node)? != there || what == "one mark", "{what}: no damage was done");
            for vip in vips {
                reaches(&site.far, vip, Some(POD_NUMBER)).await.context(what)?;
            }
            eventually(what, SOON, || Ok(state(node)? == there)).await?;
        }
        // Another gateway of the link.
        site.router.ip("addr add 198.51.100.253/24 dev eth0")?;
        node.ip("route replace default via 198.51.100.253 dev eth1 metric 5000")?;
        let moved = || Ok(node.ip("route show table 7601")?.contains("198.51.100.253"));
        eventually("the table has the new gateway", SOON, moved).await?;
        // The link loses its carrier, and with that its routes.
        node.ip("link set eth1 down")?;
        node.ip("link set eth1 up")?;
        node.ip("route replace default via 198.51.100.254 dev eth1 metric 5000")?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await.context("the link came back")?;
        Ok(())
    })
}

fn restart(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    let before = state(node)?;
    let kept = StateFolder::open(Path::new("/mnt/return-path"))?;
    let speaker = || Speaker::keeping(kept.clone(), node.mark);
    node.block_on(|| async {
        let speaker = speaker().await?;
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await
    })?;
    // No process is there: addresses stay for their lifetime, and all else.
    let left = state(node)?;
    ensure!(left != before && who(&site.far, vips[0])? == Some(POD_NUMBER), "{left}");
    node.block_on(|| async {
        // The next process does not know what is asked for: not even of what it adopts.
        let speaker = speaker().await?;
        serve(&speaker, &on("eth1", &vips[..1]), ReturnPath::Default);
        speaker.serving.send_modify(|serving| serving.complete = false);
        let all: BTreeMap<IpAddr, _> = vips.iter().map(|ip| (*ip, interface("eth1"))).collect();
        seen(&speaker, |view| view.applied == all).await?;
        ensure!(state(node)? == left, "what is left does not stay");
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await?;
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        ensure!(state(node)? == left, "it is not taken over as it is");
        Ok(())
    })?;
    node.block_on(|| async {
        // Nothing of it is asked for any more.
        let speaker = speaker().await?;
        serve(&speaker, &[], ReturnPath::Default);
        is_as(node, &before).await
    })
}

fn taken(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    node.ip("route add 203.0.113.0/24 via 192.0.2.2 dev eth0 table 7601")?;
    node.ip("rule add fwmark 0x08000000/0x3c000000 lookup 99 pref 5000")?;
    // Beside ours, with our priority: it concerns none of our packets.
    node.ip("rule add from 10.9.9.9 lookup 99 pref 760")?;
    node.speak(async |speaker| {
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await?;
        let rules = node.ip("rule")?;
        ensure!(rules.contains("lookup 7603"), "neither table 7601 nor mark 2 is free: {rules}");
        serve(&speaker, &[], ReturnPath::Default);
        let gone = || Ok(!node.ip("rule")?.contains("7603"));
        eventually("ours are gone", SOON, gone).await?;
        let rules = node.ip("rule")?;
        ensure!(rules.contains("5000:") && rules.contains("10.9.9.9"), "{rules}");
        ensure!(node.ip("route show table 7601")?.contains("192.0.2.2"), "a foreign route is gone");

        // All of them.
        node.ip("rule add fwmark 0x40000000/0x40000000 lookup 99 pref 5001")?;
        serve(&speaker, &on("eth1", &vips), ReturnPath::Symmetric);
        let seen = seen(&speaker, |view| view.failure.is_some()).await?;
        ensure!(seen.failure.is_some_and(|cause| cause.contains("eth1")), "no interface is named");
        speaker.have(&vips, true).await?;
        node.ip("rule del pref 5001")?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await
    })
}

fn without_gateway(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    node.ip("route del default dev eth1")?;
    node.ip("-6 route del default dev eth1")?;
    node.speak(async |speaker| {
        let seen = serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        ensure!(seen.without_gateway.len() == 2, "{:?}", seen.without_gateway);
        reaches(&site.router, vips[0], Some(POD_NUMBER)).await?;
        reaches(&site.far, vips[0], None).await?;
        // A route to the client is as good.
        node.ip("route add 203.0.113.0/24 via 198.51.100.254 dev eth1")?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await?;
        node.ip("route del 203.0.113.0/24 via 198.51.100.254 dev eth1")?;
        node.ip("route add default via 198.51.100.254 dev eth1 metric 5000")?;
        reaches(&site.far, vips[0], Some(POD_NUMBER)).await?;
        self::seen(&speaker, |view| view.without_gateway.len() == 1).await?;
        Ok(())
    })
}

/// Another node has the address, and spreads packets over this one.
fn spread(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    let mac = mac_of_eth1(node)?;
    for vip in vips {
        site.router.ip(&format!("neigh replace {vip} lladdr {mac} dev eth0"))?;
    }
    node.speak(async |speaker| {
        let spread = |returns: Option<&str>| {
            let here = Member { macs: [mac].into(), way: Way::Here };
            let address = |vip: IpAddr| {
                let layout = Layout {
                    members: [here.clone()].into(),
                    owner: None,
                    buckets: (0..BUCKETS).map(|_| Order::of([0])).collect(),
                };
                let address = SpreadAddress {
                    ports: Arc::default(),
                    by_client: false,
                    interface: None,
                    returns: returns.map(interface),
                    layout: Arc::new(layout),
                };
                (vip, address)
            };
            let addresses = vips.map(address).into();
            let spreading = Arc::new(Spreading { addresses, ..Spreading::default() });
            speaker.spread.wanted.send_replace(Some(spreading));
        };
        serve(&speaker, &[], ReturnPath::Default);
        spread(None);
        for vip in vips {
            reaches(&site.far, vip, None).await?;
        }
        spread(Some("eth1"));
        seen(&speaker, |view| view.applied.keys().eq(&vips)).await?;
        for vip in vips {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
        }
        spread(None);
        let gone = || Ok(!node.ip("rule")?.contains("lookup 7601"));
        eventually("it has gone", SOON, gone).await?;
        for vip in vips {
            reaches(&site.far, vip, None).await?;
        }
        Ok(())
    })
}

fn mac_of_eth1(node: &Namespace) -> Result<MacAddr> {
    let shown = node.ip("-o link show dev eth1")?;
    let mac = shown.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    mac.context("eth1 has no MAC")?.parse().map_err(|_| anyhow::anyhow!("{shown}"))
}

/// The address has gone to another node, which forwards what belongs to open connections.
fn handed_over(world: &World) -> Result<()> {
    let site = &Site::new(world)?;
    let vips = vips()?;
    let node = &world.node;
    let mac = mac_of_eth1(node)?;
    node.speak(async |speaker| {
        serve_symmetric(&speaker, &on("eth1", &vips)).await?;
        let mut open = Vec::new();
        for vip in vips {
            reaches(&site.far, vip, Some(POD_NUMBER)).await?;
            let connection = connect(&site.far, vip, Duration::from_secs(5))?;
            open.push(connection.context("no connection")?.0);
            site.router.ip(&format!("neigh replace {vip} lladdr {mac} dev eth0"))?;
        }
        let there = || -> Result<bool> { Ok(node.ip("rule")?.contains("lookup 7601")) };
        let hand = |handed: &[IpAddr]| {
            let handed = Arc::new(handed.iter().copied().collect());
            let forwarding = Forwarding { handed, ..Forwarding::default() };
            speaker.forward.wanted.send_replace(Some(Arc::new(forwarding)));
        };
        // Of the two addresses one is handed over.
        hand(&vips[..1]);
        serve(&speaker, &[], ReturnPath::Default);
        speaker.have(&vips, false).await?;
        seen(&speaker, |view| view.applied.keys().eq(&vips[..1])).await?;
        ensure!(there()?, "the return path has gone with the address");
        let [handed, other] = open.as_mut_slice() else { anyhow::bail!("two connections") };
        repeats(handed).context("an open connection")?;
        ensure!(repeats(other).is_err(), "it is answered by another way");
        hand(&[]);
        eventually("it has gone", SOON, || Ok(!there()?)).await?;
        ensure!(repeats(handed).is_err(), "it is answered by another way");
        Ok(())
    })
}
