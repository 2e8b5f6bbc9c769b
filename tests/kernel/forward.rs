//! Connections that outlive a move of their address.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::clock;
use leasehold::datapath::forward::TABLE;
use leasehold::datapath::guard::Guard;
use leasehold::net::conntrack;
use leasehold::net::nft::connection::{Change, Nfnetlink};
use leasehold::net::nft::family::Family;
use leasehold::net::nft::rules;
use leasehold::net::rtnl::links::Links;
use leasehold_core::desired::{Desired, Protocol, Reach, ServicePort};
use leasehold_core::election::Forwarding;
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableFlags};

use crate::hosts::{Reached, Servers, tcp};
use crate::moves::{Node, Open, Running, SOON, far, no_table, onward, unknown, visits};
use crate::pods::{BOTH, DNS, HTTP, V4, answered, flow, who};
use crate::world::{Namespace, Test, World, eventually};

pub const TESTS: &[Test] = &[
    ("open_connections_survive_a_move_and_new_ones_begin_on_the_new_owner", survive),
    ("open_connections_survive_two_moves_in_a_row", chain),
    ("open_connections_survive_a_move_and_the_move_back", back),
    ("an_unknown_packet_ends_in_a_circle_of_owners", circle),
    ("a_udp_flow_that_sends_in_time_stays_and_a_new_one_does_not", flows),
    ("errors_of_the_path_reach_the_node_that_knows_the_connection", errors),
    ("forwarding_ends_by_itself_and_leaves_nothing", ends),
    ("forwarding_that_somebody_removes_is_put_back", put_back),
    ("forwarding_that_the_kernel_refuses_is_told_and_tried_again", refused),
    ("forwarding_follows_an_interface_that_comes_anew", anew),
    ("forwarding_of_two_thousand_addresses_is_made_and_removed", thousands),
    ("forwarding_and_host_protection_work_together", with_protection),
    ("an_address_that_is_on_another_node_has_clients_send_again", again),
    ("open_connections_are_counted", counted),
];

fn two(world: &World) -> Result<[Node; 2]> {
    Ok([Node::new(world, "nodea", 11)?, Node::new(world, "nodeb", 12)?])
}

fn three(world: &World) -> Result<[Node; 3]> {
    let [a, b] = two(world)?;
    Ok([a, b, Node::new(world, "nodec", 13)?])
}

/// New connections begin on this node.
fn begin_at(node: &Node, client: &Namespace) -> Result<()> {
    for vip in BOTH {
        let found = who(client, vip)?;
        ensure!(found == Some(node.pod.number), "{vip}: a new connection leads to {found:?}");
    }
    Ok(())
}

fn survive(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let lost = Open::at(a, client, 5)?;
        b.serves(nodes, &[client])?;
        lost.reset("nothing is forwarded")?;

        a.serves(nodes, &[client])?;
        let mut open = Open::at(a, client, 24)?;
        let running = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[client])?;
        open.live("after the move")?;
        begin_at(b, client)?;
        open.live("beside new ones")?;
        Open::at(b, client, 5)?.live("new ones")?;
        ensure!(b.counted("of an open connection")? > 0, "nothing is counted");
        b.host.write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0")?;
        open.live("where packets in midstream are not tracked")?;
        drop(running);
        Ok(())
    })
}

/// The forwarding of IPv6 leads to link-local addresses.
fn by_link_local(mut forwarding: Forwarding, to: &Node) -> Result<Forwarding> {
    let shown = to.host.ip("-6 -o addr show dev eth0 scope link")?;
    let own = shown.split_whitespace().skip_while(|word| *word != "inet6").nth(1);
    let own = own.and_then(|own| own.split('/').next()).context("no link-local address")?;
    let hops = forwarding.onward.values_mut().filter_map(|onward| onward.to.as_mut());
    for hop in hops.filter(|hop| hop.to.is_ipv6()) {
        hop.to = own.parse()?;
    }
    Ok(forwarding)
}

