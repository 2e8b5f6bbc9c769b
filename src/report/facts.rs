//! Facts of the core, and what became of host protection, as log lines; and those that a user must
//! act on as events on the Service or the Node.

use std::collections::BTreeMap;

use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use leasehold_crds::event::{Component, Reason};
use leasehold_crds::lease::{EvidenceKind, LeaseName};
use leasehold_crds::names::NodeName;
use tokio::sync::mpsc;

use super::notice::Notice;
use super::takeovers::{Taken, Takeovers};
use crate::clock;
use crate::clock::sleep_until;
use crate::datapath::guard::Exposure;
use leasehold_core::election::{Fact, Story};

/// Capacity of the channel to the recorder. Full: further events are dropped; the log has them.
const WAITING: usize = 256;
/// Notes of events that are remembered, so that repetitions are counted in the event they repeat. Each takes
/// several KiB.
const REMEMBERED: usize = 64;

/// Writes facts into the log and hands those for users to the recorder's task.
#[derive(Debug)]
pub struct Reports {
    node: NodeName,
    events: mpsc::Sender<Told>,
    exposure: Option<Exposure>,
}

/// A message to the recorder's task.
enum Told {
    Notice(Box<Notice>),
    Taken(Taken),
}

impl Reports {
    /// The reports of `node`, and the task that records events.
    pub fn new(client: Client, node: &NodeName) -> (Self, impl Future<Output = ()> + use<>) {
        let (events, receiver) = mpsc::channel(WAITING);
        let reporter = Reporter {
            controller: Component::Speaker.controller().to_owned(),
            instance: Some(node.to_string()),
        };
        let reports = Self { node: node.clone(), events, exposure: None };
        (reports, record(client, reporter, node.clone(), receiver))
    }

    /// Reports one fact; if it is about a claim, on the Services that this lists, each `namespace/name`.
    pub fn report(&self, fact: Fact, services: &[impl AsRef<str>]) {
        log(&fact);
        if let Some(taken) = Taken::of(&fact) {
            self.send(Told::Taken(taken));
        }
        for notice in notices(fact, services, &self.node) {
            self.send(Told::Notice(Box::new(notice)));
        }
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
        let notice = exposure_notice(exposure.as_ref(), &self.node);
        self.send(Told::Notice(Box::new(notice)));
        self.exposure = exposure;
    }

    fn send(&self, told: Told) {
        // Dropped where too many wait.
        let _ = self.events.try_send(told);
    }
}

