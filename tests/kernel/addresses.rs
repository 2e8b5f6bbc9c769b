//! What happens to the kernel's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use leasehold::announce::layer2::confine::restore;
use leasehold::clock;
use leasehold::net::rtnl::addresses::{AddressChange, full_prefix};
use leasehold::net::rtnl::error::NetlinkError;
use leasehold::net::rtnl::mark::Mark;
use leasehold::net::rtnl::netlink::Netlink;
use leasehold::net::rtnl::sysctl::ArpSettings;
use leasehold_core::election::KernelView;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::world::{Namespace, Speaker, Test, World, eth0, eventually, interface};

pub const TESTS: &[Test] = &[
    ("an_address_has_our_mark_and_a_lifetime_and_lapses_by_itself", lapses_by_itself),
    ("a_renewed_address_stays", a_renewed_address_stays),
    ("a_nodes_own_address_is_never_touched", a_nodes_own_address_is_never_touched),
    ("an_address_is_usable_at_once", usable_at_once),
    ("an_address_removed_by_hand_is_back_at_once", removed_by_hand),
    ("an_address_of_ours_without_end_gets_one", made_endless),
    ("an_address_that_somebody_takes_over_is_left_alone", taken_over),
    ("addresses_survive_a_flap_of_the_link", a_flap_of_the_link),
    ("what_is_no_longer_served_goes_at_once", no_longer_served),
    ("a_former_process_leaves_what_the_next_adopts_or_removes", adoption),
    ("an_address_moves_to_another_interface_make_before_break", another_interface),
    ("links_answer_by_arp_only_for_what_they_have_until_they_are_set_back", confined),
    (
        "links_answer_by_arp_only_for_what_they_have_where_ipvs_gives_all_nodes_all",
        confined_by_ipvs,
    ),
    ("what_the_kernel_refuses_is_reported_and_tried_again", refusals),
    ("of_changes_in_one_datagram_each_has_an_answer_of_its_own", one_datagram),
    ("without_the_capability_the_reason_is_reported", without_the_capability),
    ("two_hundred_addresses_are_added_and_renewed", two_hundred),
    ("dumps_of_one_connection_wait_for_one_another", dumps_wait),
];

/// Those for which it matters what addresses are marked by.
pub const OF_MARKED: &[Test] = &[
    ("an_address_has_our_mark_and_a_lifetime_and_lapses_by_itself", lapses_by_itself),
    ("a_renewed_address_stays", a_renewed_address_stays),
    ("a_nodes_own_address_is_never_touched", a_nodes_own_address_is_never_touched),
    ("an_address_removed_by_hand_is_back_at_once", removed_by_hand),
    ("an_address_that_somebody_takes_over_is_left_alone", taken_over),
    ("what_is_no_longer_served_goes_at_once", no_longer_served),
    ("a_former_process_leaves_what_the_next_adopts_or_removes", adoption),
    ("an_address_moves_to_another_interface_make_before_break", another_interface),
];

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10));
const BOTH: [IpAddr; 2] = [V4, V6];

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn shown(node: &Namespace, ip: IpAddr) -> Result<Option<String>> {
    let all = node.ip("-o addr show")?;
    let prefix = format!("{ip}/");
    let line =
        all.lines().find(|line| line.split_whitespace().any(|word| word.starts_with(&prefix)));
    Ok(line.map(str::to_owned))
}

/// As `ip` wants a single address.
fn single(ip: IpAddr) -> String {
    format!("{ip}/{}", full_prefix(ip))
}

