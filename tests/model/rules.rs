//! The rules of the protocol that the model can break, and how far it goes.

/// The rules. In the protocol all are kept; each can be broken to see that the check would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one rule, and any can be broken")]
pub struct Rules {
    /// A PUT carries the version that it rests on.
    pub version_precondition: bool,
    /// A PUT carries the uid that it rests on: without it, it creates a lease that was deleted.
    pub uid_precondition: bool,
    /// Ending the own session and beginning a new one each add one to its transitions. (Each alone
    /// would do.)
    pub sessions_add_one: bool,
    /// Fencing a session adds one to its transitions.
    pub fences_add_one: bool,
    /// A fence says that it is one: it is not taken for an edit, whatever the number.
    pub fences_are_named: bool,
    /// Only a claim whose owner's session has ended is taken as an orphan.
    pub fence_before_take: bool,
    /// A claim under a session that this speaker does not know to be over is not an orphan: its
    /// watch of the sessions may be behind that of the claims.
    pub orphans_are_confirmed: bool,
    /// Who sees that it was fenced holds nothing any more.
    pub a_fence_is_obeyed: bool,
    /// Who sees that another owns its claim holds it no longer.
    pub a_taken_claim_is_yielded: bool,
    /// A session is begun only when no address of a former one is left.
    pub remove_before_acquire: bool,
    /// A number of transitions below one that was seen is an edit.
    pub numbers_never_fall: bool,
    /// A lease that was deleted and created anew may have a lower number.
    pub numbers_belong_to_a_lease: bool,
    /// Only the operator puts the address on a claim's list or takes it off, by replacing the lease.
    /// Otherwise an address that changes its claim while a speaker's view of the Services is old has two
    /// owners until that view is current.
    pub only_the_operator_lists: bool,
    /// What a restarted speaker remembers of its session counts among the numbers it has seen.
    pub numbers_outlive_a_restart: bool,
}

impl Rules {
    /// All kept.
    pub const KEPT: Self = Self {
        version_precondition: true,
        uid_precondition: true,
        sessions_add_one: true,
        fences_add_one: true,
        fences_are_named: true,
        fence_before_take: true,
        orphans_are_confirmed: true,
        a_fence_is_obeyed: true,
        a_taken_claim_is_yielded: true,
        remove_before_acquire: true,
        numbers_never_fall: true,
        numbers_belong_to_a_lease: true,
        only_the_operator_lists: true,
        numbers_outlive_a_restart: true,
    };
}

/// How far the model goes. Within these bounds it goes everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many speakers there are: 2 or 3.
    pub speakers: usize,
    /// How many claims list the address: 1 or 2.
    pub claims: usize,
    /// The greatest number that a session reaches.
    pub session_transitions: u8,
    /// The greatest number that a claim reaches.
    pub claim_transitions: u8,
    /// How many unanswered or late writes one speaker can have for each kind of lease.
    pub in_flight: usize,
    /// Sessions are renewed and claims refreshed.
    pub renewals: bool,
    /// Claims may be taken from owners that do not answer and are not fenced.
    pub forsaken: bool,
    /// Speakers may give up claims and sessions.
    pub releases: bool,
    /// How often the operator gives the address to the other claim.
    pub reassignments: u8,
    /// How many planned moves begin.
    pub moves: u8,
    /// How many speakers crash.
    pub crashes: u8,
    /// How many leases are deleted by hand.
    pub deletions: u8,
    /// How many leases are edited by hand.
    pub edits: u8,
}
