//! What of a node can be reached by the addresses that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::clock;
use leasehold::datapath::guard::{Guarded, TABLE};
use leasehold_core::desired::{Desired, Protocol, Reach, ServicePort};

use crate::hosts::{Reached, Servers, pings, tcp, udp};
use crate::world::{Namespace, Speaker, Test, World, eventually};

pub const TESTS: &[Test] = &[
    ("by_an_address_only_the_ports_of_its_services_are_reached", only_the_services),
    ("a_long_datagram_to_a_service_comes_through_in_fragments", fragments),
    ("an_address_is_never_there_without_its_protection", never_without),
    ("ports_and_policies_are_followed_at_once", followed_at_once),
    ("protection_survives_the_process_and_is_remembered_for_the_next", survives),
    ("a_nodes_own_address_is_never_protected", own_address),
    ("a_flushed_ruleset_is_put_back_and_other_tables_are_left_alone", flushed),
    ("rules_that_somebody_adds_to_the_table_are_removed", added_by_somebody),
    ("a_table_that_was_changed_often_is_put_back_as_soon_as_any", changed_often),
    ("protection_that_runs_out_is_renewed", renewed),
    ("a_table_that_cannot_be_changed_does_not_keep_an_address_away", cannot_be_changed),
    ("nft_shows_what_the_table_is_for", shown_by_nft),
    ("a_thousand_addresses_are_protected", a_thousand),
];

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100));
const BOTH: [IpAddr; 2] = [V4, V6];
/// The Service's ports, and what else the node has.
const HTTP: u16 = 80;
const SSH: u16 = 22;
const DNS: u16 = 53;
const KUBELET: u16 = 10_250;

/// What is reached of it.
const SERVICE: (&[u16], &[u16]) = (&[HTTP], &[DNS]);

const LONG: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(5);

fn only(ports: &[(Protocol, u16)]) -> Reach {
    let ports =
        ports.iter().map(|(protocol, port)| ServicePort { protocol: *protocol, port: *port });
    Reach::Only(Arc::new(ports.collect()))
}

fn service() -> Reach {
    only(&[(Protocol::Tcp, HTTP), (Protocol::Udp, DNS)])
}

fn servers(node: &Namespace) -> Result<Servers> {
    Servers::start(node, &[HTTP, SSH, KUBELET], &[DNS, KUBELET])
}

/// Says what the cluster's objects say.
fn tell(speaker: &Speaker, reach: &Reach, addresses: &[IpAddr]) {
    let reach: BTreeMap<IpAddr, Reach> = addresses.iter().map(|ip| (*ip, reach.clone())).collect();
    speaker.guard.desired.send_replace(Some(Arc::new(Desired { reach, ..Desired::default() })));
}

async fn guarded(
    speaker: &Speaker,
    what: &str,
    condition: impl FnMut(&Guarded) -> bool,
) -> Result<Guarded> {
    let mut guarded = speaker.guard.guarded.clone();
    let waited = tokio::time::timeout(SOON, guarded.wait_for(condition)).await;
    let waited = waited.with_context(|| {
        format!("not within {SOON:?}: {what}; it was {:?}", *speaker.guard.guarded.borrow())
    })?;
    Ok(waited?.clone())
}

async fn protects(speaker: &Speaker, addresses: &[IpAddr]) -> Result<Guarded> {
    let expected: BTreeSet<IpAddr> = addresses.iter().copied().collect();
    guarded(speaker, &format!("{addresses:?} are protected"), |g| g.protected == expected).await
}

/// Has both addresses of the Service, protected.
async fn serve_protected(speaker: &Speaker) -> Result<()> {
    tell(speaker, &service(), &BOTH);
    speaker.serve(&BOTH, LONG);
    protects(speaker, &BOTH).await?;
    speaker.have(&BOTH, true).await?;
    Ok(())
}

fn rules(node: &Namespace) -> Result<String> {
    node.nft(&["list", "ruleset"])
}

