//! The metrics of the speaker. Names follow Prometheus: units in names, counters end in `_total`, and
//! every label has few values, whatever the number of services.

mod samples;

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_crds::lease::EvidenceKind;
use leasehold_crds::names::InterfaceName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::gauges::Gauges;
use crate::announce::AnnouncementCounters;
use crate::datapath::detour::Detoured;
use crate::datapath::forward::Forwarded;
use crate::datapath::guard::Guarded;
use crate::datapath::return_path::Returned;
use crate::datapath::spread::Placed;
use crate::net::edge::EdgeCounters;
use crate::version;
use leasehold_core::detect::counters::WireCounters;
use leasehold_core::election::{Answer, Cause, Fact, ProxyHealth, Write};

/// Seconds within which addresses are taken over, from the wire's tenths to leases.
const TAKEOVER: [f64; 14] =
    [0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Seconds within which the API server answers.
const ANSWER: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5];
/// Seconds by which a decision is late.
const LAG: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5];

/// Why an owner changed: the words of [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

/// Which sign of life was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEvidence {
    evidence: &'static str,
}

/// Which kind of request on leases, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    kind: &'static str,
    outcome: &'static str,
}

/// In which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProtocol {
    protocol: &'static str,
}

/// Which interface of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnInterface {
    interface: String,
}

/// The purpose of a request on a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A compare-and-swap on a session.
    SessionWrite,
    /// A compare-and-swap on a claim.
    ClaimWrite,
    /// An uncached read.
    Read,
}

impl RequestKind {
    const ALL: [Self; 3] = [Self::SessionWrite, Self::ClaimWrite, Self::Read];

    /// The kind of a write.
    pub const fn of(write: &Write) -> Self {
        match write {
            Write::Session(_) => Self::SessionWrite,
            Write::Claim(_) => Self::ClaimWrite,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::SessionWrite => "session_write",
            Self::ClaimWrite => "claim_write",
            Self::Read => "read",
        }
    }
}

/// The words of [`outcome`].
const OUTCOMES: [&str; 6] = ["ok", "absent", "conflict", "throttled", "refused", "unanswered"];

const fn outcome(answer: &Answer) -> &'static str {
    match answer {
        Answer::Session(_) | Answer::Claim(_) => "ok",
        Answer::Absent => "absent",
        Answer::Conflict => "conflict",
        Answer::Throttled => "throttled",
        Answer::Refused(_) => "refused",
        Answer::Unknown(_) => "unanswered",
    }
}

