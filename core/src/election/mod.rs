//! The election core: who owns which addresses.
//!
//! It does no I/O and reads no clock: [`Election::handle`] takes an [`Event`] and the time, and
//! returns [`Action`]s; [`Election::next_deadline`] says when it wants to be called again at the
//! latest. The same events at the same times lead to the same actions.
//!
//! ```text
//!                         engine: takes events, and lets the rooms decide in turn
//!     ┌───────────┬───────────┬────────┴──┬───────────┬───────────┐
//!  output      session     outage       wire      transfer      claim
//!  what is     renewal,    without the  probes,   planned       take, hold,
//!  served      expiry,     API server   disputes  moves         release
//!  and kept    fences
//!     └───────────┴───────────┴────────┬──┴───────────┴───────────┘
//!                         context: facts, and questions about them
//!             placement (pure)   store: Leases as known   io: events and actions
//! ```
//!
//! Each room is a struct whose fields no other room sees. A room is passed those below it, and the context, by
//! the engine: a signature says what a function may touch. What a room says to one above it is a value that it
//! returns, or a fact in the context. `state` is the lowest part of a room, without its behavior: a fact of the
//! context may be such a state, as the own session is.
//!
//! | room | content |
//! |---|---|
//! | `engine` | the order in which the rooms decide; events, frames, passes over the claims, questions of the speaker |
//! | `output` | the addresses to serve, the record for the next process, the end of the process |
//! | `session` | the own session: acquire, renew, lose, release; expiry of the sessions of others, and their fences |
//! | `outage` | provisional ownership while the API server does not answer |
//! | `wire` | suspicion of owners that do not answer, disputes with others, previous owners, the watchlist |
//! | `forwarding` | connections that outlive a move: to which former owner unknown packets are forwarded |
//! | `spread` | addresses whose packets are spread over nodes: the node of each bucket, and the nodes before |
//! | `transfer` | handover, rebalancing, and which claims need no further look |
//! | `claim` | the claims: acquire, hold, release, probe; claims without an owner, and whose turn it is |
//! | `context` | configuration, stored Leases, interfaces, kernel, requests; questions that need nothing else |
//! | `placement` | pure: ranking of nodes, eligibility, the interface that carries a claim |
//! | `store` | Leases as this node knows them |
//! | `io` | types that go in and out |
//!
//! The test `architecture` has the table of which room may import which.

mod claim;
mod context;
mod engine;
mod forwarding;
mod io;
mod outage;
mod output;
mod placement;
mod session;
mod spread;
mod store;
mod transfer;
mod wire;

pub use context::segments::share_a_subnet;
pub use context::session_reads::UNSTEADY;
pub use engine::Election;
pub use engine::view::{ClaimView, Remark, SpeakerView};
pub use io::checkpoint::{HeldClaim, OwnRecord};
pub use io::claim_state::ClaimState;
pub use io::config::Config;
pub use io::data_path::DataPathView;
pub use io::event::{
    Action, Answer, Change, Event, Fact, Follower, Frame, Heard, HeardFrame, Interface, RequestId,
    Target, Write,
};
pub use io::forwarding::{Forwarding, Hop, Onward, OpenConnections};
pub use io::probes::{Ownership, Silence, Voice, VoiceId, Voices, Watched, Watchlist};
pub use io::proxy::{ProxyHealth, ProxyView, Rules, RulesQuestion, RulesWatch};
pub use io::serving::{Attachment, KernelAddress, KernelView, ServedVip, Serving};
pub use io::spreading::{
    BUCKETS, DEPTH, Layout, Member, Order, SpreadAddress, Spreading, Trial, Unknown, Way,
};
pub use io::transition::{Cause, OwnerId, Story};
pub use placement::eligibility::{Bar, answers, bar, carries, prefer_answering};
pub use placement::interface::{Carried, has_subnet_of};
pub use placement::rank::{Held, Late, Turn, Unowned, next_move, rank, turns, weight};
pub use session::state::own::LEAST_LEASE;
pub use spread::table::shares;