/// Asserts that the client reaches these TCP and UDP ports by `ip`, and no others.
fn reaches(client: &Namespace, ip: IpAddr, when: &str, expected: (&[u16], &[u16])) -> Result<()> {
    let found = scan(client, ip)?;
    ensure!(found.0 == expected.0 && found.1 == expected.1, "{when}: {ip} leads to {found:?}");
    Ok(())
}

/// What the client reaches by `ip`: TCP ports, then UDP ports.
fn scan(client: &Namespace, ip: IpAddr) -> Result<(Vec<u16>, Vec<u16>)> {
    let mut found = (Vec::new(), Vec::new());
    for port in [HTTP, SSH, KUBELET, DNS, 1_234] {
        match tcp(client, ip, port)? {
            Reached::Yes => found.0.push(port),
            // Even that nobody is there is not told.
            Reached::Silent => {}
            Reached::Refused => anyhow::bail!("TCP port {port} of {ip} is refused"),
        }
    }
    for port in [DNS, KUBELET, HTTP, 1_234] {
        match udp(client, ip, port, 10)? {
            Reached::Yes => found.1.push(port),
            Reached::Silent => {}
            Reached::Refused => anyhow::bail!("UDP port {port} of {ip} is refused"),
        }
    }
    Ok(found)
}

fn only_the_services(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    node.speak(|speaker| async move {
        tell(&speaker, &service(), &BOTH);
        speaker.serve(&BOTH, LONG);
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            reaches(client, ip, "protected", SERVICE)?;
            ensure!(pings(client, ip)?, "{ip} does not answer a ping");
            // The node itself reaches all that it has.
            ensure!(tcp(node, ip, SSH)? == Reached::Yes, "{ip} from the node");
        }
        for own in ["192.0.2.1".parse()?, "fd00::1".parse()?] {
            ensure!(tcp(client, own, SSH)? == Reached::Yes, "{own}: its own address");
            ensure!(udp(client, own, KUBELET, 10)? == Reached::Yes, "{own}: its own address");
            ensure!(tcp(client, own, 1_234)? == Reached::Refused, "{own}: its own address");
        }
        Ok(())
    })
}

fn fragments(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let client = &world.client;
    world.node.speak(|speaker| async move {
        tell(&speaker, &service(), &BOTH);
        speaker.serve(&BOTH, LONG);
        speaker.have(&BOTH, true).await?;
        for ip in BOTH {
            ensure!(udp(client, ip, DNS, 5_000)? == Reached::Yes, "{ip}: in fragments");
            ensure!(udp(client, ip, KUBELET, 5_000)? == Reached::Silent, "{ip}: another port");
        }
        Ok(())
    })
}

fn never_without(world: &World) -> Result<()> {
    const ROUNDS: usize = 30;
    let _servers = servers(&world.node)?;
    let [open, closed] = [DNS, KUBELET].map(|port| (port, AtomicUsize::new(0)));
    let done = AtomicBool::new(false);
    let flood = |(port, answers): &(u16, AtomicUsize)| {
        world.client.enter(|| {
            let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(1)))?;
            let mut buffer = [0; 16];
            while !done.load(Ordering::Relaxed) {
                // Until the address answers ARP nothing is sent.
                let _ = socket.send_to(b"x", (V4, *port));
                let answered = socket.recv_from(&mut buffer).is_ok();
                answers.fetch_add(usize::from(answered), Ordering::Relaxed);
            }
            Ok(())
        })
    };
    let (mut slowest, mut rounds) = (Duration::ZERO, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&open));
        scope.spawn(|| flood(&closed));
        let served = world.node.speak(|speaker| async {
            let speaker = speaker;
            tell(&speaker, &service(), &[V4]);
            for _ in 0..10 * ROUNDS {
                let (start, before) = (clock::now(), closed.1.load(Ordering::Relaxed));
                speaker.serve(&[V4], LONG);
                protects(&speaker, &[V4]).await?;
                let took = clock::now().saturating_since(start);
                speaker.have(&[V4], true).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
                speaker.serve(&[], Duration::ZERO);
                speaker.have(&[V4], false).await?;
                protects(&speaker, &[]).await?;
                // An address does not wait for a machine that is too busy: such a round is void.
                if took < Duration::from_millis(40) {
                    let answers = closed.1.load(Ordering::Relaxed) - before;
                    ensure!(answers == 0, "{answers} answers of the node in round {rounds}");
                    slowest = slowest.max(took);
                    rounds += 1;
                }
                if rounds == ROUNDS {
                    break;
                }
            }
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        served
    })?;
    let answers = open.1.load(Ordering::Relaxed);
    println!("{answers} answers of the Service; protected after {slowest:?} at most");
    ensure!(rounds == ROUNDS, "the machine is too busy: {rounds} rounds only");
    ensure!(answers > 0, "no answers of the Service");
    Ok(())
}

