//! What must always hold, and what must be possible.

use stateright::Property;

use crate::lease::Standing;
use crate::model::Protocol;
use crate::names::{ClaimName, Node};
use crate::rules::Rules;
use crate::state::{Breach, State, is_edit};

/// No address has two valid claims.
pub const ONE_CLAIM: &str = "an address has one valid claim";
/// Orphans stay orphans.
pub const NO_REVIVAL: &str = "an orphan becomes valid only by being taken";
/// Valid claims are not stolen.
pub const NO_THEFT: &str =
    "a valid claim changes hands only by fence, release, handover or silence";
/// Fenced speakers stop.
pub const FENCED_STOPS: &str = "nobody holds on under a session that it saw fenced";
/// Fenced speakers remove before they come back.
pub const REMOVE_FIRST: &str = "a fenced speaker removes before it has a new session";
/// A PUT does not create.
pub const NO_RECREATION: &str = "no replacement creates a deleted lease";
/// Knowledge ends disagreement.
pub const INFORMED_AGREE: &str = "who knows everything serves nothing that is another's";
/// Numbers do not fall.
pub const NUMBERS_GROW: &str = "nobody holds a session under a number below one that it held";
/// States follow the table.
pub const BY_TABLE: &str = "the state of a claim changes by the table of transitions";
/// There is life after a fence.
pub const TAKEOVER: &str = "a new owner serves after a fence";

/// All of them.
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_CLAIM, |_, state| has_one_claim(state)),
        Property::always(NO_REVIVAL, |_, state| not(state, Breach::Revived)),
        Property::always(NO_THEFT, |_, state| not(state, Breach::Stolen)),
        Property::always(FENCED_STOPS, |model, state| fenced_stop(&model.rules, state)),
        Property::always(REMOVE_FIRST, |_, state| not(state, Breach::AcquiredBeforeRemoval)),
        Property::always(NO_RECREATION, |_, state| not(state, Breach::Recreated)),
        Property::always(INFORMED_AGREE, |_, state| informed_agree(state)),
        Property::always(NUMBERS_GROW, |_, state| numbers_grow(state)),
        Property::always(BY_TABLE, |_, state| not(state, Breach::Unexpected)),
        Property::sometimes(TAKEOVER, |_, state| is_taken_over(state)),
    ]
}

fn not(state: &State, breach: Breach) -> bool {
    state.breach != Some(breach)
}

fn has_one_claim(state: &State) -> bool {
    ClaimName::ALL.into_iter().filter(|claim| state.address_owner(*claim).is_some()).count() < 2
}

fn fenced_stop(rules: &Rules, state: &State) -> bool {
    Node::ALL.into_iter().all(|node| {
        let own = state.speakers[node].own;
        own.zip(state.known_session(node, node))
            .is_none_or(|(own, known)| known.is_live() || is_edit(rules, own, known))
    })
}

fn informed_agree(state: &State) -> bool {
    Node::ALL.into_iter().filter(|node| state.knows_everything(*node)).all(|node| {
        ClaimName::ALL.into_iter().all(|claim| {
            let others = state.valid_owner(claim).is_some_and(|owner| owner != node);
            !(others && state.speakers[node].tenures[claim].mine)
        })
    })
}

fn numbers_grow(state: &State) -> bool {
    state.speakers.iter().all(|speaker| {
        let (own, held) = (speaker.own, speaker.held);
        own.zip(held).is_none_or(|(own, held)| own.uid != held.uid || own >= held)
    })
}

fn is_taken_over(state: &State) -> bool {
    ClaimName::ALL.into_iter().any(|claim| {
        state.valid_owner(claim).is_some_and(|owner| {
            let me = &state.speakers[owner];
            let fenced = |node: &Node| {
                let session = state.sessions[*node].now();
                session.is_some_and(|stored| stored.record.standing == Standing::Fenced)
            };
            me.has_address && me.tenures[claim].mine && Node::ALL.iter().any(fenced)
        })
    })
}
