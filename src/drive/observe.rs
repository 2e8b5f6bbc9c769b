//! The state of the core made visible: health, gauges, the log filter, the status page, facts.
//!
//! Nothing here influences a decision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_crds::names::InterfaceName;
use tokio::sync::{oneshot, watch};

use crate::announce::AnnouncementCounters;
use crate::clock;
use crate::datapath::detour::Detoured;
use crate::datapath::forward::Forwarded;
use crate::datapath::guard::Guarded;
use crate::datapath::return_path::Returned;
use crate::datapath::spread::Placed;
use crate::net::edge::EdgeCounters;
use crate::report::ask::Questions;
use crate::report::facts::Reports;
use crate::report::gauges::Delivered;
use crate::report::health::Health;
use crate::report::log::Log;
use crate::report::metrics::{Metrics, Observed, RequestKind};
use crate::report::status::{Moves, Sources, Status};
use leasehold_core::clock::Instant;
use leasehold_core::detect::counters::WireCounters;
use leasehold_core::election::{Answer, Election, Fact, Interface, KernelView, ProxyHealth};

/// Least interval between two computations of the gauges: some count all claims.
const GAUGES: Duration = Duration::from_millis(100);
/// The interval is at least this many times as long as the computation took.
const GAUGES_REST: u32 = 50;

/// The outputs for people and monitoring.
#[derive(Debug)]
pub struct Outlets {
    /// For `/readyz`.
    pub health: watch::Sender<Health>,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For logs and Events.
    pub reports: Reports,
    /// Questions of the status page.
    pub questions: Questions<Status>,
    /// The time of the last delivery of each watch, for the status page.
    pub delivered: Arc<Delivered>,
    /// The log and its filter.
    pub log: Log,
}

/// Counters of the tasks that the driver does not own.
#[derive(Debug)]
pub(super) struct Counters {
    /// Of the kernel edge.
    pub(super) edge: Arc<EdgeCounters>,
    /// Of the listener.
    pub(super) wire: Arc<WireCounters>,
    /// Of the announcement.
    pub(super) announcement: Arc<AnnouncementCounters>,
}

/// Publishes the state of the core.
#[derive(Debug)]
pub(super) struct Observer {
    outlets: Outlets,
    kernel: watch::Receiver<KernelView>,
    counters: Counters,
    /// The last moves, for the status page.
    moves: Moves,
    gauges: Gauges,
}

/// The time of the computation of the gauges.
#[derive(Debug, Default)]
struct Gauges {
    /// The earliest time of the next computation.
    next: Option<Instant>,
    /// The state of the core may have changed since the last one.
    stale: bool,
}

impl Gauges {
    /// The time at which stale gauges are computed.
    fn due(&self) -> Option<Instant> {
        self.next.filter(|_| self.stale)
    }
}

impl Observer {
    /// Creates an observer that has published nothing.
    pub(super) fn new(
        outlets: Outlets,
        kernel: watch::Receiver<KernelView>,
        counters: Counters,
    ) -> Self {
        Self { outlets, kernel, counters, moves: Moves::default(), gauges: Gauges::default() }
    }

