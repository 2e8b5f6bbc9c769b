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
    "a read is answered",
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
}

const PLAIN: Bounds = Bounds {
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


/// Those of so many speakers.
pub fn variants(speakers: usize) -> Vec<Variant> {
    let plain = Bounds { speakers, ..PLAIN };
    vec![
        Variant { name: "fences", bounds: Bounds { ..plain } },
        Variant { name: "fences deep", bounds: Bounds { session_transitions: 5, claim_transitions: 5, ..plain } },
        Variant { name: "renewals", bounds: Bounds { renewals: true, ..plain } },
        Variant { name: "forsaken", bounds: Bounds { forsaken: true, ..plain } },
        Variant { name: "releases", bounds: Bounds { releases: true, ..plain } },
        Variant { name: "moves", bounds: Bounds { moves: 1, ..plain } },
        Variant { name: "crashes", bounds: Bounds { crashes: 1, ..plain } },
        Variant { name: "deletions", bounds: Bounds { deletions: 1, ..plain } },
        Variant { name: "edits", bounds: Bounds { edits: 1, ..plain } },
        Variant { name: "edits + crashes", bounds: Bounds { edits: 1, crashes: 1, ..plain } },
        Variant { name: "two claims", bounds: Bounds { claims: 2, claim_transitions: 2, reassignments: 1, ..plain } },
        Variant { name: "2a", bounds: Bounds { claims: 2, session_transitions: 1, claim_transitions: 3, releases: true, reassignments: 1, ..plain } },
        Variant { name: "2b", bounds: Bounds { claims: 2, session_transitions: 2, claim_transitions: 2, releases: true, reassignments: 1, ..plain } },
        Variant { name: "two claims twice", bounds: Bounds { claims: 2, reassignments: 2, ..plain } },
        Variant { name: "2 in flight", bounds: Bounds { in_flight: 2, ..plain } },
    ]
}
