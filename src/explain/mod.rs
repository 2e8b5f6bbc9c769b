//! Why each address is where it is, or nowhere: a pure function of the cluster's objects, for people.
//!
//! ```text
//! Objects ──► World ──► View ──► explain()   one Service: policy, owner, each node's verdict
//!  as listed   facts     rules ├► simulate()  who takes what when nodes die
//! ```
//!
//! It decides nothing and has no rules of its own: who may hold a claim says [`desired`](crate::desired),
//! who takes it [`lease`](crate::lease).
//!
//! | module | what |
//! |---|---|
//! | `world` | what is known of a cluster |
//! | `view` | what follows: owners, candidates, rankings |
//! | `story` | one Service, explained |
//! | `words` | obstacles, and lists of them, in words |
//! | `nobody` | why nobody owns a claim, in one sentence |
//! | `simulate` | nodes that die |

mod nobody;
mod simulate;
mod story;
#[cfg(test)]
mod tests;
mod view;
mod words;
mod world;

pub use nobody::nobody;
pub use simulate::{Load, Move, Simulation, simulate};
pub use story::{
    ClaimStory, Governed, NodeStory, Ownership, State, Story, Verdict, explain, outline,
};
pub use view::{Obstacle, View};
pub use words::{answer, first_of, keeps, no_answer, obstacle, state_of, unanswered, unreadable};
pub use world::{ClaimRow, OTHER_WRITER, Objects, ServiceRow, SessionRow, World};
