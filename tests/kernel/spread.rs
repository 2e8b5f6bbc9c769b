//! Addresses whose packets are spread over nodes.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::election::{
    BUCKETS, Hop, Layout, Member, Order, SpreadAddress, Spreading, Way,
};
use rustix::net::sockopt::set_ipv6_unicast_hops;

use crate::hosts::{Reached, Servers, pings, tcp};
use crate::moves::{Node, Open, SOON, far, unknown, unknown_to, visits};
use crate::pods::{BOTH, DNS, PATIENCE, V4, answered, any, ask, connect, flow, who};
use crate::spreaders::{
    Agreed, Spreader, Spreaders, all_reached, count_datagrams, datagrams, in_fragments, node, of,
    owned_by_another, ports, three, tracked,
};
use crate::world::{Namespace, Test, World, eth0, eventually};

pub const TESTS: &[Test] = &[
    ("connections_are_spread_over_nodes_that_answer_clients_themselves", spread),
    ("the_owner_of_a_spread_address_needs_no_pod", without_pod),
    ("what_is_not_for_a_port_of_a_spread_address_is_for_its_owner", the_owners),
    ("connections_through_a_spread_address_survive_nodes_that_join_and_leave", join_and_leave),
    ("open_connections_survive_the_death_of_the_owner_of_a_spread_address", death),
    ("an_unknown_packet_is_spread_in_no_circle_where_nodes_disagree", disagreement),
    ("an_unknown_packet_is_spread_to_those_that_may_know_it_and_reset_by_the_last", unknown_ends),
    ("what_may_pass_no_other_node_is_not_spread", last_hop),
    ("frames_for_other_hosts_are_not_spread", of_others),
    ("clients_that_are_spread_by_their_address_stay_with_a_pod", by_client),
    ("fragments_are_spread", fragments),
    ("errors_of_the_path_reach_the_node_of_a_spread_connection", errors),
    ("what_is_spread_to_a_node_without_rules_of_kube_proxy_ends_there", untranslated),
    ("packets_are_spread_from_a_bridge", on_bridge),
    ("packets_are_spread_from_a_macvlan", on_macvlan),
    ("clients_are_spread_evenly", evenly),
];

fn spread(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    for node in nodes {
        // Answers go from each pod to the client itself.
        node.pod.host.nft(&[
            "table inet seen { chain input { type filter hook input priority 0;
            tcp dport 8080 ip saddr != 192.0.2.2 counter comment \"another client\"
            tcp dport 8080 ip6 saddr != fd00::2 counter comment \"another client\"
        }; }",
        ])?;
    }
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        let (mut open, pods) = Open::anywhere(client, 40)?;
        open.live("spread")?;
        for node in nodes {
            let share = of(node, &pods);
            ensure!(share > 10, "{} of {} lead to {}", share, pods.len(), node.pod.number);
            let known = tracked(node)?;
            ensure!(known == share, "{known} of {share} are known");
            let seen = node.pod.host.nft(&["list", "table", "inet", "seen"])?;
            ensure!(seen.matches("packets 0 ").count() == 2, "from another source: {seen}");
        }
        ensure!(a.counted("to the node of its bucket")? > 0, "nothing is counted");
        for vip in BOTH {
            let flows = (0..24).map(|_| flow(client, vip)).collect::<Result<Vec<_>>>()?;
            let pods: BTreeSet<_> = flows.iter().map(answered).collect();
            let all = nodes.map(|node| Some(node.pod.number)).into();
            ensure!(pods == all, "{vip}: flows lead to {pods:?}");
        }
        Ok(())
    })
}

fn without_pod(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        all_reached(client, &[b, c], "the owner has none")?;
        ensure!(tracked(a)? == 0, "the owner knows connections of others");
        Ok(())
    })
}

