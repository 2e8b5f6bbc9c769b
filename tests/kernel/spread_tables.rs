//! The tables by which packets are spread: what becomes of them when other processes, interfaces and speakers do.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::clock;
use leasehold::datapath::guard::Guard;
use leasehold::datapath::spread::TABLE;
use leasehold::net::rtnl::links::Links;
use leasehold_core::desired::{Desired, Reach};
use leasehold_core::election::{SpreadAddress, Spreading};

use crate::hosts::{Reached, Servers, pings, tcp};
use crate::moves::{Node, Open, Running, SOON, far, onward};
use crate::pods::{BOTH, PATIENCE, V4, connect, flow};
use crate::spreaders::{
    Agreed, Spreader, Spreaders, all_reached, count_datagrams, datagrams, in_fragments, of,
    owned_by_another, ports, three, tracked,
};
use crate::world::{Test, World, eth0, eventually};

pub const TESTS: &[Test] = &[
    ("packets_are_spread_where_the_kernel_refuses_the_table_of_devices", slow),
    ("a_process_that_ends_leaves_spreading_to_the_next", restart),
    ("nothing_is_spread_for_an_address_that_is_gone", fence),
    ("spreading_that_somebody_removes_is_put_back", put_back),
    ("spreading_follows_an_interface_that_comes_anew", anew),
    ("connections_outlive_an_address_that_is_gone_before_its_rules", before_its_rules),
    ("connections_outlive_an_address_that_comes_before_its_rules", after_its_address),
    ("no_packet_is_led_astray_while_a_table_changes", while_it_changes),
    ("spreading_of_hundreds_of_addresses_is_made_and_removed", hundreds),
    ("spreading_and_the_other_tables_work_together", with_others),
];

fn slow(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    let [router, far] = &far(world, nodes)?;
    world.node.block_on(|| async {
        a.serves(nodes, &[client, router])?;
        let other = owned_by_another(a)?;
        let spreaders = Spreaders::start(nodes)?;
        let [at_a, at_b, at_c] = spreaders.0.as_slice() else { anyhow::bail!("not three") };
        let even = Agreed::even(nodes, &[0, 1, 2]);
        at_b.make(even.at(1, 0)?).await?;
        at_c.make(even.at(2, 0)?).await?;
        let view = at_a.make(even.at(0, 0)?).await?;
        ensure!(view.slow.is_some() && view.addresses == 2, "{view:?}");
        all_reached(client, nodes, "by the slow path")?;
        let (mut open, pods) = Open::anywhere(client, 20)?;
        open.live("by the slow path")?;
        let own = of(a, &pods);
        ensure!(in_fragments(client, "by the slow path")?.len() == 3, "fragments of one node");
        let known = own;
        ensure!(tracked(a)? < 96 && tracked(a)? >= known, "the owner knows those of others");
        let _servers = Servers::start(&a.host, &[22], &[])?;
        for vip in BOTH {
            ensure!(pings(client, vip)?, "{vip}: no answer to an echo request");
            for _ in 0..6 {
                ensure!(tcp(client, vip, 22)? == Reached::Yes, "{vip}: a server of the owner");
            }
        }
        let (mut from_far, _) = Open::anywhere(far, 9)?;
        router.ip("link set far0 mtu 1400")?;
        from_far.live("packets have to become smaller")?;

        let moved = Agreed::on(nodes, |bucket| vec![(bucket + 1) % 3, bucket % 3]);
        at_b.make(moved.at(1, 0)?).await?;
        at_c.make(moved.at(2, 0)?).await?;
        at_a.make(moved.at(0, 0)?).await?;
        open.live("the buckets have moved")?;
        drop(other);
        let view = at_a.seen(|view| view.slow.is_none()).await?;
        ensure!(view.addresses == 2, "{view:?}");
        open.live("without the slow path")?;
        all_reached(client, nodes, "without the slow path")
    })
}

/// The rules of a node without what counts.
fn ruleset(node: &Node) -> Result<String> {
    let listed = node.host.nft(&["-a", "list", "ruleset"])?;
    let mut counts = false;
    let words = listed.split_inclusive(char::is_whitespace).filter(|word| {
        let counted = std::mem::replace(&mut counts, matches!(word.trim(), "packets" | "bytes"));
        !counted
    });
    Ok(words.collect())
}

