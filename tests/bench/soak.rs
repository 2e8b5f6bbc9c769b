//! Conditions in which nothing dies and nothing may move, for minutes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use leasehold_lab::controlplane::Slowness;
use leasehold_lab::hogs::Hogs;
use leasehold_lab::{Cluster, Lab, Node, Storm, Track};
use serde::Serialize;
use tokio::time::sleep;

use crate::failover::{Ground, Profile, Shape, System, UDP};
use crate::record::{Book, Machine, milliseconds};

/// Each node owns two services.
const SHAPE: Shape = Shape { nodes: 3, services: 6 };
/// The interval of datagrams to each VIP.
const PERIOD: Duration = Duration::from_millis(50);
/// Competitors of a starved speaker.
const HOGS: usize = 4;
/// Readers and connections of each speaker, and frames per second.
const READERS: usize = 50;
const CONNECTIONS: usize = 1000;
const FRAMES: u64 = 20_000;
/// The least that the kernel's scheduler gives.
const NICEST: u8 = 19;
/// Of each period the slow API server stands still for so long.
const FROZEN: Duration = Duration::from_millis(200);
const API_PERIOD: Duration = Duration::from_millis(400);

/// Conditions that must not alarm the speakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Nodes do not receive each other's frames on the segment of the clients; clients receive all.
    Isolation,
    /// One node drops the ARP frames of the others.
    ArpFilter,
    /// Four CPU-bound processes run beside speakers of the lowest priority.
    Starved,
    /// The API server is stopped for 200 ms of each 400 ms.
    SlowApi,
    /// The fast profile is used, and every core is busy.
    FastHour,
    /// Fifty clients request the page of each speaker every 20 ms, and disconnect before the
    /// answer.
    Readers,
    /// Each speaker has a thousand connections whose requests never end.
    HalfOpen,
    /// An announcement of an address is repeated 20,000 times per second, as by a loop in the
    /// network.
    ArpStorm,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Duration of each condition, in minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Conditions; all if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,
}

/// The events that should not have happened.
#[derive(Debug, Serialize)]
struct Alarms {
    kind: String,
    minutes: u64,
    /// Changes of claims' and sessions' transitions.
    moved_claims: i32,
    ended_sessions: i32,
    /// `leasehold_speaker_fenced_total` and `leasehold_speaker_silences_total` of all speakers; null
    /// where the speakers have no such metric.
    fenced: Option<u64>,
    silences: Option<u64>,
    /// `leasehold_speaker_renewal_failures_total` of all speakers.
    failed_renewals: Option<u64>,
    /// Requests, connections or frames, where there were too many.
    burdens: Option<u64>,
    lost: usize,
    sent: usize,
    longest_outage_ms: f64,
    #[serde(flatten)]
    machine: Machine,
    date: String,
}

impl Kind {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    const fn profile(self) -> Profile {
        match self {
            Self::FastHour => Profile::Fast,
            Self::Isolation
            | Self::ArpFilter
            | Self::Starved
            | Self::SlowApi
            | Self::Readers
            | Self::HalfOpen
            | Self::ArpStorm => Profile::Default,
        }
    }

    /// Prepares the condition before the cluster is well.
    fn prepare(self, cluster: &Cluster) -> Result<()> {
        match self {
            Self::Isolation => cluster.isolate_nodes(true),
            Self::ArpFilter => {
                let (first, others) = cluster.nodes().split_first().context("no node")?;
                first.filter_arp_of(&others.iter().collect::<Vec<_>>())
            }
            Self::Starved => cluster.nodes().iter().try_for_each(|node| {
                node.speaker()?.reconfigure(|options| options.niceness = NICEST);
                Ok(())
            }),
            Self::SlowApi | Self::FastHour | Self::Readers | Self::HalfOpen | Self::ArpStorm => {
                Ok(())
            }
        }
    }

    /// Begins the load when all is well.
    fn begin(self, ground: &Ground) -> Result<Burden> {
        let mut burden = Burden::default();
        let servers: Vec<_> = ground.cluster.nodes().iter().map(Node::speaker_socket).collect();
        match self {
            Self::Isolation | Self::ArpFilter => {}
            Self::Starved => burden.hogs = Some(Hogs::start(HOGS)),
            Self::FastHour => {
                let cores = std::thread::available_parallelism()?.get();
                burden.hogs = Some(Hogs::start(cores));
            }
            Self::SlowApi => {
                burden.slowness = Some(ground.lab().plane().slow_down(FROZEN, API_PERIOD));
            }
            Self::Readers => burden.storm = Some(Storm::of_readers(&servers, READERS)),
            Self::HalfOpen => burden.storm = Some(Storm::of_connections(&servers, CONNECTIONS)?),
            Self::ArpStorm => {
                let vip = *ground.vips().first().context("no address")?;
                let mac = ground.cluster.client().neighbour(vip)?.context("nobody has it")?;
                burden.storm = Some(ground.cluster.client().storm(vip, mac, FRAMES)?);
            }
        }
        Ok(burden)
    }
}

