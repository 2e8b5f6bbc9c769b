//! The metrics of the speaker.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::guard::Guarded;
use crate::lease::{Action, Fact, Write};
use crate::net::edge::EdgeCounters;

/// Which kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    kind: &'static str,
}

/// Which interface of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnInterface {
    interface: String,
}

/// The metrics of the speaker.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    claims: Gauge,
    addresses: Gauge,
    session: Gauge,
    protected: Gauge,
    exposed: Gauge,
    repairs: Counter,
    requests: Family<Request, Counter>,
    claimed: Counter,
    yielded: Counter,
    sessions_lost: Counter,
    renewal_failures: Counter,
    fenced: Counter,
    address_conflicts: Counter,
    addresses_refused: Counter,
    silences: Counter,
    wire_blind: Family<OnInterface, Gauge>,
    provisional: Counter,
    old_owner_answers: Counter,
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
        gauge(
            "protected_addresses",
            "Addresses by which nothing of this node can be reached but ports of their Services",
            &self.protected,
        );
        gauge(
            "exposed_addresses",
            "Addresses that should be protected so and are not, as the kernel refused",
            &self.exposed,
        );
        registry.register("api_requests", "Requests on leases, by kind", self.requests.clone());
        registry.register(
            "wire_blind",
            "1 while only leases tell who died, as nobody but polled owners ever answered there",
            self.wire_blind.clone(),
        );
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
        counter("silences", "Owners that fell silent on the wire", &self.silences);
        counter(
            "provisional",
            "Claims taken over while the API server did not answer",
            &self.provisional,
        );
        counter(
            "old_owner_answers",
            "Takeovers after which the old owner still answered",
            &self.old_owner_answers,
        );
        counter(
            "host_protection_repairs",
            "Times that somebody else's change of the table inet leasehold was undone",
            &self.repairs,
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
            Action::List { .. } => request("list"),
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
            Fact::OldOwnerAnswers { .. } => &self.old_owner_answers,
            Fact::Silent { .. } => &self.silences,
            Fact::TookProvisionally { .. } => &self.provisional,
            Fact::WireBlind { interface, blind } => {
                let on = OnInterface { interface: interface.to_string() };
                self.wire_blind.get_or_create(&on).set(i64::from(*blind));
                return;
            }
            Fact::SessionAcquired { .. } => return,
        };
        counter.inc();
    }

    /// Sets what is known of host protection.
    pub fn observe_guard(&self, guarded: &Guarded) {
        let exposed = guarded.exposure.as_ref().map_or(0, |exposure| exposure.addresses.len());
        set(&self.protected, guarded.protected.len());
        set(&self.exposed, exposed);
        catch_up(&self.repairs, guarded.repairs);
    }

    /// Sets the gauges.
    pub fn observe(&self, claims: usize, addresses: usize, has_session: bool, edge: &EdgeCounters) {
        set(&self.claims, claims);
        set(&self.addresses, addresses);
        set(&self.session, usize::from(has_session));
        catch_up(&self.frames_sent, edge.sent.load(Ordering::Relaxed));
        catch_up(&self.frames_unsent, edge.unsent.load(Ordering::Relaxed));
        catch_up(&self.frames_unheard, edge.unheard.load(Ordering::Relaxed));
    }
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

    use super::*;
    use crate::guard::Exposure;

    fn shown(facts: &[Fact]) -> String {
        shown_after(|metrics| {
            for fact in facts {
                metrics.count(&Action::Report(fact.clone()));
            }
        })
    }

    fn shown_after(work: impl FnOnce(&Metrics)) -> String {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        work(&metrics);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn what_the_wire_says_is_counted() {
        let interface = || "eth0".parse().unwrap();
        let (claim, address) = ("web.shop".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let node = "node-2".parse().unwrap();
        for (fact, line) in [
            (Fact::Silent { node, interface: interface(), address }, "silences_total 1"),
            (
                Fact::TookProvisionally { claim, from: "node-2".parse().unwrap() },
                "provisional_total 1",
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