fn the_owners(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let _servers = Servers::start(&a.host, &[22], &[])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        for vip in BOTH {
            for _ in 0..12 {
                ensure!(tcp(client, vip, 22)? == Reached::Yes, "{vip}: a server of the owner");
                ensure!(tcp(client, vip, 9)? == Reached::Refused, "{vip}: a closed port");
            }
            ensure!(pings(client, vip)?, "{vip}: no answer to an echo request");
            client.ip(&format!("neigh del {vip} dev eth0"))?;
            ensure!(pings(client, vip)?, "{vip}: no answer to a question for the neighbour");
            ensure!(client.neighbour(vip)? == Some(a.host.mac()?), "{vip}: of another node");
        }
        all_reached(client, &[b, c], "beside that")?;

        // A connection that no node knows, to another port.
        let (_stranger, streams) = unknown_to(world, "stranger", 9, 22)?;
        a.serves(nodes, &[client])?;
        for (reset, seen) in visits(streams, nodes)? {
            ensure!(reset && seen == [1, 0, 0], "reset: {reset}, seen {seen:?}");
        }
        Ok(())
    })
}

fn join_and_leave(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    let before = |bucket: u16| bucket % 2;
    let goes = |bucket: u16| bucket.is_multiple_of(3);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::on(nodes, |bucket| vec![before(bucket)]), 0).await?;
        let (mut open, _) = Open::anywhere(client, 30)?;

        let joined = |bucket| {
            if goes(bucket) { vec![2, before(bucket)] } else { vec![before(bucket)] }
        };
        spreaders.make(&Agreed::on(nodes, joined), 0).await?;
        open.live("a node has joined")?;
        all_reached(client, nodes, "a node has joined")?;
        open.live("beside new ones")?;
        ensure!(c.counted("from the node before this one")? > 0, "none has had its second chance");
        for node in nodes {
            node.host.write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0")?;
        }
        open.live("where packets in midstream are not tracked")?;
        let (mut newer, pods) = Open::anywhere(client, 30)?;
        ensure!(pods.contains(&c.pod.number), "no connection leads to the node that has joined");

        let left = |bucket| {
            if goes(bucket) { vec![before(bucket), 2] } else { vec![before(bucket)] }
        };
        spreaders.make(&Agreed::on(nodes, left), 0).await?;
        open.live("a node has left")?;
        newer.live("a node has left")?;
        all_reached(client, &[a, b], "a node has left")
    })
}

fn death(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        let (mut open, pods) = Open::anywhere(client, 40)?;

        // Another owner alone: all survive.
        b.serves(nodes, &[client])?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 1).await?;
        open.live("another owner")?;
        all_reached(client, nodes, "another owner")?;

        a.serves(nodes, &[client])?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        a.host.ip("link set eth0 down")?;
        let alive = Agreed::on(nodes, |bucket| match bucket % 3 {
            0 => vec![1 + bucket % 2, 0],
            place => vec![place],
        });
        c.serves(nodes, &[client])?;
        spreaders.make(&alive.without(&[0]), 2).await?;
        ensure!(of(a, &pods) > 0, "none led to the node that has died");
        let mut pods = pods.into_iter();
        open.keep(|| pods.next() != Some(a.pod.number));
        open.live("the owner has died")?;
        all_reached(client, &[b, c], "the owner has died")
    })
}

fn disagreement(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        let spreaders = Spreaders::start(nodes)?;
        let [at_a, at_b, at_c] = spreaders.0.as_slice() else { bail!("not three") };
        let of = |order: &'static [u16]| Agreed::on(nodes, |_| order.to_vec());
        for (number, (name, [for_a, for_b, for_c])) in [
            ("each of two takes itself for the newer", [of(&[1, 2]), of(&[1, 2]), of(&[2, 1])]),
            ("the owner knows the older", [of(&[1]), of(&[2, 1]), of(&[2, 1])]),
            ("so does a node", [of(&[2, 1]), of(&[2, 1]), of(&[1])]),
            ("three, in a circle", [of(&[1]), of(&[1, 2, 0]), of(&[2, 0, 1])]),
            (
                "a node takes the one that has it for dead",
                [of(&[1]), of(&[2]).without(&[2]), of(&[1])],
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let stranger = format!("stranger{number}");
            let (_stranger, streams) = unknown(world, &stranger, 5 + u8::try_from(number)?)?;
            a.serves(nodes, &[client])?;
            at_b.make(for_b.at(1, 0)?).await?;
            at_c.make(for_c.at(2, 0)?).await?;
            at_a.make(for_a.at(0, 0)?).await?;
            // The client has sent it again meanwhile, but not that often.
            for (reset, seen) in visits(streams, nodes)? {
                ensure!(!reset, "{name}: reset; seen {seen:?}");
                ensure!(seen.iter().all(|count| *count < 12), "{name}: seen {seen:?}");
                ensure!(seen.iter().any(|count| *count > 0), "{name}: not seen");
            }
        }
        Ok(())
    })
}