fn followed_at_once(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        ensure!(tcp(client, V4, KUBELET)? == Reached::Silent);
        tell(&speaker, &only(&[(Protocol::Tcp, KUBELET)]), &BOTH);
        for ip in BOTH {
            eventually("the new port is open", SOON, || {
                Ok(tcp(client, ip, KUBELET)? == Reached::Yes)
            })
            .await?;
            ensure!(tcp(client, ip, HTTP)? == Reached::Silent, "{ip}: the old port");
        }
        tell(&speaker, &Reach::Everything, &[V6]);
        // Whose Service is gone stays as it was.
        protects(&speaker, &[V4]).await?;
        ensure!(tcp(client, V6, SSH)? == Reached::Yes);
        reaches(client, V4, "its Service is gone", (&[KUBELET], &[]))?;
        speaker.serve(&[], Duration::ZERO);
        speaker.have(&BOTH, false).await?;
        protects(&speaker, &[]).await?;
        ensure!(rules(node)?.is_empty(), "left behind: {}", rules(node)?);
        Ok(())
    })
}

fn survives(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    node.speak(|speaker| async move {
        tell(&speaker, &service(), &BOTH);
        speaker.serve(&BOTH, LONG);
        speaker.have(&BOTH, true).await.map(drop)
    })?;
    // Nobody is there.
    for ip in BOTH {
        reaches(client, ip, "without a process", SERVICE)?;
    }
    let before = rules(node)?;
    node.speak(|speaker| async move {
        // What the cluster asks for is not known yet.
        protects(&speaker, &BOTH).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        ensure!(without_times(&rules(node)?) == without_times(&before), "{}", rules(node)?);
        reaches(client, V4, "before the cluster is known", SERVICE)?;
        speaker.serve(&[V4], LONG);
        speaker.have(&[V6], false).await?;
        protects(&speaker, &[V4]).await?;
        tell(&speaker, &only(&[(Protocol::Tcp, KUBELET)]), &BOTH);
        eventually("the new port is open", SOON, || Ok(tcp(client, V4, KUBELET)? == Reached::Yes))
            .await?;
        reaches(client, V4, "after the cluster is known", (&[KUBELET], &[]))?;
        Ok(())
    })?;
    // The address lapses while nobody is there: the next process removes its protection.
    node.ip("addr del 192.0.2.100/32 dev eth0")?;
    node.speak(|speaker| async move {
        eventually("the table is gone", SOON, || Ok(rules(node)?.is_empty())).await?;
        protects(&speaker, &[]).await.map(drop)
    })
}

/// A ruleset without what goes on by itself.
fn without_times(rules: &str) -> String {
    let words = rules.split_whitespace();
    let mut last = "";
    let kept = words.filter(|word| {
        let moving = ["expires", "packets", "bytes"].contains(&std::mem::replace(&mut last, word));
        !moving
    });
    kept.collect::<Vec<_>>().join(" ")
}