fn chain(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let mut oldest = Open::at(a, client, 10)?;
        let on_b = Running::with(b, by_link_local(onward(a, &[], &[a, c])?, a)?).await?;
        b.serves(nodes, &[client])?;
        let mut newer = Open::at(b, client, 10)?;
        oldest.live("after one move")?;

        let on_c = Running::with(c, by_link_local(onward(b, &[], &[a, b])?, b)?).await?;
        c.serves(nodes, &[client])?;
        newer.live("after one move")?;
        // B sends on what comes from C once it knows that C has owned the addresses after it.
        let mut late = Open::at(c, client, 1)?;
        on_b.make(by_link_local(onward(a, &[c], &[a, c])?, a)?).await?;
        oldest.live("after two moves")?;
        late.live("new ones")?;
        begin_at(c, client)?;
        drop((on_b, on_c));
        Ok(())
    })
}

fn back(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let mut oldest = Open::at(a, client, 10)?;
        let on_b = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[client])?;
        let mut newer = Open::at(b, client, 10)?;
        oldest.live("after the move")?;

        // What the other node forwards is as it was.
        let on_a = Running::with(a, onward(b, &[], &[b])?).await?;
        a.serves(nodes, &[client])?;
        oldest.live("after the move back")?;
        newer.live("after the move back")?;
        begin_at(a, client)?;

        let (_stranger, streams) = unknown(world, "stranger", 9)?;
        a.serves(nodes, &[client])?;
        let seen = visits(streams, nodes)?;
        let once = (true, vec![1, 1]);
        ensure!(seen == [once.clone(), once], "reset, and seen once by each node, not {seen:?}");
        drop((on_a, on_b));
        Ok(())
    })
}

/// While an address moves, what comes for it where it is not is sent again.
fn again(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    let on_another = |mut forwarding: Forwarding| {
        forwarding.onward.values_mut().for_each(|onward| onward.owned = false);
        forwarding
    };
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let mut open = Open::at(a, client, 3)?;
        let running = Running::with(b, on_another(onward(a, &[], &[a])?)).await?;
        b.serves(nodes, &[client])?;
        open.wait("it is not this node's")?;
        begin_at(b, client)?;
        running.make(onward(a, &[], &[a])?).await?;
        open.go_on("it is")?;

        // From an owner before that has not heard of the move.
        let mut from_before = onward(a, &[], &[a])?;
        from_before
            .onward
            .values_mut()
            .for_each(|onward| onward.others = [a.host.mac()].into_iter().flatten().collect());
        running.make(from_before).await?;
        let on_a = Running::with(a, on_another(onward(b, &[], &[b])?)).await?;
        let mut newer = Open::at(b, client, 3)?;
        a.serves(nodes, &[client])?;
        newer.wait("clients are to send again")?;
        on_a.make(onward(b, &[], &[b])?).await?;
        newer.go_on("what this node knows is not dropped")?;
        Ok(())
    })
}

/// The addresses went from A to B, to C, and to A again.
fn circle(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        let on_a = Running::with(a, onward(c, &[], &[b, c])?).await?;
        let _on_c = Running::with(c, onward(b, &[a], &[a, b])?).await?;
        // The owner before B owns the addresses again: it is not older.
        let on_b = Running::with(b, Forwarding::default()).await?;
        let (_first, streams) = unknown(world, "first", 9)?;
        a.serves(nodes, &[client])?;
        let seen = visits(streams, nodes)?;
        let once = (true, vec![1, 1, 1]);
        ensure!(seen == [once.clone(), once], "reset, and seen once by each node, not {seen:?}");

        // Where B has not noticed, the packet ends at the owner, which sends on nothing of a speaker's.
        on_b.make(onward(a, &[c, a], &[a, c])?).await?;
        let (_second, streams) = unknown(world, "second", 8)?;
        a.serves(nodes, &[client])?;
        let seen = visits(streams, nodes)?;
        let back = (true, vec![2, 1, 1]);
        ensure!(seen == [back.clone(), back], "reset by the owner, not {seen:?}");

        // Where all take each other for later owners, it goes round until its hop limit.
        on_a.make(onward(c, &[b], &[b, c])?).await?;
        let (_third, streams) = unknown(world, "third", 7)?;
        a.serves(nodes, &[client])?;
        let seen = visits(streams, nodes)?;
        let round = |(_, seen): &(bool, Vec<u64>)| seen.iter().all(|count| *count > 15);
        ensure!(seen.iter().all(round), "the fault that was planted is not seen: {seen:?}");
        Ok(())
    })
}