fn unknown_ends(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let d = &node(world, 14)?;
    let (nodes, client) = (&[a, b, c, d], &world.client);
    world.node.block_on(|| async {
        let spreaders = Spreaders::start(nodes)?;
        for (number, (order, gone, path)) in [
            // The owner sends it on before it is routed.
            (&[1][..], &[][..], [0, 1, 0, 0]),
            (&[1, 2], &[], [0, 1, 1, 0]),
            (&[1, 2, 3], &[], [0, 1, 1, 1]),
            (&[1, 2, 3], &[2], [0, 1, 0, 1]),
            (&[0], &[], [1, 0, 0, 0]),
            (&[0, 2], &[], [1, 0, 1, 0]),
            // It looks first.
            (&[1, 0], &[], [1, 1, 0, 0]),
            (&[1, 0, 2], &[], [1, 1, 1, 0]),
            (&[3], &[3], [1, 0, 0, 0]),
            (&[3, 0], &[3], [1, 0, 0, 0]),
        ]
        .into_iter()
        .enumerate()
        {
            let stranger = format!("stranger{number}");
            let (_stranger, streams) = unknown(world, &stranger, 20 + u8::try_from(number)?)?;
            a.serves(nodes, &[client])?;
            let agreed = Agreed::on(nodes, |_| order.to_vec()).without(gone);
            spreaders.make(&agreed, 0).await?;
            for (reset, seen) in visits(streams, nodes)? {
                ensure!(reset && seen == path, "{order:?}: reset: {reset}, seen {seen:?}");
            }
        }
        Ok(())
    })
}

/// A datagram that may pass no other node.
fn last_hop(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        let send = |hops: u8| -> Result<()> {
            for vip in BOTH {
                let flow = flow(client, vip)?;
                match vip {
                    IpAddr::V4(_) => flow.set_ttl(hops.into())?,
                    IpAddr::V6(_) => set_ipv6_unicast_hops(&flow, Some(hops))?,
                }
                let _ = ask(&flow);
            }
            Ok(())
        };
        for slow in [false, true] {
            let _other = slow.then(|| owned_by_another(a)).transpose()?;
            spreaders.0.first().context("none")?.seen(|view| view.slow.is_some() == slow).await?;
            for (hops, expected) in [(1, 0), (2, 2)] {
                for node in [b, c] {
                    node.host.nft(&["table inet seen { }; delete table inet seen;
                        table inet seen { chain prerouting {
                            type filter hook prerouting priority -400;
                            udp dport 53 counter comment \"frames\"
                        }; }"])?;
                }
                send(hops)?;
                let seen = b.counted("frames")? + c.counted("frames")?;
                ensure!(seen == expected, "slow: {slow}, {hops} hops: {seen} of {expected} seen");
            }
        }
        Ok(())
    })
}

/// The owner hears frames that are for another host.
fn of_others(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        a.host.ip("link set eth0 promisc on")?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        all_reached(client, &[b, c], "promiscuous")?;
        for vip in BOTH {
            client.ip(&format!("neigh replace {vip} lladdr 02:00:00:00:00:99 dev eth0"))?;
            for _ in 0..3 {
                let reached = connect(client, vip, PATIENCE)?.map(|(_, pod)| pod);
                ensure!(reached.is_none(), "{vip}: {reached:?} is reached");
            }
        }
        Ok(())
    })
}

