//! The API server is away half of the time, and links, speakers and nodes fail meanwhile: for how long addresses
//! are dark that a healthy node could serve.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use leasehold_lab::{Lab, Node};
use serde::Serialize;
use tokio::time::sleep;

use crate::chance;
use crate::failover::{Ground, Profile, Shape, System, UDP};
use crate::record::{Book, Machine, milliseconds};

/// One node fails at a time, so that each address has two more to go to.
const SHAPE: Shape = Shape { nodes: 3, services: 9 };
/// The interval of datagrams to each address.
const PERIOD: Duration = Duration::from_millis(20);
/// For how long an address may be dark.
const BOUND: Duration = Duration::from_secs(2);
/// For how long the API server is away, and there, each time: at least, and how much longer.
const AWAY: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(18));
/// The time without a fault between two faults, at least and at most.
const WHOLE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Duration of the run, in minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The carrier of a node's link to the clients.
    Carrier,
    /// The carrier of all these links: a switch starts anew.
    Switch,
    /// A speaker is killed, and another started.
    Killed,
    /// A speaker stands still.
    Frozen,
    /// No frame leaves or reaches a node, on any link.
    Dead,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carrier => "no carrier",
            Self::Switch => "switch starts anew",
            Self::Killed => "speaker killed",
            Self::Frozen => "speaker stands still",
            Self::Dead => "node dead",
        })
    }
}

/// Something that was wrong for a while.
#[derive(Clone, Debug)]
struct Wrong {
    what: String,
    from: Instant,
    to: Instant,
}

#[derive(Debug, Serialize)]
struct Outcome {
    minutes: u64,
    api_away_percent: u64,
    api_outages: usize,
    faults: usize,
    /// The number of times that an address was dark, however short.
    dark: usize,
    /// The number of times that exceeded [`BOUND`], and the longest, without the times in which no node had a link.
    dark_too_long: usize,
    longest_ms: f64,
    #[serde(flatten)]
    machine: Machine,
    date: String,
}

/// Runs the faults; returns whether no address was dark for too long.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "outages.json")?;
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let system = System::Leasehold(Profile::Default);
    let ground = Ground::open(&lab, "outages", SHAPE, system, |_| Ok(())).await?;
    ground.settle().await?;
    let sweep = ground.cluster.client().sweep(ground.vips(), UDP, PERIOD)?;
    let began = Instant::now();
    let end = began + Duration::from_secs(plan.minutes * 60);
    let (away, faults) =
        tokio::try_join!(api_comes_and_goes(&ground, end), nodes_fail(&ground, end))?;
    ground.settle().await?;
    let lasted = began.elapsed();
    let tracks = sweep.stop().await?;

    let mut lengths = Vec::new();
    for (vip, track) in &tracks {
        for outage in track.outages() {
            let to = outage.from + outage.length;
            let length = outage.length.saturating_sub(unservable(&faults, outage.from, to));
            lengths.push(length);
            if length > BOUND {
                println!(
                    "{vip} was dark for {} ms from {:.1} s on; what was wrong:",
                    length.as_millis(),
                    (outage.from - began).as_secs_f64()
                );
                let near =
                    |it: &&Wrong| it.from < to && outage.from < it.to + Duration::from_secs(10);
                for it in away.iter().chain(&faults).filter(near) {
                    let at = |time: Instant| time.saturating_duration_since(began).as_secs_f64();
                    println!("    {:.1} to {:.1} s: {}", at(it.from), at(it.to), it.what);
                }
            }
        }
    }
    let gone: Duration = away.iter().map(|it| it.to - it.from).sum();
    let percent = 100 * gone.as_millis() / lasted.as_millis().max(1);
    let outcome = Outcome {
        minutes: plan.minutes,
        api_away_percent: u64::try_from(percent)?,
        api_outages: away.len(),
        faults: faults.len(),
        dark: lengths.len(),
        dark_too_long: lengths.iter().filter(|length| **length > BOUND).count(),
        longest_ms: milliseconds(lengths.iter().copied().max().unwrap_or_default()),
        machine: Machine::here()?,
        date: k8s_openapi::jiff::Timestamp::now().to_string(),
    };
    book.append(&outcome)?;
    println!(
        "{} minutes: the API server away {} times, {} % of the time; {} faults; {} times an address was dark, \
         {} times for more than {} s, {} ms at most",
        outcome.minutes,
        outcome.api_outages,
        outcome.api_away_percent,
        outcome.faults,
        outcome.dark,
        outcome.dark_too_long,
        BOUND.as_secs(),
        outcome.longest_ms
    );
    println!("every run is in {}", book.path().display());
    Ok(outcome.dark_too_long == 0)
}