    /// The time at which [`Self::publish`] has to be called again, even if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gauges.due()
    }

    /// Publishes the state of the core: log filter, health, gauges.
    pub(super) fn publish(&mut self, election: &Election) {
        self.outlets.log.follow(election.log_filter());
        let now = clock::now();
        self.publish_health(now, election);
        self.gauges.stale = true;
        if self.gauges.due().is_none_or(|due| now >= due) {
            self.gauges.stale = false;
            self.publish_gauges(now, election);
            let took = clock::now().saturating_since(now);
            self.gauges.next = Some(now + GAUGES.max(took * GAUGES_REST));
        }
    }

    fn publish_health(&self, now: Instant, election: &Election) {
        let has_session = election.session().is_some();
        let unknown = (election.node_exists() == Some(false)).then(|| election.node().to_string());
        let renews = election.is_api_answering(now);
        self.outlets.health.send_if_modified(|health| {
            let recovered = renews && health.renewal_failure.take().is_some();
            let changed =
                recovered || health.has_session != has_session || health.unknown_node != unknown;
            if let Some(node) = unknown.as_ref().filter(|_| health.unknown_node != unknown) {
                tracing::error!(node, "the cluster has no Node of this name: check --node-name");
            }
            health.has_session = has_session;
            health.unknown_node = unknown;
            changed
        });
    }

    fn publish_gauges(&self, now: Instant, election: &Election) {
        let addresses = self.kernel.borrow().ours.len();
        self.outlets.metrics.observe(Observed {
            claims: election.held().count(),
            addresses,
            sessions: election.speakers(),
            unowned: election.unowned(),
            has_session: election.session().is_some(),
            is_api_reachable: election.is_api_answering(now),
        });
        let Counters { edge, wire, announcement } = &self.counters;
        self.outlets.metrics.observe_counters(edge, wire, announcement);
    }

    /// Reports a fact: metrics, status page, health, log, Events.
    pub(super) fn report(&mut self, fact: Fact, election: &Election) {
        self.outlets.metrics.count(&fact);
        // The wall clock: people read it.
        self.moves.note(Timestamp::now(), &fact);
        self.note_renewal(&fact);
        let services = fact.claim().and_then(|claim| election.services_of(claim));
        self.outlets.reports.report(fact, services.unwrap_or_default());
    }

    fn note_renewal(&self, fact: &Fact) {
        let failure = match fact {
            Fact::SessionAcquired { .. } => None,
            Fact::RenewalFailed { cause } => Some(cause.clone()),
            _ => return,
        };
        self.outlets.health.send_if_modified(|health| {
            let changed = health.renewal_failure != failure;
            health.renewal_failure = failure;
            changed
        });
    }

    /// Reports the state of host protection.
    pub(super) fn report_guard(&mut self, guarded: Guarded) {
        self.outlets.metrics.observe_guard(&guarded);
        self.outlets.reports.report_exposure(guarded.exposure);
    }

    /// Reports the state of the forwarding to former owners.
    pub(super) fn report_forwarding(&self, forwarded: &Forwarded) {
        self.outlets.metrics.observe_forwarding(forwarded);
    }

    /// Reports the state of the spreading over nodes.
    pub(super) fn report_spreading(&self, placed: &Placed, is_filtered: bool) {
        self.outlets.metrics.observe_spreading(placed, is_filtered);
    }

    pub(super) fn report_detours(&self, detoured: &Detoured) {
        self.outlets.metrics.observe_detours(detoured);
    }

    /// Reports the interfaces by which answers leave.
    pub(super) fn report_return_paths(&self, returned: &Returned) {
        self.outlets.metrics.observe_return_paths(returned);
    }

    /// Reports the health of the service proxy.
    pub(super) fn report_proxy(&self, health: ProxyHealth) {
        self.outlets.metrics.observe_proxy(health);
    }

    /// Reports the interfaces that have addresses.
    pub(super) fn report_interfaces(&self, interfaces: &BTreeMap<InterfaceName, Interface>) {
        let addressed = interfaces.iter().filter(|(_, link)| !link.addresses.is_empty());
        self.outlets.metrics.note_interfaces(addressed.map(|(name, _)| name));
    }

    /// Reports the answer to a request that was sent at `sent`.
    pub(super) fn report_answer(&self, kind: RequestKind, answer: &Answer, sent: Instant) {
        let after = clock::now().saturating_since(sent);
        self.outlets.metrics.answered(kind, answer, after);
    }

    /// Reports that sessions and claims are listed.
    pub(super) fn report_list(&self) {
        self.outlets.metrics.lists();
    }

    /// Reports that the driver woke up that was to wake up at `wanted`.
    pub(super) fn report_wake(&self, wanted: Instant) {
        self.outlets.metrics.late(clock::now().saturating_since(wanted));
    }

    /// The next question of the status page. Cancel safe.
    pub(super) async fn question(&mut self) -> Option<oneshot::Sender<Arc<Status>>> {
        self.outlets.questions.recv().await
    }

    /// Answers a question of the status page.
    pub(super) fn answer(&mut self, question: oneshot::Sender<Arc<Status>>, election: &Election) {
        let began = clock::now();
        if self.outlets.questions.is_stale(began) {
            let status = self.status(election);
            self.outlets.questions.keep(status, began, clock::now());
        }
        self.outlets.questions.answer(question);
    }

    /// Frees the memory of an answer that is too old for further questions.
    pub(super) fn forget_stale(&mut self, now: Instant) {
        self.outlets.questions.forget_stale(now);
    }

    fn status(&self, election: &Election) -> Status {
        let now = clock::now();
        let ages = self.outlets.delivered.ages(now);
        let health = self.outlets.health.borrow();
        Status::at(
            now,
            &Sources {
                election,
                kernel: &self.kernel.borrow(),
                moves: &self.moves,
                watch_age: ages.into_iter().map(|(part, age)| (part.word(), age)).collect(),
                not_ready: (!health.is_ready()).then(|| health.to_string()),
            },
        )
    }
}