fn lapses_by_itself(world: &World) -> Result<()> {
    world.node.speak(|speaker| async move {
        let start = clock::now();
        speaker.serve(&BOTH, seconds(2.5));
        let view = speaker.have(&BOTH, true).await?;
        for (ip, prefix) in [(V4, "/32"), (V6, "/128")] {
            let line = shown(&world.node, ip)?.context("iproute2 does not show it")?;
            for part in [format!("{ip}{prefix}"), "valid_lft 2sec".into()] {
                ensure!(line.contains(&part), "{part} is missing in: {line}");
            }
            let until = view.ours.get(&ip).context("not in the view")?.until;
            ensure!(until >= start + seconds(2.0) && until <= start + seconds(2.5), "{until}");
        }
        // Nobody takes it for the node's own address.
        for ip in BOTH {
            ensure!(shown(&world.node, ip)?.is_some_and(|line| line.contains("deprecated")));
        }
        speaker.have(&BOTH, false).await?;
        let after = clock::now().saturating_since(start);
        // Late by 1.03 s at most, rarely 20 ms early.
        ensure!(after > seconds(1.97) && after < seconds(3.6), "lapsed after {after:?}");
        // Its time is over: it is not added again.
        tokio::time::sleep(seconds(0.3)).await;
        ensure!(shown(&world.node, V4)?.is_none() && shown(&world.node, V6)?.is_none());
        Ok(())
    })
}

fn a_renewed_address_stays(world: &World) -> Result<()> {
    world.node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(2.2));
        speaker.have(&BOTH, true).await?;
        let start = clock::now();
        let mut renewed = start;
        while clock::now() < start + seconds(5.0) {
            if clock::now() > renewed + seconds(1.0) {
                renewed = clock::now();
                speaker.serve(&BOTH, seconds(2.2));
                let least = renewed + seconds(1.1);
                speaker
                    .kernel("renewed at once", seconds(0.3), |view| {
                        BOTH.iter().all(|ip| view.ours.get(ip).is_some_and(|vip| vip.until > least))
                    })
                    .await?;
            }
            let addresses = speaker.edge.netlink.addresses().await?;
            let there = |ip| addresses.iter().any(|address| address.ip == ip && address.ours);
            ensure!(there(V4) && there(V6), "gone although renewed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

fn a_nodes_own_address_is_never_touched(world: &World) -> Result<()> {
    let node = &world.node;
    let own: IpAddr = Ipv4Addr::new(192, 0, 2, 50).into();
    // On the same link as a single address, within the subnet, and on another link.
    node.ip("addr add 192.0.2.50/32 dev eth0")?;
    node.ip("addr add 203.0.113.5/32 dev lo")?;
    let all: [IpAddr; 4] = [
        own,
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv4Addr::new(203, 0, 113, 5).into(),
        "fd00::1".parse()?,
    ];
    let before = node.ip("-o addr show")?;
    node.speak(|speaker| async move {
        speaker.serve(&all, seconds(5.0));
        let view = speaker
            .kernel("all are reported", seconds(10.0), |view| {
                view.foreign.len() == all.len() && view.applied == 1
            })
            .await?;
        ensure!(view.ours.is_empty() && view.refused.is_empty(), "{view:?}");
        ensure!(view.foreign.get(&all[2]) == Some(&interface("lo")), "{view:?}");
        speaker.serve(&[], seconds(5.0));
        speaker.kernel("no longer served", seconds(10.0), |view| view.foreign.is_empty()).await?;
        let index = speaker.edge.links.borrow().get(&eth0()).context("eth0")?.index;
        let again = AddressChange::Add { place: (index, own), seconds: NonZeroU32::MIN };
        let results = speaker.edge.netlink.change(&[again])?;
        ensure!(matches!(results[..], [Err(NetlinkError::Exists)]), "{results:?}");
        Ok(())
    })?;
    let after = node.ip("-o addr show")?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    Ok(())
}

fn usable_at_once(world: &World) -> Result<()> {
    let client = &world.client;
    client.ip("route add 198.51.100.10/32 via 192.0.2.1")?;
    // As on any host: a new IPv6 address is first checked for duplicates.
    world.node.write("/proc/sys/net/ipv6/conf/eth0/accept_dad", "1")?;
    world.node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(10.0));
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            let line = shown(&world.node, ip)?.context("iproute2 does not show it")?;
            ensure!(!line.contains("tentative"), "not usable yet: {line}");
            client.refused_after(ip, seconds(10.0))?;
        }
        Ok(())
    })
}

