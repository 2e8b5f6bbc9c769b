//! A picture of the nodes and the addresses on them.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::view::{Tone, badge};

/// The greatest number of addresses that a node shows; of further ones it shows the number.
const SHOWN: usize = 48;

/// The state of the speaker on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// None ever ran there: it takes no part.
    #[default]
    NoSpeaker,
    /// Its session lives.
    Lives,
    /// Its session is over.
    Gone,
}

impl Life {
    /// Of a session.
    pub const fn of(lives: bool) -> Self {
        if lives { Self::Lives } else { Self::Gone }
    }

    /// A word in a frame.
    pub fn badge(self) -> Markup {
        match self {
            Self::NoSpeaker => html! { span.badge { "no speaker" } },
            Self::Lives => badge(Tone::Good, "live"),
            Self::Gone => badge(Tone::Bad, "gone"),
        }
    }
}

/// A node in the picture.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The state of its speaker.
    pub life: Life,
    /// Further remarks.
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
                    h3 { "No owner" }
                    p { (badge(Tone::Bad, "not announced")) }
                    (chips(nobody))
                }
            }
        }
    }
}

fn node(name: &str, place: &Place) -> Markup {
    let class = if place.life == Life::Lives { "node" } else { "node gone" };
    let count = place.addresses.len();
    html! {
        li class=(class) data-key={ "node " (name) } {
            h3 { (name) }
            p {
                (place.life.badge())
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
