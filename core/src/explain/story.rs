//! One Service, explained.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};
use leasehold_crds::policy::{AnnouncementMode, Governance};
use leasehold_crds::service::{ALLOCATED, ANNOUNCED, LOAD_BALANCER_CLASS};
use serde::Serialize;

use super::share::Share;
use super::verdict::Verdict;
use super::view::{Obstacle, View};
use super::words;
use super::world::{ClaimRow, ServiceRow};
use crate::desired::{DesiredClaim, NodeState};

/// The explanation of the addresses of a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The state: of several claims, the worst.
    pub state: State,
    /// That, in words.
    pub summary: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from.
    pub pool: Option<String>,
    /// The policy that governs it, if it has addresses.
    pub policy: Option<Governed>,
    /// Its claims: one, or one for each address.
    pub claims: Vec<ClaimStory>,
}

/// The state of a Service or a claim; the worst comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// A node owns it.
    Owned,
    /// No node announces it: a policy says so, or it has no endpoint.
    Silent,
    /// It has no owner.
    Unowned,
    /// It has no address.
    Pending,
    /// It does not ask Leasehold for an address.
    NotOurs,
}

/// The policy of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Governed {
    /// The policy; none where the defaults apply, or no policy matches.
    pub policy: Option<String>,
    /// In words.
    pub text: String,
}

/// One claim of a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimStory {
    /// The name of its lease.
    pub claim: LeaseName,
    /// All its Services.
    pub services: Vec<String>,
    /// Its addresses.
    pub addresses: AddressSet,
    /// The state.
    pub state: State,
    /// That, in words.
    pub summary: String,
    /// The owner.
    pub owner: Option<Ownership>,
    /// To which node people want it to move.
    pub moving_to: Option<String>,
    /// The nodes over which its packets are spread (`dataPath: Spread`), by name; empty if they are not.
    pub shares: Vec<Share>,
    /// The verdict on each node: first the owner, then the candidates in their order.
    pub nodes: Vec<NodeStory>,
}

/// The owner of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// The node.
    pub node: NodeName,
    /// The interface that carries the addresses.
    pub interface: Option<InterfaceName>,
    /// Its MAC address.
    pub mac: Option<String>,
    /// Since when, by the owner's wall clock.
    pub since: Option<String>,
    /// The cause of the last change of ownership.
    pub cause: String,
    /// The duration of that change, if known.
    pub took: Option<String>,
    /// The number of changes of the owner.
    pub transitions: i32,
}

/// The verdict on a node, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStory {
    /// The node.
    pub node: NodeName,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason in words.
    pub reason: String,
    /// Its place in the order in which nodes would take the claim, from 1.
    pub rank: Option<usize>,
    /// The interface that would carry the addresses.
    pub interface: Option<InterfaceName>,
}

/// Explains a Service; `None` where there is none of this name.
pub fn explain(view: &View<'_>, service: &str) -> Option<Story> {
    tell(view, service, true)
}

/// The same without what each node could do about what is owned: for many Services at once.
pub fn outline(view: &View<'_>, service: &str) -> Option<Story> {
    tell(view, service, false)
}

fn tell(view: &View<'_>, service: &str, in_full: bool) -> Option<Story> {
    let (service, row) = view.world().services.get_key_value(service)?;
    let mut story = Story {
        service: service.clone(),
        state: State::Pending,
        summary: String::new(),
        addresses: row.addresses.clone(),
        pool: row.pool.clone(),
        policy: view.rules().govern(service).map(|governance| governed(&governance)),
        claims: Vec::new(),
    };
    if !row.ours {
        (story.state, story.summary) = (State::NotOurs, not_ours(row));
        return Some(story);
    }
    story.claims = row.claims.iter().map(|name| claim(view, row, name, in_full)).collect();
    match story.claims.iter().max_by_key(|claim| claim.state) {
        Some(worst) => (story.state, story.summary) = (worst.state, worst.summary.clone()),
        None => story.summary = pending(row),
    }
    Some(story)
}

fn not_ours(row: &ServiceRow) -> String {
    if row.kind != "LoadBalancer" {
        return format!("the Service has type {}, not LoadBalancer", row.kind);
    }
    match &row.class {
        Some(class) => {
            format!("the Service has loadBalancerClass {class}, not {LOAD_BALANCER_CLASS}")
        }
        None => "the Service has no loadBalancerClass, and the operator does not serve it: this \
                 requires --default-class"
            .to_owned(),
    }
}