fn removed_by_hand(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(20.0));
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            node.ip(&format!("addr del {} dev eth0", single(ip)))?;
            let again = eventually("it is back", seconds(5.0), || Ok(shown(node, ip)?.is_some()));
            again.await?;
        }
        Ok(())
    })
}

fn made_endless(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&[V4], seconds(20.0));
        speaker.have(&[V4], true).await?;
        // With our mark: it gets a lifetime again.
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let index = speaker.edge.links.borrow().get(&eth0()).context("eth0")?.index;
        let mut request = handle.address().add(index, V4, 32).replace();
        request.message_mut().attributes.push(Mark::Protocol.attribute());
        tokio::select! {
            () = connection => anyhow::bail!("netlink has ended"),
            done = request.execute() => done?,
        }
        eventually("it has a lifetime again", seconds(5.0), || {
            Ok(shown(node, V4)?.is_some_and(|line| !line.contains("valid_lft forever")))
        })
        .await?;
        Ok(())
    })
}

fn taken_over(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(20.0));
        speaker.have(&BOTH, true).await?;
        // It is somebody else's from then on, whether for ever or not.
        for ip in BOTH {
            node.ip(&format!("addr change {} dev eth0", single(ip)))?;
        }
        let taken = |view: &KernelView| BOTH.iter().all(|ip| view.foreign.contains_key(ip));
        let view = speaker.kernel("they are somebody else's", seconds(10.0), taken).await?;
        ensure!(view.ours.is_empty(), "{view:?}");
        for ip in BOTH {
            node.ip(&format!("addr change {} dev eth0 valid_lft 60 preferred_lft 60", single(ip)))?;
        }
        // Long enough for a look at all addresses.
        speaker.serve(&BOTH, seconds(30.0));
        tokio::time::sleep(seconds(0.2)).await;
        speaker.serve(&[], seconds(0.0));
        let empty = |view: &KernelView| view.foreign.is_empty() && view.ours.is_empty();
        speaker.kernel("settled", seconds(10.0), empty).await?;
        for ip in BOTH {
            let line = shown(node, ip)?.with_context(|| format!("{ip} was taken away"))?;
            ensure!(!line.contains("deprecated"), "its lifetime was changed: {line}");
        }
        Ok(())
    })
}

fn a_flap_of_the_link(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(20.0));
        speaker.have(&BOTH, true).await?;
        node.ip("link set eth0 down")?;
        tokio::time::sleep(seconds(0.1)).await;
        node.ip("link set eth0 up")?;
        // The kernel has flushed the node's own IPv6 address as well.
        node.ip("addr add fd00::1/64 dev eth0 nodad")?;
        eventually("both are there", seconds(10.0), || {
            Ok(shown(node, V4)?.is_some() && shown(node, V6)?.is_some())
        })
        .await?;
        world.client.refused_after(V6, seconds(10.0))?;
        ensure!(!shown(node, V6)?.is_some_and(|line| line.contains("tentative")));
        Ok(())
    })
}

fn no_longer_served(world: &World) -> Result<()> {
    world.node.speak(|speaker| async move {
        let mut worst = Duration::ZERO;
        for _ in 0..20 {
            speaker.serve(&BOTH, seconds(20.0));
            speaker.have(&BOTH, true).await?;
            let start = clock::now();
            speaker.serve(&[], seconds(0.0));
            let generation = speaker.serving.borrow().generation;
            speaker
                .kernel("gone", seconds(10.0), |view| {
                    view.ours.is_empty() && view.applied == generation
                })
                .await?;
            worst = worst.max(clock::now().saturating_since(start));
        }
        println!("no longer served -> seen to be gone: {worst:?} at most of 20");
        Ok(())
    })
}