/// One line per fact. All lines of one failover have the same `failover`, on all nodes: the node that
/// owned and its session's number of transitions; `after` counts from its first sign.
fn log(fact: &Fact) {
    match fact {
        Fact::SessionAcquired { transitions, continued } => {
            tracing::info!(transitions, continued, "session acquired");
        }
        Fact::SessionLost { cause } => tracing::warn!(cause, "session lost"),
        Fact::RenewalFailed { cause } => tracing::warn!(cause, "session not renewed; holding"),
        Fact::Silent { owner, interface, address, after } => {
            tracing::warn!(failover = %owner, ?after, %interface, %address, "an owner fell silent");
        }
        Fact::Fenced { owner, silence } => {
            tracing::warn!(failover = %owner, after = ?silence.lasted, node = %owner.node, "fenced");
        }
        Fact::Claimed { claim, cause, story: Some(Story { from: Some(from), .. }), after } => {
            tracing::info!(failover = %from, ?after, %claim, cause, "claimed");
        }
        Fact::Claimed { claim, cause, .. } => tracing::info!(%claim, cause, "claimed"),
        Fact::Serving { claim, addresses, interface, story, took, .. } => {
            let (failover, cause) = (story.from.as_ref().map(tracing::field::display), story.cause);
            let cause = cause.word();
            tracing::info!(failover, ?took, %claim, ?addresses, %interface, cause, "announced");
        }
        Fact::Yielded { claim, cause, owner } => {
            let failover = owner.as_ref().map(tracing::field::display);
            tracing::info!(failover, %claim, cause, "yielded");
        }
        Fact::TookProvisionally { claim, owner } => {
            tracing::warn!(
                failover = %owner,
                %claim,
                "provisional ownership taken: the API server does not answer"
            );
        }
        Fact::OldOwnerAnswers { claim, mac, address } => {
            tracing::warn!(%claim, %mac, %address, "the former owner still answers; announcing again");
        }
        Fact::MoveRefused { claim, node, cause } => {
            tracing::warn!(%claim, %node, cause, "requested move refused");
        }
        Fact::AddressConflict { claim, address, cause } => {
            tracing::warn!(%claim, %address, cause, "address conflict");
        }
        Fact::AddressRefused { claim, cause } => {
            tracing::error!(%claim, cause, "the kernel refused or lost the address");
        }
        Fact::ProxySilent { silent: true } => {
            tracing::warn!(
                "kube-proxy does not answer; taking only addresses that no other node can take"
            );
        }
        Fact::ProxySilent { silent: false } => tracing::info!("kube-proxy answers again"),
        Fact::RulesLate { claim, waited } => {
            tracing::warn!(%claim, ?waited, "kube-proxy has no rules yet; announcing without them");
        }
        Fact::NodeDown { node, down: true } => {
            tracing::warn!(%node, "a node is down; new connections lead to endpoints on other nodes");
        }
        Fact::NodeDown { node, down: false } => tracing::info!(%node, "a node is no longer down"),
        Fact::WireBlind { interface, blind: true } => {
            tracing::warn!(%interface, "no witness on the segment; only sessions count there");
        }
        Fact::ClientsUnanswered { owner, interface, unanswered: true } => {
            tracing::warn!(%owner, %interface, "an owner answers probes but not client requests");
        }
        Fact::ClientsUnanswered { owner, interface, unanswered: false } => {
            tracing::info!(
                %owner,
                %interface,
                "an owner answers client requests again, or no longer owns addresses"
            );
        }
        Fact::WireBlind { interface, blind: false } => {
            tracing::info!(%interface, "a witness answers; probes count there");
        }
        Fact::UnexpectedTransition { claim, from, to } => {
            tracing::error!(%claim, %from, %to, "unexpected change of state: report this as a bug");
        }
    }
}

/// The events that a fact is to users, if they must know: one on each Service, or one on a Node.
fn notices(fact: Fact, services: &[impl AsRef<str>], here: &NodeName) -> Vec<Notice> {
    let of_services = |claim: &LeaseName, reason: Reason, note: String| {
        Notice::of_services(claim, services, reason, &note)
    };
    match fact {
        Fact::AddressConflict { claim, address, cause } => {
            let note = format!("conflict about {address}: {cause}");
            of_services(&claim, Reason::AddressConflict, note)
        }
        Fact::AddressRefused { claim, cause } => {
            let note = format!("{here} cannot hold the address: {cause}");
            of_services(&claim, Reason::AddressRefused, note)
        }
        Fact::OldOwnerAnswers { claim, mac, address } => {
            let note = format!(
                "{mac}, the former owner of {address}, still answers for it: {here} repeats its \
                 announcements until that host stops. If this persists, check the speaker of that host"
            );
            of_services(&claim, Reason::OldOwnerAnswers, note)
        }
        Fact::WireBlind { interface, blind: true } => {
            let note = format!(
                "no host on the segment of {interface} except the probed owners has ever answered. \
                 Without such a witness, this node cannot distinguish a failed owner from its own \
                 isolation, so failed owners are replaced only when their sessions expire. Connect a \
                 gateway or another host that answers ARP or Neighbor Solicitations to the segment"
            );
            vec![Notice::of_node(here, Reason::WirePathOff, note)]
        }
        Fact::WireBlind { interface, blind: false } => {
            let note = format!(
                "another host answers on the segment of {interface}: owners that stop answering are \
                 replaced immediately"
            );
            vec![Notice::of_node(here, Reason::WirePathOn, note)]
        }
        Fact::ClientsUnanswered { owner, interface, unanswered: true } => {
            let note = format!(
                "this node owns addresses but does not answer ARP requests that carry the sender's own \
                 address, as clients send them: {here} sent such requests on {interface}. If the route \
                 of this node to that subnet uses another interface, set \
                 net.ipv4.conf.INTERFACE.rp_filter=2 and arp_filter=0 on the interface with the \
                 addresses; `kubectl leasehold check` shows details"
            );
            vec![Notice::of_node(&owner.node, Reason::ClientsNotAnswered, note)]
        }
        Fact::ProxySilent { silent: true } => {
            let note = "kube-proxy has stopped answering health checks: this node takes only addresses \
                        that no other node can take, and hands over its addresses if the failure \
                        persists. Check the kube-proxy of the node; if you have replaced kube-proxy, \
                        restart the speaker"
                .to_owned();
            vec![Notice::of_node(here, Reason::KubeProxySilent, note)]
        }
        Fact::ProxySilent { silent: false } => {
            let note = "kube-proxy answers health checks again".to_owned();
            vec![Notice::of_node(here, Reason::KubeProxyAnswers, note)]
        }
        Fact::RulesLate { claim, waited } => {
            let note = format!(
                "{here} waited {:.1} s for the rules of kube-proxy and announces the addresses without \
                 them: connections may fail until the rules are installed. Check the kube-proxy of \
                 {here}",
                waited.as_secs_f64()
            );
            of_services(&claim, Reason::RulesLate, note)
        }
        Fact::MoveRefused { claim, node, cause } => {
            let note = format!("the move to {node} was refused: {cause}");
            of_services(&claim, Reason::MoveRefused, note)
        }
        Fact::Fenced { owner, silence } => {
            let sign = match silence.evidence {
                EvidenceKind::Wire => "its addresses did not answer ARP or Neighbor Solicitations",
                EvidenceKind::Lease => "its session was not renewed",
            };
            let note = format!(
                "{here} fenced this node, and other nodes take its addresses: {sign} for {:.3} s. \
                 Search the logs of the speakers for {owner}",
                silence.lasted.as_secs_f64()
            );
            vec![Notice::of_node(&owner.node, Reason::Fenced, note)]
        }
        Fact::SessionAcquired { .. }
        | Fact::SessionLost { .. }
        | Fact::RenewalFailed { .. }
        | Fact::Claimed { .. }
        | Fact::Serving { .. }
        | Fact::Yielded { .. }
        | Fact::Silent { .. }
        | Fact::NodeDown { .. }
        | Fact::ClientsUnanswered { unanswered: false, .. }
        | Fact::UnexpectedTransition { .. }
        | Fact::TookProvisionally { .. } => Vec::new(),
    }
}

