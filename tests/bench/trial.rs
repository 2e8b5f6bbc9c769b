//! One repeat of one fault: all is well, something breaks at a random moment, a client watches.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::client::Probe;
use leasehold_lab::{Node, Sweep};
use tokio::time::sleep;

use crate::chance;
use crate::fault::Fault;
use crate::ground::Ground;
use crate::record::{Felt, milliseconds};

/// The port of the datagrams.
pub(crate) const UDP: u16 = 5005;
/// For how long nothing is done after something broke, so that the machine is left to the speakers.
const HANDS_OFF: Duration = Duration::from_millis(700);
/// How long an address may stay away before a repeat is given up: a lease that ran out and was
/// taken over, twice.
const PATIENCE: Duration = Duration::from_secs(15);
/// For how long the API server is away.
const API_AWAY: Duration = Duration::from_secs(60);
/// ... until the owner dies too.
const UNTIL_DEATH: Duration = Duration::from_secs(20);
/// After an API server has returned: longer than a lease, so that what would move then has moved.
const API_BACK: Duration = Duration::from_secs(8);
const FROZEN: Duration = Duration::from_secs(30);
const PARTED: Duration = Duration::from_secs(10);
/// What becomes of a speaker that is dead or cut off shows when its lease and its kernel lifetimes
/// have run out.
const LEASE_OUT: Duration = Duration::from_secs(12);
const AFTERWARDS: Duration = Duration::from_secs(4);

/// Measures one repeat. The ground is left broken or whole, as the fault leaves it: the next
/// repeat waits until all is well.
pub(crate) async fn run(ground: &mut Ground, fault: Fault) -> Result<Felt> {
    let owned = ground.owned()?;
    let victims = chance::pick(owned.keys().cloned().collect(), fault.victims())?;
    ensure!(victims.len() == fault.victims(), "only {victims:?} own anything");
    let hit = victims.iter().filter_map(|name| owned.get(name)).flatten();
    let hit: Vec<IpAddr> = hit.copied().collect();
    let felt = {
        let nodes: Vec<_> =
            victims.iter().map(|name| ground.cluster.node_named(name)).collect::<Result<_>>()?;
        let watch = Watch::start(ground, *hit.first().context("nothing is owned")?).await?;
        // Renewals and polls are far shorter apart than this.
        sleep(chance::moment(Duration::from_secs(2))?).await;
        let struck = Instant::now();
        let counted = strike(ground, fault, &nodes, &watch).await;
        let felt = watch.stop(struck, *counted.as_ref().unwrap_or(&struck), hit.len()).await;
        for node in nodes {
            node.heal()?;
        }
        counted?;
        felt?
    };
    if fault == Fault::SpeakerKilled {
        for victim in &victims {
            ground.start(victim)?;
        }
    }
    Ok(felt)
}

/// Breaks what the fault says and waits for what comes of it; returns the moment from which
/// outages count.
async fn strike(
    ground: &Ground,
    fault: Fault,
    victims: &[&Node],
    watch: &Watch,
) -> Result<Instant> {
    let victim = *victims.first().context("no victim")?;
    let plane = ground.lab().plane();
    let mut since = Instant::now();
    match fault {
        Fault::NodeDead | Fault::TwoOfFive | Fault::TwoOfFour | Fault::HundredServices => {
            ground.cluster.die_together(victims)?;
            watch.back().await;
        }
        Fault::ClientsLinkCut => {
            victim.cut_clients()?;
            watch.back().await;
        }
        Fault::SpeakerKilled => {
            ground.kill(victim).await?;
            sleep(LEASE_OUT).await;
        }
        Fault::OwnerCutFromApi => {
            victim.cut_management()?;
            sleep(LEASE_OUT).await;
        }
        Fault::PartitionHeal => {
            // The worker is on the owner's half: it is not alone there, so it is not cut off.
            let half: Vec<_> = victims.iter().copied().chain(ground.cluster.workers()).collect();
            ground.cluster.part_segment(&half)?;
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
        Fault::ApiDown => {
            plane.kill_api_server().await?;
            sleep(API_AWAY).await;
            plane.start_api_server().await?;
            sleep(API_BACK).await;
        }
        Fault::ApiDownOwnerDies => {
            plane.kill_api_server().await?;
            sleep(UNTIL_DEATH).await;
            since = Instant::now();
            victim.dies()?;
            watch.back().await;
            plane.start_api_server().await?;
            sleep(API_BACK).await;
        }
        Fault::OwnerAndApiDead => {
            let (dead, killed) = {
                let dead = victim.dies();
                (dead, plane.kill_api_server().await)
            };
            dead.and(killed)?;
            watch.back().await;
            plane.start_api_server().await?;
            sleep(API_BACK).await;
        }
    }
    Ok(since)
}

/// A client that asks all VIPs, and a host that asks by ARP for one.
struct Watch {
    sweep: Sweep,
    owners: Probe,
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
        let owners = client.probe(vip).owners().start()?;
        let watch = Self { sweep, owners };
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

    async fn stop(self, struck: Instant, counted: Instant, hit: usize) -> Result<Felt> {
        let recovered = self.answered();
        let (tracks, report) = futures::try_join!(self.sweep.stop(), self.owners.stop())?;
        let owners = report.owners()?;
        let outages = tracks.values().map(|track| track.longest_outage_since(counted));
        Ok(Felt {
            outage_ms: milliseconds(outages.max().unwrap_or_default()),
            lost: tracks.values().map(|track| track.lost_since(struck)).sum(),
            sent: tracks.values().map(leasehold_lab::Track::count).sum(),
            two_owners_ms: milliseconds(owners.two_owners()),
            arp_unanswered_ms: milliseconds(owners.longest_without_owner()),
            hit,
            recovered,
        })
    }
}
