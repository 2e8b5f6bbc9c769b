//! `drain` and `undrain`: a node that is to own nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use leasehold_crds::lease::{LeaseName, annotation};
use leasehold_crds::names::NodeName;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::args::{DrainArguments, UndrainArguments};
use super::connect::Cluster;
use super::error::PluginError;
use super::moving::annotate;
use super::table::Tone;
use super::{output, read, target};
use crate::explain::{View, World, simulate};

/// How often it is looked what the node still owns.
const LOOK: Duration = Duration::from_millis(250);
/// For how long only what nobody can take is left before that is said.
const STUCK: Duration = Duration::from_secs(3);

pub(super) async fn drain(
    cluster: &Cluster,
    asked: &DrainArguments,
) -> Result<Outcome, PluginError> {
    let mut world = read::world(cluster).await?;
    let node = target::node(&world, &asked.node)?;
    let Some(session) = world.sessions.get(&node) else {
        let bad = Tone::Bad.paint("not drained:");
        output::note(&format!("{bad} {node} has no session: no speaker has run there"));
        return Ok(Outcome::Negative);
    };
    if !session.is_live() {
        output::note(&format!("the speaker of {node} does not run: it owns nothing"));
    }
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
    annotate(cluster, &leases, node.as_str(), annotation::DRAIN, json!("true")).await?;
    let until = Instant::now() + asked.timeout;
    let first = owned(&world, &node).len();
    let mut stuck_since = None;
    loop {
        let left = owned(&world, &node);
        if left.is_empty() {
            output::print(&drained(&node, first))?;
            return Ok(Outcome::Well);
        }
        let stays = stays(&world, &node);
        let stuck = left.len() == stays.len();
        let since = *stuck_since.get_or_insert(Instant::now());
        if !stuck {
            stuck_since = None;
        }
        let now = Instant::now();
        if now >= until || stuck && now >= since + STUCK {
            output::print(&incomplete(&node, first, &left, &stays))?;
            return Ok(Outcome::Negative);
        }
        sleep(LOOK).await;
        world = read::world(cluster).await?;
    }
}

pub(super) async fn undrain(
    cluster: &Cluster,
    asked: &UndrainArguments,
) -> Result<Outcome, PluginError> {
    let world = read::world(cluster).await?;
    let node = target::node(&world, &asked.node)?;
    match world.sessions.get(&node) {
        Some(session) if session.stored.record.drain => {
            let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
            annotate(cluster, &leases, node.as_str(), annotation::DRAIN, Value::Null).await?;
            output::print(&format!("{node} takes addresses again\n"))?;
        }
        _ => output::print(&format!("{node} is not drained\n"))?,
    }
    Ok(Outcome::Well)
}

/// The claims that a node owns.
fn owned<'a>(world: &'a World, node: &NodeName) -> BTreeSet<&'a LeaseName> {
    let view = View::new(world);
    let of_node = world.claims.iter().filter(|(_, claim)| view.owner(claim) == Some(node));
    of_node.map(|(name, _)| name).collect()
}

/// What nobody else could take, and why.
fn stays(world: &World, node: &NodeName) -> Vec<(String, Vec<String>)> {
    let simulation = simulate(&View::new(world), &BTreeSet::from([node.clone()]));
    let lost = simulation.lost().map(|step| {
        let what = output::listed(&step.services);
        (format!("{what} ({})", output::listed(&step.addresses)), step.obstacles.clone())
    });
    lost.collect()
}

fn drained(node: &NodeName, moved: usize) -> String {
    let plural = if moved == 1 { "" } else { "s" };
    format!(
        "drained {node}: {moved} claim{plural} moved; `kubectl leasehold undrain {node}` lets it take \
         addresses again\n"
    )
}

fn incomplete(
    node: &NodeName,
    first: usize,
    left: &BTreeSet<&LeaseName>,
    stays: &[(String, Vec<String>)],
) -> String {
    let moved = first.saturating_sub(left.len());
    let mut text = format!(
        "{} of {node}: {moved} of {first} claims moved, {} stay{}\n",
        Tone::Warning.paint("drained in part"),
        left.len(),
        if left.len() == 1 { "s" } else { "" },
    );
    for (what, obstacles) in stays {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  nobody else can take {what}:");
        for obstacle in obstacles {
            let _ = writeln!(text, "    {obstacle}");
        }
    }
    text
}
