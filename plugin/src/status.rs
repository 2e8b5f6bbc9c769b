//! `status`: the cluster at a glance.

use std::fmt::Write as _;

use kube::ResourceExt;
use leasehold_core::desired::{NodeObject, NodeState};
use leasehold_core::explain::{Objects, State, View, World, outline, state_of};
use leasehold_crds::names::NodeName;
use serde::Serialize;

use super::args::FormatArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::operator::{self, Operator};
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone, fields};
use super::{output, read};

/// The cluster at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    /// The active replica of the operator.
    operator: Option<String>,
    services: Services,
    nodes: Vec<NodeLine>,
    pools: Vec<PoolLine>,
    /// The problems, in words.
    troubles: Vec<String>,
}

impl Status {
    /// Whether new Services get addresses, and all have one that a node owns or that nobody is to announce.
    const fn is_well(&self) -> bool {
        self.operator.is_some() && self.services.unowned + self.services.pending == 0
    }
}

/// The number of Services in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Services {
    total: usize,
    owned: usize,
    silent: usize,
    unowned: usize,
    pending: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeLine {
    node: NodeName,
    state: String,
    /// `live`, `restarting`, `drained`, `ended` or `none`.
    session: &'static str,
    claims: usize,
    addresses: usize,
    interfaces: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolLine {
    pool: String,
    assigned_ipv4: i64,
    available_ipv4: i64,
    assigned_ipv6: i64,
    available_ipv6: i64,
}

pub(super) async fn run(
    cluster: &Cluster,
    format: FormatArguments,
) -> Result<Outcome, PluginError> {
    let objects = read::objects(cluster).await?;
    let world = World::of(&objects);
    let operator = operator::look(cluster, &objects.claims).await?;
    let status = status(&objects, &View::new(&world), &operator);
    let text = match output::document(&status, format.output)? {
        Some(document) => document,
        None => text(&status),
    };
    output::print(&text)?;
    Ok(status.is_well().into())
}

/// The status of the cluster.
pub(super) fn status(objects: &Objects, view: &View<'_>, operator: &Operator) -> Status {
    let active = match operator {
        Operator::Active(holder) => Some(holder.clone()),
        Operator::Still(_) | Operator::Absent => None,
    };
    let mut status = Status { operator: active, ..Status::default() };
    status.troubles.extend(operator.trouble());
    for (name, row) in &view.world().services {
        let Some(story) = outline(view, name).filter(|_| row.ours) else { continue };
        let services = &mut status.services;
        services.total += 1;
        let count = match story.state {
            State::Owned => &mut services.owned,
            State::Silent => &mut services.silent,
            State::Unowned => &mut services.unowned,
            State::Pending | State::NotOurs => &mut services.pending,
        };
        *count += 1;
        if story.state != State::Owned {
            status.troubles.push(format!("{name}: {}", story.summary));
        }
    }
    status.nodes = view.world().snapshot.nodes.keys().map(|name| node(view, name)).collect();
    status.pools = objects
        .pools
        .iter()
        .map(|object| {
            let counts = object.status.clone().unwrap_or_default();
            PoolLine {
                pool: object.name_any(),
                assigned_ipv4: counts.assigned_ipv4,
                available_ipv4: counts.available_ipv4,
                assigned_ipv6: counts.assigned_ipv6,
                available_ipv6: counts.available_ipv6,
            }
        })
        .collect();
    status
}

fn node(view: &View<'_>, name: &NodeName) -> NodeLine {
    let row = view.world().sessions.get(name);
    let session = match row {
        None => "none",
        Some(row) if !row.is_live() => "ended",
        Some(row) if row.stored.record.drain => "drained",
        Some(row) if row.stored.record.restarting => "restarting",
        Some(_) => "live",
    };
    let live = row.filter(|row| row.is_live());
    let owned = || view.world().claims.values().filter(|claim| view.owner(claim) == Some(name));
    let state = view.desired().nodes.get(name).copied().unwrap_or_default();
    let excluded = view.world().snapshot.nodes.get(name).is_some_and(NodeObject::is_excluded);
    let state = if excluded && state == NodeState::Ready { "excluded" } else { state_of(state) };
    NodeLine {
        node: name.clone(),
        state: state.split(':').next().unwrap_or_default().to_owned(),
        session,
        claims: owned().count(),
        addresses: owned().map(|claim| claim.stored.record.addresses.len()).sum(),
        interfaces: live
            .map(|row| row.stored.record.interfaces.iter())
            .map(|links| links.filter(|it| !it.only_if_named).map(ToString::to_string).collect())
            .unwrap_or_default(),
    }
}

fn text(status: &Status) -> String {
    let Services { total, owned, silent, unowned, pending } = status.services;
    let live = status.nodes.iter().filter(|node| node.session != "none" && node.session != "ended");
    let mut parts = vec![format!("{owned} owned")];
    for (count, word) in
        [(silent, "not announced"), (unowned, "without owner"), (pending, "pending")]
    {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    let operator = status.operator.clone();
    let operator = operator
        .map_or_else(|| Tone::Bad.paint("no active replica"), |it| format!("{it} is active"));
    let lines = [
        ("Operator", operator),
        ("Speakers", format!("{} of {} nodes have a session", live.count(), status.nodes.len())),
        ("Services", format!("{total}: {}", parts.join(", "))),
    ];
    let mut nodes = Table::new(&["NODE", "STATE", "SESSION", "CLAIMS", "ADDRESSES", "INTERFACES"]);
    for node in &status.nodes {
        let tone = match node.session {
            "live" => Tone::Good,
            "restarting" | "drained" => Tone::Warning,
            "ended" => Tone::Bad,
            _ => Tone::Dim,
        };
        let none = || vec!["-".to_owned()];
        let interfaces = Some(node.interfaces.clone()).filter(|it| !it.is_empty());
        let interfaces = interfaces.unwrap_or_else(none).join("; ");
        let state = if node.state == "ready" { Tone::Plain } else { Tone::Warning };
        nodes.row([
            Cell::from(node.node.as_str()),
            Cell::new(node.state.as_str(), state),
            Cell::new(node.session, tone),
            node.claims.to_string().into(),
            node.addresses.to_string().into(),
            Cell::from(interfaces),
        ]);
    }
    let mut pools = Table::new(&["POOL", "IPV4 USED", "IPV4 FREE", "IPV6 USED", "IPV6 FREE"]);
    for pool in &status.pools {
        let counts =
            [pool.assigned_ipv4, pool.available_ipv4, pool.assigned_ipv6, pool.available_ipv6];
        let counts = counts.map(|count| Cell::from(count.to_string()));
        pools.row(std::iter::once(Cell::from(pool.pool.as_str())).chain(counts));
    }
    let mut text = format!("{}\n{}\n{}", fields(&lines), nodes.text(), pools.text());
    if !status.troubles.is_empty() {
        text.push('\n');
    }
    for trouble in &status.troubles {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {trouble}", Tone::Warning.paint("!"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_is_well_while_an_operator_works_and_no_service_waits() {
        let taken = |name: &str| {
            json!({
                "metadata": { "namespace": "web", "name": name },
                "spec": { "type": "LoadBalancer" },
                "status": { "conditions": [{
                    "type": "leasehold.dev/Allocated", "status": "False", "reason": "PoolExhausted",
                    "message": "full", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            })
        };
        let plain = |name: &str| {
            json!({
                "metadata": { "namespace": "web", "name": name }, "spec": { "type": "LoadBalancer" },
            })
        };
        let (works, still) = (Operator::Active("a".to_owned()), Operator::Still("a".to_owned()));
        // One that the operator looked at shows that it serves those without a class, so all others wait, too.
        for (services, operator, pending, well) in [
            (vec![], &works, 0, true),
            (vec![], &still, 0, false),
            (vec![], &Operator::Absent, 0, false),
            (vec![plain("a")], &works, 0, true),
            (vec![taken("a")], &works, 1, false),
            (vec![taken("a"), plain("b"), plain("c")], &works, 3, false),
        ] {
            let services: Vec<_> =
                services.into_iter().map(|it| serde_json::from_value(it).unwrap()).collect();
            let objects = Objects { services, ..Objects::default() };
            let world = World::of(&objects);
            let status = status(&objects, &View::new(&world), operator);
            assert_eq!((status.services.pending, status.is_well()), (pending, well), "{status:?}");
        }
    }
}
