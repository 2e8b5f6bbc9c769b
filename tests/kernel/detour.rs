//! Around endpoints on nodes that are down.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::clock;
use leasehold::datapath::detour::{Detour, Detoured, TABLE};
use leasehold::net::conntrack::{self, Tracked};
use leasehold::net::nft::connection::Nfnetlink;
use leasehold::net::nft::family::Family;
use leasehold_core::desired::{Desired, Detour as Path, Detours, Protocol, Reach, ServicePort};
use tokio::sync::watch;

use crate::hosts::{Reached, tcp};
use crate::pods::{BOTH, DNS, HTTP, PATIENCE, POD, Pod, V4, V6, ask, connect, flow, repeats, who};
use crate::world::{Namespace, Speaker, Test, World, eventually};

pub const TESTS: &[Test] = &[
    ("new_connections_lead_to_living_endpoints_in_even_shares", living_endpoints),
    ("a_connection_that_was_not_answered_begins_anew", begins_anew),
    ("a_udp_flow_goes_on_with_a_living_endpoint", flow_goes_on),
    ("open_connections_to_lost_endpoints_are_reset_and_others_go_on", resets),
    ("a_client_stays_with_its_pod_if_that_lives", affinity),
    ("clients_that_kube_proxy_does_not_let_in_have_no_detour", sources),
    ("endpoints_that_change_are_followed_and_nothing_is_left_at_the_end", followed),
    ("detours_end_by_themselves_where_the_process_has", expire),
    ("a_flushed_ruleset_is_put_back", flushed),
    ("a_detour_and_host_protection_work_together", with_protection),
    ("detours_of_a_thousand_services_are_made_and_removed", a_thousand),
];

const SOON: Duration = Duration::from_secs(5);

/// A node that forwards, with the Service's addresses and what kube-proxy makes of it, and its pods elsewhere.
fn pods(world: &World) -> Result<[Pod; 3]> {
    let pods =
        [Pod::on_segment(world, 11)?, Pod::on_segment(world, 12)?, Pod::on_segment(world, 13)?];
    let node = &world.node;
    for setting in [
        "ipv4/ip_forward=1",
        "ipv4/conf/all/send_redirects=0",
        "ipv4/conf/eth0/send_redirects=0",
        "ipv6/conf/all/forwarding=1",
    ] {
        let (path, value) = setting.split_once('=').context("no value")?;
        node.write(&format!("/proc/sys/net/{path}"), value)?;
    }
    node.ip(&format!("addr add {V4}/32 dev eth0"))?;
    node.ip(&format!("addr add {V6}/128 dev eth0 nodad preferred_lft 0"))?;
    for (family, vip) in [("ip", V4), ("ip6", V6)] {
        let all: Vec<String> = (0..)
            .zip(&pods)
            .map(|(number, pod)| format!("{number} : {} . {POD}", pod.at(vip).0))
            .collect();
        let choose = format!("dnat to numgen random mod 3 map {{ {} }}", all.join(", "));
        let rules = format!(
            "table {family} kube-proxy {{
               chain prerouting {{ type nat hook prerouting priority -100;
                 {family} daddr {vip} tcp dport {HTTP} meta mark set 0x4000 {choose}
                 {family} daddr {vip} udp dport {DNS} meta mark set 0x4000 {choose}
               }}
               chain postrouting {{ type nat hook postrouting priority 100;
                 meta mark & 0x4000 != 0 masquerade fully-random
               }}
             }}"
        );
        node.nft(&[&rules])?;
    }
    Ok(pods)
}

/// Detours of both ports around some pods to others.
fn around(dead: &[&Pod], living: &[&Pod], change: impl Fn(&mut Path)) -> Detours {
    let mut ports = BTreeMap::new();
    for vip in BOTH {
        let at = |pods: &[&Pod]| pods.iter().map(|pod| pod.at(vip)).collect::<Vec<_>>();
        let mut path = Path { to: at(living).into(), around: at(dead).into(), ..Path::default() };
        change(&mut path);
        let family = |net: &&ipnet::IpNet| net.addr().is_ipv4() == vip.is_ipv4();
        path.sources = path.sources.iter().filter(family).copied().collect();
        for (protocol, port) in [(Protocol::Tcp, HTTP), (Protocol::Udp, DNS)] {
            ports.insert((vip, ServicePort { protocol, port }), Arc::new(path.clone()));
        }
    }
    Detours { ports, affine: BTreeSet::new() }
}