fn pending(row: &ServiceRow) -> String {
    match row.condition(ALLOCATED) {
        Some(condition) => condition.message.clone(),
        None => {
            "the operator has not processed the Service: check that the operator runs".to_owned()
        }
    }
}

fn governed(governance: &Governance<'_>) -> Governed {
    match governance {
        Governance::Default => {
            Governed { policy: None, text: "no policy exists: the defaults apply".to_owned() }
        }
        Governance::None => {
            Governed { policy: None, text: "policies exist, but none matches".to_owned() }
        }
        Governance::Unreadable(policy) => {
            let text = format!(
                "{} (priority {}), which is invalid: its addresses stay with their owners",
                policy.name, policy.priority
            );
            Governed { policy: Some(policy.name.clone()), text }
        }
        Governance::Policy(policy) => {
            let mode = match policy.mode {
                AnnouncementMode::Layer2 => "",
                AnnouncementMode::None => ", mode None: not announced",
            };
            let text = format!("{} (priority {}{mode})", policy.name, policy.priority);
            Governed { policy: Some(policy.name.clone()), text }
        }
    }
}

fn claim(view: &View<'_>, row: &ServiceRow, name: &LeaseName, in_full: bool) -> ClaimStory {
    let stored = view.world().claims.get(name);
    let asked = view.desired().claims.get(name);
    let owner = stored.and_then(|it| Some((it, view.owner(it)?)));
    let wanted = asked.filter(|asked| in_full || owner.is_none() && asked.silence.is_none());
    let nodes = wanted.map(|asked| nodes(view, name, asked, owner)).unwrap_or_default();
    let takes = nodes.iter().find(|node| node.verdict == Verdict::Takes);
    let silence = asked.and_then(|asked| asked.silence);
    let (state, summary) = if let Some((_, owner)) = owner {
        (State::Owned, format!("owned by {owner}"))
    } else if let Some(silence) = silence {
        let said = row.condition(ANNOUNCED).filter(|it| it.status == "False");
        let said = said.map(|condition| condition.message.clone());
        (State::Silent, said.unwrap_or_else(|| silence.reason().text().to_owned()))
    } else if asked.is_none() {
        (State::Unowned, "the claim of another Service contains its addresses".to_owned())
    } else if !asked.is_some_and(|asked| lists(stored, asked)) {
        let text =
            "the operator has not listed the addresses in the claim: check that the operator runs";
        (State::Unowned, text.to_owned())
    } else if let Some(first) = takes {
        (State::Unowned, format!("no owner yet: {} takes it next", first.node))
    } else {
        (State::Unowned, "no owner, and no node can take it".to_owned())
    };
    ClaimStory {
        claim: name.clone(),
        services: asked.map(|asked| asked.services.clone()).unwrap_or_default(),
        addresses: asked.map(|asked| asked.addresses.clone()).unwrap_or_default(),
        state,
        summary,
        owner: owner.map(|(claim, node)| ownership(claim, node)),
        moving_to: stored.and_then(|it| it.stored.record.move_to.as_ref()).map(ToString::to_string),
        shares: stored.map(|it| Share::of(&it.stored.record.members)).unwrap_or_default(),
        nodes,
    }
}

/// Whether the lease lists any address that is asked for: until then there is nothing to take.
fn lists(stored: Option<&ClaimRow>, asked: &DesiredClaim) -> bool {
    stored.is_some_and(|it| !it.stored.record.addresses.is_disjoint(&asked.addresses))
}

fn ownership(claim: &ClaimRow, node: &NodeName) -> Ownership {
    let record = &claim.stored.record;
    Ownership {
        node: node.clone(),
        interface: record.interface.clone(),
        mac: record.mac.map(|mac| mac.to_string()),
        since: claim.stored.acquired.map(|time| time.to_string()),
        cause: record.cause.clone(),
        took: claim.took(),
        transitions: record.transitions,
    }
}