fn adoption(world: &World) -> Result<()> {
    let node = &world.node;
    let other: IpAddr = Ipv4Addr::new(198, 51, 100, 11).into();
    node.speak(|speaker| async move {
        speaker.serve(&[V4, V6, other], seconds(6.0));
        speaker.have(&[V4, V6, other], true).await?;
        Ok(())
    })?;
    node.speak(|speaker| async move {
        speaker.have(&[V4, V6, other], true).await?;
        // Nothing is known yet: what is served is renewed, the rest stays.
        let until = clock::now() + seconds(30.0);
        speaker.serve(&[V4], seconds(30.0));
        speaker.serving.send_modify(|serving| serving.complete = false);
        let view = speaker
            .kernel("renewed", seconds(5.0), |view| {
                view.ours.get(&V4).is_some_and(|address| address.until > until - seconds(1.1))
            })
            .await?;
        ensure!(view.ours.len() == 3, "{view:?}");
        speaker.serve(&BOTH, seconds(30.0));
        let view = speaker.have(&[other], false).await?;
        ensure!(view.ours.len() == 2, "{view:?}");
        Ok(())
    })
}

fn another_interface(world: &World) -> Result<()> {
    let node = &world.node;
    world.attach(node, "eth1", "second", None)?;
    node.speak(|speaker| async move {
        speaker.serve(&BOTH, seconds(20.0));
        speaker.have(&BOTH, true).await?;
        speaker.serve_on(&interface("eth1"), &BOTH, seconds(20.0));
        // A dump never finds them missing.
        let generation = speaker.serving.borrow().generation;
        loop {
            let addresses = speaker.edge.netlink.addresses().await?;
            let there = |ip| addresses.iter().any(|address| address.ip == ip && address.ours);
            ensure!(there(V4) && there(V6), "gone while it moved");
            if speaker.announcement.kernel.borrow().applied == generation {
                break;
            }
        }
        for ip in BOTH {
            let line = shown(node, ip)?.context("it is gone")?;
            ensure!(line.contains("eth1"), "{line}");
        }
        Ok(())
    })
}

fn confined(world: &World) -> Result<()> {
    let setting = |link: &str, setting: &str| format!("/proc/sys/net/ipv4/conf/{link}/{setting}");
    let set = |link: &str, [ignore, announce]: [&str; 2]| -> Result<()> {
        world.node.write(&setting(link, "arp_ignore"), ignore)?;
        world.node.write(&setting(link, "arp_announce"), announce)
    };
    world.attach(&world.node, "eth1", "second", Some(3))?;
    world.attach(&world.node, "eth2", "third", Some(4))?;
    set("eth0", ["0", "1"])?;
    set("eth1", ["2", "2"])?;
    set("eth2", ["0", "0"])?;
    world.node.speak(|speaker| async move {
        let settings = |link: &str| ArpSettings::of(&interface(link));
        let settings = |link| settings(link).map(|it| [it.ignore, it.announce]);
        speaker.serve(&[V4], seconds(5.0));
        speaker.have(&[V4], true).await?;
        ensure!(settings("eth0")? == [1, 2] && settings("eth2")? == [1, 2]);
        ensure!(settings("eth1")? == [2, 2], "what is stricter is left as it is");
        let again = || speaker.announcement.counters.confined_again.load(Ordering::Relaxed);
        ensure!(again() == 0, "nobody has set anything back");
        // Who else sets them gets his way for a minute, or until the links change.
        set("eth0", ["0", "1"])?;
        world.node.ip("link set eth0 mtu 1400")?;
        eventually("set again", seconds(5.0), || Ok(settings("eth0")? == [1, 2])).await?;
        eventually("counted", seconds(5.0), || Ok(again() == 1)).await?;
        // What somebody makes stricter stays.
        speaker
            .edge
            .netlink
            .set_arp(link(&speaker, "eth2")?, ArpSettings { ignore: 8, announce: 2 })
            .await?;
        let links = speaker.edge.links.borrow().clone();
        restore(&speaker.edge.netlink, &speaker.state, &links).await;
        ensure!(settings("eth0")? == [0, 1], "{:?}", settings("eth0")?);
        ensure!(settings("eth1")? == [2, 2] && settings("eth2")? == [8, 2]);
        ensure!(speaker.state.arp_settings().is_empty());
        Ok(())
    })
}

