//! Faults of every kind, one after another: afterwards there is one owner, and claim, kernel and
//! ARP agree who it is. What a client felt is printed; the bounds leave room for busy machines, and
//! none for a lease that has to run out first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::wall_clock::WallClock;
use leasehold_lab::{Direction, Lab, Node, Service, Track};
use tokio::time::sleep;

use crate::scene::{PATIENCE, Scene, UDP, holder_and_transitions, say};

/// A takeover by evidence from the wire; by default it takes an eighth of a second.
const BY_WIRE: Duration = Duration::from_secs(2);
/// A takeover while the API server, too, has only just gone.
const WITHOUT_API: Duration = Duration::from_secs(3);
/// How long two owners may last; the target is 50 ms, the rest is the machine.
const TWO_OWNERS: Duration = Duration::from_millis(250);
/// Until who was cut off has noticed, and whoever follows has taken over by the lease.
const LEASE_OUT: Duration = Duration::from_secs(10);
const AFTERWARDS: Duration = Duration::from_secs(3);

type Fault = fn(&Node) -> Result<()>;

impl Scene {
    /// Waits until claim, kernels and ARP name the same node, and it answers.
    async fn agrees(&self) -> Result<&Node> {
        self.service_agrees(&self.service).await
    }

    async fn service_agrees(&self, service: &Service) -> Result<&Node> {
        let what = format!("claim, kernels and ARP agree who owns {}", service.name());
        let mut owner = None;
        self.cluster
            .eventually(&what, PATIENCE, async || {
                let vip = *service.addresses().await?.first().context("no address")?;
                let holder = self.cluster.owner(service).await?.context("no holder")?;
                let node = self.cluster.node_named(&holder)?;
                let kernels = self.cluster.holders(vip)?;
                let kernels: Vec<_> = kernels.into_iter().map(Node::name).collect();
                let heard = self.cluster.client().owners(vip, Duration::from_millis(200));
                let heard = heard.await?.macs();
                let heard: BTreeSet<_> = heard.iter().map(ToString::to_string).collect();
                owner = Some(holder);
                Ok(kernels == [node.name()]
                    && heard == BTreeSet::from([node.mac()])
                    && service.answers(&self.cluster, vip)?)
            })
            .await?;
        self.cluster.node_named(&owner.context("no owner")?)
    }

