//! The protocol with one rule broken, to see that the check notices each.

use crate::properties::{
    FENCED_STOPS, INFORMED_AGREE, NO_RECREATION, NO_REVIVAL, NO_THEFT, NUMBERS_GROW, ONE_CLAIM,
    REMOVE_FIRST,
};
use crate::rules::{Bounds, Rules};
use crate::variants::{FENCES, REASSIGNED};

/// A broken rule, and what it leads to.
#[derive(Clone, Copy, Debug)]
pub struct BrokenRule {
    /// Which one, as in [`Rules`].
    pub name: &'static str,
    /// The rules without it.
    pub rules: Rules,
    /// Where it shows.
    pub bounds: Bounds,
    /// The property that does not hold any more.
    pub breaks: &'static str,
}

/// Each rule, broken.
pub const BROKEN: [BrokenRule; 14] = [
    BrokenRule {
        name: "version_precondition",
        rules: Rules { version_precondition: false, ..Rules::KEPT },
        bounds: Bounds { renewals: true, ..FENCES },
        breaks: NO_REVIVAL,
    },
    BrokenRule {
        name: "uid_precondition",
        rules: Rules { uid_precondition: false, ..Rules::KEPT },
        bounds: Bounds { deletions: 1, ..FENCES },
        breaks: NO_RECREATION,
    },
    BrokenRule {
        name: "sessions_add_one",
        rules: Rules { sessions_add_one: false, ..Rules::KEPT },
        bounds: Bounds { releases: true, ..FENCES },
        breaks: NO_REVIVAL,
    },
    BrokenRule {
        name: "fences_add_one",
        // Where a fence is known by its number alone.
        rules: Rules { fences_add_one: false, fences_are_named: false, ..Rules::KEPT },
        bounds: FENCES,
        breaks: REMOVE_FIRST,
    },
    BrokenRule {
        name: "fences_are_named",
        rules: Rules { fences_are_named: false, ..Rules::KEPT },
        bounds: Bounds { session_transitions: 4, edits: 1, ..FENCES },
        breaks: REMOVE_FIRST,
    },
    BrokenRule {
        name: "fence_before_take",
        rules: Rules { fence_before_take: false, ..Rules::KEPT },
        bounds: FENCES,
        breaks: NO_THEFT,
    },
    BrokenRule {
        name: "orphans_are_confirmed",
        rules: Rules { orphans_are_confirmed: false, ..Rules::KEPT },
        bounds: FENCES,
        breaks: NO_THEFT,
    },
    BrokenRule {
        name: "a_fence_is_obeyed",
        rules: Rules { a_fence_is_obeyed: false, ..Rules::KEPT },
        bounds: FENCES,
        breaks: FENCED_STOPS,
    },
    BrokenRule {
        name: "a_taken_claim_is_yielded",
        rules: Rules { a_taken_claim_is_yielded: false, ..Rules::KEPT },
        bounds: Bounds { forsaken: true, ..FENCES },
        breaks: INFORMED_AGREE,
    },
    BrokenRule {
        name: "remove_before_acquire",
        rules: Rules { remove_before_acquire: false, ..Rules::KEPT },
        bounds: FENCES,
        breaks: REMOVE_FIRST,
    },
    BrokenRule {
        name: "numbers_never_fall",
        rules: Rules { numbers_never_fall: false, ..Rules::KEPT },
        bounds: Bounds { edits: 1, ..FENCES },
        breaks: NUMBERS_GROW,
    },
    BrokenRule {
        name: "numbers_outlive_a_restart",
        rules: Rules { numbers_outlive_a_restart: false, ..Rules::KEPT },
        bounds: Bounds { edits: 1, crashes: 1, ..FENCES },
        breaks: NUMBERS_GROW,
    },
    BrokenRule {
        name: "numbers_belong_to_a_lease",
        rules: Rules { numbers_belong_to_a_lease: false, ..Rules::KEPT },
        bounds: Bounds { deletions: 1, crashes: 2, ..FENCES },
        breaks: NO_THEFT,
    },
    BrokenRule {
        name: "only_the_operator_lists",
        rules: Rules { only_the_operator_lists: false, ..Rules::KEPT },
        bounds: REASSIGNED,
        breaks: ONE_CLAIM,
    },
];
