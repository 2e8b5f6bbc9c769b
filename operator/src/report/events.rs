//! Events on Services and pools, for people.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use leasehold::api::event_type;
use leasehold_crds::event::{Component, Entry, Reason};

use crate::client::call;

/// The controller that events, conditions and fields name.
pub const CONTROLLER: &str = Component::Operator.controller();

/// One event to publish. Only changes are events, so that a state that lasts makes no stream of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its reason, which also gives type and action.
    pub reason: Reason,
    /// The sentence.
    pub note: String,
}

/// Publishes events in the name of this replica.
#[derive(Clone)]
pub struct EventSink {
    client: Client,
    reporter: Reporter,
}

impl EventSink {
    /// Events appear as from the replica `instance`.
    pub fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) };
        Self { client, reporter }
    }

    /// Publishes `notice` about `object`. A failure is logged and nothing else: the condition on the
    /// object says the same.
    pub async fn publish(&self, notice: &Notice, object: &ObjectReference) {
        let Entry { type_, reason, action, .. } = notice.reason.entry();
        let type_ = event_type(type_);
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(truncated(&notice.note)),
            action: action.to_owned(),
            secondary: None,
        };
        // A recorder that is kept takes an event with another note for a repetition of the first.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = call(recorder.publish(&event, object)).await {
            tracing::warn!(%error, reason, "cannot publish an event");
        }
    }
}

/// The API server refuses notes of more than 1,024 bytes.
fn truncated(note: &str) -> String {
    const MAX: usize = 1024;
    if note.len() <= MAX {
        return note.to_owned();
    }
    let mut end = MAX - '…'.len_utf8();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    let (start, _) = note.split_at(end);
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_to_what_the_api_server_takes() {
        assert_eq!(truncated("short"), "short");
        let long = truncated(&"ü".repeat(2000));
        assert!(long.len() <= 1024 && long.ends_with('…'), "{}", long.len());
    }
}
