//! The states of a claim at one node, and the transitions between them.
//!
//! ```text
//!  Foreign ◄──► Unowned ──► Preparing ──► Serving ◄──► HandingOver ──► Yielding ──► Foreign
//!                  │            ▲            │
//!                  │            └────────── Releasing ──► Foreign, Unowned
//!                  ▼
//!          ProvisionalProbe ──► Provisional ──► Serving, Foreign, Unowned
//! ```
//!
//! The figure has the usual transitions; [`ClaimState::may_become`] has all, each with its reason.

use std::fmt;

/// The state of a claim at this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimState {
    /// Another node owns the claim, or no Service asks for it.
    #[default]
    Foreign,
    /// The claim has no valid owner, and this node knows its rank among the candidates.
    Unowned,
    /// This node owns the claim and does not serve it yet: it probes for the addresses, or waits for the rules of
    /// kube-proxy.
    Preparing,
    /// This node owns the claim and serves it.
    Serving,
    /// This node owns the claim and serves it, and hands it over to a successor.
    HandingOver,
    /// This node owns the claim and gives it up: it removes the addresses, then it releases the Lease.
    Releasing,
    /// The successor owns the claim, and this node serves it until the successor announces the addresses.
    Yielding,
    /// The API server is unavailable, and this node probes for the addresses of an owner that does not answer.
    ProvisionalProbe,
    /// This node serves the claim although the Lease names another owner.
    Provisional,
}

impl ClaimState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Foreign,
        Self::Unowned,
        Self::Preparing,
        Self::Serving,
        Self::HandingOver,
        Self::Releasing,
        Self::Yielding,
        Self::ProvisionalProbe,
        Self::Provisional,
    ];

    /// Whether this node owns the claim.
    #[must_use]
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Preparing | Self::Serving | Self::HandingOver | Self::Releasing)
    }

    /// The table of transitions: the states that may follow this one.
    ///
    /// A pass compares the state three times: at its beginning, after it has settled who owns the claim, and after it
    /// has decided what to do about it. So a transition has few causes.
    #[must_use]
    pub const fn successors(self) -> &'static [Self] {
        use ClaimState::{
            Foreign, HandingOver, Preparing, Provisional, ProvisionalProbe, Releasing, Serving,
            Unowned, Yielding,
        };
        match self {
            // The owner released it or was fenced; without the API server, this node may be the first in the rank at
            // once. Or this node took it as the named successor, goes on with what its former process owned, or
            // gives up what an edit has made its own again.
            Foreign => &[Unowned, ProvisionalProbe, Serving, Releasing],
            // Another node took it, or this node did; what was vacant is probed for. Without the API server this
            // node probes for what the owner does not answer for.
            Unowned => &[Foreign, Preparing, Serving, Releasing, ProvisionalProbe],
            // No other host answered and the rules are there; or another host answered. While it waits for rules it
            // may be handed over. The session ended.
            Preparing => &[Serving, HandingOver, Yielding, Releasing, Foreign],
            // A move, an obstacle, the end of the session. What had lapsed is probed for again.
            Serving => &[HandingOver, Releasing, Preparing, Foreign],
            // The successor took it or did not; an obstacle; the end of the session, or of the probes for what had
            // lapsed.
            HandingOver => &[Yielding, Serving, Releasing, Preparing, Foreign],
            // It was released, or its named successor took it, or the reason has ended: without the API server
            // this node probes first, as another may serve it.
            Releasing => &[Foreign, Yielding, Preparing, Serving, HandingOver],
            // The successor announced it, or failed and this node took it back, or has no session any more while
            // this node cannot serve it.
            Yielding => &[Foreign, Serving, Unowned],
            // No host answered, or one did; or the API server is back, and this node has become the owner.
            ProvisionalProbe => &[Provisional, Unowned, Foreign, Preparing],
            // The API server is back: this node becomes the owner, or another one is. What had lapsed is probed for
            // again.
            Provisional => &[Serving, Preparing, Foreign, Unowned, ProvisionalProbe],
        }
    }

    /// Whether a claim in this state may be in state `next` at the next comparison.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        self == next || self.successors().contains(&next)
    }
}

impl fmt::Display for ClaimState {
    /// Lower-case words: `handing over`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "foreign",
            Self::Unowned => "unowned",
            Self::Preparing => "preparing",
            Self::Serving => "serving",
            Self::HandingOver => "handing over",
            Self::Releasing => "releasing",
            Self::Yielding => "yielding",
            Self::ProvisionalProbe => "probing provisionally",
            Self::Provisional => "provisional",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ClaimState;

    /// Without a write to the Lease no state in which another node owns the claim leads to one in which this node
    /// answers for it, except through the probes of an outage.
    #[test]
    fn nothing_is_served_provisionally_without_a_probe() {
        for state in ClaimState::ALL {
            let direct =
                state.may_become(ClaimState::Provisional) && state != ClaimState::Provisional;
            assert_eq!(direct, state == ClaimState::ProvisionalProbe, "{state}");
        }
    }

    #[test]
    fn only_an_owner_yields() {
        for state in ClaimState::ALL {
            if state.may_become(ClaimState::Yielding) && state != ClaimState::Yielding {
                assert!(state.is_owned(), "{state}");
            }
        }
    }

    #[test]
    fn every_state_is_reached_and_left() {
        for state in ClaimState::ALL {
            assert!(!state.successors().is_empty(), "{state}");
            assert!(!state.successors().contains(&state), "{state}");
            assert!(ClaimState::ALL.iter().any(|it| it.successors().contains(&state)), "{state}");
        }
    }
}
