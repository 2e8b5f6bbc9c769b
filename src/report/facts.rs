//! Facts of the core, and what became of host protection, as log lines; and those that a user must
//! act on as events on the Service or the Node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use tokio::sync::mpsc;

use crate::guard::Exposure;
use crate::lease::Fact;

/// Events that wait to be recorded. Full: further ones are dropped; the log has them.
const WAITING: usize = 64;
/// Notes of events that are remembered, so that repetitions are counted in the event they repeat.
const REMEMBERED: usize = 256;

/// Writes facts into the log and hands those for users to the recorder's task.
#[derive(Debug)]
pub struct Reports {
    node: NodeName,
    events: mpsc::Sender<Notice>,
    exposure: Option<Exposure>,
}

/// An event and the object that it is about.
struct Notice {
    object: ObjectReference,
    event: Event,
}

impl Reports {
    /// The reports of `node`, and the task that records events.
    pub fn new(client: Client, node: &NodeName) -> (Self, impl Future<Output = ()> + use<>) {
        let (events, receiver) = mpsc::channel(WAITING);
        let reporter = Reporter {
            controller: "leasehold.dev/speaker".to_owned(),
            instance: Some(node.to_string()),
        };
        let reports = Self { node: node.clone(), events, exposure: None };
        (reports, record(client, reporter, receiver))
    }

    /// Reports one fact.
    pub fn report(&self, fact: Fact) {
        log(&fact);
        self.tell(notice(fact, &self.node));
    }

    /// Reports which addresses should be protected and are not, where that has changed.
    pub fn report_exposure(&mut self, exposure: Option<Exposure>) {
        if exposure == self.exposure {
            return;
        }
        if let Some(Exposure { addresses, cause }) = &exposure {
            tracing::error!(?addresses, cause, "host protection does not work");
        } else {
            tracing::info!("host protection works again");
        }
        self.tell(Some(exposure_notice(exposure.as_ref(), &self.node)));
        self.exposure = exposure;
    }

    fn tell(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            // Dropped where too many wait.
            let _ = self.events.try_send(notice);
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
        Fact::OldOwnerAnswers { claim, mac, address } => {
            tracing::warn!(%claim, %mac, %address, "the old owner still answers; announcing again");
        }
        Fact::Silent { node, interface, address } => {
            tracing::warn!(%node, %interface, %address, "an owner fell silent");
        }
        Fact::WireBlind { interface, blind: true } => {
            tracing::warn!(%interface, "nobody but owners ever answered; only leases count there");
        }
        Fact::WireBlind { interface, blind: false } => {
            tracing::info!(%interface, "others than owners answer; the wire counts there");
        }
        Fact::TookProvisionally { claim, from } => {
            tracing::warn!(%claim, %from, "taken over while the API server does not answer");
        }
    }
}

/// The event that a fact is to users, if they must know.
fn notice(fact: Fact, here: &NodeName) -> Option<Notice> {
    match fact {
        Fact::AddressConflict { claim, address, cause } => {
            let note = format!("{address} cannot be announced: {cause}");
            Notice::of_service(&claim, "AddressConflict", note)
        }
        Fact::AddressRefused { claim, cause } => {
            let note = format!("the node cannot hold the address: {cause}");
            Notice::of_service(&claim, "AddressRefused", note)
        }
        Fact::OldOwnerAnswers { claim, mac, address } => {
            let note = format!(
                "{mac}, from which {address} was taken, still answers for it: {here} announces it \
                 until that host is quiet. If this lasts, look at the speaker of that host"
            );
            Notice::of_service(&claim, "OldOwnerAnswers", note)
        }
        Fact::WireBlind { interface, blind: true } => {
            let note = format!(
                "nobody on the segment of {interface} but owners of addresses ever answered: \
                 whether they are silent or this node is deaf cannot be told, so owners that die \
                 are replaced only when their lease has run out. Connect a gateway or any other \
                 host that answers ARP or Neighbor Solicitations to the segment"
            );
            Some(Notice::of_node(here, EventType::Warning, "WirePathOff", "Listen", note))
        }
        Fact::WireBlind { interface, blind: false } => {
            let note = format!(
                "others than owners of addresses answer on the segment of {interface}: owners \
                 that fall silent are replaced at once"
            );
            Some(Notice::of_node(here, EventType::Normal, "WirePathOn", "Listen", note))
        }
        Fact::SessionAcquired { .. }
        | Fact::SessionLost { .. }
        | Fact::RenewalFailed { .. }
        | Fact::Fenced { .. }
        | Fact::Claimed { .. }
        | Fact::Yielded { .. }
        | Fact::Silent { .. }
        | Fact::TookProvisionally { .. } => None,
    }
}

