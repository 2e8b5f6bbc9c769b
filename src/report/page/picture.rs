//! A picture of the nodes and the addresses on them.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::view::{Tone, badge};

/// How many addresses a node shows; of more it says how many.
const SHOWN: usize = 48;

/// A node in the picture.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Whether its speaker lives.
    pub lives: bool,
    /// What else is to be known of it.
    pub remarks: Vec<String>,
    /// Its addresses, each with what it is for.
    pub addresses: Vec<(String, String)>,
}

/// The picture: the nodes by name, and the addresses that nobody has.
pub fn picture(nodes: &BTreeMap<String, Place>, nobody: &[(String, String)]) -> Markup {
    html! {
        ol.nodes {
            @for (name, place) in nodes { (node(name, place)) }
            @if !nobody.is_empty() {
                li.node.nobody data-key="nobody" {
                    h3 { "Nobody" }
                    p { (badge(Tone::Bad, "no owner")) }
                    (chips(nobody))
                }
            }
        }
    }
}

fn node(name: &str, place: &Place) -> Markup {
    let class = if place.lives { "node" } else { "node gone" };
    let (tone, word) = if place.lives { (Tone::Good, "lives") } else { (Tone::Bad, "gone") };
    let count = place.addresses.len();
    html! {
        li class=(class) data-key={ "node " (name) } {
            h3 { (name) }
            p {
                (badge(tone, word))
                @for remark in &place.remarks { " " (badge(Tone::Warn, remark)) }
                " " span.count { (count) @if count == 1 { " address" } @else { " addresses" } }
            }
            (chips(&place.addresses))
        }
    }
}

fn chips(addresses: &[(String, String)]) -> Markup {
    let more = addresses.len().saturating_sub(SHOWN);
    html! {
        ul.chips {
            @for (address, what) in addresses.iter().take(SHOWN) {
                li.chip data-key=(address) { b { (address) } " " small { (what) } }
            }
            @if more > 0 { li.more { "and " (more) " more" } }
        }
    }
}