fn own_address(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let own: [IpAddr; 2] = ["192.0.2.1".parse()?, "fd00::1".parse()?];
    let all = [own.as_slice(), &[V4]].concat();
    world.node.speak(|speaker| async move {
        tell(&speaker, &service(), &all);
        speaker.serve(&all, LONG);
        speaker.have(&[V4], true).await?;
        protects(&speaker, &[V4]).await?;
        for ip in own {
            ensure!(tcp(&world.client, ip, SSH)? == Reached::Yes, "{ip} was cut off");
        }
        // An administrator gives the node an address that is served.
        world.node.ip("addr add 192.0.2.100/24 dev eth0")?;
        protects(&speaker, &[]).await?;
        ensure!(tcp(&world.client, V4, SSH)? == Reached::Yes);
        Ok(())
    })
}

const OTHER: &str = "table ip other {\n\tchain input {\n\t\ttype filter hook input priority filter; \
                     policy accept;\n\t\ttcp dport 1 drop\n\t}\n}\n";

fn flushed(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    let other = ["list", "table", "ip", "other"];
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        let before = without_times(&rules(node)?);
        let mut slowest = Duration::ZERO;
        for round in 1..=3 {
            node.nft(&[&format!("flush ruleset\n{OTHER}")])?;
            let start = clock::now();
            let repaired = format!("repaired {round} times");
            guarded(&speaker, &repaired, |guarded| guarded.repairs == round).await?;
            eventually("the rules are back", SOON, || {
                Ok(without_times(&node.nft(&["list", "table", "inet", TABLE])?) == before)
            })
            .await?;
            slowest = slowest.max(clock::now().saturating_since(start));
            reaches(client, V4, &repaired, SERVICE)?;
        }
        println!("put back within {slowest:?}");
        ensure!(node.nft(&other)? == OTHER, "{}", node.nft(&other)?);
        speaker.serve(&[], Duration::ZERO);
        protects(&speaker, &[]).await?;
        ensure!(rules(node)? == OTHER, "{}", rules(node)?);
        // Others may do what they like as long as it is not about our table.
        node.nft(&["delete", "table", "ip", "other"])?;
        ensure!(speaker.guard.guarded.borrow().repairs == 3);
        Ok(())
    })
}

fn changed_often(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        let before = without_times(&rules(node)?);
        let mended =
            || Ok(node.nft(&["list", "ruleset"]).is_ok_and(|it| without_times(&it) == before));
        for _ in 0..50 {
            node.nft(&["add rule inet leasehold guard4 counter"])?;
        }
        eventually("mended", SOON, mended).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        node.nft(&["delete table inet leasehold"])?;
        let took = eventually("put back", SOON, mended).await?;
        println!("put back after {took:?}");
        Ok(())
    })
}

fn added_by_somebody(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        let before = without_times(&rules(node)?);
        let edits = [
            "insert rule inet leasehold guard4 accept",
            "flush chain inet leasehold prerouting",
            "add element inet leasehold ports4 { 192.0.2.100 . tcp . 22 }",
            "delete element inet leasehold addresses4 { 192.0.2.100 }",
            "add element inet leasehold ports4 { 192.0.2.100 . icmp . 22 }",
            "add table inet leasehold { flags dormant; }",
        ];
        for (edit, round) in edits.into_iter().zip(1..) {
            node.nft(&[edit])?;
            guarded(&speaker, edit, |guarded| guarded.repairs == round).await?;
            let what = format!("mended after `{edit}`");
            eventually(&what, SOON, || Ok(without_times(&rules(node)?) == before)).await?;
            ensure!(tcp(client, V4, SSH)? == Reached::Silent, "{edit}");
        }
        Ok(())
    })
}

fn renewed(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        let fresh = |text: &str| text.matches("timeout 20m").count() == 2;
        ensure!(fresh(&rules(node)?), "{}", rules(node)?);
        node.nft(&["delete element inet leasehold addresses6 { fd00::100 }\n\
             add element inet leasehold addresses6 { fd00::100 timeout 9m }"])?;
        eventually("renewed", SOON, || Ok(fresh(&rules(node)?))).await?;
        Ok(())
    })
}

