//! Explanations of ownership, as a pure function of the cluster's objects.
//!
//! ```text
//! Objects ──► World ──► View ──► explain()   one Service: policy, owner, each node's verdict
//!  as listed   facts     rules └► simulate()  the owners after nodes die
//! ```
//!
//! It decides nothing and has no rules of its own: [`desired`](crate::desired) says which nodes may hold a claim,
//! [`election`](crate::election) which of them takes it.
//!
//! | module | what |
//! |---|---|
//! | `world` | the objects of a cluster, parsed |
//! | `view` | what follows from them: owners, candidates, rankings |
//! | `story` | one Service, explained |
//! | `verdict` | owner, candidate, or the obstacle |
//! | `share` | the shares of nodes in the clients of a claim that is spread |
//! | `words` | obstacles, shares, and lists of them, in words |
//! | `nobody` | why a claim has no owner, in one sentence |
//! | `spread` | the nodes that packets are not spread over |
//! | `simulate` | the failure of nodes |

mod nobody;
mod share;
mod simulate;
mod spread;
mod story;
#[cfg(test)]
mod tests;
mod verdict;
mod view;
mod words;
mod world;

pub use nobody::nobody;
pub use share::Share;
pub use simulate::{Load, Move, Simulation, simulate};
pub use spread::all_left_out;
pub use story::{ClaimStory, Governed, NodeStory, Ownership, State, Story, explain, outline};
pub use verdict::Verdict;
pub use view::{Obstacle, View};
pub use words::{
    answer, data_path, first_of, keeps, no_answer, obstacle, shares, state_of, unanswered,
    unreadable,
};
pub use world::{ClaimRow, OTHER_WRITER, Objects, ServiceRow, SessionRow, World};
