//! The protocol of the election, explored completely.
//!
//! The simulator runs the real core through many random histories; this crate runs a small model of
//! the protocol through *all* of them, for two and three speakers that contend for one address. It
//! says nothing about time and code; it says that the rules themselves leave no gap.
//!
//! ```text
//!   variants / broken ──► check ──► model ──► action   what can happen in a state
//!                                     │  └──► step     what that changes
//!                                     └─────► properties
//!   state = sessions + claims + Service (lease)  speakers (speaker)  writes on their way (request)
//! ```
//!
//! # What is in the model
//!
//! * The store: a session lease per node and one claim lease, or two that can list the same address;
//!   each with uid, number of transitions, and what decides who owns what. A write carries uid and
//!   version and is refused if the lease has changed since.
//! * The way to the store: a write that was sent may arrive at any later time, in any order, after
//!   its sender gave it up, crashed or was fenced; or never. An answer may never come back: then the
//!   sender learns from a read or its watch what became of its write, or does not learn it at all.
//! * The speakers: each goes by its own view of each lease, which is behind the store by any number
//!   of states, each lease by its own. It acquires, renews, repairs and releases its session, fences
//!   others, takes orphans, takes what a silent owner holds, succeeds, takes back, refreshes and
//!   gives up claims. It crashes, and its next process goes by what is stored and by the record that
//!   the former one left.
//! * The kernel, which keeps the address of a speaker that has ended until its lifetime is over, and
//!   drops one that is not served any more at any later time.
//! * The operator, which gives the address to another claim, and people who delete leases or set
//!   their numbers back.
//!
//! # What is left out, and why that is safe
//!
//! * Time, and the evidence from the wire: any speaker may find any other silent at any moment.
//!   Whatever clocks, networks and thresholds do is among that; the properties hold without them.
//! * Eligibility and ranking: whoever may take a claim by its state may take it at any moment.
//! * Versions. All that is ever asked of a version is whether it is still the present one; a write on
//!   its way remembers just that. So any number of renewals makes a finite number of states.
//! * A renewal does not move the views of others: who has seen the lease before it counts as having
//!   seen it after. That only lets more writes succeed.
//! * Answers: who sent a write learns of its success as from any read. A write that can be accepted
//!   no more is forgotten at once.
//! * A speaker acts at once on what it learns where it loses something by it, and whenever it likes
//!   where it gains. Addresses are added at once.
//! * What is set back by hand counts as invalid until its node has put it right: until then a lease
//!   says whatever the person wrote.
//! * Names of nodes: states that differ in them alone count as one.
//! * Two hosts with one name, the restart with grace, provisional owners while there is no store, and
//!   the bounds on how long two nodes may have one address: these are for the simulator.
//!
//! [`rules::Bounds`] says how far a variant goes: how large numbers become, and how many crashes,
//! moves, deletions and edits there are. Within them nothing is sampled: the search ends when there
//! is no state left that it has not seen.

mod action;
pub mod broken;
pub mod check;
mod lease;
mod model;
mod names;
mod properties;
mod request;
pub mod rules;
mod speaker;
mod state;
mod step;
pub mod variants;
