//! Which corners of the protocol are explored, and how far.

use crate::rules::Bounds;

/// Everything that can happen.
pub const HAPPENINGS: [&str; 30] = [
    "a write is sent",
    "session renewed",
    "session acquired",
    "session repaired",
    "session released",
    "session fenced",
    "orphan taken",
    "forsaken claim taken",
    "claim taken by its successor",
    "claim taken back",
    "claim retaken",
    "claim refreshed",
    "successor named",
    "claim released",
    "a write is lost",
    "the watch delivers",
    "the newest is known",
    "session adopted",
    "claim to be given up",
    "release answered",
    "planned move over",
    "address removed",
    "address lapsed",
    "speaker crashed",
    "speaker started",
    "address taken off a list",
    "other claim recorded",
    "address listed",
    "lease deleted by hand",
    "lease edited by hand",
];

/// One corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What is special about it.
    pub name: &'static str,
    /// How far it goes.
    pub bounds: Bounds,
    /// It takes seconds, not minutes.
    pub quick: bool,
}

/// Fences, new sessions and taken orphans, each twice.
pub const FENCES: Bounds = Bounds {
    speakers: 2,
    claims: 1,
    session_transitions: 3,
    claim_transitions: 3,
    in_flight: 1,
    renewals: false,
    forsaken: false,
    releases: false,
    reassignments: 0,
    moves: 0,
    crashes: 0,
    deletions: 0,
    edits: 0,
};
/// Two claims for one address, where the first is given up and not fenced.
pub const REASSIGNED: Bounds =
    Bounds { claims: 2, session_transitions: 1, releases: true, reassignments: 1, ..FENCES };

const fn quick(name: &'static str, bounds: Bounds) -> Variant {
    Variant { name, bounds, quick: true }
}

const fn thorough(name: &'static str, bounds: Bounds) -> Variant {
    Variant { name, bounds, quick: false }
}

/// Those of two speakers.
pub const TWO_SPEAKERS: [Variant; 21] = [
    quick("fences", FENCES),
    quick(
        "fences, again and again",
        Bounds { session_transitions: 5, claim_transitions: 5, ..FENCES },
    ),
    quick("renewals", Bounds { renewals: true, ..FENCES }),
    quick("late writes", Bounds { renewals: true, in_flight: 2, ..FENCES }),
    quick("silent owners", Bounds { forsaken: true, ..FENCES }),
    quick("releases", Bounds { releases: true, ..FENCES }),
    quick("a planned move", Bounds { moves: 1, ..FENCES }),
    quick("a crash", Bounds { crashes: 1, ..FENCES }),
    quick("a lease deleted", Bounds { deletions: 1, ..FENCES }),
    quick("a lease edited", Bounds { edits: 1, ..FENCES }),
    quick("a lease edited, a crash", Bounds { edits: 1, crashes: 1, ..FENCES }),
    quick("the address changes its claim", REASSIGNED),
    thorough(
        "the address changes its claim, fences",
        Bounds { claims: 2, claim_transitions: 2, reassignments: 1, ..FENCES },
    ),
    thorough(
        "the address changes its claim, a lease deleted",
        Bounds { deletions: 1, ..REASSIGNED },
    ),
    thorough("two planned moves, silent owners", Bounds { moves: 2, forsaken: true, ..FENCES }),
    thorough(
        "a lease deleted and one edited",
        Bounds { claim_transitions: 2, deletions: 1, edits: 1, ..FENCES },
    ),
    thorough(
        "two leases edited, a crash",
        Bounds { claim_transitions: 2, edits: 2, crashes: 1, ..FENCES },
    ),
    thorough("a lease deleted, a planned move", Bounds { deletions: 1, moves: 1, ..FENCES }),
    thorough(
        "late writes, silent owners, a crash",
        Bounds { renewals: true, forsaken: true, in_flight: 2, crashes: 1, ..FENCES },
    ),
    thorough("a lease deleted, two crashes", Bounds { deletions: 1, crashes: 2, ..FENCES }),
    thorough(
        "everything but edits",
        Bounds {
            session_transitions: 2,
            renewals: true,
            forsaken: true,
            releases: true,
            moves: 1,
            crashes: 1,
            ..FENCES
        },
    ),
];

const THREE: Bounds =
    Bounds { speakers: 3, session_transitions: 2, claim_transitions: 2, ..FENCES };

/// Those of three speakers.
pub const THREE_SPEAKERS: [Variant; 8] = [
    thorough("fences", THREE),
    thorough("fences, one comes back", Bounds { session_transitions: 3, ..THREE }),
    thorough("silent owners", Bounds { forsaken: true, ..THREE }),
    thorough("a planned move", Bounds { moves: 1, claim_transitions: 3, ..THREE }),
    thorough("a crash", Bounds { crashes: 1, ..THREE }),
    thorough("a lease deleted", Bounds { deletions: 1, ..THREE }),
    thorough("releases", Bounds { releases: true, ..THREE }),
    thorough(
        "the address changes its claim",
        Bounds { speakers: 3, claim_transitions: 2, ..REASSIGNED },
    ),
];
