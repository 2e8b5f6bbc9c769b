//! The election core: who owns which addresses.
//!
//! It does no I/O and reads no clock: [`Election::handle`] takes an [`Event`] and the time, and
//! returns [`Action`]s; [`Election::next_deadline`] says when it wants to be called again at the
//! latest. The same events at the same times lead to the same actions.
//!
//! ```text
//!  Event ──► cache: leases as known ─► session: our own  ─► claims: take, hold, release ─► Serving
//!                                     ├► peers: fence     ├► handover: planned moves
//!                                     └► silence: fence   ├► conflict: what the wire says
//!                                                         └► provisional: without the API server
//! ```

mod claim;
mod context;
mod engine;
mod io;
mod outage;
mod output;
mod placement;
mod session;
mod store;
mod transfer;
mod wire;

pub use context::session_reads::UNSTEADY;
pub use engine::Election;
pub use engine::view::{ClaimView, Remark, SpeakerView};
pub use io::checkpoint::{HeldClaim, OwnRecord};
pub use io::config::Config;
pub use io::event::{
    Action, Answer, Change, Event, Fact, Follower, Frame, Heard, HeardFrame, Interface, RequestId,
    Target, Write,
};
pub use io::probes::{Ownership, Silence, Voice, VoiceId, Voices, Watched, Watchlist};
pub use io::proxy::{ProxyHealth, ProxyView, Rules, RulesQuestion, RulesWatch};
pub use io::serving::{KernelAddress, KernelView, ServedVip, Serving};
pub use io::transition::{Cause, OwnerId, Story};
pub use placement::eligibility::{Bar, answers, bar, carries, prefer_answering};
pub use placement::interface::{Carried, has_subnet_of};
pub use placement::rank::{Held, Late, Orphan, Turn, next_move, rank, turns, weight};
pub use session::state::own::LEAST_LEASE;
