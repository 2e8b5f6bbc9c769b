//! The cost of Services, endpoints and nodes that Leasehold does not serve: the peak memory of a speaker and of the
//! operator that start in a cluster full of them, and their start times.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use leasehold_lab::crowd::Crowd;
use leasehold_lab::process::Process;
use leasehold_lab::{Cluster, Node};
use serde_json::json;
use tokio::time::sleep;

use crate::cost::Stage;
use crate::record::{mib, milliseconds, resident};

const PATIENCE: Duration = Duration::from_secs(300);
/// The pause before memory is read.
const REST: Duration = Duration::from_secs(10);
/// The number of nodes with a speaker.
const NODES: u8 = 3;

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Number of unrelated Services, with one EndpointSlice each.
    #[arg(long, default_value_t = 20_000)]
    services: usize,
    /// Number of endpoints of each slice.
    #[arg(long, default_value_t = 100)]
    endpoints: usize,
    /// Number of nodes.
    #[arg(long, default_value_t = 2_000)]
    nodes: usize,
    /// Number of images in the status of each node.
    #[arg(long, default_value_t = 50)]
    images: usize,
    /// Number of Services of type LoadBalancer.
    #[arg(long, default_value_t = 10)]
    ours: usize,
    /// Maximum memory of a speaker at any time, in MiB.
    #[arg(long, default_value_t = 40.0)]
    most_mib: f64,
}

/// Starts everything in such a cluster; returns whether the speakers stayed within their bound.
pub(crate) async fn run(plan: &Plan) -> Result<bool> {
    let stage = Stage::open(NODES).await?;
    ensure!(stage.lab.operator()?.terminate().await?.success(), "the operator failed");
    let began = Instant::now();
    let &Plan { services, endpoints, nodes, images, ours, .. } = plan;
    Crowd { services, endpoints, nodes, images, ..Crowd::default() }.create(&stage.lab).await?;
    println!(
        "{services} ordinary Services with {endpoints} endpoints each, {nodes} nodes with {images} images each, \
         {ours} Services of ours; created in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    println!("{:<40} {:>9} {:>9} {:>9}", "", "peak MiB", "then MiB", "after ms");

    let node = stage.cluster.nodes().first().context("there are three")?;
    let took = started(&stage.cluster, node).await?;
    sleep(REST).await;
    let mut most = told("speaker, ready; nothing is ours", &*node.speaker()?.process()?, took)?;
    node.speaker()?.terminate().await?;

    stage.fleet.create_many("ours", 0..plan.ours, &json!({})).await?;
    let began = Instant::now();
    stage.lab.start_operator(&["--default-class"])?;
    let all = async || Ok(stage.fleet.served("ours").await? == plan.ours);
    stage.lab.eventually("all of ours have an address", PATIENCE, all).await?;
    let allocated = began.elapsed();
    let began = Instant::now();
    for node in stage.cluster.nodes() {
        node.start_speaker()?;
    }
    stage.all_owned(plan.ours, NODES.into()).await?;
    let announced = began.elapsed();
    sleep(REST).await;
    for node in stage.cluster.nodes() {
        let what = format!("speaker of {}, all of ours announced", node.name());
        most = most.max(told(&what, &*node.speaker()?.process()?, announced)?);
    }
    told("operator, all of ours have an address", stage.lab.operator()?.process(), allocated)?;

    // All lists have to be in before its session runs out.
    node.speaker()?.terminate().await?;
    let took = started(&stage.cluster, node).await?;
    sleep(REST).await;
    most = most.max(told("speaker, ready again", &*node.speaker()?.process()?, took)?);
    println!("\nthe largest speaker had {most:.1} MiB; {:.1} are allowed", plan.most_mib);
    Ok(most <= plan.most_mib)
}

/// Starts a node's speaker; returns how long it took to be ready.
async fn started(cluster: &Cluster, node: &Node) -> Result<Duration> {
    let began = Instant::now();
    node.start_speaker()?;
    let ready = async || Ok(node.speaker_http("/readyz").is_ok());
    cluster.eventually("the speaker is ready", PATIENCE, ready).await?;
    Ok(began.elapsed())
}

/// Says what a process has had, and returns it.
fn told(what: &str, process: &Process, took: Duration) -> Result<f64> {
    let (peak, now) = (mib(process.peak_kib()?)?, resident(process)?);
    println!("{what:<40} {peak:>9.1} {now:>9.1} {:>9.0}", milliseconds(took));
    Ok(peak)
}