fn restart(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        let agreed = Agreed::on(nodes, |bucket| vec![bucket % 3, (bucket + 1) % 3]);
        spreaders.make(&agreed, 0).await?;
        let (mut open, _) = Open::anywhere(client, 20)?;
        let mut before = Vec::new();
        for node in nodes {
            before.push(ruleset(node)?);
        }
        for spreader in spreaders.0 {
            spreader.end().await;
        }
        open.live("no process")?;
        all_reached(client, nodes, "no process")?;
        let spreaders = Spreaders::start(nodes)?;
        open.live("a process that was told nothing")?;
        spreaders.make(&agreed, 0).await?;
        for (node, before) in nodes.iter().zip(&before) {
            let now = ruleset(node)?;
            ensure!(now == *before, "what was there is made anew: {now}\nand not {before}");
        }
        // Nothing is left where nothing is wanted.
        for (node, mut spreader) in nodes.iter().zip(spreaders.0) {
            spreader.spread.remove().await;
            let left = node.host.nft(&["list", "tables"])?;
            ensure!(!left.contains("leasehold"), "left: {left}");
        }
        Ok(())
    })
}

fn fence(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        let [at_a, ..] = spreaders.0.as_slice() else { anyhow::bail!("none") };
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        for slow in [false, true] {
            let _other = slow.then(|| owned_by_another(a)).transpose()?;
            at_a.seen(|view| view.slow.is_some() == slow).await?;
            all_reached(client, &[b, c], "the address is there")?;
            for vip in BOTH {
                a.host.ip(&format!("addr del {vip} dev eth0"))?;
            }
            for vip in BOTH {
                for _ in 0..6 {
                    let reached = connect(client, vip, PATIENCE)?.map(|(_, pod)| pod);
                    let here = reached.is_none_or(|pod| pod == a.pod.number);
                    ensure!(here, "{vip}, slow: {slow}: {reached:?} is reached");
                }
            }
            a.serves(nodes, &[client])?;
            all_reached(client, &[b, c], "the address is there again")?;
        }
        Ok(())
    })
}

fn put_back(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        let agreed = Agreed::on(nodes, |bucket| vec![bucket % 3, (bucket + 1) % 3]);
        spreaders.make(&agreed, 0).await?;
        let (mut open, _) = Open::anywhere(client, 6)?;
        // All but numbers, which count and tell handles.
        let shape = || -> Result<String> {
            let mut shape = String::new();
            for family in ["netdev", "ip", "ip6"] {
                let table = a.host.nft(&["list", "table", family, TABLE]).unwrap_or_default();
                let mut lines: Vec<String> = table
                    .lines()
                    .map(|line| {
                        let (before, after) =
                            line.split_once("counter packets").unwrap_or((line, ""));
                        let after = after.split_whitespace().skip(3).collect::<Vec<_>>();
                        format!("{before} {}", after.join(" "))
                    })
                    .collect();
                lines.sort();
                shape.extend(lines);
            }
            Ok(shape)
        };
        let chain = |family: &str, beginning: &str| -> Result<String> {
            let table = a.host.nft(&["list", "table", family, TABLE])?;
            let mut chains = table.lines().filter_map(|line| line.trim().strip_prefix("chain "));
            let found = chains.find(|name| name.starts_with(beginning)).context("no chain")?;
            Ok(found.trim_end_matches(" {").to_owned())
        };
        let before = shape()?;
        for command in [
            "flush ruleset".to_owned(),
            format!("delete table netdev {TABLE}"),
            format!("delete table ip6 {TABLE}"),
            format!("flush chain netdev {TABLE} kept4"),
            format!("flush chain netdev {TABLE} {}", chain("netdev", "ingress-")?),
            format!("flush chain netdev {TABLE} {}", chain("netdev", "to-")?),
            format!("flush chain ip {TABLE} {}", chain("ip", "chance-")?),
            format!("flush set ip6 {TABLE} speakers"),
            format!("flush map ip {TABLE} chances4"),
            format!("flush map netdev {TABLE} dispatched6"),
            format!("add rule ip6 {TABLE} guard counter drop"),
            format!("add element netdev {TABLE} ports4 {{ {V4} . tcp . 22 }}"),
        ] {
            // Chains and maps of the Service's own are flushed, too.
            let kube_proxy: Vec<String> = ["ip", "ip6"]
                .iter()
                .map(|family| a.host.nft(&["list", "table", family, "kube-proxy"]))
                .collect::<Result<_>>()?;
            let words: Vec<&str> = command.split_whitespace().collect();
            a.host.nft(&words)?;
            if command == "flush ruleset" {
                kube_proxy.iter().try_for_each(|table| a.host.nft(&[table]).map(drop))?;
            }
            let whole = || Ok(shape()? == before);
            let put_back = eventually(&format!("put back after `{command}`"), SOON, whole).await;
            put_back
                .with_context(|| format!("{}\nand not {before}", shape().unwrap_or_default()))?;
            open.live(&command)?;
        }
        Ok(())
    })
}

