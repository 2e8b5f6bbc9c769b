//! `drain` and `undrain`: a node that is to own nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use leasehold_core::explain::{Objects, View, World, simulate};
use leasehold_crds::lease::{LeaseName, annotation};
use leasehold_crds::names::NodeName;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{DrainArguments, UndrainArguments};
use super::claims::Claims;
use super::connect::Cluster;
use super::error::PluginError;
use super::moving::annotate;
use super::outcome::Outcome;
use super::table::Tone;
use super::{connections, output, read, target};

/// Time without a move after which it is checked whether any node can take the rest.
const STUCK: Duration = Duration::from_secs(3);

pub(super) async fn drain(
    cluster: &Cluster,
    asked: &DrainArguments,
) -> Result<Outcome, PluginError> {
    let mut world = read::world(cluster).await?;
    let node = target::node(&world, &asked.node)?;
    let Some(session) = world.sessions.get(&node) else {
        let bad = Tone::Bad.paint("not drained:");
        let why = "has no session, because no speaker has run on it";
        output::note(&format!("{bad} {node} {why}"));
        return Ok(Outcome::Negative);
    };
    if !session.is_live() {
        output::note(&format!("the speaker of {node} does not run, so the node owns nothing"));
    }
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
    annotate(cluster, &leases, node.as_str(), annotation::DRAIN, json!("true")).await?;
    let until = Instant::now() + asked.timeout;
    let mut claims = Claims::watch(cluster);
    let first = owned(&world, &node).len();
    let (mut left, mut moved_at) = (first, Instant::now());
    loop {
        let (now, owned_now) = (Instant::now(), owned(&world, &node).len());
        if owned_now != left {
            (left, moved_at) = (owned_now, now);
        }
        if left == 0 || now >= until.min(moved_at + STUCK) {
            // It may have a new session, and own by that.
            world.sessions = read::sessions(cluster).await?;
            if owned(&world, &node).is_empty() {
                output::print(&drained(&node, first))?;
                let Some(limit) = asked.wait_connections else { return Ok(Outcome::Well) };
                return connections::wait(cluster, &node, limit, first > 0).await;
            }
            if let Some(text) = stuck(&world, &node, first, now >= until) {
                output::print(&text)?;
                return Ok(Outcome::Negative);
            }
            moved_at = now;
        }
        claims.news(&mut world.claims, until.min(moved_at + STUCK)).await?;
    }
}

/// The message if the node is not drained: because no node can take the rest, or time is `over`.
fn stuck(world: &World, node: &NodeName, first: usize, over: bool) -> Option<String> {
    let (left, stays) = (owned(world, node).len(), stays(world, node));
    (over || stays.len() == left).then(|| incomplete(node, first, left, &stays))
}

pub(super) async fn undrain(
    cluster: &Cluster,
    asked: &UndrainArguments,
) -> Result<Outcome, PluginError> {
    let nodes = read::list(cluster, Api::all(cluster.client.clone())).await?;
    let sessions = read::sessions(cluster).await?;
    let world = World { sessions, ..World::of(&Objects { nodes, ..Objects::default() }) };
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
    let of_node = world.claims.iter().filter(|(_, claim)| world.owner(claim) == Some(node));
    of_node.map(|(name, _)| name).collect()
}

/// The claims that no other node could take, with the reasons.
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
        "drained {node}: moved {moved} claim{plural}; `kubectl leasehold undrain {node}` ends the drain\n"
    )
}

fn incomplete(
    node: &NodeName,
    first: usize,
    left: usize,
    stays: &[(String, Vec<String>)],
) -> String {
    let moved = first.saturating_sub(left);
    let mut text = format!(
        "{} {node}: moved {moved} of {first} claims, {left} remain{}\n",
        Tone::Warning.paint("partially drained"),
        if left == 1 { "s" } else { "" },
    );
    for (what, obstacles) in stays {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  no other node can take {what}:");
        for obstacle in obstacles {
            let _ = writeln!(text, "    {obstacle}");
        }
    }
    text
}