/// The metrics of the speaker.
#[derive(Clone, Debug)]
pub struct Metrics {
    claims: Gauge,
    addresses: Gauge,
    sessions: Gauge,
    session: Gauge,
    unowned: Gauge,
    api_reachable: Gauge,
    protected: Gauge,
    exposed: Gauge,
    nodes_down: Gauge,
    forwarded: Gauge,
    forwarding_fails: Gauge,
    forwarded_connections: Gauge,
    spread: Gauge,
    spreading_slow: Gauge,
    spreading_fails: Gauge,
    spreading_filtered: Gauge,
    detoured: Gauge,
    detours_fail: Gauge,
    returned: Gauge,
    return_path_fails: Gauge,
    without_gateway: Gauge,
    forgotten: Counter,
    proxy_answers: Gauge,
    proxy_silent: Gauge,
    rules_late: Counter,
    unexpected_transitions: Counter,
    takeovers: Family<ByCause, Histogram>,
    changes: Family<ByCause, Counter>,
    yielded: Counter,
    requests: Family<Request, Histogram>,
    lists: Counter,
    lag: Histogram,
    sessions_lost: Counter,
    renewal_failures: Counter,
    fenced: Family<ByEvidence, Counter>,
    address_conflicts: Counter,
    addresses_refused: Counter,
    moves_refused: Counter,
    vanished: Counter,
    confined_again: Counter,
    silences: Counter,
    polls: Counter,
    misses: Counter,
    wire_dropped: Counter,
    wire_blind: Family<OnInterface, Gauge>,
    unanswering: Family<OnInterface, Gauge>,
    old_owner_answers: Counter,
    repairs: Counter,
    announcements: Family<ByProtocol, Counter>,
    foreign: Counter,
    frames_sent: Counter,
    frames_unsent: Counter,
    frames_unheard: Counter,
    frames_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            claims: Gauge::default(),
            addresses: Gauge::default(),
            sessions: Gauge::default(),
            session: Gauge::default(),
            unowned: Gauge::default(),
            api_reachable: Gauge::default(),
            protected: Gauge::default(),
            exposed: Gauge::default(),
            nodes_down: Gauge::default(),
            forwarded: Gauge::default(),
            forwarding_fails: Gauge::default(),
            forwarded_connections: Gauge::default(),
            spread: Gauge::default(),
            spreading_slow: Gauge::default(),
            spreading_fails: Gauge::default(),
            spreading_filtered: Gauge::default(),
            detoured: Gauge::default(),
            detours_fail: Gauge::default(),
            returned: Gauge::default(),
            return_path_fails: Gauge::default(),
            without_gateway: Gauge::default(),
            forgotten: Counter::default(),
            proxy_answers: Gauge::default(),
            proxy_silent: Gauge::default(),
            rules_late: Counter::default(),
            unexpected_transitions: Counter::default(),
            takeovers: Family::new_with_constructor(|| Histogram::new(TAKEOVER)),
            changes: Family::default(),
            yielded: Counter::default(),
            requests: Family::new_with_constructor(|| Histogram::new(ANSWER)),
            lists: Counter::default(),
            lag: Histogram::new(LAG),
            sessions_lost: Counter::default(),
            renewal_failures: Counter::default(),
            fenced: Family::default(),
            address_conflicts: Counter::default(),
            addresses_refused: Counter::default(),
            moves_refused: Counter::default(),
            vanished: Counter::default(),
            confined_again: Counter::default(),
            silences: Counter::default(),
            polls: Counter::default(),
            misses: Counter::default(),
            wire_dropped: Counter::default(),
            wire_blind: Family::default(),
            unanswering: Family::default(),
            old_owner_answers: Counter::default(),
            repairs: Counter::default(),
            announcements: Family::default(),
            foreign: Counter::default(),
            frames_sent: Counter::default(),
            frames_unsent: Counter::default(),
            frames_unheard: Counter::default(),
            frames_dropped: Counter::default(),
        };
        // What has not happened is zero, not missing: rates and alerts begin with the first event.
        for cause in Cause::ALL {
            drop(metrics.changes.get_or_create(&ByCause { cause: cause.word() }));
        }
        for evidence in ["wire", "lease"] {
            drop(metrics.fenced.get_or_create(&ByEvidence { evidence }));
        }
        for protocol in ["arp", "ndp"] {
            drop(metrics.announcements.get_or_create(&ByProtocol { protocol }));
        }
        metrics
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry, gauges: Gauges) {
        let registry = registry.sub_registry_with_prefix("leasehold_speaker");
        version::register(registry);
        self.register_gauges(registry);
        registry.register_collector(Box::new(gauges));
        registry.register_with_unit(
            "takeover_duration",
            "Time from the first sign of a change of owner (first unanswered probe, last renewal, release, \
             handover, or new Service) until this node announced all addresses of the claim",
            Unit::Seconds,
            self.takeovers.clone(),
        );
        registry.register(
            "ownership_changes",
            "Claims that this node took, by cause",
            self.changes.clone(),
        );
        registry.register_with_unit(
            "lease_request_duration",
            "Duration of requests for single Leases, by kind and outcome",
            Unit::Seconds,
            self.requests.clone(),
        );
        registry.register_with_unit(
            "decision_lag",
            "Delay of decisions after their due time",
            Unit::Seconds,
            self.lag.clone(),
        );
        registry.register(
            "fenced",
            "Sessions of other nodes that this node fenced, by the missing sign of life",
            self.fenced.clone(),
        );
        registry.register(
            "announcements_sent",
            "Gratuitous ARP requests and unsolicited Neighbor Advertisements sent",
            self.announcements.clone(),
        );
        registry.register(
            "wire_blind",
            "1 while only sessions count on the interface, because no witness has ever answered",
            self.wire_blind.clone(),
        );
        registry.register(
            "unanswering_owners",
            "Owners that answer the probes of this node but not client requests",
            self.unanswering.clone(),
        );
        self.register_counters(registry);
    }

    fn register_gauges(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("claims", "Claims that this node holds", &self.claims),
            ("addresses", "Addresses that the kernel has for claims of this node", &self.addresses),
            ("sessions", "Speakers with a live session, as this node sees them", &self.sessions),
            ("session", "1 while this node holds a session", &self.session),
            (
                "unowned_claims",
                "Claims that should be announced and have no owner, as this node sees them",
                &self.unowned,
            ),
            (
                "api_reachable",
                "1 while the API server answers session renewals",
                &self.api_reachable,
            ),
            (
                "protected_addresses",
                "Addresses under host protection, which lead only to ports of their Services",
                &self.protected,
            ),
            (
                "exposed_addresses",
                "Addresses without host protection because the kernel refused the rules",
                &self.exposed,
            ),
            (
                "nodes_down",
                "Nodes that are down: new connections through addresses do not lead to their endpoints",
                &self.nodes_down,
            ),
            (
                "kube_proxy_answers",
                "1 while the kube-proxy of this node answers health checks",
                &self.proxy_answers,
            ),
            (
                "kube_proxy_silent",
                "1 after kube-proxy has stopped answering health checks: the node takes only addresses \
                 that no other node can take",
                &self.proxy_silent,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        self.register_data_path(registry);
    }

    fn register_data_path(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            (
                "forwarded_addresses",
                "Addresses whose packets of unknown connections this node forwards to their former owner",
                &self.forwarded,
            ),
            (
                "forwarded_connections",
                "Open connections through addresses that this node has handed over",
                &self.forwarded_connections,
            ),
            (
                "forwarding_failing",
                "1 while the kernel refuses the rules that forward packets to former owners",
                &self.forwarding_fails,
            ),
            (
                "spread_addresses",
                "Addresses of this node whose packets it spreads over the nodes of their Services",
                &self.spread,
            ),
            (
                "spread_slow",
                "1 while the kernel refuses the rules that spread packets before they are routed",
                &self.spreading_slow,
            ),
            (
                "spread_failing",
                "1 while the kernel refuses the rules that spread packets over nodes",
                &self.spreading_fails,
            ),
            (
                "spread_filtered",
                "1 while the network drops packets that this node sends with the addresses of clients or of Services",
                &self.spreading_filtered,
            ),
            (
                "detoured_ports",
                "Ports of addresses whose new connections lead to endpoints on other nodes",
                &self.detoured,
            ),
            (
                "detours_failing",
                "1 while the kernel refuses the rules for detours around nodes that are down",
                &self.detours_fail,
            ),
            (
                "return_path_addresses",
                "Addresses whose answers leave by the interface that carries them (returnPath: Symmetric)",
                &self.returned,
            ),
            (
                "return_path_failing",
                "1 while rules, routes or marks for return paths cannot be set",
                &self.return_path_fails,
            ),
            (
                "return_path_without_gateway",
                "Interfaces, counted per IP family, that carry such addresses and have no route to a gateway",
                &self.without_gateway,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
    }

    fn register_counters(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("yielded", "Claims that this node released or lost", &self.yielded),
            ("lease_lists", "Full lists of Leases, caused by a late watch", &self.lists),
            (
                "sessions_lost",
                "Sessions of this node that were fenced, released, or taken",
                &self.sessions_lost,
            ),
            ("renewal_failures", "Failed session renewals", &self.renewal_failures),
            (
                "address_conflicts",
                "Conflicts with a host that uses an address of a Service",
                &self.address_conflicts,
            ),
            ("addresses_refused", "Addresses that the kernel refused", &self.addresses_refused),
            ("moves_refused", "Requested moves that were refused", &self.moves_refused),
            (
                "addresses_vanished",
                "Addresses that another program removed from the kernel, or that went with a link",
                &self.vanished,
            ),
            (
                "arp_settings_repairs",
                "Repairs of arp_ignore or arp_announce after a change by another program",
                &self.confined_again,
            ),
            (
                "rules_late",
                "Claims that were announced before kube-proxy had their rules, after the maximum wait",
                &self.rules_late,
            ),
            (
                "unexpected_transitions",
                "Changes of the state of a claim that the protocol does not contain; not 0 is a bug",
                &self.unexpected_transitions,
            ),
            ("silences", "Suspicions of owners that stopped answering probes", &self.silences),
            ("wire_polls", "Probes of owners", &self.polls),
            ("wire_misses", "Probes without a timely answer", &self.misses),
            (
                "wire_frames_dropped",
                "Frames dropped because the listener was too slow; concurrent probes do not count",
                &self.wire_dropped,
            ),
            (
                "old_owner_answers",
                "Takeovers after which the former owner still answered",
                &self.old_owner_answers,
            ),
            (
                "host_protection_repairs",
                "Repairs of the nftables table inet leasehold after a change by another program",
                &self.repairs,
            ),
            (
                "detoured_connections",
                "Connections to endpoints on nodes that were down that began anew on other nodes",
                &self.forgotten,
            ),
            (
                "foreign_announcements",
                "Announcements by other hosts for addresses that this node has or is about to add",
                &self.foreign,
            ),
            ("frames_sent", "ARP and NDP frames sent, without probes", &self.frames_sent),
            ("frames_unsent", "Frames that could not be sent", &self.frames_unsent),
            (
                "frames_unheard",
                "Frames dropped because the core was too slow",
                &self.frames_unheard,
            ),
            (
                "frames_dropped",
                "Frames that the kernel dropped because the packet task was too slow",
                &self.frames_dropped,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    /// A request on a lease was answered, or was given up, after this time.
    pub fn answered(&self, kind: RequestKind, answer: &Answer, after: Duration) {
        let request = Request { kind: kind.word(), outcome: outcome(answer) };
        self.requests.get_or_create(&request).observe(after.as_secs_f64());
    }

    /// All leases are listed.
    pub fn lists(&self) {
        self.lists.inc();
    }

    /// The core decides, this much later than it wanted to.
    pub fn late(&self, by: Duration) {
        self.lag.observe(by.as_secs_f64());
    }

    /// Counts what the core reports.
    pub fn count(&self, fact: &Fact) {
        let counter = match fact {
            Fact::Claimed { story, .. } => {
                if let Some(story) = story {
                    self.changes.get_or_create(&ByCause { cause: story.cause.word() }).inc();
                }
                return;
            }
            Fact::Serving { story, took, .. } => {
                let cause = ByCause { cause: story.cause.word() };
                self.takeovers.get_or_create(&cause).observe(took.as_secs_f64());
                return;
            }
            Fact::Fenced { silence, .. } => {
                let evidence = match silence.evidence {
                    EvidenceKind::Wire => "wire",
                    EvidenceKind::Lease => "lease",
                };
                self.fenced.get_or_create(&ByEvidence { evidence }).inc();
                return;
            }
            Fact::WireBlind { interface, blind } => {
                let on = OnInterface { interface: interface.to_string() };
                self.wire_blind.get_or_create(&on).set(i64::from(*blind));
                return;
            }
            Fact::ClientsUnanswered { interface, unanswered, .. } => {
                let on = OnInterface { interface: interface.to_string() };
                let gauge = self.unanswering.get_or_create(&on);
                if *unanswered {
                    gauge.inc();
                } else {
                    gauge.dec();
                }
                return;
            }
            Fact::ProxySilent { silent } => {
                set(&self.proxy_silent, usize::from(*silent));
                return;
            }
            Fact::NodeDown { down, .. } => {
                if *down {
                    self.nodes_down.inc();
                } else {
                    self.nodes_down.dec();
                }
                return;
            }
            Fact::RulesLate { .. } => &self.rules_late,
            Fact::UnexpectedTransition { .. } => &self.unexpected_transitions,
            Fact::SessionAcquired { .. } | Fact::TookProvisionally { .. } => return,
            Fact::Yielded { .. } => &self.yielded,
            Fact::SessionLost { .. } => &self.sessions_lost,
            Fact::RenewalFailed { .. } => &self.renewal_failures,
            Fact::AddressConflict { .. } => &self.address_conflicts,
            Fact::AddressRefused { .. } => &self.addresses_refused,
            Fact::MoveRefused { .. } => &self.moves_refused,
            Fact::OldOwnerAnswers { .. } => &self.old_owner_answers,
            Fact::Silent { .. } => &self.silences,
        };
        counter.inc();
    }

    /// Sets whether kube-proxy answers.
    pub fn observe_proxy(&self, health: ProxyHealth) {
        set(&self.proxy_answers, usize::from(health == ProxyHealth::Answers));
    }

    /// Sets what is known of host protection.
    pub fn observe_guard(&self, guarded: &Guarded) {
        let exposed = guarded.exposure.as_ref().map_or(0, |exposure| exposure.addresses.len());
        set(&self.protected, guarded.protected.len());
        set(&self.exposed, exposed);
        catch_up(&self.repairs, guarded.repairs);
    }

    /// Sets what is known of the forwarding to former owners.
    pub fn observe_forwarding(&self, forwarded: &Forwarded) {
        set(&self.forwarded, forwarded.addresses);
        set(&self.forwarding_fails, usize::from(forwarded.failure.is_some()));
        let open = forwarded.open.as_ref().map_or(0, |open| open.count);
        set(&self.forwarded_connections, usize::try_from(open).unwrap_or(usize::MAX));
    }

    /// Sets what is known of the spreading over nodes.
    pub fn observe_spreading(&self, placed: &Placed, is_filtered: bool) {
        set(&self.spread, placed.addresses);
        set(&self.spreading_slow, usize::from(placed.slow.is_some()));
        set(&self.spreading_fails, usize::from(placed.failure.is_some()));
        set(&self.spreading_filtered, usize::from(is_filtered));
    }

    /// Sets what is known of detours around nodes that are down.
    pub fn observe_detours(&self, detoured: &Detoured) {
        set(&self.detoured, detoured.ports);
        set(&self.detours_fail, usize::from(detoured.failure.is_some()));
        catch_up(&self.forgotten, detoured.forgotten);
    }

    /// Sets what is known of the interfaces by which answers leave.
    pub fn observe_return_paths(&self, returned: &Returned) {
        set(&self.returned, returned.applied.len());
        set(&self.return_path_fails, usize::from(returned.failure.is_some()));
        set(&self.without_gateway, returned.without_gateway.len());
    }

    /// These interfaces are there: none is blind until something else is said.
    pub fn note_interfaces<'a>(&self, names: impl Iterator<Item = &'a InterfaceName>) {
        for name in names {
            let on = OnInterface { interface: name.to_string() };
            drop(self.wire_blind.get_or_create(&on));
            drop(self.unanswering.get_or_create(&on));
        }
    }

    /// Sets what is known of the core.
    pub fn observe(&self, state: Observed) {
        set(&self.claims, state.claims);
        set(&self.addresses, state.addresses);
        set(&self.sessions, state.sessions);
        set(&self.unowned, state.unowned);
        set(&self.session, usize::from(state.has_session));
        set(&self.api_reachable, usize::from(state.is_api_reachable));
    }

    /// Sets what others have counted.
    pub fn observe_counters(
        &self,
        edge: &EdgeCounters,
        wire: &WireCounters,
        announcement: &AnnouncementCounters,
    ) {
        let protocol = |protocol| self.announcements.get_or_create_owned(&ByProtocol { protocol });
        for (counter, total) in [
            (&self.frames_sent, &edge.sent),
            (&self.frames_unsent, &edge.unsent),
            (&self.frames_unheard, &edge.unheard),
            (&self.frames_dropped, &edge.dropped),
            (&self.foreign, &edge.foreign),
            (&protocol("arp"), &edge.arp_announced),
            (&protocol("ndp"), &edge.ndp_announced),
            (&self.polls, &wire.polls),
            (&self.misses, &wire.misses),
            (&self.wire_dropped, &wire.dropped),
            (&self.vanished, &announcement.vanished),
            (&self.confined_again, &announcement.confined_again),
        ] {
            catch_up(counter, total.load(Ordering::Relaxed));
        }
    }
}

/// The state of the core in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The number of claims that it holds.
    pub claims: usize,
    /// The number of their addresses in the kernel.
    pub addresses: usize,
    /// The number of live sessions.
    pub sessions: usize,
    /// The number of claims without an owner.
    pub unowned: usize,
    /// Whether it has a session itself.
    pub has_session: bool,
    /// Whether renewals are answered.
    pub is_api_reachable: bool,
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

fn catch_up(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use leasehold_crds::lease::Silenced;
    use tokio::sync::watch;

    use super::*;
    use crate::datapath::guard::Exposure;
    use leasehold_core::clock::Instant;
    use leasehold_core::election::{KernelView, OwnerId, Story};

    fn shown(facts: &[Fact]) -> String {
        shown_after(|metrics| {
            for fact in facts {
                metrics.count(fact);
            }
        })
    }

    fn shown_after(work: impl FnOnce(&Metrics)) -> String {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        let (_, kernel) = watch::channel(KernelView::default());
        metrics.register(&mut registry, Gauges { delivered: Arc::default(), kernel });
        work(&metrics);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn what_the_wire_says_is_counted() {
        let interface = || "eth0".parse().unwrap();
        let (claim, address) = ("web.shop".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let owner = || OwnerId { node: "node-2".parse().unwrap(), session: 17 };
        let story = |cause| Story { cause, from: Some(owner()), began: Instant::default() };
        let after = Duration::from_millis(118);
        for (fact, line) in [
            (
                Fact::Silent { owner: owner(), interface: interface(), address, after },
                "silences_total 1",
            ),
            (
                Fact::Claimed {
                    claim,
                    cause: String::new(),
                    story: Some(story(Cause::Silence)),
                    after,
                },
                "ownership_changes_total{cause=\"silence\"} 1",
            ),
            (
                Fact::Serving {
                    claim: "web.shop".parse().unwrap(),
                    services: Vec::new(),
                    addresses: vec![address],
                    interface: interface(),
                    story: story(Cause::Expiry),
                    took: after,
                },
                "takeover_duration_seconds_bucket{le=\"0.125\",cause=\"expiry\"} 1",
            ),
            (
                Fact::Fenced {
                    owner: owner(),
                    silence: Silenced { evidence: EvidenceKind::Lease, lasted: after },
                },
                "fenced_total{evidence=\"lease\"} 1",
            ),
            (
                Fact::OldOwnerAnswers {
                    claim: "web.shop".parse().unwrap(),
                    mac: "02:00:00:00:00:02".parse().unwrap(),
                    address,
                },
                "old_owner_answers_total 1",
            ),
            (
                Fact::WireBlind { interface: interface(), blind: true },
                "wire_blind{interface=\"eth0\"} 1",
            ),
        ] {
            let line = format!("\nleasehold_speaker_{line}\n");
            let text = shown(std::slice::from_ref(&fact));
            assert!(text.contains(&line), "{line} is not in {text}");
            assert!(!shown(&[]).contains(&line), "{line} is there without {fact:?}");
        }
        let (off, on) = (true, false);
        let facts = [off, on].map(|blind| Fact::WireBlind { interface: interface(), blind });
        assert!(shown(&facts).contains("wire_blind{interface=\"eth0\"} 0\n"));
    }

    #[test]
    fn exposed_addresses_and_repairs_are_counted() {
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let exposure = Exposure { addresses: [one].into(), cause: String::new() };
        let guarded = |exposure, repairs| Guarded {
            protected: [one].into(),
            exposure,
            repairs,
            ..Guarded::default()
        };
        let text = shown_after(|metrics| {
            metrics.observe_guard(&guarded(None, 1));
            metrics.observe_guard(&guarded(Some(exposure), 3));
        });
        for line in
            ["protected_addresses 1", "exposed_addresses 1", "host_protection_repairs_total 3"]
        {
            assert!(text.contains(&format!("\nleasehold_speaker_{line}\n")), "{line}: {text}");
        }
    }
}