fn anew(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        let [at_a, ..] = spreaders.0.as_slice() else { anyhow::bail!("none") };
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        let before = a.host.index("eth0")?;
        a.host.ip("link del eth0")?;
        at_a.links.send_replace(Links::default());
        at_a.seen(|view| view.addresses == 0).await?;

        world.attach(&a.host, "pass", "other", None)?;
        world.attach(&a.host, "eth0", "again", Some(11))?;
        ensure!(a.host.index("eth0")? != before, "the index is as before");
        a.serves(nodes, &[client])?;
        at_a.links.send_replace(a.links()?);
        at_a.seen(|view| view.addresses == 2).await?;
        // The speakers are others, too.
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        all_reached(client, &[b, c], "by the new interface")?;

        // With another index, and nothing in between.
        a.host.ip("link set eth0 down")?;
        a.host.ip("link set eth0 name former")?;
        a.host.ip("addr flush dev former")?;
        world.attach(&a.host, "eth0", "third", Some(11))?;
        a.serves(nodes, &[client])?;
        let index = a.host.index("eth0")?;
        at_a.links.send_replace(a.links()?);
        let hooked = || -> Result<bool> {
            let table = a.host.nft(&["list", "table", "netdev", TABLE])?;
            Ok(table.contains(&format!("ingress-{index}")) && !table.contains("former"))
        };
        eventually("the new index", SOON, hooked).await?;
        spreaders.make(&Agreed::even(nodes, &[1, 2]), 0).await?;
        all_reached(client, &[b, c], "by the third interface")?;
        ensure!(a.counted("to the node of its bucket")? > 0, "by another path");
        Ok(())
    })
}

fn before_its_rules(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        a.serves(nodes, &[client])?;
        let spreaders = Spreaders::start(nodes)?;
        for (name, before) in
            [("the owner had no bucket", None), ("the owner had them before", Some(0))]
        {
            let order = |bucket| [1 + bucket % 2].into_iter().chain(before).collect();
            spreaders.make(&Agreed::on(nodes, order), 0).await?;
            let (mut open, _) = Open::anywhere(client, 2)?;
            open.live(name)?;
            for vip in BOTH {
                a.host.ip(&format!("addr del {vip} dev eth0"))?;
            }
            open.wait(name)?;
            a.serves(nodes, &[client])?;
            open.go_on(name)?;
        }
        Ok(())
    })
}

fn after_its_address(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        let spreaders = Spreaders::start(nodes)?;
        let [_, at_b, _] = spreaders.0.as_slice() else { anyhow::bail!("not three") };
        let all_at_a = Agreed::on(nodes, |_| vec![0]);
        for (name, known) in
            [("no nodes are known", vec![]), ("others are", vec![2]), ("it had them", vec![1, 0])]
        {
            a.serves(nodes, &[client])?;
            spreaders.make(&all_at_a, 0).await?;
            at_b.make(Agreed::on(nodes, |_| known.clone()).at(1, 0)?).await?;
            let mut open = Open::at(a, client, 2)?;
            b.serves(nodes, &[client])?;
            open.wait(name)?;
            at_b.make(all_at_a.at(1, 1)?).await?;
            open.go_on(name)?;
        }
        Ok(())
    })
}

/// For packets on their way through the table, rules are those of when they came, and elements of sets those of now.
fn while_it_changes(world: &World) -> Result<()> {
    const LASTS: Duration = Duration::from_secs(10);
    let [a, b, c] = &three(world)?;
    let nodes = &[a, b, c];
    let (flow, ends) = (flow(&world.client, V4)?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&flow, &ends));
        let changed = world.node.block_on(|| async {
            a.serves(nodes, &[&world.client])?;
            let spreaders = Spreaders::start(nodes)?;
            let [at_a, ..] = spreaders.0.as_slice() else { anyhow::bail!("none") };
            let layouts = [[1, 2], [2, 1]].map(|having| Agreed::even(nodes, &having));
            for layout in &layouts {
                at_a.make(layout.at(0, 0)?).await?;
            }
            count_datagrams(&a.host)?;
            let mut changes = 0;
            let until = clock::now() + LASTS;
            for layout in layouts.iter().cycle().take_while(|_| clock::now() < until) {
                at_a.make(layout.at(0, 0)?).await?;
                changes += 1;
            }
            let astray = datagrams(&a.host)?;
            println!("during {changes} changes {astray} packets have not been spread");
            ensure!(astray == 0, "{astray} packets have not been spread");
            Ok(())
        });
        ends.store(true, Ordering::Relaxed);
        changed?;
        let sent = flood.join().unwrap_or(0);
        println!("{sent} packets have been sent");
        ensure!(sent > 50_000, "{sent} packets are too few");
        Ok(())
    })
}