/// The verdicts on the nodes about a claim.
fn nodes(
    view: &View<'_>,
    name: &LeaseName,
    claim: &DesiredClaim,
    owner: Option<(&ClaimRow, &NodeName)>,
) -> Vec<NodeStory> {
    let ranking = ranking(view, name, owner.map(|(_, node)| node));
    let listed = lists(view.world().claims.get(name), claim);
    let node = |node: &NodeName| {
        let candidate = view.candidate(claim, node);
        if let Some((stored, _)) = owner.filter(|(_, owner)| *owner == node) {
            return owning(view, claim, stored, node, candidate.err());
        }
        let interface = match candidate {
            Ok(interface) => interface.clone(),
            Err(obstacle) => {
                let (verdict, reason) = words::obstacle(view, claim, node, &obstacle);
                return NodeStory {
                    node: node.clone(),
                    verdict,
                    reason,
                    rank: None,
                    interface: None,
                };
            }
        };
        let rank = ranking.iter().position(|ranked| ranked == node).map(|at| at + 1);
        let takes = owner.is_none() && listed && rank == Some(1);
        let verdict = if takes { Verdict::Takes } else { Verdict::Candidate };
        let mut reason = candidate_reason(view, claim, node, rank, takes);
        if let Some(subnet) = view.unanswered(claim, node, &interface) {
            reason = format!("{reason}; {}", words::unanswered(subnet, &interface));
        }
        NodeStory { node: node.clone(), verdict, reason, rank, interface: Some(interface) }
    };
    let mut nodes: Vec<NodeStory> = view.world().snapshot.nodes.keys().map(node).collect();
    nodes.sort_by_key(|node| {
        let obstacle = node.verdict > Verdict::Candidate;
        (obstacle, node.verdict != Verdict::Owns, node.rank, node.node.clone())
    });
    nodes
}

/// The order in which nodes would take the claim: of an owned one, if its owner failed.
fn ranking(view: &View<'_>, name: &LeaseName, owner: Option<&NodeName>) -> Vec<NodeName> {
    let dead: BTreeSet<NodeName> = owner.cloned().into_iter().collect();
    // Claims that lose their owners together are placed jointly.
    let together = view.world().claims.keys().filter(|other| view.owner_of(other) == owner);
    let together: BTreeSet<&LeaseName> = together.chain([name]).collect();
    view.rank(&together, &dead).remove(name).unwrap_or_default()
}

fn candidate_reason(
    view: &View<'_>,
    claim: &DesiredClaim,
    node: &NodeName,
    rank: Option<usize>,
    takes: bool,
) -> String {
    let load = view.loads().get(node).copied().unwrap_or(0);
    let place = match (takes, rank) {
        (true, _) => "takes it, because it has no owner".to_owned(),
        (false, Some(1)) => "rank 1: would take it next".to_owned(),
        (false, Some(rank)) => format!("rank {rank}"),
        (false, None) => "could take it".to_owned(),
    };
    let state = view.desired().nodes.get(node).copied().unwrap_or_default();
    let state = match state {
        NodeState::NotReady => format!("; {}", words::state_of(state)),
        _ => String::new(),
    };
    let silent = view.is_proxy_silent(claim, node);
    let silent = if silent { format!("; {}", words::PROXY_SILENT) } else { String::new() };
    let plural = if load == 1 { "" } else { "es" };
    format!("{place}; owns {load} address{plural} now{state}{silent}")
}

fn owning(
    view: &View<'_>,
    claim: &DesiredClaim,
    stored: &ClaimRow,
    node: &NodeName,
    obstacle: Option<Obstacle>,
) -> NodeStory {
    let record = &stored.stored.record;
    let mut reason = "owns it".to_owned();
    if let Some(obstacle) = obstacle {
        let (_, why) = words::obstacle(view, claim, node, &obstacle);
        let then =
            words::keeps(claim, &obstacle).unwrap_or("hands it over when another node can take it");
        reason = format!("owns it, and {then}: {why}");
    }
    let carrying = record.interface.as_ref();
    let subnet = carrying.and_then(|it| Some((view.unanswered(claim, node, it)?, it)));
    if let Some((subnet, interface)) = subnet {
        reason = format!("{reason}; {}", words::unanswered(subnet, interface));
    }
    if view.is_proxy_silent(claim, node) {
        reason = format!("{reason}; its kube-proxy does not answer");
    }
    if let Some(successor) = &record.successor {
        reason = format!("{reason}; hands it over to {}", successor.node);
    }
    NodeStory {
        node: node.clone(),
        verdict: Verdict::Owns,
        reason,
        rank: None,
        interface: record.interface.clone(),
    }
}
