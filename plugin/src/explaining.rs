//! `explain`: why a Service is pending, or where it is.

use jiff::Timestamp;
use leasehold_core::explain::{ClaimStory, Share, State, Story, Verdict, View, explain};

use super::args::ExplainArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone, fields};
use super::{output, read, target};

pub(super) async fn run(
    cluster: &Cluster,
    asked: &ExplainArguments,
) -> Result<Outcome, PluginError> {
    let world = read::world(cluster).await?;
    let named = target::service(&world, &cluster.namespace, &asked.service)?;
    let Some(story) = explain(&View::new(&world), &named.service) else {
        let kind = "Service";
        return Err(PluginError::Unknown { kind, name: named.service, nearest: None });
    };
    let text = match output::document(&story, asked.format.output)? {
        Some(document) => document,
        None => text(&story, output::now()),
    };
    output::print(&text)?;
    Ok((story.state == State::Owned).into())
}

/// A story for people.
pub(super) fn text(story: &Story, now: Timestamp) -> String {
    let pool = story.pool.as_ref().map(|pool| format!(" from pool {pool}")).unwrap_or_default();
    let mut lines = vec![
        ("Service", story.service.clone()),
        ("State", state(story.state).paint(&story.summary)),
        ("Addresses", output::listed(&story.addresses) + &pool),
    ];
    lines.extend(story.policy.iter().map(|policy| ("Policy", policy.text.clone())));
    let several = story.claims.len() > 1;
    let mut text = String::new();
    for claim in &story.claims {
        let of_claim = claim_lines(claim, several, now);
        if several {
            text.push('\n');
            text.push_str(&fields(&of_claim));
        } else {
            lines.extend(of_claim);
        }
        if !claim.nodes.is_empty() {
            text.push('\n');
            text.push_str(&nodes(claim).text());
        }
    }
    fields(&lines) + &text
}

const fn state(state: State) -> Tone {
    match state {
        State::Owned => Tone::Good,
        State::Silent | State::NotOurs => Tone::Warning,
        State::Unowned | State::Pending => Tone::Bad,
    }
}

fn claim_lines(claim: &ClaimStory, several: bool, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut lines = vec![("Claim", claim.claim.to_string())];
    if several {
        lines.push(("State", state(claim.state).paint(&claim.summary)));
        lines.push(("Addresses", output::listed(&claim.addresses)));
    }
    if claim.services.len() > 1 {
        lines.push(("Shared by", claim.services.join(", ")));
    }
    if let Some(owner) = &claim.owner {
        let mut place = owner.node.to_string();
        if let Some(interface) = &owner.interface {
            place = format!("{place} on {interface}");
        }
        if let Some(mac) = &owner.mac {
            place = format!("{place} ({mac})");
        }
        lines.push(("Owner", place));
        let since = owner.since.as_ref().and_then(|since| since.parse::<Timestamp>().ok());
        if let Some(since) = since {
            lines.push(("Since", format!("{} ago ({since:.0})", output::age(since, now))));
        }
        let took = owner.took.as_ref().map(|took| format!(" (took {took})")).unwrap_or_default();
        lines.push(("Cause", owner.cause.clone() + &took));
    }
    if !claim.shares.is_empty() {
        lines.push(("Spread over", Share::listed(&claim.shares)));
    }
    lines.extend(claim.moving_to.iter().map(|to| ("Asked to move to", to.clone())));
    lines
}

fn nodes(claim: &ClaimStory) -> Table {
    let mut table = Table::new(&["NODE", "VERDICT", "INTERFACE", "REASON"]);
    for node in &claim.nodes {
        let (word, tone) = verdict(node.verdict);
        let interface = node.interface.as_ref().map_or("-", |name| name.as_str());
        table.row([
            Cell::from(node.node.as_str()),
            Cell::new(word, tone),
            interface.into(),
            node.reason.as_str().into(),
        ]);
    }
    table
}

const fn verdict(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::Owns => ("owns", Tone::Good),
        Verdict::Takes => ("takes", Tone::Good),
        Verdict::Candidate => ("could", Tone::Plain),
        Verdict::Held => ("held", Tone::Dim),
        Verdict::NotSelected => ("not selected", Tone::Dim),
        Verdict::Excluded => ("excluded", Tone::Dim),
        Verdict::Silent => ("silent", Tone::Dim),
        Verdict::NoEndpoint => ("no endpoint", Tone::Warning),
        Verdict::NoNode => ("no node", Tone::Warning),
        Verdict::Cordoned => ("cordoned", Tone::Warning),
        Verdict::Draining => ("draining", Tone::Warning),
        Verdict::NetworkUnavailable => ("no network", Tone::Warning),
        Verdict::Leaving => ("leaving", Tone::Warning),
        Verdict::NoSession => ("no session", Tone::Bad),
        Verdict::Drained => ("drained", Tone::Warning),
        Verdict::Restarting => ("restarting", Tone::Warning),
        Verdict::CannotSpread => ("cannot spread", Tone::Warning),
        Verdict::NoInterface => ("no interface", Tone::Bad),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_crds::addresses::AddressSet;

    use super::*;

    #[test]
    fn the_nodes_of_a_spread_claim_are_listed_with_their_shares() {
        let share = |node: &str, buckets, percent| Share {
            node: node.parse().unwrap(),
            weight: 1,
            buckets,
            percent,
        };
        let mut claim = ClaimStory {
            claim: "web.shop".parse().unwrap(),
            services: vec!["web/shop".to_owned()],
            addresses: AddressSet::from(["192.0.2.1".parse().unwrap()]),
            state: State::Owned,
            summary: "owned by node-1".to_owned(),
            owner: None,
            moving_to: None,
            shares: vec![share("node-2", 511, 50), share("node-3", 510, 50)],
            nodes: Vec::new(),
        };
        let lines = |claim: &ClaimStory| fields(&claim_lines(claim, false, Timestamp::UNIX_EPOCH));
        assert_eq!(
            lines(&claim),
            "Claim:        web.shop\nSpread over:  node-2 50 %, node-3 50 %\n"
        );
        claim.shares.clear();
        assert_eq!(lines(&claim), "Claim:  web.shop\n");
    }
}