/// Sends datagrams, for a minute at most; how many.
fn flood(flow: &UdpSocket, ends: &AtomicBool) -> u64 {
    let until = clock::now() + Duration::from_secs(60);
    let mut sent = 0;
    while !ends.load(Ordering::Relaxed) && clock::now() < until {
        // An error of one before, or the address is not there yet.
        sent += u64::from(flow.send(b"?").is_ok());
    }
    sent
}

fn hundreds(world: &World) -> Result<()> {
    const ADDRESSES: u16 = 150;
    const LAYOUTS: u16 = 20;
    let [a, b, c] = &three(world)?;
    let nodes = &[a, b, c];
    world.node.block_on(|| async {
        let mut all = Agreed::even(nodes, &[0]).at(0, 0)?;
        all.addresses.clear();
        for vip in BOTH {
            let mut layouts = Vec::new();
            for number in 0..LAYOUTS {
                let agreed = Agreed::on(nodes, |bucket| {
                    let first = (bucket / (number + 1)) % 3;
                    if number % 2 == 0 { vec![first] } else { vec![first, (first + 1) % 3] }
                });
                layouts.push(Arc::new(agreed.layout(0, 0, vip)?));
            }
            for number in 0..ADDRESSES {
                let [_, low] = number.to_be_bytes();
                let ip: IpAddr = match vip {
                    IpAddr::V4(_) => IpAddr::from([198, 51, 100, low]),
                    IpAddr::V6(_) => format!("fd05::{number}").parse()?,
                };
                let layout = layouts.get(usize::from(number % LAYOUTS)).context("no layout")?;
                let address = SpreadAddress {
                    ports: ports(),
                    by_client: false,
                    interface: Some(eth0()),
                    returns: None,
                    layout: Arc::clone(layout),
                };
                all.addresses.insert(ip, address);
            }
        }
        let mut half = all.clone();
        let few = all.addresses.keys().copied().enumerate().filter(|(place, _)| place % 2 == 0);
        let few: BTreeSet<IpAddr> = few.map(|(_, ip)| ip).collect();
        half.addresses.retain(|ip, _| few.contains(ip));
        let spreader = Spreader::start(a)?;
        for (name, wanted) in [
            ("all", all.clone()),
            ("half", half),
            ("all again", all),
            ("none", Spreading::default()),
        ] {
            let (count, before) = (wanted.addresses.len(), clock::now());
            let view = spreader.make(wanted).await?;
            let took = clock::now().saturating_since(before);
            println!("spreading of {count} addresses ({name}): {took:?}");
            ensure!(view.addresses == count && view.slow.is_none(), "{name}: {view:?}");
            ensure!(took < Duration::from_secs(3), "{name}: {took:?}");
        }
        let left = a.host.nft(&["list", "tables"])?;
        ensure!(!left.contains(TABLE), "left: {left}");
        Ok(())
    })
}

fn with_others(world: &World) -> Result<()> {
    let [a, b, c] = &three(world)?;
    let (nodes, client) = (&[a, b, c], &world.client);
    world.node.block_on(|| async {
        let reach = BOTH.map(|ip| (ip, Reach::Only(ports()))).into();
        let desired = Arc::new(Desired { reach, ..Desired::default() });
        let runtime = tokio::runtime::Handle::current();
        let (mut guard, mut gate) = a.host.enter(|| {
            let _context = runtime.enter();
            Ok(Guard::start()?)
        })?;
        guard.desired.send_replace(Some(desired));
        gate.guard(BOTH.into());
        let protected = guard.guarded.wait_for(|view| view.protected.len() == 2);
        tokio::time::timeout(SOON, protected).await.context("not protected")??;
        a.serves(nodes, &[client])?;
        let _servers = Servers::start(&a.host, &[22], &[])?;
        let spreaders = Spreaders::start(nodes)?;
        spreaders.make(&Agreed::even(nodes, &[0, 1, 2]), 0).await?;
        // Another address has moved.
        let mut moved = onward(b, &[], &[b, c])?;
        moved.onward = moved
            .onward
            .into_values()
            .zip([IpAddr::from([198, 51, 100, 7]), "fd05::7".parse()?])
            .map(|(onward, ip)| (ip, onward))
            .collect();
        let _forwarding = Running::with(a, moved).await?;
        let (mut open, _) = Open::anywhere(client, 12)?;
        open.live("protected")?;
        all_reached(client, nodes, "protected")?;
        ensure!(in_fragments(client, "protected")?.len() == 3, "fragments of one node");
        for vip in BOTH {
            ensure!(tcp(client, vip, 22)? == Reached::Silent, "{vip}: sshd is reached");
            ensure!(pings(client, vip)?, "{vip}: no answer to an echo request");
        }
        let moved = Agreed::on(nodes, |bucket| vec![(bucket + 1) % 3, bucket % 3]);
        spreaders.make(&moved, 0).await?;
        open.live("the buckets have moved")
    })
}
