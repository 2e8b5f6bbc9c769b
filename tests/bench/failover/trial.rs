//! One round of one fault: all is well, something breaks at a random moment, clients watch.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::jiff::Timestamp;
use leasehold_lab::client::Probe;
use leasehold_lab::controlplane::ControlPlane;
use leasehold_lab::{Node, Sweep};
use serde_json::json;
use tokio::time::sleep;

use super::cold;
use super::fault::{Fault, Pace};
use super::field::Field;
use super::ground::{Ground, System};
use super::phases;
use super::pieces::Pieces;
use crate::chance;
use crate::record::{Felt, milliseconds};

/// The port of the datagrams.
pub(crate) const UDP: u16 = 5005;
/// The port of the connection.
const TCP: u16 = 80;
/// For how long nothing is done after something broke, so that the machine is left to the speakers.
const HANDS_OFF: Duration = Duration::from_millis(700);
/// The timeout of a repeat: of other systems, leases of 15 s expire and are taken over, twice.
const PATIENCE: Duration = Duration::from_secs(60);
/// The delay between two clusters: longer than the machine is busy with one.
const STAGGER: Duration = Duration::from_millis(250);
/// For how long the API server is away.
const API_AWAY: Duration = Duration::from_secs(60);
/// ... until the owner dies too.
const UNTIL_DEATH: Duration = Duration::from_secs(20);
/// After an API server has returned: longer than a lease, so that what would move then has moved.
const API_BACK: Duration = Duration::from_secs(8);
const API_SLOW: Duration = Duration::from_secs(20);
/// Of each period a slow API server stands still for so long.
const STANDSTILL: Duration = Duration::from_millis(800);
const PERIOD: Duration = Duration::from_secs(1);
const FROZEN: Duration = Duration::from_secs(30);
const PARTED: Duration = Duration::from_secs(10);
/// The time until a pod is started again.
const REPLACED: Duration = Duration::from_secs(2);
/// The time after which the session and the kernel lifetimes of a speaker that is dead or cut off have ended.
const LEASE_OUT: Duration = Duration::from_secs(12);
/// ... of one that said that it would be back: its grace of 30 s, and a lease.
const GRACE_OUT: Duration = Duration::from_secs(42);
const AFTERWARDS: Duration = Duration::from_secs(4);

/// Measures one round: one repeat on each cluster. They are left broken or whole, as the fault leaves
/// them: the next round waits until all is well.
pub(crate) async fn run(field: &Field, fault: Fault, seed: u64) -> Result<Vec<Felt>> {
    if fault == Fault::ColdStart {
        return cold::run(field).await;
    }
    let mut round = Vec::new();
    let seeds = (0..).map(|number| seed.wrapping_add(number));
    let ours = |ground: &Ground| matches!(ground.system, System::Leasehold(_));
    match fault.pace() {
        Pace::InTurn if field.grounds.iter().all(ours) => {
            for (ground, seed) in field.grounds.iter().zip(seeds) {
                round.extend(measure(field, std::slice::from_ref(ground), fault, seed).await?);
            }
        }
        Pace::InTurn | Pace::Together => {
            round.extend(measure(field, &field.grounds, fault, seed).await?);
        }
    }
    Ok(round)
}

/// One repeat on each of these clusters.
async fn measure(field: &Field, grounds: &[Ground], fault: Fault, seed: u64) -> Result<Vec<Felt>> {
    let seeds = (0..).map(|number| seed.wrapping_add(number));
    let lanes = grounds.iter().zip(seeds).map(|(ground, seed)| Lane::ready(ground, fault, seed));
    let mut lanes = try_join_all(lanes).await?;
    // Renewals and polls are far shorter apart than this.
    sleep(chance::moment(Duration::from_secs(2))?).await;
    let struck = strike(field, fault, &mut lanes).await;
    let victims: Vec<_> = lanes.iter().map(|lane| (lane.ground, lane.victims.clone())).collect();
    let felt = join_all(lanes.into_iter().map(Lane::stop)).await;
    for (ground, victims) in victims {
        for victim in victims {
            victim.heal()?;
            if fault.ends_speaker() {
                ground.start(victim)?;
            }
            if fault == Fault::Drain {
                victim.patch(json!({ "spec": { "unschedulable": null } })).await?;
            }
        }
    }
    struck?;
    felt.into_iter().collect()
}