fn cannot_be_changed(world: &World) -> Result<()> {
    let _servers = servers(&world.node)?;
    let (node, client) = (&world.node, &world.client);
    // A table belongs to who made it with this flag, for as long as that process lives.
    let mut owner = node.enter(|| {
        let owner =
            Command::new("nft").arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(owner?)
    })?;
    let mut input = owner.stdin.take().context("no input")?;
    writeln!(input, "add table inet leasehold {{ flags owner; }}")?;
    input.flush()?;
    let patience = clock::now() + SOON;
    while rules(node)?.is_empty() {
        ensure!(clock::now() < patience, "nft has not made the table");
    }
    node.speak(|speaker| async move {
        tell(&speaker, &service(), &BOTH);
        let start = clock::now();
        speaker.serve(&BOTH, LONG);
        speaker.have(&BOTH, true).await?;
        println!("there after {:?}", clock::now().saturating_since(start));
        let told = guarded(&speaker, "exposed", |guarded| guarded.exposure.is_some()).await?;
        let exposure = told.exposure.clone().context("no exposure")?;
        ensure!(exposure.addresses == BOTH.into(), "{exposure:?}");
        ensure!(exposure.cause.contains("Operation not permitted"), "{exposure:?}");
        ensure!(told.protected.is_empty() && told.settled == BOTH.into(), "{told:?}");
        ensure!(tcp(client, V4, SSH)? == Reached::Yes);
        drop(input);
        owner.wait()?;
        let told = protects(&speaker, &BOTH).await?;
        ensure!(told.exposure.is_none(), "{told:?}");
        reaches(client, V4, "after its owner has gone", SERVICE)?;
        Ok(())
    })
}

fn shown_by_nft(world: &World) -> Result<()> {
    let node = &world.node;
    node.speak(|speaker| async move {
        serve_protected(&speaker).await?;
        let text = rules(node)?;
        for part in [
            "table inet leasehold",
            "type filter hook prerouting priority raw; policy accept;",
            "192.0.2.100 . tcp . 80",
            "192.0.2.100 . udp . 53",
            "elements = { 192.0.2.100 timeout 20m expires ",
            "elements = { fd00::100 timeout 20m expires ",
            "ip daddr . meta l4proto . th dport @ports4 accept comment \"ports of the Services [",
            "ip6 daddr . meta l4proto . th dport @ports6 accept comment \"ports of the Services [",
            "ip frag-off & 8191 != 0 accept comment \"fragments but the first [",
            "frag frag-off != 0 accept comment \"fragments but the first [",
            "meta l4proto icmp accept comment \"ICMP [",
            "meta l4proto ipv6-icmp accept comment \"ICMP [",
            "iif \"lo\" accept comment \"from this node [",
            "ip daddr @addresses4 goto guard4 comment \"to an address of Services [",
            "ip6 daddr @addresses6 goto guard6 comment \"to an address of Services [",
            "counter packets 0 bytes 0 drop comment \"what is not of the Services [",
        ] {
            ensure!(text.contains(part), "`{part}` is not in {text}");
        }
        Ok(())
    })
}

fn a_thousand(world: &World) -> Result<()> {
    let ports: Vec<_> = (1..=10).map(|port| (Protocol::Tcp, port)).collect();
    let vips: Vec<IpAddr> =
        (0..1_000_u32).map(|number| Ipv4Addr::from_bits(0xc633_6400 + number).into()).collect();
    world.node.speak(|speaker| async move {
        tell(&speaker, &only(&ports), &vips);
        let start = clock::now();
        speaker.serve(&vips, LONG);
        protects(&speaker, &vips).await?;
        println!(
            "1,000 addresses with 10 ports each after {:?}",
            clock::now().saturating_since(start)
        );
        speaker.have(&vips, true).await?;
        println!("... and on the interface after {:?}", clock::now().saturating_since(start));
        let start = clock::now();
        tell(&speaker, &only(&[(Protocol::Tcp, 1)]), &vips);
        eventually("the ports are gone", SOON, || {
            let listed = world.node.nft(&["list", "set", "inet", TABLE, "ports4"])?;
            Ok(listed.matches(" . tcp . ").count() == 1_000)
        })
        .await?;
        println!("... and 9,000 ports removed after {:?}", clock::now().saturating_since(start));
        Ok(())
    })
}
