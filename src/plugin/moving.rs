//! `move`: has the addresses of a Service go to another node.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_crds::lease::{LeaseName, annotation};
use leasehold_crds::names::NodeName;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::args::MoveArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::table::Tone;
use super::{output, read, target};
use crate::explain::{ClaimRow, Obstacle, View, World, obstacle, state_of};

/// How often it is looked whether the claim has moved.
const LOOK: Duration = Duration::from_millis(100);
/// How long the owner may take to write how long the move took: it does so at its next refresh.
const TOOK: Duration = Duration::from_secs(4);
/// How long to wait for the event that says why a move was refused.
const EVENT: Duration = Duration::from_secs(2);
/// The reason of that event.
const REFUSED: &str = "MoveRefused";

/// What is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    claim: LeaseName,
    /// Its Services.
    services: Vec<String>,
    /// These and its addresses, for people.
    what: String,
    from: NodeName,
    to: NodeName,
    /// What is to be said before.
    warning: Option<String>,
}

/// Why nothing is to be moved, or can be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is where it is to be.
    Already(String),
    /// It cannot.
    Impossible(String),
}

pub(super) async fn run(cluster: &Cluster, asked: &MoveArguments) -> Result<Outcome, PluginError> {
    let world = read::world(cluster).await?;
    let named = target::service(&world, &cluster.namespace, &asked.service)?;
    let to = target::node(&world, &asked.to)?;
    let claim = target::claim(&world, &named)?;
    let plan = match plan(&world, &claim, &to) {
        Ok(plan) => plan,
        Err(Refusal::Already(text)) => {
            output::print(&format!("{text}\n"))?;
            return Ok(Outcome::Well);
        }
        Err(Refusal::Impossible(text)) => {
            return Ok(failed(&text));
        }
    };
    if let Some(warning) = &plan.warning {
        output::note(&format!("{} {warning}", Tone::Warning.paint("warning:")));
    }
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.system);
    annotate(cluster, &leases, claim.as_str(), annotation::MOVE_TO, json!(to)).await?;
    let asked_at = Instant::now();
    await_move(cluster, &leases, &plan, asked_at, asked.timeout).await
}

/// Sets an annotation of a lease, or removes it (`null`).
pub(super) async fn annotate(
    cluster: &Cluster,
    leases: &Api<Lease>,
    name: &str,
    key: &str,
    value: Value,
) -> Result<(), PluginError> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
    let params = PatchParams::default();
    cluster.call(format!("annotate lease {name}"), leases.patch(name, &params, &patch)).await?;
    Ok(())
}

/// What a move would be, or why there is none.
fn plan(world: &World, name: &LeaseName, to: &NodeName) -> Result<Plan, Refusal> {
    let view = View::new(world);
    let impossible = |text: String| Err(Refusal::Impossible(text));
    let (Some(stored), Some(asked)) = (world.claims.get(name), view.desired().claims.get(name))
    else {
        return impossible(format!("there is no claim {name} yet"));
    };
    let what =
        format!("{} ({})", output::listed(&asked.services), output::listed(&asked.addresses));
    let Some(from) = view.owner(stored) else {
        return impossible(format!("nobody owns {what}, so nobody can hand it over"));
    };
    if from == to {
        return Err(Refusal::Already(format!("{what} is owned by {to} already")));
    }
    if let Err(reason) = view.candidate(asked, to) {
        let (_, why) = obstacle(&view, asked, to, &reason);
        return impossible(format!("{to} cannot take {what}: {why}"));
    }
    if view.is_proxy_silent(asked, to) && !view.is_proxy_silent(asked, from) {
        return impossible(format!("{to} does not take {what}: its kube-proxy does not answer"));
    }
    let state = view.desired().nodes.get(to).copied().unwrap_or_default();
    let warning =
        (state != crate::desired::NodeState::Ready).then(|| format!("{to} is {}", state_of(state)));
    let from_state = view.candidate(asked, from);
    let warning = match from_state {
        Err(Obstacle::Restarting) => {
            Some(format!("the speaker of {from} restarts: it moves when that is done"))
        }
        _ => warning,
    };
    Ok(Plan {
        claim: name.clone(),
        services: asked.services.clone(),
        what,
        from: from.clone(),
        to: to.clone(),
        warning,
    })
}