struct Running {
    detour: Detour,
    wanted: watch::Sender<Detours>,
}

impl Running {
    fn start() -> Result<Self> {
        let (detour, wanted) = Detour::start()?;
        Ok(Self { detour, wanted })
    }

    /// Makes these detours, and waits until they are there.
    async fn make(&self, detours: Detours) -> Result<Detoured> {
        let expected = detours.ports.len();
        let mut view = self.detour.detoured.clone();
        view.mark_unchanged();
        self.wanted.send_replace(detours);
        let made = view.wait_for(|view| view.ports == expected || view.failure.is_some());
        let made = tokio::time::timeout(SOON, made).await.context("not made")??.clone();
        ensure!(made.failure.is_none(), "{:?}", made.failure);
        Ok(made)
    }
}

/// A connection to this pod.
fn connected_with(client: &Namespace, ip: IpAddr, pod: u8) -> Result<TcpStream> {
    for _ in 0..100 {
        if let Some((stream, found)) = connect(client, ip, PATIENCE)?
            && found == pod
        {
            return Ok(stream);
        }
    }
    anyhow::bail!("no connection leads to pod {pod}")
}

fn living_endpoints(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    let client = &world.client;
    dead.die()?;
    world.node.block_on(|| async {
        let running = Running::start()?;
        for ip in BOTH {
            let lost = (0..30).filter(|_| who(client, ip).is_ok_and(|pod| pod.is_none())).count();
            ensure!(lost > 0, "{ip}: kube-proxy alone never leads to the dead pod");
        }
        running.make(around(&[dead], &[one, two], |_| {})).await?;
        for ip in BOTH {
            let mut count = BTreeMap::<_, usize>::new();
            for _ in 0..200 {
                *count.entry(who(client, ip)?).or_default() += 1;
            }
            let even = count.keys().copied().eq([Some(one.number), Some(two.number)])
                && count.values().all(|count| (70..=130).contains(count));
            ensure!(even, "{ip}: pod and number of connections: {count:?}");
            for _ in 0..20 {
                let pod = ask(&flow(client, ip)?);
                ensure!(pod.is_some_and(|pod| pod != dead.number), "{ip}: UDP to {pod:?}");
            }
        }
        // From the node itself as well.
        ensure!(
            (0..20).all(|_| who(&world.node, V4).is_ok_and(|pod| pod.is_some())),
            "from the node"
        );
        Ok(())
    })
}

fn begins_anew(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    let client = &world.client;
    dead.die()?;
    world.node.block_on(|| async {
        let running = Running::start()?;
        for ip in BOTH {
            running.make(Detours::default()).await?;
            let before = running.detour.detoured.borrow().forgotten;
            // Of thirty some wait for the dead pod; each sends again after a second.
            let attempts: Vec<_> = std::thread::scope(|scope| {
                let attempt = || connect(client, ip, SOON * 2);
                let attempts: Vec<_> = (0..30).map(|_| scope.spawn(attempt)).collect();
                let some_wait = wait_for_waiting(&world.node, ip, dead);
                running.wanted.send_replace(around(&[dead], &[one, two], |_| {}));
                let attempts: Vec<_> =
                    attempts.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
                some_wait.map(|()| attempts)
            })?;
            for attempt in attempts {
                let pod = attempt.map_err(|_| anyhow::anyhow!("panicked"))??.map(|(_, pod)| pod);
                ensure!(pod.is_some_and(|pod| pod != dead.number), "{ip}: led to {pod:?}");
            }
            let mut view = running.detour.detoured.clone();
            let counted = view.wait_for(|view| view.forgotten > before);
            tokio::time::timeout(SOON, counted).await.context("none was forgotten")??;
        }
        Ok(())
    })
}

