//! The metrics of the speaker.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::lease::{Action, Fact, Write};
use crate::net::edge::EdgeCounters;

/// Which kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    kind: &'static str,
}

/// The metrics of the speaker.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    claims: Gauge,
    addresses: Gauge,
    session: Gauge,
    requests: Family<Request, Counter>,
    claimed: Counter,
    yielded: Counter,
    sessions_lost: Counter,
    renewal_failures: Counter,
    fenced: Counter,
    address_conflicts: Counter,
    addresses_refused: Counter,
    frames_sent: Counter,
    frames_unsent: Counter,
    frames_unheard: Counter,
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold_speaker");
        let mut gauge =
            |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("claims", "Claims that this node holds", &self.claims);
        gauge("addresses", "Addresses that the kernel has for them", &self.addresses);
        gauge("session", "1 while this node holds a session", &self.session);
        registry.register("api_requests", "Requests on leases, by kind", self.requests.clone());
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        counter("claimed", "Claims that this node took", &self.claimed);
        counter("yielded", "Claims that this node gave up or lost", &self.yielded);
        counter(
            "sessions_lost",
            "Sessions that were fenced, released or taken",
            &self.sessions_lost,
        );
        counter("renewal_failures", "Renewals without success", &self.renewal_failures);
        counter("fenced", "Nodes that this node fenced", &self.fenced);
        counter("address_conflicts", "Addresses that a stranger uses", &self.address_conflicts);
        counter(
            "addresses_refused",
            "Addresses that the kernel did not take",
            &self.addresses_refused,
        );
        counter("frames_sent", "ARP and NDP frames sent", &self.frames_sent);
        counter("frames_unsent", "Frames that could not be sent", &self.frames_unsent);
        counter(
            "frames_unheard",
            "Frames dropped because the core did not keep up",
            &self.frames_unheard,
        );
    }

    /// Counts what the core asks for.
    pub fn count(&self, action: &Action) {
        let request = |kind| {
            self.requests.get_or_create(&Request { kind }).inc();
        };
        match action {
            Action::Write { write: Write::Session(_), .. } => request("session_write"),
            Action::Write { write: Write::Claim(_), .. } => request("claim_write"),
            Action::Read { .. } => request("read"),
            Action::List => request("list"),
            Action::Report(fact) => self.count_fact(fact),
            Action::Serve(_)
            | Action::Listen(_)
            | Action::Transmit { .. }
            | Action::Persist(_)
            | Action::Exit => {}
        }
    }

    fn count_fact(&self, fact: &Fact) {
        let counter = match fact {
            Fact::Claimed { .. } => &self.claimed,
            Fact::Yielded { .. } => &self.yielded,
            Fact::SessionLost { .. } => &self.sessions_lost,
            Fact::RenewalFailed { .. } => &self.renewal_failures,
            Fact::Fenced { .. } => &self.fenced,
            Fact::AddressConflict { .. } => &self.address_conflicts,
            Fact::AddressRefused { .. } => &self.addresses_refused,
            Fact::SessionAcquired { .. } | Fact::OldOwnerAnswers { .. } => return,
        };
        counter.inc();
    }

    /// Sets the gauges.
    pub fn observe(&self, claims: usize, addresses: usize, has_session: bool, edge: &EdgeCounters) {
        let gauge = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.claims, claims);
        gauge(&self.addresses, addresses);
        gauge(&self.session, usize::from(has_session));
        let catch_up = |counter: &Counter, total: u64| {
            counter.inc_by(total.saturating_sub(counter.get()));
        };
        catch_up(&self.frames_sent, edge.sent.load(Ordering::Relaxed));
        catch_up(&self.frames_unsent, edge.unsent.load(Ordering::Relaxed));
        catch_up(&self.frames_unheard, edge.unheard.load(Ordering::Relaxed));
    }
}
