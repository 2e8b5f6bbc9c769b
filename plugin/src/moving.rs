//! `move`: has the addresses of a Service go to another node.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use leasehold_core::explain::{ClaimRow, Obstacle, View, World, obstacle, state_of};
use leasehold_crds::event::Reason;
use leasehold_crds::lease::{LeaseName, annotation};
use leasehold_crds::names::NodeName;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::args::MoveArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::table::Tone;
use super::{output, read, target};

/// Interval between two looks at the claim.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between two looks for that event.
const LOOK_FOR_EVENT: Duration = Duration::from_millis(250);
/// The longest wait for the owner to write the duration of the move: it does so at its next refresh.
const TOOK: Duration = Duration::from_secs(4);
/// The longest wait for the event with the reason of a refusal.
const EVENT: Duration = Duration::from_secs(2);
/// The reason of that event.
const REFUSED: &str = Reason::MoveRefused.as_str();

/// A move to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    claim: LeaseName,
    /// Its Services.
    services: Vec<String>,
    /// These and its addresses, for people.
    what: String,
    from: NodeName,
    to: NodeName,
    /// A message before the move.
    warning: Option<String>,
}

/// A reason for which there is nothing to move, or no way to.
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

/// Plans a move, or says why there is none.
fn plan(world: &World, name: &LeaseName, to: &NodeName) -> Result<Plan, Refusal> {
    let view = View::new(world);
    let impossible = |text: String| Err(Refusal::Impossible(text));
    let (Some(stored), Some(asked)) = (world.claims.get(name), view.desired().claims.get(name))
    else {
        return impossible(format!("claim {name} does not exist yet"));
    };
    let what =
        format!("{} ({})", output::listed(&asked.services), output::listed(&asked.addresses));
    let Some(from) = view.owner(stored) else {
        return impossible(format!("{what} has no owner that could hand it over"));
    };
    if from == to {
        return Err(Refusal::Already(format!("{to} already owns {what}")));
    }
    if let Err(reason) = view.candidate(asked, to) {
        let (_, why) = obstacle(&view, asked, to, &reason);
        return impossible(format!("{to} cannot take {what}: {why}"));
    }
    if view.is_proxy_silent(asked, to) && !view.is_proxy_silent(asked, from) {
        return impossible(format!("{to} does not take {what}: its kube-proxy does not answer"));
    }
    let state = view.desired().nodes.get(to).copied().unwrap_or_default();
    let warning = (state != leasehold_core::desired::NodeState::Ready)
        .then(|| format!("{to} is {}", state_of(state)));
    let from_state = view.candidate(asked, from);
    let warning = match from_state {
        Err(Obstacle::Restarting) => {
            Some(format!("the speaker of {from} is restarting: the move starts afterward"))
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

/// The state of a move.
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
    /// It was given up, and nobody owns it.
    Released,
    /// There is no such claim any more.
    Gone,
    /// The content of the Lease is no claim.
    Unreadable,
}

fn progress(plan: &Plan, lease: Option<&Lease>) -> Progress {
    let Some(lease) = lease else { return Progress::Gone };
    let Some(claim) = ClaimRow::of(lease) else { return Progress::Unreadable };
    let record = &claim.stored.record;
    match &record.holder {
        Some(holder) if *holder == plan.to => Progress::Done(claim.took()),
        Some(holder) if *holder != plan.from => Progress::Elsewhere(holder.to_string()),
        _ if record.move_to.as_ref() == Some(&plan.to) => Progress::Asked,
        _ if record.successor.as_ref().is_some_and(|it| it.node == plan.to) => Progress::Asked,
        Some(_) => Progress::Refused,
        None => Progress::Released,
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
        let lease = cluster.call(format!("read lease {name}"), leases.get_opt(name)).await?;
        let now = Instant::now();
        let progress = progress(plan, lease.as_ref());
        if let Progress::Done(took) = &progress {
            let first = *seen.get_or_insert(now);
            if took.is_some() || now >= first + TOOK {
                return done(plan, took.clone(), first - asked_at);
            }
        }
        let claim = lease.as_ref().and_then(ClaimRow::of);
        let mut cause = claim.map(|it| it.stored.record.cause).unwrap_or_default();
        if progress == Progress::Refused {
            cause = why(cluster, plan).await.unwrap_or(cause);
        }
        let over = (now >= asked_at + patience).then_some(patience);
        if let Some(text) = ended(plan, &progress, &cause, &cluster.system, over) {
            return Ok(failed(&text));
        }
        sleep(LOOK).await;
    }
}

/// The failure of a move; `None` while it goes on. `over` is the time that was waited, if that is enough.
fn ended(
    plan: &Plan,
    progress: &Progress,
    cause: &str,
    namespace: &str,
    over: Option<Duration>,
) -> Option<String> {
    let Plan { claim, what, from, .. } = plan;
    match progress {
        Progress::Done(_) => None,
        Progress::Elsewhere(node) => Some(format!("{what} went to {node} instead: {cause}")),
        Progress::Refused => Some(format!("{what} stays with {from}: {cause}")),
        Progress::Released => Some(format!("{what} no longer has an owner: {cause}")),
        Progress::Gone => Some(format!("the claim of {what} was deleted")),
        Progress::Asked => over.map(|patience| {
            format!(
                "{what} has not moved within {patience:?}; the request is still pending. To withdraw \
                 it: kubectl annotate lease -n {namespace} {claim} {}-",
                annotation::MOVE_TO
            )
        }),
        Progress::Unreadable => over
            .map(|_| format!("Lease {claim} in namespace {namespace} is no longer a valid claim")),
    }
}

fn done(plan: &Plan, took: Option<String>, seen: Duration) -> Result<Outcome, PluginError> {
    let took =
        took.unwrap_or_else(|| format!("{} ms as observed by this command", seen.as_millis()));
    let Plan { what, from, to, .. } = plan;
    output::print(&format!("moved {what} from {from} to {to} in {took}\n"))?;
    Ok(Outcome::Well)
}

fn failed(text: &str) -> Outcome {
    output::note(&format!("{} {text}", Tone::Bad.paint("not moved:")));
    Outcome::Negative
}

/// The reason for which the owner did not move a claim: the latest event that it wrote about one of its Services.
async fn why(cluster: &Cluster, plan: &Plan) -> Option<String> {
    // Events are in the namespace of what they are about.
    let namespaces = plan.services.iter().filter_map(|name| Some(name.split_once('/')?.0));
    let namespaces: BTreeSet<&str> = namespaces.collect();
    let fields = format!("reason={REFUSED},regarding.kind=Service");
    let until = Instant::now() + EVENT;
    loop {
        let mut told = Vec::new();
        for namespace in &namespaces {
            let events: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
            let params = ListParams::default().fields(&fields);
            let events = read::pages(cluster, &events, params, "events").await.ok()?;
            told.extend(events.into_iter().filter(|event| is_refusal(event, plan)));
        }
        if let Some(told) = told.into_iter().max_by_key(when) {
            return told.note;
        }
        if Instant::now() >= until {
            return None;
        }
        sleep(LOOK_FOR_EVENT).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_become_of_a_move_is_said_as_it_is() {
        let plan = Plan {
            claim: "web.shop".parse().unwrap(),
            services: vec!["web/shop".to_owned()],
            what: "web/shop (192.0.2.7)".to_owned(),
            from: "n1".parse().unwrap(),
            to: "n2".parse().unwrap(),
            warning: None,
        };
        let lease = |holder: Option<&str>, asked: Option<&str>| -> Option<Lease> {
            let annotations = json!({ annotation::MOVE_TO: asked.unwrap_or_default() });
            serde_json::from_value(json!({
                "metadata": { "name": "web.shop", "uid": "c", "resourceVersion": "1",
                    "annotations": annotations },
                "spec": { "holderIdentity": holder },
            }))
            .unwrap()
        };
        let unreadable =
            serde_json::from_value(json!({ "metadata": { "name": "web.shop" } })).unwrap();
        let over = Some(Duration::from_secs(10));
        for (lease, expected, text) in [
            (lease(Some("n2"), None), Progress::Done(None), None),
            (lease(Some("n1"), Some("n2")), Progress::Asked, Some("is still pending")),
            (lease(None, Some("n2")), Progress::Asked, Some("has not moved within 10s")),
            (lease(Some("n1"), None), Progress::Refused, Some("stays with n1: why")),
            (lease(None, None), Progress::Released, Some("no longer has an owner: why")),
            (
                lease(Some("n3"), None),
                Progress::Elsewhere("n3".to_owned()),
                Some("went to n3 instead: why"),
            ),
            (unreadable, Progress::Unreadable, Some("is no longer a valid claim")),
            (None, Progress::Gone, Some("was deleted")),
        ] {
            let progress = progress(&plan, lease.as_ref());
            assert_eq!(progress, expected, "{lease:?}");
            let said = ended(&plan, &progress, "why", "leasehold-system", over);
            let said_as_expected = match (&said, text) {
                (Some(said), Some(text)) => said.contains(text),
                (said, text) => said.is_none() && text.is_none(),
            };
            assert!(said_as_expected, "{said:?}");
        }
    }
}
