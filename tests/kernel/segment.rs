//! What other hosts on the segment see and say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use leasehold::clock;
use leasehold::net::hearing::Peer;
use leasehold::net::wire::{Heard, HeardKind, Transmit};

use crate::world::{Speaker, Test, World, eth0, eventually};

pub const TESTS: &[Test] = &[
    ("announcements_move_a_clients_neighbour_entries", announcements_move_neighbours),
    ("probes_and_questions_are_answered", probes_are_answered),
    ("announcements_of_others_are_heard", announcements_are_heard),
    ("the_packet_sockets_survive_links_that_go_and_come", sockets_survive),
    ("hearing_follows_a_cut_that_leaves_the_carrier", hearing_follows_a_cut),
    ("only_the_interface_that_has_the_address_answers", one_interface_answers),
];

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100));
const BOTH: [IpAddr; 2] = [V4, V6];

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn announcements_move_neighbours(world: &World) -> Result<()> {
    let (node, client) = (&world.node, &world.client);
    let former = world.host("former", 3)?;
    for (ip, prefix) in [(V4, 32), (V6, 128)] {
        former.ip(&format!("addr add {ip}/{prefix} dev eth0 nodad"))?;
        client.refused_after(ip, seconds(10.0))?;
        ensure!(client.neighbour(ip)? == Some(former.mac()?), "{ip} is not known at first");
    }
    let ours = node.mac()?;
    node.speak(|speaker| async move {
        for (ip, prefix) in [(V4, 32), (V6, 128)] {
            former.ip(&format!("addr del {ip}/{prefix} dev eth0"))?;
        }
        speaker.serve(&BOTH, seconds(10.0));
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            // The first frames of the burst, long before a client would check by itself.
            eventually(&format!("the client follows {ip}"), seconds(4.0), || {
                Ok(client.neighbour(ip)? == Some(ours))
            })
            .await?;
            client.refused_after(ip, seconds(10.0))?;
        }
        Ok(())
    })
}

async fn answer(speaker: &mut Speaker, within: Duration, ip: IpAddr) -> Result<Heard> {
    let wait = async {
        while let Some(heard) = speaker.edge.heard.recv().await {
            if heard.answer && heard.sender_ip == ip {
                return Ok(heard);
            }
        }
        anyhow::bail!("the edge has ended")
    };
    tokio::time::timeout(within, wait)
        .await
        .with_context(|| format!("no answer for {ip} within {within:?}"))?
}

fn probes_are_answered(world: &World) -> Result<()> {
    let holder = world.host("holder", 3)?;
    for (ip, prefix) in [(V4, 32), (V6, 128)] {
        holder.ip(&format!("addr add {ip}/{prefix} dev eth0 nodad preferred_lft 0"))?;
    }
    // The node cannot be reached from there: only questions without a sender are answered then.
    for setting in ["all", "eth0"] {
        let path = format!("/proc/sys/net/ipv4/conf/{setting}/rp_filter");
        holder.write(&path, "1")?;
    }
    let mac = holder.mac()?;
    world.node.speak(|mut speaker| async move {
        // The attention has to be there before the answer.
        tokio::time::sleep(seconds(0.05)).await;
        for ip in BOTH {
            for transmit in [
                Transmit::Probe { ip, interface: eth0() },
                Transmit::Ask { ip, mac, interface: eth0() },
            ] {
                let asked = clock::now();
                speaker.edge.transmit.send(transmit.clone()).await?;
                let heard = answer(&mut speaker, seconds(5.0), ip).await?;
                ensure!(heard.sender_mac == mac, "{heard:?}");
                ensure!(heard.at >= asked, "{heard:?}");
                let kind = if ip.is_ipv4() {
                    HeardKind::ArpReply
                } else {
                    HeardKind::NeighborAdvertisement
                };
                ensure!(heard.kind == kind, "{heard:?}");
                ensure!(!heard.announcement, "all are told, and not who asked: {heard:?}");
            }
        }
        // Nobody has this one.
        let nobody: IpAddr = Ipv4Addr::new(192, 0, 2, 77).into();
        let probe = Transmit::Probe { ip: nobody, interface: eth0() };
        speaker.edge.transmit.send(probe).await?;
        ensure!(answer(&mut speaker, seconds(0.2), nobody).await.is_err());
        Ok(())
    })
}

fn announcements_are_heard(world: &World) -> Result<()> {
    let (ready, waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let announcing = scope.spawn(move || {
            waiting.recv()?;
            world.client.speak(|other| async move {
                other.serve(&BOTH, seconds(5.0));
                other.have(&BOTH, true).await?;
                tokio::time::sleep(seconds(0.3)).await;
                other.serve(&[], seconds(5.0));
                other.have(&BOTH, false).await.map(drop)
            })
        });
        hear_announcements(world, ready)?;
        announcing.join().map_err(|_| anyhow!("the thread panicked"))?
    })
}