/// For how long of this no node had a link to the clients.
fn unservable(faults: &[Wrong], from: Instant, to: Instant) -> Duration {
    let none = faults.iter().filter(|it| it.what == Fault::Switch.to_string());
    none.map(|it| it.to.min(to).saturating_duration_since(it.from.max(from))).sum()
}

async fn api_comes_and_goes(ground: &Ground, end: Instant) -> Result<Vec<Wrong>> {
    let plane = ground.lab().plane();
    let mut away = Vec::new();
    loop {
        sleep(between(AWAY)?).await;
        if Instant::now() >= end {
            return Ok(away);
        }
        let from = Instant::now();
        let what = if away.len() % 2 == 0 {
            plane.freeze_api_server()?;
            sleep(between(AWAY)?).await;
            plane.thaw_api_server()?;
            "the API server stands still"
        } else {
            plane.kill_api_server().await?;
            sleep(between(AWAY)?).await;
            plane.start_api_server().await?;
            "the API server is dead"
        };
        away.push(Wrong { what: what.to_owned(), from, to: Instant::now() });
    }
}

async fn nodes_fail(ground: &Ground, end: Instant) -> Result<Vec<Wrong>> {
    use Fault::{Carrier, Dead, Frozen, Killed, Switch};
    let mut faults = Vec::new();
    let nodes = ground.cluster.nodes();
    loop {
        sleep(between(WHOLE)?).await;
        if Instant::now() >= end {
            return Ok(faults);
        }
        let kinds = vec![Carrier, Carrier, Killed, Killed, Frozen, Dead, Dead, Switch];
        let fault = *chance::pick(kinds, 1)?.first().context("no kind")?;
        let node = nodes.get(chance::below(nodes.len())?).context("no node")?;
        let lasts = match fault {
            Switch => between((Duration::from_millis(500), Duration::from_secs(3)))?,
            _ if chance::below(3)? == 0 => between((Duration::ZERO, Duration::from_millis(500)))?,
            _ => between((Duration::from_secs(1), Duration::from_secs(7)))?,
        };
        let from = Instant::now();
        begin(fault, ground, node).await?;
        sleep(lasts).await;
        end_of(fault, ground, node)?;
        let what = match fault {
            Switch => fault.to_string(),
            Carrier | Killed | Frozen | Dead => format!("{}: {fault}", node.name()),
        };
        faults.push(Wrong { what, from, to: Instant::now() });
    }
}

async fn begin(fault: Fault, ground: &Ground, node: &Node) -> Result<()> {
    match fault {
        Fault::Carrier => node.clients_link_down(),
        Fault::Switch => {
            ground.cluster.nodes().iter().try_for_each(|node| node.clients_link_down())
        }
        Fault::Killed => ground.kill(node).await,
        Fault::Frozen => ground.freeze(node),
        Fault::Dead => node.dies(),
    }
}

fn end_of(fault: Fault, ground: &Ground, node: &Node) -> Result<()> {
    match fault {
        Fault::Carrier => node.clients_link_up(),
        Fault::Switch => ground.cluster.nodes().iter().try_for_each(|node| node.clients_link_up()),
        Fault::Killed => ground.start(node),
        Fault::Frozen => ground.thaw(node),
        Fault::Dead => node.heal(),
    }
}

fn between((least, more): (Duration, Duration)) -> Result<Duration> {
    Ok(least + chance::moment(more)?)
}