fn by_client(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        let agreed = Agreed::even(nodes, &[0, 1, 2]).by_client();
        spreaders.make(&agreed, 0).await?;
        let mut pods = BTreeSet::new();
        for number in 0..12_u8 {
            let last = 150 + number;
            client.ip(&format!("addr add 192.0.2.{last}/24 dev eth0"))?;
            client.ip(&format!("route replace {V4} dev eth0 src 192.0.2.{last}"))?;
            let its: BTreeSet<_> =
                (0..8).map(|_| who(client, V4)).collect::<Result<BTreeSet<_>>>()?;
            ensure!(its.len() == 1 && !its.contains(&None), "a client has the pods {its:?}");
            pods.extend(its);
        }
        ensure!(pods.len() == 3, "all clients lead to {pods:?}");
        let (_, six) = BOTH.into();
        let its: BTreeSet<_> = (0..8).map(|_| who(client, six)).collect::<Result<_>>()?;
        ensure!(its.len() == 1 && !its.contains(&None), "a client has the pods {its:?}");

        // Its connections and errors go on when the bucket moves.
        let (mut open, _) = Open::anywhere(client, 10)?;
        let moved = Agreed::on(nodes, |bucket| vec![(bucket + 1) % 3, bucket % 3]);
        spreaders.make(&moved.by_client(), 0).await?;
        open.live("the bucket has moved")
    })
}

fn fragments(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        let pods = in_fragments(client, "the owner has no pod")?;
        ensure!(pods == [b, c].map(|node| Some(node.pod.number)).into(), "{pods:?}");
        // The same, of buckets that the owner has had.
        let had = Agreed::on(nodes, |bucket| vec![1 + bucket % 2, 0]);
        spreaders.make(&had, 0).await?;
        let pods = in_fragments(client, "the owner has had the buckets")?;
        ensure!(pods == [b, c].map(|node| Some(node.pod.number)).into(), "{pods:?}");
        Ok(())
    })
}

fn errors(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let d = &node(world, 14)?;
    let nodes = &[a, b, c, d];
    let [router, far] = &far(world, nodes)?;
    world.node.block_on(|| async {
        a.serves(nodes, &[router])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        let (mut open, pods) = Open::anywhere(far, 9)?;
        let pods: BTreeSet<_> = pods.into_iter().collect();
        ensure!(pods.len() == 3, "{pods:?} alone");
        router.ip("link set far0 mtu 1400")?;
        open.live("packets have to become smaller")?;
        let comment = "an error, to the node of its bucket";
        ensure!(a.counted(comment)? > 0, "no error came");

        // And where the bucket has moved.
        for node in nodes {
            node.pod.host.ip("route flush cache")?;
            node.pod.host.ip("-6 route flush cache")?;
        }
        let moved = Agreed::on(nodes, |bucket| vec![(bucket + 1) % 3, bucket % 3]);
        spreaders.make(&moved, 0).await?;
        router.ip("link set far0 mtu 1300")?;
        open.live("of a bucket that has moved")?;
        let passed =
            b.counted("an error, from the node")? + c.counted("an error, from the node")?;
        ensure!(passed > 0, "no error has had its second chance");

        // Of connections that are not the owner's, of buckets that were.
        let (mut newer, _) = Open::anywhere(far, 9)?;
        router.ip("link set far0 mtu 1290")?;
        newer.live("of a bucket that was the owner's")?;
        ensure!(a.counted("an error, to it")? > 0, "no error was sent on");

        // Of buckets that have moved twice.
        spreaders.make(&Agreed::on(nodes, |bucket| vec![1 + bucket % 3]), 0).await?;
        let (mut oldest, _) = Open::anywhere(far, 6)?;
        let twice = |bucket| [2, 1, 0].map(|times| 1 + (bucket + times) % 3).to_vec();
        spreaders.make(&Agreed::on(nodes, twice), 0).await?;
        router.ip("link set far0 mtu 1281")?;
        oldest.live("of a bucket that has moved twice")?;
        Ok(())
    })
}

fn untranslated(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        // So that it finds the owner.
        a.serves(nodes, &[client, &b.host])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[1]), 0).await?;
        for family in ["ip", "ip6"] {
            b.host.nft(&["delete", "table", family, "kube-proxy"])?;
        }
        for node in nodes {
            node.host.nft(&["table inet seen { chain prerouting {
                type filter hook prerouting priority -400;
                udp dport 53 counter comment \"frames\"
            }; }"])?;
        }
        for (vip, sent) in BOTH.into_iter().zip(1_u64..) {
            ensure!(ask(&flow(client, vip)?).is_none(), "{vip}: answered");
            let seen = [a.counted("frames")?, b.counted("frames")?];
            ensure!(seen == [0, sent], "{vip}: seen {seen:?}");
            let ended = b.counted("what is not translated does not go back")?;
            ensure!(ended == sent, "{vip}: {ended} have ended");
        }
        Ok(())
    })
}

