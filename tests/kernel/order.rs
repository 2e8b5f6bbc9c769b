//! The node's own address stays the first of its link, and the source of what the node sends.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::StreamExt;
use leasehold::clock;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use rtnetlink::MulticastGroup;
use tokio::task::JoinSet;

use crate::ping;
use crate::world::{Namespace, Test, World, eventually};

pub const TESTS: &[Test] = &[
    ("the_nodes_own_address_is_put_before_ours_when_it_is_set_anew", set_anew),
    ("an_own_address_without_a_subnet_is_the_source_by_an_onlink_default_route", onlink),
    ("further_addresses_of_the_node_move_nothing", further),
    ("an_own_address_that_is_set_anew_all_the_time_moves_ours_once_a_second", all_the_time),
];

/// One in the node's subnet, and one elsewhere.
const VIPS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)), IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10))];
/// How often the node's own address is set anew.
const TIMES: usize = 4;
const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(5);

/// The IPv4 addresses of `eth0` in the kernel's order.
fn listed(node: &Namespace) -> Result<Vec<String>> {
    let text = node.ip("-4 -o addr show dev eth0")?;
    let address = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    Ok(text.lines().filter_map(address).collect())
}

/// The source that the kernel chooses for `destination`.
fn source(node: &Namespace, destination: &str) -> Result<String> {
    let text = node.ip(&format!("-4 route get {destination}"))?;
    let source = text.split_whitespace().skip_while(|word| *word != "src").nth(1);
    source.map(str::to_owned).with_context(|| format!("no source: {text}"))
}

async fn is_first(node: &Namespace, own: &str) -> Result<()> {
    let what = format!("{own} is the first");
    let first = || Ok(listed(node)?.first().is_some_and(|first| first == own));
    eventually(&what, SOON, first).await.with_context(|| format!("{:?}", listed(node)))?;
    ensure!(listed(node)?.len() > VIPS.len(), "one is missing: {:?}", listed(node)?);
    Ok(())
}

/// Counts how often one of ours was taken away, until it is dropped.
struct Removals {
    count: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Removals {
    fn count() -> Result<Self> {
        let groups = [MulticastGroup::Ipv4Ifaddr];
        let (connection, _, mut events) = rtnetlink::new_multicast_connection(&groups)?;
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let count = async {
                while let Some((message, _)) = events.next().await {
                    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(row)) =
                        message.payload
                    else {
                        continue;
                    };
                    let is_ours =
                        |vip: &IpAddr| row.attributes.contains(&AddressAttribute::Local(*vip));
                    counted.fetch_add(usize::from(VIPS.iter().any(is_ours)), Ordering::Relaxed);
                }
            };
            tokio::join!(connection, count);
        });
        Ok(Self { count, _task: task })
    }

    fn so_far(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

fn set_anew(world: &World) -> Result<()> {
    let node = &world.node;
    // The way to the client, whatever addresses the node has, and one to a segment beside it.
    node.ip("route add 192.0.2.0/24 dev eth0 metric 1")?;
    node.ip("route add 203.0.113.0/24 dev eth0")?;
    let done = AtomicBool::new(false);
    let ask = || {
        let [vip, _] = VIPS;
        while !ping::answers(vip)? {
            ensure!(!done.load(Ordering::Relaxed), "{vip} never answered");
        }
        let (mut asked, mut missed) = (0, 0);
        while !done.load(Ordering::Relaxed) {
            missed += usize::from(!ping::answers(vip)?);
            asked += 1;
        }
        Ok((asked, missed))
    };
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| world.client.enter(ask));
        let changed = node.speak(|speaker| async move {
            speaker.serve(&VIPS, LONG);
            speaker.have(&VIPS, true).await?;
            ensure!(listed(node)?.first().is_some_and(|first| first == "192.0.2.1/24"));
            for _ in 0..TIMES {
                node.ip("addr del 192.0.2.1/24 dev eth0")?;
                ensure!(source(node, "203.0.113.7")? != "192.0.2.1", "it has no other address");
                node.ip("addr add 192.0.2.1/24 dev eth0")?;
                is_first(node, "192.0.2.1/24").await?;
                ensure!(source(node, "203.0.113.7")? == "192.0.2.1", "{:?}", listed(node)?);
                // Longer than the pause after which it is done again.
                tokio::time::sleep(Duration::from_millis(1_050)).await;
            }
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        changed?;
        let (asked, missed) = asking.join().map_err(|_| anyhow!("the client panicked"))??;
        println!("{missed} of {asked} echo requests, one upon the other, were not answered");
        // Ours are away for some microseconds each time.
        ensure!(missed <= TIMES, "{missed}");
        Ok(())
    })
}

fn onlink(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&VIPS, LONG);
        speaker.have(&VIPS, true).await?;
        node.ip("addr flush dev eth0")?;
        eventually("ours are back", SOON, || Ok(listed(node)?.len() == VIPS.len())).await?;
        node.ip("addr add 192.0.2.1/32 dev eth0")?;
        node.ip("route add default via 192.0.2.2 dev eth0 onlink")?;
        is_first(node, "192.0.2.1/32").await?;
        ensure!(source(node, "203.0.113.1")? == "192.0.2.1", "{:?}", listed(node)?);
        Ok(())
    })
}

fn further(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&VIPS, LONG);
        speaker.have(&VIPS, true).await?;
        let removals = Removals::count()?;
        // Of the same subnet, of another one, a single one, and one for the link only.
        for address in ["192.0.2.50/24", "203.0.113.5/24", "203.0.113.77/32"] {
            node.ip(&format!("addr add {address} dev eth0"))?;
        }
        node.ip("addr add 169.254.7.7/16 dev eth0 scope link")?;
        speaker.serve(&VIPS, LONG + Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure!(removals.so_far() == 0, "{} were moved", removals.so_far());
        ensure!(listed(node)?.len() == 5 + VIPS.len(), "{:?}", listed(node)?);
        Ok(())
    })
}

fn all_the_time(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&VIPS, LONG);
        speaker.have(&VIPS, true).await?;
        let removals = Removals::count()?;
        let start = clock::now();
        let mut times = 0_u32;
        while clock::now() < start + Duration::from_millis(2_500) {
            node.ip("addr del 192.0.2.1/24 dev eth0")?;
            node.ip("addr add 192.0.2.1/24 dev eth0")?;
            times += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (moved, took) = (removals.so_far(), clock::now().saturating_since(start));
        println!("own address set {times} times, ours moved {moved} times");
        // At 0, 1 and 2 s, each of them; for longer on a busy machine.
        let most = (usize::try_from(took.as_secs())? + 1) * VIPS.len();
        ensure!(times > 5 && (VIPS.len()..=most).contains(&moved), "{times}, {moved} in {took:?}");
        is_first(node, "192.0.2.1/24").await
    })
}