    /// Waits until all nodes have sessions, so that the next fault meets a whole cluster.
    async fn is_whole(&self) -> Result<()> {
        self.until("every node has a session", async || {
            for node in self.cluster.nodes() {
                let (holder, _) = holder_and_transitions(&self.session(node).await?);
                if holder.as_deref() != Some(node.name()) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
        self.agrees().await?;
        // Speakers get to know the voice of a new owner within a second.
        sleep(AFTERWARDS).await;
        Ok(())
    }

    /// The number of times that the claim has changed.
    async fn changes(&self) -> Result<i32> {
        let (_, transitions) = holder_and_transitions(&self.claim().await?);
        transitions.context("a claim without transitions")
    }

    /// Breaks something about the owner, waits `time`, and asserts that another node answered
    /// within `bound` and that it became so with one change of the claim.
    async fn another_answers(
        &self,
        what: &str,
        bound: Duration,
        time: Duration,
        fault: impl AsyncFnOnce(&Node) -> Result<()>,
    ) -> Result<()> {
        self.is_whole().await?;
        let (old, changes) = (self.owner().await?, self.changes().await?);
        let probe = self.watch().await?;
        fault(old).await?;
        sleep(time).await;
        let report = probe.stop().await?;
        say(what, &report)?;
        let outage = report.udp()?.longest_outage();
        if outage > bound {
            let dump = self.cluster.dump().await;
            anyhow::bail!("{what}: no answer for {outage:?}, over {bound:?}\n{dump}");
        }
        let new = self.owner().await?;
        ensure!(new.name() != old.name(), "{what}: {} still owns it", old.name());
        let now = self.changes().await?;
        ensure!(now == changes + 1, "{what}: the claim changed {} times", now - changes);
        Ok(())
    }

    /// Undoes the faults of all links: whoever owns the VIP goes on, and two owners do not last.
    async fn heals(&self, what: &str) -> Result<()> {
        let owner = self.owner().await?;
        let probe = self.watch().await?;
        self.cluster.join_segment()?;
        self.cluster.nodes().iter().try_for_each(|node| node.heal())?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        say(what, &report)?;
        let two = report.owners()?.two_owners();
        ensure!(two < TWO_OWNERS, "{what}: two owners for {two:?}");
        let now = self.agrees().await?;
        ensure!(now.name() == owner.name(), "{what}: {} has taken it", now.name());
        Ok(())
    }
}

pub async fn an_owner_that_clients_cannot_hear_is_replaced_at_once_and_yields_when_it_is_back()
-> Result<()> {
    let scene = Scene::open("unheard").await?;
    let time = Duration::from_secs(4);
    let faults: [(&str, Fault); 4] = [
        ("node dead", |node| node.dies()),
        ("cut from the clients only", |node| node.cut_clients()),
        ("what it sends is lost", |node| node.cut_clients_one_way(Direction::FromHost)),
        ("what is sent to it is lost", |node| node.cut_clients_one_way(Direction::ToHost)),
    ];
    for (what, fault) in faults {
        scene.another_answers(what, BY_WIRE, time, async |node: &Node| fault(node)).await?;
        scene.heals("... healed").await?;
    }
    Ok(())
}

pub async fn a_parted_segment_has_one_owner_again_as_soon_as_it_is_joined() -> Result<()> {
    let scene = Scene::open("parted").await?;
    let parted = async |node: &Node| {
        // The worker is on the owner's half: it hears somebody, and is not cut off.
        let worker = scene.cluster.workers().first().context("no worker")?;
        scene.cluster.part_segment(&[node, worker])
    };
    scene.another_answers("segment parted", BY_WIRE, Duration::from_secs(6), parted).await?;
    scene.heals("... joined").await
}

pub async fn an_owner_cut_from_the_api_server_hands_over_without_a_gap() -> Result<()> {
    let scene = Scene::open("apart").await?;
    scene.is_whole().await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    old.cut_management()?;
    sleep(LEASE_OUT).await;
    let report = probe.stop().await?;
    say("owner cut from the API server", &report)?;
    let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
    ensure!(lost < 20, "{lost} lost");
    ensure!(two < TWO_OWNERS, "two owners for {two:?}");
    let new = scene.agrees().await?;
    ensure!(new.name() != old.name(), "{} still owns it", old.name());
    scene.heals("... healed").await
}

pub async fn two_nodes_that_die_at_once_are_both_replaced_at_once() -> Result<()> {
    let scene = Scene::of(Lab::shared().await?.cluster("pair").nodes(4)).await?;
    let cluster = &scene.cluster;
    let mut services = Vec::new();
    for number in 1..8 {
        let plan = cluster.service(&format!("web-{number}")).vip(number);
        services.push(plan.pods_of(&scene.service).create().await?);
    }
    let mut vips = vec![scene.vip];
    for service in &services {
        vips.push(cluster.ready(service).await?.0);
    }
    scene.is_whole().await?;

    let first = scene.owner().await?;
    let others = cluster.nodes().iter().filter(|node| node.name() != first.name());
    let second = others.last().context("one node only")?;
    let sweep = cluster.client().sweep(&vips, UDP, Duration::from_millis(5))?;
    sleep(Duration::from_millis(500)).await;
    let struck = Instant::now();
    cluster.die_together(&[first, second])?;
    sleep(Duration::from_secs(4)).await;
    let tracks = sweep.stop().await?;
    let slowest = tracks.values().map(|track| track.longest_outage_since(struck)).max();
    let slowest = slowest.context("no VIP")?;
    let lost: usize = tracks.values().map(Track::lost).sum();
    println!("    two of four nodes dead: slowest VIP {} ms, {lost} lost", slowest.as_millis());
    ensure!(slowest < BY_WIRE, "a VIP was away for {slowest:?}\n{}", cluster.dump().await);

    first.heal()?;
    second.heal()?;
    scene.is_whole().await?;
    for service in &services {
        scene.service_agrees(service).await?;
    }
    Ok(())
}

pub async fn an_owner_that_dies_with_the_api_server_or_without_it_is_replaced() -> Result<()> {
    let scene = Scene::alone("headless").await?;
    let plane = scene.lab().plane();

    // Nothing dies, the API server is merely slow: nobody may notice.
    scene.is_whole().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    let slow = plane.slow_down(Duration::from_millis(200), Duration::from_millis(400));
    sleep(LEASE_OUT).await;
    drop(slow);
    scene.nothing_was_felt("slow API server", probe).await?;
    scene.not_moved(&claim).await?;

    let died = async |scene: &Scene, what: &str, before: Duration, bound: Duration| {
        scene.is_whole().await?;
        let old = scene.owner().await?;
        let probe = scene.watch().await?;
        if before.is_zero() {
            old.dies()?;
            plane.kill_api_server().await?;
        } else {
            plane.kill_api_server().await?;
            sleep(before).await;
            old.dies()?;
        }
        sleep(LEASE_OUT).await;
        plane.start_api_server().await?;
        sleep(LEASE_OUT).await;
        let report = probe.stop().await?;
        say(what, &report)?;
        let outage = report.udp()?.longest_outage();
        ensure!(outage < bound, "{what}: no answer for {outage:?}\n{}", scene.cluster.dump().await);
        let two = report.owners()?.two_owners();
        ensure!(two < TWO_OWNERS, "{what}: two owners for {two:?}");
        // The dead node goes on unheard, with the address: only the claim says that it lost it.
        let new = scene.owner().await?;
        ensure!(new.name() != old.name(), "{what}: the claim still names {}", old.name());
        scene.heals("... healed").await
    };
    died(&scene, "API server and owner dead at once", Duration::ZERO, WITHOUT_API).await?;
    died(&scene, "owner dead while the API server is away", LEASE_OUT, BY_WIRE).await
}

pub async fn a_speaker_killed_ten_times_in_a_row_keeps_what_it_has() -> Result<()> {
    let scene = Scene::open("tenfold").await?;
    scene.is_whole().await?;
    let (owner, claim) = (scene.owner().await?, scene.claim().await?);
    let probe = scene.watch().await?;
    for pause in 1..=10 {
        owner.speaker()?.kill().await?;
        owner.start_speaker()?;
        // Sooner and later in its start.
        sleep(Duration::from_millis(100) * pause).await;
    }
    sleep(LEASE_OUT).await;
    scene.nothing_was_felt("ten kills in a row", probe).await?;
    scene.not_moved(&claim).await?;
    scene.agrees().await?;
    Ok(())
}

pub async fn a_wall_clock_that_is_set_back_and_forward_moves_nothing() -> Result<()> {
    let mut clocks = BTreeMap::new();
    let plan = Lab::shared().await?.cluster("clocks");
    let scene = Scene::before(plan, |cluster| {
        for node in cluster.nodes() {
            let clock = WallClock::new(cluster.lab().folder(), node.name())?;
            let environment = clock.environment();
            node.speaker()?.reconfigure(|options| options.environment = environment);
            clocks.insert(node.name().to_owned(), clock);
        }
        Ok(())
    })
    .await?;
    scene.is_whole().await?;
    let claim = scene.claim().await?;
    let owner = scene.owner().await?;
    let others = scene.cluster.nodes().iter().filter(|node| node.name() != owner.name());
    let other = others.last().context("one node only")?;
    let probe = scene.watch().await?;
    for seconds in [-3600, 3600] {
        // The owner's in one direction, a candidate's in the other.
        clocks.get(owner.name()).context("no clock")?.set(seconds)?;
        clocks.get(other.name()).context("no clock")?.set(-seconds)?;
        sleep(LEASE_OUT).await;
        let renewed = scene.session(owner).await?.spec.and_then(|spec| spec.renew_time);
        let renewed = renewed.context("a session without renewTime")?.0.as_second();
        let off = renewed - k8s_openapi::jiff::Timestamp::now().as_second();
        ensure!((off - seconds).abs() < 30, "{} renews {off} s off", owner.name());
    }
    scene.nothing_was_felt("wall clocks set by an hour", probe).await?;
    scene.not_moved(&claim).await?;
    scene.agrees().await?;
    Ok(())
}

pub async fn nodes_that_never_heard_each_other_take_nothing_from_each_other() -> Result<()> {
    let plan = Lab::shared().await?.cluster("isolated");
    let scene = Scene::before(plan, |cluster| {
        let (filtering, others) = cluster.nodes().split_first().context("no node")?;
        filtering.filter_arp_of(&others.iter().collect::<Vec<_>>())
    })
    .await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    sleep(LEASE_OUT).await;
    scene.nothing_was_felt("a node filters the others' ARP", probe).await?;
    scene.not_moved(&claim).await?;

    // Who was heard before would be missed: they begin without having heard anybody.
    for node in scene.cluster.nodes() {
        node.speaker()?.terminate().await?;
    }
    scene.cluster.isolate_nodes(true)?;
    scene.cluster.node(0).filter_arp_of(&[])?;
    scene.cluster.nodes().iter().try_for_each(Node::start_speaker)?;
    scene.is_whole().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    sleep(LEASE_OUT).await;
    scene.nothing_was_felt("nodes are isolated from each other", probe).await?;
    scene.not_moved(&claim).await
}