/// The owner on another kind of interface.
fn on_interface(world: &World, host: Namespace) -> Result<()> {
    let a = &Node::on(world, host, "node11", 11)?;
    let (b, c) = (&node(world, 12)?, &node(world, 13)?);
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        let (mut open, pods) = Open::anywhere(client, 20)?;
        open.live("spread")?;
        ensure!(tracked(a)? == of(a, &pods), "the owner knows connections of others");
        ensure!(a.counted("to the node of its bucket")? > 0, "by another path");
        all_reached(client, nodes, "spread")?;
        ensure!(in_fragments(client, "spread")?.len() == 3, "fragments of one node");
        Ok(())
    })
}

fn on_bridge(world: &World) -> Result<()> {
    on_interface(world, world.bridged("node11", 11)?)
}

fn on_macvlan(world: &World) -> Result<()> {
    on_interface(world, world.macvlan("node11", 11)?)
}

/// Packets of as many clients go to the nodes, each of which has as many buckets.
fn evenly(world: &World) -> Result<()> {
    const CLIENTS: u16 = 10_000;
    let owner = node(world, 11)?;
    let members = (0..16).map(|number| world.host(&format!("m{number}"), FIRST_MEMBER + number));
    let members = members.collect::<Result<Vec<Namespace>>>()?;
    world.node.block_on(|| async {
        owner.serves(&[&owner], &[&world.client])?;
        let spreader = Spreader::start(&owner)?;
        for (count, vip) in [3, 16].into_iter().flat_map(|count| BOTH.map(|vip| (count, vip))) {
            let members = members.get(..count).context("too few")?;
            members.iter().try_for_each(count_datagrams)?;
            spreader.make(spread_over(members, vip)?).await?;
            send_from(&world.client, vip, CLIENTS)?;
            let mut shares = Vec::new();
            let came = || -> Result<bool> {
                shares = members.iter().map(datagrams).collect::<Result<Vec<u64>>>()?;
                Ok(shares.iter().sum::<u64>() == u64::from(CLIENTS))
            };
            eventually("all datagrams", SOON, came).await?;
            println!("{count} nodes, {vip}: {shares:?}");
            let (least, most) = (shares.iter().min(), shares.iter().max());
            let (least, most) = (least.context("none")?, most.context("none")?);
            // That of 16 differs from the mean by less than five deviations of a binomial distribution.
            ensure!(most * 100 < least * 145, "{count} nodes: {shares:?}");
        }
        Ok(())
    })
}

const FIRST_MEMBER: u8 = 20;

/// The spreading of an address over hosts that have as many buckets.
fn spread_over(members: &[Namespace], vip: IpAddr) -> Result<Spreading> {
    let mut all = Vec::new();
    for (member, number) in members.iter().zip(FIRST_MEMBER..) {
        let to = match vip {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, number]),
            IpAddr::V6(_) => format!("fd00::{number}").parse()?,
        };
        let way = Way::To(Hop { to, interface: eth0() });
        all.push(Member { macs: [member.mac()?].into(), way });
    }
    let count = u16::try_from(members.len())?;
    let address = SpreadAddress {
        ports: ports(),
        by_client: false,
        interface: Some(eth0()),
        returns: None,
        layout: Arc::new(Layout {
            members: all.into(),
            owner: None,
            buckets: (0..BUCKETS).map(|bucket| Order::of([bucket % count])).collect(),
        }),
    };
    Ok(Spreading { addresses: [(vip, address)].into(), ..Spreading::default() })
}

/// A datagram from each of so many ports.
fn send_from(client: &Namespace, vip: IpAddr, count: u16) -> Result<()> {
    client.enter(|| {
        for port in 0..count {
            let socket = UdpSocket::bind((any(vip), 20_000 + port))?;
            socket.send_to(b"?", (vip, DNS))?;
        }
        Ok(())
    })
}