/// Waits until the node tracks a connection that waits for the dead pod to answer.
fn wait_for_waiting(node: &Namespace, ip: IpAddr, dead: &Pod) -> Result<()> {
    let endpoint = SocketAddr::from(dead.at(ip));
    node.enter(|| {
        let mut connection = Nfnetlink::open()?;
        let deadline = clock::now() + SOON;
        while clock::now() < deadline {
            let waits = |tracked: &Tracked| !tracked.answered && tracked.endpoint == endpoint;
            if !conntrack::find(&mut connection, Family::of(ip), waits)?.is_empty() {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        anyhow::bail!("no connection waits for the dead pod")
    })
}

fn flow_goes_on(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, three] = &pods;
    let client = &world.client;
    world.node.block_on(|| async {
        let running = Running::start()?;
        for ip in BOTH {
            let flows: Vec<_> = (0..20).map(|_| flow(client, ip)).collect::<Result<_>>()?;
            let before: Vec<_> = flows.iter().map(ask).collect();
            ensure!(before.iter().all(Option::is_some), "{ip}: {before:?}");
            let dead = if ip.is_ipv4() { three } else { two };
            let living: Vec<&Pod> =
                [one, two, three].into_iter().filter(|it| it.number != dead.number).collect();
            dead.die()?;
            running.make(around(&[dead], &living, |_| {})).await?;
            for (flow, before) in flows.iter().zip(before) {
                let after = ask(flow).or_else(|| ask(flow));
                let stays = after == before || before == Some(dead.number);
                ensure!(after.is_some() && stays, "{ip}: a flow led from {before:?} to {after:?}");
            }
            dead.host.ip("link set eth0 up")?;
            dead.host.ip(&format!("addr replace {}/64 dev eth0 nodad", dead.at(V6).0))?;
            running.make(Detours::default()).await?;
        }
        Ok(())
    })
}

fn resets(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    let client = &world.client;
    world.node.block_on(|| async {
        let running = Running::start()?;
        let mut open = Vec::new();
        for ip in BOTH {
            for pod in &pods {
                open.push((ip, pod.number, connected_with(client, ip, pod.number)?));
            }
        }
        dead.die()?;
        // As long as it may come back its connections wait.
        running.make(around(&[dead], &[one, two], |_| {})).await?;
        for (ip, pod, stream) in &mut open {
            let outcome = repeats(stream).map_err(|error| error.kind());
            let expected = if *pod == dead.number { Err(ErrorKind::WouldBlock) } else { Ok(()) };
            ensure!(outcome == expected, "{ip} pod {pod}: {outcome:?} before it is lost");
        }
        let lost = |path: &mut Path| path.lost.clone_from(&path.around);
        running.make(around(&[dead], &[one, two], lost)).await?;
        // The view says how many ports are detoured; that endpoints are lost is another change.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for (ip, pod, stream) in &mut open {
            if *pod != dead.number {
                repeats(stream).with_context(|| format!("{ip} pod {pod}"))?;
                continue;
            }
            let ended = eventually("the connection is reset", SOON, || {
                Ok(repeats(stream).is_err_and(|error| {
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
                }))
            });
            ended.await.with_context(|| format!("{ip} pod {pod}"))?;
        }
        Ok(())
    })
}

