//! Facts of the core as log lines, and those that a user must act on as events on the Service.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use tokio::sync::mpsc;

use crate::lease::Fact;

/// Facts that wait to become events. Full: further ones are dropped; the log has them.
const WAITING: usize = 64;

/// Writes facts into the log and hands those for users to the recorder's task.
#[derive(Debug)]
pub struct Reports {
    events: mpsc::Sender<Fact>,
}

impl Reports {
    /// The reports of `node`, and the task that records events.
    pub fn new(client: Client, node: &NodeName) -> (Self, impl Future<Output = ()> + use<>) {
        let (events, receiver) = mpsc::channel(WAITING);
        let reporter = Reporter {
            controller: "leasehold.dev/speaker".to_owned(),
            instance: Some(node.to_string()),
        };
        (Self { events }, record(Recorder::new(client, reporter), receiver))
    }

    /// Reports one fact.
    pub fn report(&self, fact: Fact) {
        log(&fact);
        if matches!(fact, Fact::AddressConflict { .. } | Fact::AddressRefused { .. }) {
            // Dropped where too many wait.
            let _ = self.events.try_send(fact);
        }
    }
}

fn log(fact: &Fact) {
    match fact {
        Fact::SessionAcquired { transitions, continued } => {
            tracing::info!(transitions, continued, "session acquired");
        }
        Fact::SessionLost { cause } => tracing::warn!(cause, "session lost"),
        Fact::RenewalFailed { cause } => tracing::warn!(cause, "session not renewed; holding"),
        Fact::Fenced { node } => tracing::warn!(%node, "fenced"),
        Fact::Claimed { claim, cause } => tracing::info!(%claim, cause, "claimed"),
        Fact::Yielded { claim, cause } => tracing::info!(%claim, cause, "yielded"),
        Fact::AddressConflict { claim, address, cause } => {
            tracing::warn!(%claim, %address, cause, "address conflict");
        }
        Fact::AddressRefused { claim, cause } => {
            tracing::error!(%claim, cause, "the kernel does not hold the address");
        }
        Fact::OldOwnerAnswers { mac, address } => {
            tracing::warn!(%mac, %address, "the old owner still answers; announcing again");
        }
    }
}

async fn record(recorder: Recorder, mut facts: mpsc::Receiver<Fact>) {
    while let Some(fact) = facts.recv().await {
        let (claim, reason, note) = match fact {
            Fact::AddressConflict { claim, address, cause } => {
                (claim, "AddressConflict", format!("{address} cannot be announced: {cause}"))
            }
            Fact::AddressRefused { claim, cause } => {
                (claim, "AddressRefused", format!("the node cannot hold the address: {cause}"))
            }
            _ => continue,
        };
        let Some(service) = service_of(&claim) else { continue };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Announce".to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &service).await {
            tracing::debug!(error = crate::api::causes(&error), "event not recorded");
        }
    }
}

/// The Service that a claim is named after.
fn service_of(claim: &LeaseName) -> Option<ObjectReference> {
    let (namespace, name) = claim.as_str().split_once('.')?;
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Service".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    })
}