fn with_flows(mut forwarding: Forwarding, until: Duration) -> Forwarding {
    for onward in forwarding.onward.values_mut() {
        onward.flows_until = Some(clock::now() + until);
    }
    forwarding
}

fn flows(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    let [at_a, at_b] = [Some(a.pod.number), Some(b.pod.number)];
    let all = || BOTH.into_iter().map(|vip| flow(client, vip)).collect::<Result<Vec<UdpSocket>>>();
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let (steady, silent, lost) = (all()?, all()?, all()?);
        for flow in [&steady, &silent, &lost].into_iter().flatten() {
            ensure!(answered(flow) == at_a, "no flow");
        }
        let plain = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[client])?;
        for flow in &lost {
            ensure!(answered(flow) == at_b, "a flow stays though none is forwarded");
        }

        plain.make(with_flows(onward(a, &[], &[a])?, Duration::from_secs(2))).await?;
        for flow in &steady {
            ensure!(answered(flow) == at_a, "it sends in time and moves");
        }
        for flow in &lost {
            ensure!(answered(flow) == at_b, "a flow that is known here is sent on");
        }
        let fresh = |vip: IpAddr| -> Result<bool> {
            let family = if vip.is_ipv4() { "ip" } else { "ip6" };
            let set = b.host.nft(&["list", "set", family, TABLE, "fresh"])?;
            Ok(set.contains(&vip.to_string()))
        };
        for vip in BOTH {
            ensure!(fresh(vip)?, "{vip}: flows do not count");
        }
        for vip in BOTH {
            eventually("the end of the time for flows", SOON, || Ok(!fresh(vip)?)).await?;
        }
        for flow in &steady {
            ensure!(answered(flow) == at_a, "it moves after it has sent in time");
        }
        for flow in silent.iter().chain(&all()?) {
            ensure!(answered(flow) == at_b, "it was not sent in time and stays");
        }
        Ok(())
    })
}

fn errors(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let nodes = &[a, b];
    let [router, far] = &far(world, nodes)?;
    world.node.block_on(|| async {
        a.serves(nodes, &[router])?;
        let mut open = Open::at(a, far, 2)?;
        let running = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[router])?;
        router.ip("link set far0 mtu 1400")?;
        open.live("packets have to become smaller")?;
        for family in ["ip", "ip6"] {
            let table = b.host.nft(&["list", "table", family, TABLE])?;
            let error = |line: &&str| line.contains("an error") && !line.contains("packets 0");
            ensure!(table.lines().any(|line| error(&line)), "{family}: no error came: {table}");
        }
        drop(running);
        Ok(())
    })
}

fn ends(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    let for_moments = || -> Result<Forwarding> {
        let mut forwarding = onward(a, &[a], &[a])?;
        for onward in forwarding.onward.values_mut() {
            onward.until = clock::now() + Duration::from_secs(2);
        }
        Ok(forwarding)
    };
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        b.host.nft(&["table inet another { chain c { }; }"])?;
        let before = b.host.nft(&["list", "ruleset"])?;
        let running = Running::with(b, for_moments()?).await?;
        running.seen(|view| view.addresses == 2).await?;
        running.seen(|view| view.addresses == 0).await?;
        ensure!(b.host.nft(&["list", "ruleset"])? == before, "something is left, or lost");

        running.make(onward(a, &[], &[a])?).await?;
        running.make(Forwarding::default()).await?;
        ensure!(b.host.nft(&["list", "ruleset"])? == before, "something is left, or lost");

        // The process ends, its tables stay, and their elements end.
        let open = Open::at(a, client, 2)?;
        running.make(for_moments()?).await?;
        running.end().await;
        b.serves(nodes, &[client])?;
        let left = || -> Result<bool> { Ok(b.host.nft(&["list", "ruleset"])?.contains("expires")) };
        ensure!(left()?, "nothing is there after the process");
        eventually("the elements end", SOON, || Ok(!left()?)).await?;
        open.reset("what is forwarded has ended")?;

        let running = Running::start(&b.host, b.links()?)?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        ensure!(b.host.nft(&["list", "tables"])?.contains(TABLE), "nobody said what is wanted");
        running.make(Forwarding::default()).await?;
        no_table(&b.host).await
    })
}

