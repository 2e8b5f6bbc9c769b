//! The simulator of Leasehold: the real election cores and listeners of several nodes, with an API
//! server, segments and kernels on virtual time.
//!
//! ```text
//!  seed ──► chaos: what goes wrong, and when ─┐
//!  directed: one scenario each ───────────────┴─► world ──► laws, after every step
//! ```
//!
//! | module | what |
//! |---|---|
//! | `world` | hosts, their kernels and clocks, the API server, the segments, the laws |
//! | `directed` | one run for each rule and for each attack that broke an earlier protocol |
//! | `chaos` | runs that a seed stands for |
//! | `campaign` | many seeds, on all cores |
//! | `agenda` | what happens next |
//! | `fingerprint` | a number for all that is decided in a run |
//! | `diagrams` | sequence diagrams of the book, from recorded runs |
//! | `dice` | the only source of chance |
//! | `scale` | clusters of thousands of nodes and services, and the loss of a rack |
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a simulator is a test: what is not as it should be ends the run"
)]

mod agenda;
mod campaign;
mod chaos;
pub mod diagrams;
mod dice;
mod directed;
mod fingerprint;
pub mod scale;
mod world;

pub use campaign::{Broken, Seeds, Tally, campaign, on_threads, one, quietly, replay};
pub use chaos::Kind;
pub use directed::{Run, all as directed};
pub use fingerprint::fingerprint;
pub use world::words::tell;