/// What users must know of host protection.
fn exposure_notice(exposure: Option<&Exposure>, here: &NodeName) -> Notice {
    let Some(Exposure { addresses, cause }) = exposure else {
        let note = "the rules that protect this node are in place again".to_owned();
        return Notice::of_node(here, EventType::Normal, "HostProtected", "Protect", note);
    };
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let effect = if addresses.is_empty() {
        "the ports of Services cannot be followed: new ones stay closed, old ones open".to_owned()
    } else {
        format!(
            "by {addresses} all that listens on this node can be reached, beside their Services"
        )
    };
    let note = format!(
        "{effect}, as the table `inet leasehold` of nftables cannot be changed: {cause}. It is tried \
         again each second. Where nodes need no protection, an AnnouncementPolicy with \
         `hostProtection: Disabled` says so"
    );
    Notice::of_node(here, EventType::Warning, "HostExposed", "Protect", note)
}

impl Notice {
    /// A warning on the Service that a claim is named after; none where that is an address.
    fn of_service(claim: &LeaseName, reason: &str, note: String) -> Option<Self> {
        let (namespace, name) = claim.service()?;
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        Some(Self { object, event: event(EventType::Warning, reason, "Announce", note) })
    }

    /// An event on this speaker's Node, which is referred to as the kubelet does: with its name for
    /// a uid.
    fn of_node(
        here: &NodeName,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
    ) -> Self {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(here.to_string()),
            uid: Some(here.to_string()),
            ..ObjectReference::default()
        };
        Self { object, event: event(type_, reason, action, note) }
    }
}

fn event(type_: EventType, reason: &str, action: &str, note: String) -> Event {
    let (reason, action) = (reason.to_owned(), action.to_owned());
    Event { type_, reason, note: Some(note), action, secondary: None }
}

async fn record(client: Client, reporter: Reporter, mut notices: mpsc::Receiver<Notice>) {
    // A recorder takes an event with another note for a repetition of the first, so each note has
    // its own.
    let mut recorders: BTreeMap<Option<String>, Recorder> = BTreeMap::new();
    while let Some(Notice { object, event }) = notices.recv().await {
        if recorders.len() == REMEMBERED {
            recorders.clear();
        }
        let anew = || Recorder::new(client.clone(), reporter.clone());
        let recorder = recorders.entry(event.note.clone()).or_insert_with(anew);
        if let Err(error) = recorder.publish(&event, &object).await {
            tracing::debug!(error = crate::api::causes(&error), "event not recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fact: Fact) -> Option<String> {
        notice(fact, &"node-1".parse().unwrap()).map(shown)
    }

    fn shown(Notice { object, event }: Notice) -> String {
        let place = [object.kind, object.namespace, object.name, object.uid];
        let place = place.map(|part| part.unwrap_or_else(|| "-".to_owned())).join("/");
        format!("{:?} {} on {place}: {}", event.type_, event.reason, event.note.unwrap())
    }

    #[test]
    fn a_node_that_cannot_be_protected_says_by_which_addresses_and_why() {
        let here = "node-1".parse().unwrap();
        let cause = "no permission".to_owned();
        let exposure = |addresses: &[&str]| Exposure {
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            cause: cause.clone(),
        };
        for (exposure, part) in [
            (
                Some(exposure(&["192.0.2.1", "2001:db8::1"])),
                "Warning HostExposed on Node/-/node-1/node-1: by 192.0.2.1, 2001:db8::1 all that \
                 listens on this node can be reached, beside their Services, as the table `inet \
                 leasehold` of nftables cannot be changed: no permission. ",
            ),
            (Some(exposure(&[])), "the ports of Services cannot be followed"),
            (None, "Normal HostProtected on Node/-/node-1/node-1: "),
        ] {
            let told = shown(exposure_notice(exposure.as_ref(), &here));
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn users_are_told_what_they_can_do_something_about() {
        let claim = || "web.shop".parse().unwrap();
        let blind = |blind| Fact::WireBlind { interface: "eth0".parse().unwrap(), blind };
        let address = "192.0.2.1".parse().unwrap();
        for (fact, start, end) in [
            (
                Fact::OldOwnerAnswers {
                    claim: claim(),
                    mac: "02:00:00:00:00:02".parse().unwrap(),
                    address,
                },
                "Warning OldOwnerAnswers on Service/web/shop/-: 02:00:00:00:00:02, from which \
                 192.0.2.1 was taken, still answers for it: node-1 announces it",
                "look at the speaker of that host",
            ),
            (
                blind(true),
                "Warning WirePathOff on Node/-/node-1/node-1: nobody on the segment of eth0",
                "Connect a gateway or any other host that answers ARP or Neighbor Solicitations \
                 to the segment",
            ),
            (
                blind(false),
                "Normal WirePathOn on Node/-/node-1/node-1: others than owners",
                "replaced at once",
            ),
        ] {
            let told = told(fact).unwrap();
            assert!(told.starts_with(start) && told.ends_with(end), "{told}");
        }
    }

    #[test]
    fn what_leasehold_settles_by_itself_is_no_event() {
        let node = || "node-2".parse().unwrap();
        let (interface, address) = ("eth0".parse().unwrap(), "192.0.2.1".parse().unwrap());
        assert_eq!(told(Fact::Silent { node: node(), interface, address }), None);
        let claim = "web.shop".parse().unwrap();
        assert_eq!(told(Fact::TookProvisionally { claim, from: node() }), None);
    }
}
