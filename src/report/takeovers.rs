//! Events about addresses that this node has taken: one on each Service, as long as these are few, and one on the
//! node that had them. A thousand Services that fail over lead to a few Events; logs, metrics and Leases have
//! each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::event::Reason;
use leasehold_crds::names::{InterfaceName, NodeName};

use super::notice::Notice;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Cause, Fact, OwnerId, Story};

/// Time during which addresses taken from one owner are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// The most Services with an Event of their own in that time.
const EACH: usize = 10;
/// The most Services that an Event names.
const NAMED: usize = 5;

/// A claim that this node has taken and announces.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    services: Vec<String>,
    addresses: Vec<IpAddr>,
    interface: InterfaceName,
    story: Story,
    took: Duration,
}

impl Taken {
    /// Reads `fact`; `None` if it is about something else.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        let Fact::Serving { services, addresses, interface, story, took, .. } = fact else {
            return None;
        };
        Some(Self {
            services: services.clone(),
            addresses: addresses.clone(),
            interface: interface.clone(),
            story: story.clone(),
            took: *took,
        })
    }
}

/// The claims taken a moment ago, by former owner and cause.
#[derive(Debug, Default)]
pub(super) struct Takeovers(BTreeMap<(Option<OwnerId>, Cause), Gathered>);

/// The claims taken from one owner for one cause.
#[derive(Debug)]
struct Gathered {
    until: Instant,
    taken: Vec<Taken>,
}

impl Takeovers {
    /// The time at which [`Self::tell`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|gathered| gathered.until).min()
    }

    /// Notes one, which is told when others have had time to follow.
    pub(super) fn note(&mut self, now: Instant, taken: Taken) {
        let key = (taken.story.from.clone(), taken.story.cause);
        let anew = || Gathered { until: now + GATHER, taken: Vec::new() };
        self.0.entry(key).or_insert_with(anew).taken.push(taken);
    }

    /// The events for what has been gathered long enough.
    pub(super) fn tell(&mut self, now: Instant, here: &NodeName) -> Vec<Notice> {
        let mut notices = Vec::new();
        let due: Vec<_> =
            self.0.iter().filter(|(_, g)| now >= g.until).map(|(key, _)| key.clone()).collect();
        for key in due {
            let Some(Gathered { taken, .. }) = self.0.remove(&key) else { continue };
            let services =
                || taken.iter().flat_map(|one| one.services.iter().zip([one].into_iter().cycle()));
            notices.extend(
                services().take(EACH).filter_map(|(service, one)| of_service(service, one, here)),
            );
            if let (Some(from), true) = (&key.0, key.1 != Cause::Move) {
                notices.push(of_node(from, key.1, &taken, here));
            } else if services().count() > EACH {
                notices.push(of_many(&taken, here));
            }
        }
        notices
    }
}

/// `node-1 announces 192.0.2.1 on eth0, 0.118 s after node-2 fell silent`
fn of_service(service: &str, taken: &Taken, here: &NodeName) -> Option<Notice> {
    let addresses = joined(taken.addresses.iter());
    let Taken { interface, story, took, .. } = taken;
    let announced = format!("{here} announces {addresses} on {interface}");
    let took = took.as_secs_f64();
    let (reason, note) = match (&story.from, why(story.cause)) {
        (Some(OwnerId { node, .. }), _) if story.cause == Cause::Move => {
            (Reason::Moved, format!("{announced}, handed over by {node} in {took:.3} s"))
        }
        (Some(OwnerId { node, .. }), why) => {
            (Reason::TakenOver, format!("{announced}, {took:.3} s after {node} {why}"))
        }
        (None, _) => (Reason::Announced, announced),
    };
    Notice::of_named(service, reason, note)
}

/// The end of the former ownership, in words.
const fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Silence => "fell silent",
        Cause::Expiry => "last renewed its session",
        Cause::Outage => "fell silent during an API outage",
        Cause::New | Cause::Move | Cause::Release => "released it",
        Cause::Edit => "lost it because a Lease was edited",
    }
}

