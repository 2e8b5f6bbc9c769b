//! Kubernetes Events and the objects that they are about.

use crate::api::event_type;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::Event;
use leasehold_crds::event::{Entry, Reason};
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

/// An event and the object that it is about.
pub(super) struct Notice {
    /// The Service or Node.
    pub(super) object: ObjectReference,
    /// The event.
    pub(super) event: Event,
}

impl Notice {
    /// Events on the Services of a claim; if it lists none, on the one that it is named after.
    pub(super) fn of_services(
        claim: &LeaseName,
        services: &[impl AsRef<str>],
        reason: Reason,
        note: &str,
    ) -> Vec<Self> {
        let listed = services.iter().filter_map(|named| named.as_ref().split_once('/'));
        let named = claim.service().filter(|_| services.is_empty());
        let of_one = |(namespace, name): (&str, &str)| Self {
            object: service(namespace, name),
            event: event(reason, note.to_owned()),
        };
        listed.chain(named).map(of_one).collect()
    }

    /// An event on a Service, named `namespace/name`.
    pub(super) fn of_named(named: &str, reason: Reason, note: String) -> Option<Self> {
        let (namespace, name) = named.split_once('/')?;
        Some(Self { object: service(namespace, name), event: event(reason, note) })
    }

    /// An event on a Node, which is referred to as the kubelet does: with its name for a uid.
    pub(super) fn of_node(on: &NodeName, reason: Reason, note: String) -> Self {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(on.to_string()),
            uid: Some(on.to_string()),
            ..ObjectReference::default()
        };
        Self { object, event: event(reason, note) }
    }
}

fn service(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Service".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn event(reason: Reason, note: String) -> Event {
    let Entry { reason, type_, action, .. } = reason.entry();
    let (reason, action) = (reason.to_owned(), action.to_owned());
    let type_ = event_type(type_);
    Event { type_, reason, note: Some(note), action, secondary: None }
}