fn hear_announcements(world: &World, ready: std::sync::mpsc::Sender<()>) -> Result<()> {
    let theirs = world.client.mac()?;
    world.node.speak(|mut speaker| async move {
        speaker.attend(|attention| attention.vips.extend(BOTH));
        tokio::time::sleep(seconds(0.05)).await;
        ready.send(())?;
        let mut heard = Vec::new();
        while let Ok(Some(next)) =
            tokio::time::timeout(seconds(1.5), speaker.edge.heard.recv()).await
        {
            heard.push(next);
        }
        for (ip, kind) in [(V4, HeardKind::ArpRequest), (V6, HeardKind::NeighborAdvertisement)] {
            let of = |heard: &&Heard| heard.sender_ip == ip && heard.announcement;
            let announcements: Vec<_> = heard.iter().filter(of).collect();
            ensure!(announcements.len() >= 2, "{ip}, at 0 and 0.1 s: {announcements:?}");
            ensure!(
                announcements.iter().all(|heard| heard.kind == kind
                    && heard.sender_mac == theirs
                    && !heard.answer
                    && !heard.probe),
                "{announcements:?}"
            );
            let [first, second, ..] = announcements.as_slice() else { continue };
            let apart = second.at.saturating_since(first.at);
            ensure!(apart > seconds(0.09) && apart < seconds(2.0), "{apart:?} apart");
        }
        Ok(())
    })
}

fn sockets_survive(world: &World) -> Result<()> {
    let (node, client) = (&world.node, &world.client);
    let theirs = client.mac()?;
    let own: IpAddr = Ipv4Addr::new(192, 0, 2, 2).into();
    let link_of: IpAddr = "fd00::2".parse()?;
    node.speak(|mut speaker| async move {
        for round in ["down and up", "deleted and made anew"] {
            if round == "down and up" {
                node.ip("link set eth0 down")?;
                let probe = Transmit::Probe { ip: own, interface: eth0() };
                speaker.edge.transmit.send(probe).await?;
                tokio::time::sleep(seconds(0.1)).await;
                node.ip("link set eth0 up")?;
            } else {
                node.ip("link del eth0")?;
                tokio::time::sleep(seconds(0.1)).await;
                world.attach(node, "eth0", "again", Some(1))?;
            }
            let mut links = speaker.edge.links.clone();
            let back = links.wait_for(|links| {
                links.get(&eth0()).is_some_and(|link| link.carrier && link.link_local().is_some())
            });
            tokio::time::timeout(seconds(5.0), back).await.context("the link is not back")??;
            for ip in [own, link_of] {
                let mut heard = None;
                for _ in 0..10 {
                    let ask = Transmit::Ask { ip, mac: theirs, interface: eth0() };
                    speaker.edge.transmit.send(ask).await?;
                    heard = answer(&mut speaker, seconds(0.2), ip).await.ok();
                    if heard.is_some() {
                        break;
                    }
                }
                ensure!(heard.is_some(), "{round}: {ip} is not heard");
            }
        }
        ensure!(speaker.edge.tasks.try_join_next().is_none(), "a task of the edge has ended");
        Ok(())
    })
}

fn hearing_follows_a_cut(world: &World) -> Result<()> {
    let peer_mac = world.client.mac()?;
    world.node.speak(|speaker| async move {
        // A gateway that does not exist, and a peer that answers.
        world.node.ip("route add default via 192.0.2.254")?;
        speaker.attend(|attention| {
            attention.peers.insert(Peer { ip: Ipv4Addr::new(192, 0, 2, 2).into(), mac: peer_mac });
        });
        let fresh = |speaker: &Speaker| {
            let heard = speaker.edge.hearing.borrow().get(&eth0()).copied();
            heard.is_some_and(|at| clock::now().saturating_since(at) < seconds(2.0))
        };
        eventually("heard", seconds(1.5), || Ok(fresh(&speaker))).await?;
        world.lan.ip("link set node nomaster")?;
        let took = eventually("deaf", seconds(4.0), || Ok(!fresh(&speaker))).await?;
        println!("cut -> deaf after {took:?}");
        ensure!(took > seconds(0.9), "{took:?}: an answer holds for 2 s");
        ensure!(speaker.edge.links.borrow().get(&eth0()).is_some_and(|link| link.carrier));
        world.lan.ip("link set node master br0")?;
        let took = eventually("heard again", seconds(3.0), || Ok(fresh(&speaker))).await?;
        println!("healed -> heard after {took:?}");
        // It was never silent for as long as the peer answered.
        for _ in 0..300 {
            ensure!(fresh(&speaker), "deaf although the peer answers");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
}

fn one_interface_answers(world: &World) -> Result<()> {
    let (node, client) = (&world.node, &world.client);
    world.attach(node, "eth1", "second", None)?;
    node.ip("addr add 203.0.113.1/24 dev eth1")?;
    let ours = node.mac()?;
    node.speak(|speaker| async move {
        speaker.serve(&[V4], seconds(10.0));
        speaker.have(&[V4], true).await?;
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut client = Speaker::start().await?;
                tokio::time::sleep(seconds(0.05)).await;
                let probe = Transmit::Probe { ip: V4, interface: eth0() };
                client.edge.transmit.send(probe).await?;
                let first = answer(&mut client, seconds(5.0), V4).await?;
                ensure!(first.sender_mac == ours, "{first:?}");
                let second = answer(&mut client, seconds(0.2), V4).await;
                ensure!(second.is_err(), "a second MAC answers: {second:?}");
                Ok(())
            })
        };
        client.enter(work)
    })
}