fn put_back(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let mut open = Open::at(a, client, 2)?;
        let running = Running::with(b, onward(a, &[a], &[a])?).await?;
        b.serves(nodes, &[client])?;
        // All but numbers: those of packets and of what is left of lifetimes change.
        let shape = || -> Result<String> {
            let mut shape = String::new();
            for family in ["ip", "ip6"] {
                let table = b.host.nft(&["list", "table", family, TABLE]).unwrap_or_default();
                let words = table.split_whitespace();
                shape.extend(words.filter(|word| !word.contains(|it: char| it.is_ascii_digit())));
            }
            Ok(shape)
        };
        let before = shape()?;
        for command in [
            "flush ruleset".to_owned(),
            format!("flush chain ip6 {TABLE} moved"),
            format!("delete table ip {TABLE}"),
            format!("flush map ip6 {TABLE} former"),
            format!("flush set ip {TABLE} speakers"),
            format!("add rule ip {TABLE} onward counter drop"),
            format!("add element ip {TABLE} later {{ {V4} . 02:00:00:00:00:99 timeout 1h }}"),
        ] {
            let words: Vec<&str> = command.split_whitespace().collect();
            b.host.nft(&words)?;
            let whole = || Ok(shape()? == before);
            eventually(&format!("put back after `{command}`"), SOON, whole).await?;
            open.live(&command)?;
        }
        drop(running);
        Ok(())
    })
}

fn refused(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    world.node.block_on(|| async {
        // Another process owns the table of IPv4; the kernel removes it with the socket of its owner.
        let owner = b.host.enter(|| {
            let mut table = rules::table(TABLE);
            table.attributes.push(TableAttribute::Flags(TableFlags::Owner));
            let mut owner = Nfnetlink::open()?;
            let table = Change::add("a table", NfTablesMessage::NewTable(table));
            owner.transact(vec![table.of(Family::V4.tables())])?;
            Ok(owner)
        })?;
        let running = Running::start(&b.host, b.links()?)?;
        let wanted = Some(Arc::new(onward(a, &[], &[a])?));
        running.forward.wanted.send_replace(wanted.clone());
        let view = running.seen(|view| view.applied == wanted).await?;
        ensure!(view.failure.is_some() && view.addresses == 1, "IPv6 alone, and not {view:?}");
        drop(owner);
        let view = running.seen(|view| view.addresses == 2).await?;
        ensure!(view.failure.is_none() && view.applied == wanted, "{view:?}");
        Ok(())
    })
}

fn anew(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let mut open = Open::at(a, client, 5)?;
        let running = Running::with(b, onward(a, &[], &[a])?).await?;
        let before = b.host.index("eth0")?;
        b.host.ip("link del eth0")?;
        running.links.send_replace(Links::default());
        running.seen(|view| view.addresses == 0).await?;

        world.attach(&b.host, "pass", "other", None)?;
        world.attach(&b.host, "eth0", "again", Some(12))?;
        ensure!(b.host.index("eth0")? != before, "the index is as before");
        running.links.send_replace(b.links()?);
        running.seen(|view| view.addresses == 2).await?;
        b.serves(nodes, &[client])?;
        open.live("by the new interface")?;

        // With another index, and nothing in between.
        b.host.ip("link set eth0 down")?;
        b.host.ip("link set eth0 name former")?;
        b.host.ip("addr flush dev former")?;
        world.attach(&b.host, "eth0", "third", Some(12))?;
        running.links.send_replace(b.links()?);
        b.serves(nodes, &[client])?;
        let index = || -> Result<bool> {
            let map = b.host.nft(&["list", "map", "ip", TABLE, "former"])?;
            Ok(map.contains("eth0"))
        };
        eventually("the new index", SOON, index).await?;
        open.live("by the third interface")
    })
}