#[derive(Debug, Default)]
struct Burden {
    hogs: Option<Hogs>,
    slowness: Option<Slowness>,
    storm: Option<Storm>,
}

/// Runs them one after another; whether nothing moved in any.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "soak.json")?;
    let kinds = if plan.kind.is_empty() { Kind::value_variants() } else { &plan.kind };
    let mut all = Vec::new();
    for &kind in kinds {
        let alarms = soak(kind, plan.minutes).await?;
        book.append(&alarms)?;
        println!("{}", row(&alarms));
        all.push(alarms);
    }
    println!("\n{HEADING}");
    for alarms in &all {
        println!("{}", row(alarms));
    }
    println!("\nevery run is in {}", book.path().display());
    Ok(all.iter().all(|alarms| alarms.moved_claims == 0 && alarms.ended_sessions == 0))
}

async fn soak(kind: Kind, minutes: u64) -> Result<Alarms> {
    let system = System::Leasehold(kind.profile());
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let ground = Ground::open(&lab, "soak", SHAPE, system, |cluster| kind.prepare(cluster)).await?;
    ground.settle().await?;
    let before = ground.transitions().await?;
    let counted = (count(&ground, "fenced")?, count(&ground, "silences")?);
    let failures = count(&ground, "renewal_failures")?;
    let sweep = ground.cluster.client().sweep(ground.vips(), UDP, PERIOD)?;
    let began = Instant::now();
    let burden = kind.begin(&ground)?;
    while began.elapsed() < Duration::from_secs(minutes * 60) {
        sleep(Duration::from_secs(1)).await;
    }
    let tracks = sweep.stop().await?;
    let burdens = burden.storm.as_ref().map(Storm::done);
    drop(burden);
    let after = ground.transitions().await?;
    let rose = |namespace: &str| rise(&before, &after, namespace);
    let since = |name: &str, before: Option<u64>| -> Result<Option<u64>> {
        let now = count(&ground, name)?;
        Ok(now.zip(before).map(|(now, before)| now.saturating_sub(before)))
    };
    let (fenced, silences) = counted;
    let longest = tracks.values().map(Track::longest_outage).max().unwrap_or_default();
    Ok(Alarms {
        kind: kind.name(),
        minutes,
        moved_claims: rose(leasehold_lab::SYSTEM_NAMESPACE),
        ended_sessions: rose(leasehold_lab::SESSION_NAMESPACE),
        fenced: since("fenced", fenced)?,
        silences: since("silences", silences)?,
        failed_renewals: since("renewal_failures", failures)?,
        burdens,
        lost: tracks.values().map(Track::lost).sum(),
        sent: tracks.values().map(Track::count).sum(),
        longest_outage_ms: milliseconds(longest),
        machine: Machine::here()?,
        date: k8s_openapi::jiff::Timestamp::now().to_string(),
    })
}

/// By how much the transitions of the leases of a namespace rose, in sum.
fn rise(before: &BTreeMap<String, i32>, after: &BTreeMap<String, i32>, namespace: &str) -> i32 {
    let own = after.iter().filter(|(name, _)| name.starts_with(&format!("{namespace}/")));
    own.map(|(name, now)| now - before.get(name).copied().unwrap_or(0)).sum()
}

/// A counter of all speakers, whatever its labels, if they have it.
fn count(ground: &Ground, name: &str) -> Result<Option<u64>> {
    let name = format!("leasehold_speaker_{name}_total");
    let mut sum = None;
    for node in ground.cluster.nodes() {
        let page = node.speaker_http("/metrics")?;
        let samples = page.lines().filter_map(|line| {
            let sample = line.strip_prefix(&name)?.trim_start_matches(|c| c != ' ');
            sample.trim().parse::<u64>().ok()
        });
        for value in samples {
            sum = Some(sum.unwrap_or(0) + value);
        }
    }
    Ok(sum)
}

const HEADING: &str = "condition     minutes  moved claims  ended sessions  fences  silences  \
                       failed renewals  burdens  lost datagrams  longest outage";

fn row(alarms: &Alarms) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut text = String::new();
    let _infallible = write!(
        text,
        "{:<12}  {:>7}  {:>12}  {:>14}  {:>6}  {:>8}  {:>15}  {:>7}  {:>14}  {:>11} ms",
        alarms.kind,
        alarms.minutes,
        alarms.moved_claims,
        alarms.ended_sessions,
        number(alarms.fenced),
        number(alarms.silences),
        number(alarms.failed_renewals),
        number(alarms.burdens),
        format!("{} of {}", alarms.lost, alarms.sent),
        alarms.longest_outage_ms,
    );
    text
}