/// Breaks what the fault says and waits for what comes of it.
async fn strike(field: &Field, fault: Fault, lanes: &mut [Lane<'_>]) -> Result<()> {
    let plane = field.lab.plane();
    match fault {
        Fault::ApiDown => {
            all_struck(lanes);
            plane.kill_api_server().await?;
            sleep(API_AWAY).await;
            back(plane).await?;
            // Other systems lose their addresses meanwhile.
            join_all(lanes.iter().map(|lane| lane.watch.back())).await;
            Ok(())
        }
        Fault::ApiRestarted => {
            all_struck(lanes);
            plane.stop_api_server().await?;
            back(plane).await
        }
        Fault::ApiSlow => {
            all_struck(lanes);
            let slowness = plane.slow_down(STANDSTILL, PERIOD);
            sleep(API_SLOW).await;
            drop(slowness);
            sleep(API_BACK).await;
            Ok(())
        }
        Fault::ApiDownOwnerDies => {
            plane.kill_api_server().await?;
            sleep(UNTIL_DEATH).await;
            let died = one_after_the_other(lanes).await;
            back(plane).await?;
            died
        }
        Fault::OwnerAndApiDead => {
            all_struck(lanes);
            let dead = lanes.iter().try_for_each(|lane| lane.victim()?.dies());
            plane.kill_api_server().await?;
            dead?;
            join_all(lanes.iter().map(|lane| lane.watch.back())).await;
            back(plane).await
        }
        _ => {
            let struck = lanes.iter_mut().zip(0..).map(async |(lane, number)| {
                sleep(STAGGER * number).await;
                lane.struck_now();
                lane.suffer(fault).await
            });
            try_join_all(struck).await?;
            Ok(())
        }
    }
}

fn all_struck(lanes: &mut [Lane<'_>]) {
    lanes.iter_mut().for_each(Lane::struck_now);
}

/// The owners die, each when the one before has been replaced.
async fn one_after_the_other(lanes: &mut [Lane<'_>]) -> Result<()> {
    for lane in lanes {
        sleep(chance::moment(Duration::from_millis(500))?).await;
        lane.struck_now();
        lane.victim()?.dies()?;
        lane.watch.back().await;
    }
    Ok(())
}

/// Starts the API server, and waits for what that moves.
async fn back(plane: &ControlPlane) -> Result<()> {
    plane.start_api_server().await?;
    sleep(API_BACK).await;
    Ok(())
}

/// One cluster in a round.
struct Lane<'a> {
    ground: &'a Ground,
    victims: Vec<&'a Node>,
    /// The VIPs that they own.
    hit: usize,
    watch: Watch,
    /// The order in which the parts of the victim end.
    pieces: Option<Pieces>,
    /// When it was struck.
    struck: (Instant, Timestamp),
}

impl<'a> Lane<'a> {
    /// Chooses who is hit, and watches.
    async fn ready(ground: &'a Ground, fault: Fault, seed: u64) -> Result<Self> {
        let owned = ground.owned().await?;
        let victims = chance::pick(owned.keys().cloned().collect(), fault.victims())?;
        ensure!(victims.len() == fault.victims(), "only {victims:?} own anything");
        let hit = victims.iter().filter_map(|name| owned.get(name)).flatten();
        let hit: Vec<IpAddr> = hit.copied().collect();
        let victims = victims.iter().map(|name| ground.cluster.node_named(name));
        let victims = victims.collect::<Result<_>>()?;
        let watch = Watch::start(ground, *hit.first().context("nothing is owned")?).await?;
        let struck = (Instant::now(), Timestamp::now());
        let pieces = matches!(fault, Fault::NodeInPieces | Fault::NodeInPiecesOfFive)
            .then(|| Pieces::drawn(seed));
        Ok(Self { ground, victims, hit: hit.len(), watch, pieces, struck })
    }

    fn victim(&self) -> Result<&'a Node> {
        self.victims.first().copied().context("no victim")
    }

    fn struck_now(&mut self) {
        self.struck = (Instant::now(), Timestamp::now());
    }

    /// Applies the fault to this cluster alone, and waits for its end.
    async fn suffer(&self, fault: Fault) -> Result<()> {
        let Self { ground, watch, .. } = self;
        let victim = self.victim()?;
        match fault {
            Fault::NodeDead | Fault::TwoOfFive | Fault::TwoOfFour | Fault::HundredServices => {
                ground.cluster.die_together(&self.victims)?;
                watch.back().await;
            }
            Fault::NodeInPieces | Fault::NodeInPiecesOfFive => {
                let pieces = self.pieces.context("nothing was drawn")?;
                println!("{} ends: {pieces}", victim.name());
                pieces.end(ground, victim).await?;
                watch.back().await;
            }
            Fault::ClientsLinkCut => {
                victim.cut_clients()?;
                watch.back().await;
            }
            Fault::SpeakerTerminated => {
                ground.terminate(victim).await?;
                sleep(GRACE_OUT).await;
            }
            Fault::SpeakerRestarted => {
                ground.terminate(victim).await?;
                sleep(REPLACED).await;
                ground.start(victim)?;
                sleep(LEASE_OUT).await;
            }
            Fault::SpeakerKilled => {
                ground.kill(victim).await?;
                sleep(LEASE_OUT).await;
            }
            Fault::SpeakerKilledRestarted => {
                ground.kill(victim).await?;
                sleep(REPLACED).await;
                ground.start(victim)?;
                sleep(LEASE_OUT).await;
            }
            Fault::RollingUpgrade => {
                ground.upgrade().await?;
                sleep(LEASE_OUT).await;
            }
            Fault::Drain => {
                victim.patch(json!({ "spec": { "unschedulable": true } })).await?;
                let empty = async || Ok(!ground.owned().await?.contains_key(victim.name()));
                ground.cluster.eventually("the node is drained", PATIENCE * 2, empty).await?;
                sleep(AFTERWARDS).await;
            }
            Fault::OwnerCutFromApi => {
                victim.cut_management()?;
                sleep(LEASE_OUT).await;
            }
            Fault::PartitionHeal => {
                // The worker is on the owner's half: it is not alone there, so it is not cut off.
                let half = self.victims.iter().copied().chain(ground.cluster.workers());
                ground.cluster.part_segment(&half.collect::<Vec<_>>())?;
                sleep(PARTED).await;
                ground.cluster.join_segment()?;
                sleep(AFTERWARDS).await;
            }
            Fault::Sigstop => {
                ground.freeze(victim)?;
                sleep(FROZEN).await;
                ground.thaw(victim)?;
                sleep(AFTERWARDS).await;
            }
            // Not of one cluster alone.
            Fault::ColdStart
            | Fault::ApiDown
            | Fault::ApiDownOwnerDies
            | Fault::ApiRestarted
            | Fault::ApiSlow
            | Fault::OwnerAndApiDead => {}
        }
        Ok(())
    }

    async fn stop(self) -> Result<Felt> {
        let (since, at) = self.struck;
        let recovered = self.watch.answered();
        let Watch { sweep, probe, .. } = self.watch;
        let (tracks, report) = futures::try_join!(sweep.stop(), probe.stop())?;
        let owners = report.owners()?;
        let outages = tracks.values().map(|track| track.longest_outage_since(since));
        let lost = || tracks.values().map(|track| track.lost_since(since));
        // Of the VIP that was away longest.
        let away =
            tracks.iter().filter_map(|(vip, track)| Some((*vip, track.outage_since(since)?)));
        let phases = match away.max_by_key(|(_, outage)| outage.length) {
            Some((vip, outage)) => {
                let switched = (outage.from + outage.length).saturating_duration_since(since);
                phases::read(self.ground, vip, at, switched)?
            }
            None => None,
        };
        Ok(Felt {
            outage_ms: milliseconds(outages.max().unwrap_or_default()),
            lost: lost().sum(),
            lost_most: lost().max().unwrap_or_default(),
            sent: tracks.values().map(leasehold_lab::Track::count).sum(),
            connection_broken: report.connection()?.broken().is_some(),
            two_owners_ms: milliseconds(owners.two_owners()),
            arp_unanswered_ms: milliseconds(owners.longest_without_owner()),
            hit: self.hit,
            recovered,
            phases,
            shares: None,
            seed: self.pieces.map(|pieces| pieces.seed()),
        })
    }
}

/// A client that asks all VIPs and holds a connection to one, and a host that asks by ARP for that one.
struct Watch {
    sweep: Sweep,
    probe: Probe,
}

impl Watch {
    /// Returns when all VIPs have answered it for a while.
    async fn start(ground: &Ground, vip: IpAddr) -> Result<Self> {
        let client = ground.cluster.client();
        // kube-proxy forwards on every node: a client that still knows an earlier owner would be
        // served by it, and not feel the fault.
        client.namespace().ip("neighbour flush dev eth0\n")?;
        let period = if ground.vips().len() > 10 { 20 } else { 5 };
        let sweep = client.sweep(ground.vips(), UDP, Duration::from_millis(period))?;
        let probe = client.probe(vip).owners().connection(TCP).start()?;
        let watch = Self { sweep, probe };
        let deadline = Instant::now() + PATIENCE;
        loop {
            sleep(Duration::from_millis(500)).await;
            if watch.answered() {
                return Ok(watch);
            }
            ensure!(Instant::now() < deadline, "not all VIPs answer although all seems well");
        }
    }

    /// Whether all VIPs answer now.
    fn answered(&self) -> bool {
        let lately = Instant::now().checked_sub(Duration::from_millis(250));
        lately.is_some_and(|lately| self.sweep.all_answered_since(lately))
    }

    /// Waits until all VIPs answer again, or patience ends: the record says which.
    async fn back(&self) {
        let deadline = Instant::now() + PATIENCE;
        sleep(HANDS_OFF).await;
        while !self.answered() && Instant::now() < deadline {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(HANDS_OFF).await;
    }
}