fn thousands(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    world.node.block_on(|| async {
        let first = onward(a, &[a], &[a])?;
        let mut all = first.clone();
        all.onward.clear();
        for (vip, onward) in &first.onward {
            for number in 0..1_000_u16 {
                let [high, low] = number.to_be_bytes();
                let ip: IpAddr = match vip {
                    IpAddr::V4(_) => IpAddr::from([198, 51, high, low]),
                    IpAddr::V6(_) => format!("fd05::{number}").parse()?,
                };
                all.onward.insert(ip, onward.clone());
            }
        }
        let mut half = all.clone();
        half.onward.retain(|ip, _| match ip {
            IpAddr::V4(ip) => ip.octets()[3] % 2 == 0,
            IpAddr::V6(ip) => ip.segments()[7] % 2 == 0,
        });
        let running = Running::start(&b.host, b.links()?)?;
        for (name, wanted) in [("all", all), ("half", half), ("none", Forwarding::default())] {
            let (count, before) = (wanted.onward.len(), clock::now());
            let view = running.make(wanted).await?;
            let took = clock::now().saturating_since(before);
            ensure!(view.addresses == count, "{name}: {} of {count}", view.addresses);
            ensure!(took < Duration::from_secs(2), "{name}: {took:?}");
            // A dump of a table that grows shows some elements twice.
            let there = || {
                let ruleset = b.host.nft(&["list", "ruleset"])?;
                Ok(ruleset.matches("expires").count() == 5 * count)
            };
            eventually(&format!("{name}: five elements of each address"), SOON, there).await?;
        }
        Ok(())
    })
}

fn with_protection(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    world.node.block_on(|| async {
        let ports = [(Protocol::Tcp, HTTP), (Protocol::Udp, DNS)];
        let ports: BTreeSet<_> =
            ports.map(|(protocol, port)| ServicePort { protocol, port }).into();
        let reach = Reach::Only(Arc::new(ports));
        let reach = BOTH.map(|ip| (ip, reach.clone())).into();
        let desired = Arc::new(Desired { reach, ..Desired::default() });
        let runtime = tokio::runtime::Handle::current();
        let mut guards = Vec::new();
        for node in nodes {
            let (mut guard, mut gate) = node.host.enter(|| {
                let _context = runtime.enter();
                Ok(Guard::start()?)
            })?;
            guard.desired.send_replace(Some(Arc::clone(&desired)));
            gate.guard(BOTH.into());
            let protected = guard.guarded.wait_for(|view| view.protected.len() == 2);
            tokio::time::timeout(SOON, protected).await.context("not protected")??;
            guards.push((guard, gate));
        }
        let _servers = Servers::start(&b.host, &[22], &[])?;
        a.serves(nodes, &[client])?;
        let mut open = Open::at(a, client, 10)?;
        let running = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[client])?;
        open.live("protected on both")?;
        // The node before has no longer the addresses, and does not protect them.
        if let Some((_, gate)) = guards.first_mut() {
            gate.guard(BTreeSet::new());
        }
        let gone = || Ok(!a.host.nft(&["list", "tables"])?.contains("inet leasehold"));
        eventually("no protection on the node before", SOON, gone).await?;
        open.live("protected on one")?;
        begin_at(b, client)?;
        for ip in BOTH {
            ensure!(tcp(client, ip, 22)? == Reached::Silent, "{ip}: sshd is reached");
        }
        drop(running);
        Ok(())
    })
}

fn counted(world: &World) -> Result<()> {
    let [a, b] = &two(world)?;
    let (nodes, client) = (&[a, b], &world.client);
    let count = |node: &Node| -> Result<u64> {
        node.host.enter(|| {
            let mut connection = Nfnetlink::open()?;
            let counts = conntrack::count(&mut connection, &BOTH.into())?;
            ensure!(conntrack::count(&mut connection, &BTreeSet::new())?.is_empty(), "of none");
            ensure!(counts.keys().all(|ip| BOTH.contains(ip)), "of others: {counts:?}");
            Ok(counts.values().sum())
        })
    };
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        ensure!(count(a)? == 0, "nothing has begun");
        let open = Open::at(a, client, 5)?;
        for vip in BOTH {
            ensure!(answered(&flow(client, vip)?) == Some(a.pod.number), "no flow");
            // No pod answers there.
            let _ = tcp(client, vip, 9)?;
        }
        ensure!(count(a)? == open.len() + 2, "{} are open", count(a)?);
        let running = Running::with(b, onward(a, &[], &[a])?).await?;
        b.serves(nodes, &[client])?;
        let mut open = open;
        open.live("after the move")?;
        ensure!(count(a)? == open.len() + 2, "{} are open after the move", count(a)?);
        ensure!(count(b)? == 0, "what is sent on is tracked on the way");
        drop(open);
        eventually("closed connections do not count", SOON, || Ok(count(a)? == 2)).await?;
        drop(running);
        Ok(())
    })
}