fn affinity(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    let client = &world.client;
    let stranger = world.host("stranger", 3)?;
    world.node.block_on(|| async {
        let running = Running::start()?;
        let affine = |path: &mut Path| path.affine = true;
        let mut wanted = around(&[dead], &[one, two], affine);
        wanted.affine = wanted.ports.keys().copied().collect();
        let noting = Detours { ports: BTreeMap::new(), affine: wanted.affine.clone() };
        running.wanted.send_replace(noting);
        let there = || Ok(world.node.nft(&["list", "tables"])?.contains(TABLE));
        eventually("the table", SOON, there).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        for ip in BOTH {
            for pod in [one, two] {
                running.make(Detours { ports: BTreeMap::new(), ..wanted.clone() }).await?;
                drop(connected_with(client, ip, pod.number)?);
                running.make(wanted.clone()).await?;
                for _ in 0..20 {
                    let found = who(client, ip)?;
                    ensure!(
                        found == Some(pod.number),
                        "{ip}: from pod {} to {found:?}",
                        pod.number
                    );
                }
            }
            // Whose pod died gets another one, and stays there; as does who is new.
            running.make(Detours { ports: BTreeMap::new(), ..wanted.clone() }).await?;
            drop(connected_with(client, ip, dead.number)?);
            running.make(wanted.clone()).await?;
            for host in [client, &stranger] {
                let first = who(host, ip)?.context("nobody answers")?;
                ensure!(first != dead.number, "{ip}: to the dead pod");
                for _ in 0..20 {
                    let found = who(host, ip)?;
                    ensure!(found == Some(first), "{ip}: from {first} to {found:?}");
                }
            }
        }
        Ok(())
    })
}

fn sources(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    let other = world.host("other", 3)?;
    dead.die()?;
    world.node.block_on(|| async {
        let running = Running::start()?;
        let only = ["198.51.100.0/24", "192.0.2.2/32", "fd00::2/128"];
        let only: Vec<ipnet::IpNet> =
            only.into_iter().map(str::parse).collect::<std::result::Result<_, _>>()?;
        let of_client = |path: &mut Path| path.sources = only.clone().into();
        running.make(around(&[dead], &[one, two], of_client)).await?;
        for ip in BOTH {
            for _ in 0..40 {
                ensure!(who(&world.client, ip)?.is_some(), "{ip}: the client that is let in");
            }
            let lost = (0..40).filter(|_| who(&other, ip).is_ok_and(|pod| pod.is_none())).count();
            ensure!(lost > 0, "{ip}: kube-proxy is not asked about the other client");
        }
        Ok(())
    })
}

fn followed(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, three] = &pods;
    let client = &world.client;
    world.node.block_on(|| async {
        let before = world.node.nft(&["list", "ruleset"])?;
        let running = Running::start()?;
        let mut handles = BTreeSet::new();
        for (to, around_them) in [(one, [two, three]), (two, [one, three]), (three, [one, two])] {
            running.make(around(&around_them, &[to], |_| {})).await?;
            for ip in BOTH {
                eventually(&format!("{ip} leads to {} alone", to.number), SOON, || {
                    Ok((0..10).all(|_| who(client, ip).is_ok_and(|pod| pod == Some(to.number))))
                })
                .await?;
            }
            let listed = world.node.nft(&["-a", "list", "table", "inet", TABLE])?;
            handles.extend(listed.lines().next().map(str::to_owned));
        }
        ensure!(handles.len() == 1, "the table was made anew: {handles:?}");
        let table = world.node.nft(&["list", "table", "inet", TABLE])?;
        let chains = table.matches("chain to-").count();
        ensure!(chains == 2, "{chains} chains for one endpoint of each family: {table}");
        running.make(Detours::default()).await?;
        eventually("the table is gone", SOON, || {
            Ok(world.node.nft(&["list", "ruleset"])? == before)
        })
        .await?;
        Ok(())
    })
}

fn expire(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, three] = &pods;
    world.node.block_on(|| async {
        let running = Running::start()?;
        let lost = |path: &mut Path| path.lost.clone_from(&path.around);
        running.make(around(&[two, three], &[one], lost)).await?;
        // It is renewed as long as the process runs, …
        tokio::time::sleep(Duration::from_secs(18)).await;
        for ip in BOTH {
            for _ in 0..10 {
                ensure!(who(&world.client, ip)? == Some(one.number), "{ip}: after 18 s");
            }
        }
        let Running { wanted, mut detour } = running;
        drop(wanted);
        let _ = tokio::time::timeout(SOON, detour.tasks.join_next()).await;
        // … and ends after it.
        let others = || {
            let pods: Result<Vec<_>> = (0..10).map(|_| who(&world.client, V4)).collect();
            Ok(pods?.into_iter().flatten().any(|pod| pod != one.number))
        };
        eventually("kube-proxy leads again", Duration::from_secs(20), others).await?;
        // A new process finds it.
        let running = Running::start()?;
        running.make(around(&[two, three], &[one], |_| {})).await?;
        for ip in BOTH {
            ensure!(who(&world.client, ip)? == Some(one.number), "{ip}: a new process");
        }
        Ok(())
    })
}

