//! The sections of a speaker: its node, and the cluster as that sees it.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::picture::{Life, Place, picture};
use super::view::{Tone, at, badge, lines, or_dash, span_of, spread, table};
use super::{Section, Snapshot};
use crate::report::status::{Claim, Speaker, Status};

impl Snapshot for Status {
    fn title(&self) -> String {
        format!("Leasehold on {}", self.node)
    }

    fn sections(&self) -> Vec<Section> {
        vec![
            Section::new("health", "Health", health(self)),
            Section::new("picture", "Owners of addresses", who_has_what(self)),
            Section::new("addresses", "Addresses", addresses(self)),
            Section::new("speakers", "Speakers as seen by this node", speakers(self)),
            Section::new("moves", "Last moves of this node", moves(self)),
            Section::new("loss", "If a node failed now", loss(self)),
            Section::new("kernel", "Kernel addresses of this node", kernel(self)),
        ]
    }
}

fn health(status: &Status) -> Markup {
    let (tone, text) =
        if status.api_answers { (Tone::Good, "answers") } else { (Tone::Bad, "does not answer") };
    let late: Vec<String> = status
        .watch_age
        .iter()
        .filter(|(part, age)| **part == "sessions" && **age > 10_000)
        .map(|(part, age)| format!("no update of {part} for {}", span_of(*age)))
        .collect();
    html! {
        dl {
            div { dt { "API server" } dd { (badge(tone, text)) } }
            div {
                dt { "This speaker" }
                dd {
                    @if status.not_ready.is_empty() {
                        (badge(Tone::Good, "ready"))
                    } @else {
                        (badge(Tone::Bad, "not ready")) " " (lines(&status.not_ready))
                    }
                }
            }
            @if !late.is_empty() {
                div { dt { "Watches" } dd { (badge(Tone::Warn, "late")) " " (lines(&late)) } }
            }
            @for interface in &status.blind {
                div {
                    dt { "Segment of " (interface) }
                    dd {
                        (badge(Tone::Warn, "only sessions count"))
                        " No host except the probed owners has ever answered there."
                    }
                }
            }
            div { dt { "Version" } dd { (status.version) } }
        }
    }
}

fn what(claim: &Claim) -> String {
    claim.services.join(", ")
}

fn who_has_what(status: &Status) -> Markup {
    let mut nodes: BTreeMap<String, Place> = BTreeMap::new();
    for speaker in &status.speakers {
        let owned = status.owned_by(&speaker.node);
        let place = Place {
            life: Life::of(speaker.lives),
            remarks: speaker.remarks.clone(),
            addresses: owned.map(|(claim, ip)| (ip.to_string(), what(claim))).collect(),
        };
        nodes.insert(speaker.node.to_string(), place);
    }
    let unowned = status.claims.iter().filter(|claim| claim.owner.is_none());
    let nobody: Vec<_> = unowned
        .flat_map(|claim| claim.addresses.iter().map(|ip| (ip.to_string(), what(claim))))
        .collect();
    picture(&nodes, &nobody)
}

fn addresses(status: &Status) -> Markup {
    let rows = status.claims.iter().map(|claim| {
        let owner = match (&claim.owner, &claim.successor, claim.provisional) {
            (_, _, true) => badge(Tone::Warn, "this node, until the API server answers"),
            (Some(owner), Some(next), _) => html! { (owner) " → " (next) },
            (Some(owner), None, _) => html! { (owner) },
            (None, ..) => badge(Tone::Bad, "no owner"),
        };
        let owner = html! {
            (owner)
            @if let Some(former) = &claim.forwards_to {
                br; small { "unknown connections: to " (former) }
            }
            (spread(&claim.shares))
        };
        vec![
            lines(&claim.services),
            lines(&claim.addresses),
            owner,
            or_dash(claim.interface.as_ref()),
            claim.since.map_or_else(|| or_dash(None::<&str>), at),
            html! { (claim.cause) },
            or_dash(claim.took.map(span_of)),
        ]
    });
    let headings = ["Service", "Address", "Node", "Interface", "Since (UTC)", "Cause", "Took"];
    table("Addresses and their owners", &headings, rows.collect())
}

fn speakers(status: &Status) -> Markup {
    let rows = status.speakers.iter().map(|speaker| {
        let Speaker { lives, age, lasts, .. } = speaker;
        let late = *lives && age.saturating_mul(2) > *lasts;
        let session = match (lives, late) {
            (true, false) => badge(Tone::Good, "live"),
            (true, true) => badge(Tone::Warn, "late"),
            (false, _) => badge(Tone::Bad, "ended"),
        };
        let interfaces = speaker
            .interfaces
            .iter()
            .map(|(name, addresses)| format!("{name}: {}", addresses.join(", ")));
        vec![
            html! { (speaker.node) },
            html! { (session) @for remark in &speaker.remarks { " " (badge(Tone::Warn, remark)) } },
            html! {
                (span_of(age / 100 * 100)) @if *lives { " of " (span_of(*lasts)) } @else { " ago" }
            },
            html! { code { (speaker.session) } },
            lines(interfaces),
            html! { (speaker.cause) },
        ]
    });
    let headings = ["Node", "Session", "Last renewal", "ID", "Interfaces", "Cause"];
    table("Speakers", &headings, rows.collect())
}

fn moves(status: &Status) -> Markup {
    let rows = status.moves.iter().map(|one| {
        let happened = match (&one.from, one.taken) {
            (Some(from), true) => format!("taken from {from}"),
            (None, true) => "taken".to_owned(),
            (_, false) => "handed over or lost".to_owned(),
        };
        vec![
            at(one.at),
            html! { code { (one.claim) } },
            html! { (happened) },
            html! { (one.cause) },
            or_dash(one.took.map(span_of)),
            html! { code { (or_dash(one.failover.as_ref())) } },
        ]
    });
    let headings = ["When (UTC)", "Claim", "Change", "Cause", "Took", "ID in logs"];
    table("Last moves", &headings, rows.collect())
}

fn loss(status: &Status) -> Markup {
    let living = status.speakers.iter().filter(|speaker| speaker.lives);
    let rows = living.map(|speaker| {
        let takers = speaker.without.iter().filter(|(taker, _)| !taker.is_empty());
        let takers = takers.map(|(taker, count)| format!("{taker}: {count}"));
        let nobody = speaker.without.get("").copied().unwrap_or(0);
        vec![
            html! { (speaker.node) },
            html! { (speaker.without.values().sum::<usize>()) },
            lines(takers),
            if nobody == 0 {
                html! { "0" }
            } else {
                badge(Tone::Bad, &nobody.to_string())
            },
        ]
    });
    let headings = ["Node", "Addresses now", "Takeover by", "Without candidate"];
    table("If a node failed now", &headings, rows.collect())
}

fn kernel(status: &Status) -> Markup {
    let rows = status.kernel.iter().map(|there| {
        vec![
            html! { (there.address) },
            html! { (there.interface) },
            html! { (span_of(there.left / 1000 * 1000)) },
        ]
    });
    let headings = ["Address", "Interface", "Kernel lifetime left"];
    table("Kernel addresses of this node", &headings, rows.collect())
}