/// The node serves nothing, and has the addresses of all Services on a link of kube-proxy's.
fn confined_by_ipvs(world: &World) -> Result<()> {
    let setting = |setting: &str| format!("/proc/sys/net/ipv4/conf/eth0/{setting}");
    world.node.write(&setting("arp_ignore"), "0")?;
    world.node.write(&setting("arp_announce"), "0")?;
    world.node.speak(|speaker| async move {
        let _running = speaker;
        let settings = || ArpSettings::of(&interface("eth0"));
        ensure!(settings()?.ignore == 0, "there is no such link yet");
        world.node.ip("link add kube-ipvs0 type bridge")?;
        world.node.ip(&format!("address add {} dev kube-ipvs0", single(V4)))?;
        let set = || Ok([settings()?.ignore, settings()?.announce] == [1, 2]);
        eventually("set", seconds(5.0), set).await?;
        Ok(())
    })
}

fn link(speaker: &Speaker, name: &str) -> Result<u32> {
    let links = speaker.edge.links.borrow();
    links.get(&interface(name)).map(|link| link.index).with_context(|| format!("no {name}"))
}

fn refusals(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve_on(&interface("eth7"), &[V4], seconds(20.0));
        let view = speaker
            .kernel("reported", seconds(10.0), |view| view.refused.contains_key(&V4))
            .await?;
        ensure!(view.refused.get(&V4).is_some_and(|reason| reason.contains("eth7")), "{view:?}");
        world.attach(node, "eth7", "seventh", None)?;
        speaker.have(&[V4], true).await?;

        node.write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1")?;
        speaker.serve(&[V6], seconds(20.0));
        let view = speaker
            .kernel("reported", seconds(10.0), |view| view.refused.contains_key(&V6))
            .await?;
        ensure!(view.refused.get(&V6).is_some_and(|why| why.contains("disable_ipv6")), "{view:?}");
        let generation = speaker.serving.borrow().generation;
        ensure!(view.applied == generation, "it is settled as far as it can be: {view:?}");
        node.write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0")?;
        let view = speaker.have(&[V6], true).await?;
        ensure!(view.refused.is_empty(), "{view:?}");
        Ok(())
    })
}

/// Takes a capability from the calling thread.
fn without(capability: CapabilitySet) -> Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(capability);
    sets.permitted.remove(capability);
    set_capabilities(None, sets)?;
    Ok(())
}

fn without_the_capability(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        speaker.serve(&[V4], seconds(20.0));
        speaker.have(&[V4], true).await?;
        Ok(())
    })?;
    node.block_on(|| async {
        without(CapabilitySet::NET_ADMIN)?;
        let speaker = Speaker::start().await?;
        speaker.serve(&[V6], seconds(20.0));
        let view = speaker
            .kernel("reported", seconds(10.0), |view| view.refused.contains_key(&V6))
            .await?;
        let reason = view.refused.get(&V6).context("no reason")?;
        ensure!(reason.contains("CAP_NET_ADMIN"), "{reason}");
        Ok(())
    })?;
    node.block_on(|| async {
        without(CapabilitySet::NET_RAW)?;
        let error = Speaker::start().await.err().context("it started without CAP_NET_RAW")?;
        ensure!(error.to_string().contains("CAP_NET_RAW"), "{error:?}");
        Ok(())
    })
}