fn flushed(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, three] = &pods;
    world.node.block_on(|| async {
        let running = Running::start()?;
        running.make(around(&[two, three], &[one], |_| {})).await?;
        let alone = || {
            let pods: Result<Vec<_>> = (0..10).map(|_| who(&world.client, V4)).collect();
            Ok(pods?.iter().all(|pod| *pod == Some(one.number)))
        };
        for command in [
            "flush ruleset".to_owned(),
            format!("flush chain inet {TABLE} prerouting"),
            format!("delete table inet {TABLE}"),
            format!("flush map inet {TABLE} ports4"),
            format!("add rule inet {TABLE} prerouting counter drop"),
        ] {
            let words: Vec<&str> = command.split_whitespace().collect();
            world.node.nft(&words)?;
            eventually(&format!("put back after `{command}`"), SOON, alone).await?;
        }
        Ok(())
    })
}

fn with_protection(world: &World) -> Result<()> {
    let pods = pods(world)?;
    let [one, two, dead] = &pods;
    dead.die()?;
    let _servers = crate::hosts::Servers::start(&world.node, &[22], &[])?;
    world.node.ip(&format!("addr del {V4}/32 dev eth0"))?;
    world.node.ip(&format!("addr del {V6}/128 dev eth0"))?;
    world.node.speak(|speaker: Speaker| async move {
        let ports = [
            ServicePort { protocol: Protocol::Tcp, port: HTTP },
            ServicePort { protocol: Protocol::Udp, port: DNS },
        ];
        let reach = Reach::Only(Arc::new(ports.into()));
        let reach = BOTH.map(|ip| (ip, reach.clone())).into();
        let desired = Desired { reach, ..Desired::default() };
        speaker.guard.desired.send_replace(Some(Arc::new(desired)));
        let running = Running::start()?;
        running.make(around(&[dead], &[one, two], |_| {})).await?;
        speaker.serve(&BOTH, Duration::from_secs(30));
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            for _ in 0..20 {
                ensure!(who(&world.client, ip)?.is_some(), "{ip}: a new connection fails");
            }
            ensure!(tcp(&world.client, ip, 22)? == Reached::Silent, "{ip}: sshd is reached");
        }
        Ok(())
    })
}

fn a_thousand(world: &World) -> Result<()> {
    world.node.block_on(|| async {
        let running = Running::start()?;
        let mut ports = BTreeMap::new();
        for number in 0..1_000_u16 {
            let [high, low] = number.to_be_bytes();
            let to = (0..3).map(|pod| (IpAddr::from([10, pod, high, low]), POD)).collect();
            let path = Path {
                to,
                around: [(IpAddr::from([10, 9, high, low]), POD)].into(),
                ..Path::default()
            };
            let port = ServicePort { protocol: Protocol::Tcp, port: HTTP };
            ports.insert((IpAddr::from([198, 51, high, low]), port), Arc::new(path));
        }
        let half = ports.clone().into_iter().skip(500).collect();
        running.make(Detours { ports, affine: BTreeSet::new() }).await?;
        let chains = || -> Result<usize> {
            let table = world.node.nft(&["list", "table", "inet", TABLE])?;
            Ok(table.matches("chain to-").count())
        };
        ensure!(chains()? == 1_000, "{} chains", chains()?);
        running.make(Detours { ports: half, affine: BTreeSet::new() }).await?;
        ensure!(chains()? == 500, "{} chains of half of them", chains()?);
        running.make(Detours::default()).await?;
        eventually("the table is gone", SOON, || {
            Ok(!world.node.nft(&["list", "tables"])?.contains(TABLE))
        })
        .await?;
        Ok(())
    })
}