/// The Event about a change of host protection.
fn exposure_notice(exposure: Option<&Exposure>, here: &NodeName) -> Notice {
    let Some(Exposure { addresses, cause }) = exposure else {
        let note = "host protection works again".to_owned();
        return Notice::of_node(here, Reason::HostProtected, note);
    };
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let effect = if addresses.is_empty() {
        "changes of Service ports are not applied: new ports stay closed, removed ones stay open"
            .to_owned()
    } else {
        format!("clients can reach every process that listens on this node through {addresses}")
    };
    let note = format!(
        "{effect}, because the nftables table `inet leasehold` cannot be changed: {cause}. The speaker \
         retries every second. To disable host protection, set `hostProtection: Disabled` in an \
         AnnouncementPolicy"
    );
    Notice::of_node(here, Reason::HostExposed, note)
}

async fn record(
    client: Client,
    reporter: Reporter,
    here: NodeName,
    mut told: mpsc::Receiver<Told>,
) {
    // A recorder takes an event with another note for a repetition of the first, so each note has
    // its own.
    let mut recorders: BTreeMap<Option<String>, Recorder> = BTreeMap::new();
    let mut takeovers = Takeovers::default();
    loop {
        let due = takeovers.due();
        let timer = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let notices = tokio::select! {
            told = told.recv() => match told {
                Some(Told::Notice(notice)) => vec![*notice],
                Some(Told::Taken(taken)) => {
                    takeovers.note(clock::now(), taken);
                    continue;
                }
                None => return,
            },
            () = timer => takeovers.tell(clock::now(), &here),
        };
        for Notice { object, event } in notices {
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
}

#[cfg(test)]
pub(super) mod tests {
    use crate::api::event_type;
    use std::time::Duration;

    use leasehold_crds::lease::Silenced;

    use super::*;
    use leasehold_core::election::OwnerId;

    fn told(fact: Fact) -> Option<String> {
        notices(fact, &[""; 0], &"node-1".parse().unwrap()).pop().map(shown)
    }

    #[test]
    fn what_is_about_a_claim_is_told_on_each_of_its_services() {
        let claim: LeaseName = "192-0-2-1.address.leasehold".parse().unwrap();
        assert!(claim.service().is_none());
        let fact = Fact::AddressConflict {
            claim,
            address: "192.0.2.1".parse().unwrap(),
            cause: "192.0.2.1 is used by 02:00:00:00:00:01, which is no speaker".to_owned(),
        };
        let told = notices(fact, &["web/a", "shop/b"], &"node-1".parse().unwrap());
        let on: Vec<_> = told.into_iter().map(shown).collect();
        assert_eq!(on.len(), 2, "{on:?}");
        assert!(
            on[0].starts_with("Warning AddressConflict on Service/web/a/-: conflict about"),
            "{on:?}"
        );
        assert!(on[1].starts_with("Warning AddressConflict on Service/shop/b/-: "), "{on:?}");
    }

    pub(in crate::report) fn shown(Notice { object, event }: Notice) -> String {
        let place = [object.kind, object.namespace, object.name, object.uid];
        let place = place.map(|part| part.unwrap_or_else(|| "-".to_owned())).join("/");
        let (reason, type_) = (event.reason, event.type_);
        let listed = Reason::ALL.iter().map(|it| it.entry()).find(|it| {
            (it.reason, event_type(it.type_), it.component) == (&reason, type_, Component::Speaker)
                && place.starts_with(it.object)
        });
        assert!(listed.is_some(), "{type_:?} {reason} on {place} is not in the reference");
        format!("{type_:?} {reason} on {place}: {}", event.note.unwrap())
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
                "Warning HostExposed on Node/-/node-1/node-1: clients can reach every process that \
                 listens on this node through 192.0.2.1, 2001:db8::1, because the nftables table `inet \
                 leasehold` cannot be changed: no permission. ",
            ),
            (Some(exposure(&[])), "changes of Service ports are not applied"),
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
                "Warning OldOwnerAnswers on Service/web/shop/-: 02:00:00:00:00:02, the former owner of \
                 192.0.2.1, still answers for it: node-1 repeats its announcements",
                "check the speaker of that host",
            ),
            (
                Fact::ClientsUnanswered {
                    owner: OwnerId { node: "node-2".parse().unwrap(), session: 17 },
                    interface: "eth0".parse().unwrap(),
                    unanswered: true,
                },
                "Warning ClientsNotAnswered on Node/-/node-2/node-2: this node owns addresses but does \
                 not answer",
                "`kubectl leasehold check` shows details",
            ),
            (
                blind(true),
                "Warning WirePathOff on Node/-/node-1/node-1: no host on the segment of eth0",
                "Connect a gateway or another host that answers ARP or Neighbor Solicitations to the \
                 segment",
            ),
            (
                blind(false),
                "Normal WirePathOn on Node/-/node-1/node-1: another host answers",
                "replaced immediately",
            ),
            (
                Fact::Fenced {
                    owner: OwnerId { node: "node-2".parse().unwrap(), session: 17 },
                    silence: Silenced {
                        evidence: EvidenceKind::Wire,
                        lasted: Duration::from_millis(83),
                    },
                },
                "Warning Fenced on Node/-/node-2/node-2: node-1 fenced this node",
                "for 0.083 s. Search the logs of the speakers for node-2/17",
            ),
            (
                Fact::MoveRefused {
                    claim: claim(),
                    node: "node-3".parse().unwrap(),
                    cause: "node-3 cannot take it now".to_owned(),
                },
                "Warning MoveRefused on Service/web/shop/-: the move to node-3 was refused",
                "node-3 cannot take it now",
            ),
        ] {
            let told = told(fact).unwrap();
            assert!(told.starts_with(start) && told.ends_with(end), "{told}");
        }
    }

    #[test]
    fn what_leasehold_settles_by_itself_is_no_event() {
        let (interface, address) = ("eth0".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let owner = || OwnerId { node: "node-2".parse().unwrap(), session: 17 };
        let after = Duration::from_millis(61);
        assert_eq!(told(Fact::Silent { owner: owner(), interface, address, after }), None);
        let claim = "web.shop".parse().unwrap();
        assert_eq!(told(Fact::TookProvisionally { claim, owner: owner() }), None);
    }
}