fn one_datagram(world: &World) -> Result<()> {
    world.node.block_on(|| async {
        let link = link(&Speaker::start().await?, "eth0")?;
        let (netlink, _) = Netlink::open(Mark::Protocol)?;
        let seconds = NonZeroU32::new(60).context("zero")?;
        let add = |index, ip| AddressChange::Add { place: (index, ip), seconds };
        let delete = |ip| AddressChange::Delete { place: (link, ip) };
        let own: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
        let refused =
            netlink.change(&[add(link, V4), add(9999, V4), delete(own), add(link, V6)])?;
        let [Ok(()), Err(NetlinkError::NoInterface), Err(NetlinkError::NotFound), Ok(())] =
            refused[..]
        else {
            anyhow::bail!("{refused:?}");
        };
        let refresh = AddressChange::Refresh { place: (link, V4), seconds: NonZeroU32::MAX };
        let last_refused = netlink.change(&[refresh, delete(V6), add(link, V4)])?;
        let [Ok(()), Ok(()), Err(NetlinkError::Exists)] = last_refused[..] else {
            anyhow::bail!("{last_refused:?}");
        };
        ensure!(shown(&world.node, V4)?.is_some() && shown(&world.node, V6)?.is_none());
        ensure!(netlink.change(&[])?.is_empty());
        netlink.change(&[delete(V4)])?.into_iter().collect::<Result<(), _>>()?;
        ensure!(shown(&world.node, V4)?.is_none());
        Ok(())
    })
}

fn two_hundred(world: &World) -> Result<()> {
    let vips: Vec<IpAddr> = (0..200).map(|last| Ipv4Addr::new(198, 51, 100, last).into()).collect();
    world.node.block_on(|| async {
        let (netlink, connection) = Netlink::open(Mark::Protocol)?;
        let driver = connection;
        let count = async {
            let addresses = netlink.addresses().await?;
            Ok::<_, anyhow::Error>(addresses.iter().filter(|address| address.ours).count())
        };
        let work = async {
            let speaker = Speaker::start().await?;
            let start = clock::now();
            speaker.serve(&vips, seconds(6.5));
            speaker.have(&vips, true).await?;
            let added = clock::now();
            println!("200 addresses added and seen after {:?}", added.saturating_since(start));
            speaker.serve(&vips, seconds(20.5));
            let until = added + seconds(19.0);
            speaker
                .kernel("all are renewed", seconds(10.0), |view| {
                    view.ours.len() == 200 && view.ours.values().all(|vip| vip.until > until)
                })
                .await?;
            let renewed = clock::now();
            println!("200 renewed after {:?}", renewed.saturating_since(added));
            speaker.serve(&[], seconds(0.0));
            speaker.have(&vips, false).await?;
            println!("200 removed after {:?}", clock::now().saturating_since(renewed));
            ensure!(count.await? == 0);
            Ok(())
        };
        tokio::select! {
            () = driver => anyhow::bail!("netlink has ended"),
            done = work => done,
        }
    })
}

/// So many that a dump takes more than one message of the kernel.
fn dumps_wait(world: &World) -> Result<()> {
    const COUNT: u32 = 2_000;
    world.node.block_on(|| async {
        let (netlink, driver) = Netlink::open(Mark::Protocol)?;
        // It ends here, or it would remove what it does not serve.
        let link = link(&Speaker::start().await?, "eth0")?;
        let work = async {
            let lifetime = NonZeroU32::new(60).context("zero")?;
            let first = Ipv4Addr::new(198, 18, 0, 0).to_bits();
            let ips = (first..first + COUNT).map(|bits| Ipv4Addr::from_bits(bits).into());
            let add = |ip| AddressChange::Add { place: (link, ip), seconds: lifetime };
            let adds: Vec<_> = ips.map(add).collect();
            for adds in adds.chunks(64) {
                netlink.change(adds)?.into_iter().collect::<Result<Vec<()>, _>>()?;
            }
            for addresses in try_join_all((0..20).map(|_| netlink.addresses())).await? {
                let ours = addresses.iter().filter(|address| address.ours).count();
                ensure!(u32::try_from(ours)? == COUNT, "{ours}");
            }
            Ok(())
        };
        tokio::select! {
            () = driver => anyhow::bail!("netlink has ended"),
            done = work => done,
        }
    })
}