/// On the node that had the addresses.
fn of_node(from: &OwnerId, cause: Cause, taken: &[Taken], here: &NodeName) -> Notice {
    let slowest = taken.iter().map(|one| one.took).max().unwrap_or_default().as_secs_f64();
    let note = format!(
        "{here} took over {} of this node, the last one {slowest:.3} s after it {}",
        counted(taken),
        why(cause)
    );
    let reason = match cause {
        Cause::Silence | Cause::Expiry | Cause::Outage => Reason::NodeTakenOver,
        Cause::New | Cause::Release | Cause::Move | Cause::Edit => Reason::NodeReleased,
    };
    Notice::of_node(&from.node, reason, note)
}

/// On this node, where many were new or handed over.
fn of_many(taken: &[Taken], here: &NodeName) -> Notice {
    let note = format!("{here} announces {}", counted(taken));
    Notice::of_node(here, Reason::NodeAnnounces, note)
}

/// `33 Services (web/shop, web/blog, ...)`
fn counted(taken: &[Taken]) -> String {
    let services: Vec<&String> = taken.iter().flat_map(|one| &one.services).collect();
    let (first, more) = (services.iter().take(NAMED), services.len() > NAMED);
    let plural = if services.len() == 1 { "" } else { "s" };
    let dots = if more { ", ..." } else { "" };
    format!("{} Service{plural} ({}{dots})", services.len(), joined(first))
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::shown;
    use super::*;

    fn taken(number: usize, cause: Cause, from: Option<&str>) -> Taken {
        Taken {
            services: vec![format!("web/s{number}")],
            addresses: vec!["192.0.2.1".parse().unwrap()],
            interface: "eth0".parse().unwrap(),
            story: Story {
                cause,
                from: from.map(|node| OwnerId { node: node.parse().unwrap(), session: 17 }),
                began: Instant::default(),
            },
            took: Duration::from_millis(118),
        }
    }

    fn told(all: impl IntoIterator<Item = Taken>) -> Vec<String> {
        let mut takeovers = Takeovers::default();
        let (now, here) = (Instant::default(), "node-1".parse().unwrap());
        for taken in all {
            takeovers.note(now, taken);
        }
        assert!(takeovers.tell(now, &here).is_empty(), "others may follow");
        let told = takeovers.tell(now + GATHER, &here).into_iter().map(shown).collect();
        assert_eq!(takeovers.due(), None);
        told
    }

    #[test]
    fn a_takeover_is_told_on_the_service_and_on_the_node() {
        assert_eq!(
            told([taken(1, Cause::Silence, Some("node-2"))]),
            [
                "Normal TakenOver on Service/web/s1/-: node-1 announces 192.0.2.1 on eth0, 0.118 s \
                 after node-2 fell silent",
                "Warning TakenOver on Node/-/node-2/node-2: node-1 took over 1 Service (web/s1) of \
                 this node, the last one 0.118 s after it fell silent",
            ]
        );
    }

    #[test]
    fn what_is_planned_or_new_concerns_its_service_alone() {
        for (cause, from, note) in [
            (Cause::New, None, "Announced on Service/web/s1/-: node-1 announces 192.0.2.1 on eth0"),
            (
                Cause::Move,
                Some("node-2"),
                "Moved on Service/web/s1/-: node-1 announces 192.0.2.1 on eth0, handed over by node-2 \
                 in 0.118 s",
            ),
        ] {
            assert_eq!(told([taken(1, cause, from)]), [format!("Normal {note}")]);
        }
    }

    #[test]
    fn a_thousand_services_are_told_in_a_few_events() {
        for (cause, from) in [(Cause::Silence, Some("node-2")), (Cause::New, None)] {
            let events = told((0..1000).map(|number| taken(number, cause, from)));
            assert_eq!(events.len(), EACH + 1);
            assert!(events[EACH].contains("1000 Services (web/s0, web/s1, "), "{}", events[EACH]);
        }
    }
}