/// What has become of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// It is done, and took so long.
    Done(Option<String>),
    /// Another node owns it.
    Elsewhere(String),
    /// It is still asked for.
    Asked,
    /// It is asked for no more, and has not happened.
    Refused,
}

fn progress(plan: &Plan, claim: &ClaimRow) -> Progress {
    let record = &claim.stored.record;
    match &record.holder {
        Some(holder) if *holder == plan.to => Progress::Done(claim.took()),
        Some(holder) if *holder != plan.from => Progress::Elsewhere(holder.to_string()),
        _ if record.move_to.as_ref() == Some(&plan.to) => Progress::Asked,
        _ if record.successor.as_ref().is_some_and(|it| it.node == plan.to) => Progress::Asked,
        _ => Progress::Refused,
    }
}

async fn await_move(
    cluster: &Cluster,
    leases: &Api<Lease>,
    plan: &Plan,
    asked_at: Instant,
    patience: Duration,
) -> Result<Outcome, PluginError> {
    let mut seen: Option<Instant> = None;
    loop {
        let name = plan.claim.as_str();
        let lease = cluster.call(format!("read lease {name}"), leases.get(name)).await?;
        let now = Instant::now();
        let Some(claim) = ClaimRow::of(&lease) else { continue };
        match progress(plan, &claim) {
            Progress::Done(took) => {
                let first = *seen.get_or_insert(now);
                if took.is_some() || now >= first + TOOK {
                    return done(plan, took, first - asked_at);
                }
            }
            Progress::Elsewhere(node) => {
                let (what, cause) = (&plan.what, &claim.stored.record.cause);
                return Ok(failed(&format!("{what} went to {node} instead: {cause}")));
            }
            Progress::Asked if now >= asked_at + patience => {
                return Ok(failed(&format!(
                    "{} is still owned by {} after {patience:?}, and still asked to move; to withdraw \
                     that: kubectl annotate lease -n {} {name} {}-",
                    plan.what,
                    plan.from,
                    cluster.system,
                    annotation::MOVE_TO
                )));
            }
            Progress::Asked => {}
            Progress::Refused => {
                let why = why(cluster, plan).await;
                let why = why.unwrap_or_else(|| claim.stored.record.cause.clone());
                return Ok(failed(&format!("{} stays with {}: {why}", plan.what, plan.from)));
            }
        }
        sleep(LOOK).await;
    }
}

fn done(plan: &Plan, took: Option<String>, seen: Duration) -> Result<Outcome, PluginError> {
    let took = took.unwrap_or_else(|| format!("{} ms as seen from here", seen.as_millis()));
    let Plan { what, from, to, .. } = plan;
    output::print(&format!("moved {what} from {from} to {to} in {took}\n"))?;
    Ok(Outcome::Well)
}

fn failed(text: &str) -> Outcome {
    output::note(&format!("{} {text}", Tone::Bad.paint("not moved:")));
    Outcome::Negative
}

/// Why the owner did not move a claim: what the latest event says that it wrote about one of its
/// Services.
async fn why(cluster: &Cluster, plan: &Plan) -> Option<String> {
    let events: Api<Event> = Api::all(cluster.client.clone());
    let until = Instant::now() + EVENT;
    loop {
        let events = read::list(cluster, events.clone()).await.ok()?;
        let told = events.iter().filter(|event| is_refusal(event, plan)).max_by_key(|it| when(it));
        if let Some(told) = told {
            return told.note.clone();
        }
        if Instant::now() >= until {
            return None;
        }
        sleep(LOOK).await;
    }
}

fn is_refusal(event: &Event, plan: &Plan) -> bool {
    let of_service = event.regarding.as_ref().is_some_and(|it| {
        let (namespace, name) = (it.namespace.as_deref(), it.name.as_deref());
        let name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        it.kind.as_deref() == Some("Service") && plan.services.contains(&name)
    });
    let to = event.note.as_ref().is_some_and(|note| note.contains(plan.to.as_str()));
    of_service && to && event.reason.as_deref() == Some(REFUSED)
}

fn when(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    series.or_else(|| event.event_time.as_ref().map(|time| time.0))
}
