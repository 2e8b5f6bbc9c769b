//! The sections of the page of the cluster.

use std::collections::BTreeMap;

use leasehold::report::page::picture::{Life, Place, picture};
use leasehold::report::page::view::{Tone, at, badge, lines, or_dash, span_of, spread, table};
use leasehold::report::page::{Section, Snapshot};
use maud::{Markup, html};

use super::status::{ClusterStatus, Node, Service};

/// From which part of a pool in use on people should look at it, in percent.
const FULL: u128 = 90;

impl Snapshot for ClusterStatus {
    fn title(&self) -> String {
        "Leasehold".to_owned()
    }

    fn sections(&self) -> Vec<Section> {
        vec![
            Section::new("health", "Health", health(self)),
            Section::new("picture", "Owners of addresses", owners(self)),
            Section::new("trouble", "Services with problems", trouble(self)),
            Section::new("services", "Services", services(self)),
            Section::new("pools", "Pools", pools(self)),
            Section::new("moves", "Last moves", moves(self)),
            Section::new("nodes", "Nodes", nodes(self)),
        ]
    }
}

fn owner_of(service: &Service) -> bool {
    !service.owners.is_empty() && service.owners.iter().all(|owner| owner.node.is_some())
}

fn life(node: &Node) -> Life {
    if node.age.is_none() { Life::NoSpeaker } else { Life::of(node.lives) }
}

fn health(status: &ClusterStatus) -> Markup {
    let speakers = status.nodes.values().filter(|node| node.age.is_some()).count();
    let lives = status.nodes.values().filter(|node| node.lives).count();
    let addresses: usize = status.services.iter().map(|service| service.addresses.len()).sum();
    let announced = status.services.iter().filter(|service| owner_of(service)).count();
    html! {
        dl {
            div { dt { "This operator" } dd { (status.role) } }
            div {
                dt { "Speakers" }
                dd {
                    @if lives == speakers {
                        (badge(Tone::Good, "all running"))
                    } @else {
                        (badge(Tone::Warn, "some missing"))
                    }
                    " " (lives) " of " (speakers) ", on " (status.nodes.len()) " nodes"
                }
            }
            div {
                dt { "Services" }
                dd {
                    @if announced == status.services.len() {
                        (badge(Tone::Good, "all announced"))
                    } @else {
                        (badge(Tone::Bad, "some not announced"))
                    }
                    " " (announced) " of " (status.services.len()) ", " (addresses) " addresses"
                }
            }
            div { dt { "Version" } dd { (status.version) } }
        }
    }
}

fn owners(status: &ClusterStatus) -> Markup {
    let mut nodes: BTreeMap<String, Place> = status
        .nodes
        .iter()
        .map(|(name, node)| {
            let remarks = node.remarks.iter().map(ToString::to_string).collect();
            (name.clone(), Place { life: life(node), remarks, addresses: Vec::new() })
        })
        .collect();
    let mut nobody = Vec::new();
    for service in &status.services {
        for owner in &service.owners {
            let node = owner.node.as_ref().and_then(|node| nodes.get_mut(node.as_str()));
            let place = node.map_or(&mut nobody, |node| &mut node.addresses);
            place
                .extend(owner.addresses.iter().map(|ip| (ip.to_string(), service.service.clone())));
        }
    }
    picture(&nodes, &nobody)
}

fn trouble(status: &ClusterStatus) -> Markup {
    let rows = status.services.iter().filter_map(|service| {
        let why = service.trouble.clone().or_else(|| {
            (!owner_of(service) && !service.addresses.is_empty())
                .then(|| "no node announces the addresses".to_owned())
        })?;
        Some(vec![html! { (service.service) }, lines(&service.addresses), html! { (why) }])
    });
    table("Services with problems", &["Service", "Address", "Cause"], rows.collect())
}

fn services(status: &ClusterStatus) -> Markup {
    let rows = status.services.iter().flat_map(|service| {
        service.owners.iter().map(|owner| {
            vec![
                html! { (service.service) },
                lines(&owner.addresses),
                or_dash(service.pool.as_ref()),
                html! {
                    @if let Some(node) = &owner.node {
                        (node)
                    } @else {
                        (badge(Tone::Bad, "no owner"))
                    }
                    (spread(&owner.shares))
                },
                or_dash(owner.interface.as_ref()),
                owner.since.map_or_else(|| or_dash(None::<&str>), at),
                html! { (owner.cause) },
                or_dash(owner.took.map(span_of)),
            ]
        })
    });
    let headings =
        ["Service", "Address", "Pool", "Node", "Interface", "Since (UTC)", "Cause", "Took"];
    table("Services and the owners of their addresses", &headings, rows.collect())
}

fn pools(status: &ClusterStatus) -> Markup {
    let used = |[assigned, available]: [u128; 2]| {
        let all = assigned.saturating_add(available);
        if all == 0 {
            return or_dash(None::<&str>);
        }
        let percent = assigned.saturating_mul(100) / all;
        html! {
            (assigned) " of " (all) " "
            @if available == 0 {
                (badge(Tone::Bad, "exhausted"))
            } @else if percent >= FULL {
                (badge(Tone::Warn, &format!("{percent} %")))
            }
        }
    };
    let rows = status
        .pools
        .iter()
        .map(|(name, pool)| vec![html! { (name) }, used(pool.ipv4), used(pool.ipv6)]);
    table("Pools", &["Pool", "IPv4 in use", "IPv6 in use"], rows.collect())
}

fn moves(status: &ClusterStatus) -> Markup {
    let rows = status.moves.iter().map(|one| {
        vec![
            at(one.at),
            lines(&one.services),
            html! { (or_dash(one.from.as_ref())) " → " (one.to) },
            html! { (one.cause) },
            or_dash(one.took.map(span_of)),
        ]
    });
    table("Last moves", &["When (UTC)", "Service", "From → to", "Cause", "Took"], rows.collect())
}

fn nodes(status: &ClusterStatus) -> Markup {
    let rows = status.nodes.iter().map(|(name, node)| {
        vec![
            html! { (name) },
            html! {
                (life(node).badge())
                @for remark in &node.remarks { " " (badge(Tone::Warn, remark)) }
            },
            or_dash(node.age.map(|age| span_of(age / 1000 * 1000))),
        ]
    });
    table("Nodes", &["Node", "Speaker", "Last renewal"], rows.collect())
}
