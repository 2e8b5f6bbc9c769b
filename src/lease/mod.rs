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
//!
//! | module | what |
//! |---|---|
//! | `event` | what goes in and comes out |
//! | `election` | the state, and the order in which its parts decide |
//! | `requests` | what was asked of the API server and is not answered yet |
//! | `publish` | what comes out for the kernel and the next process |
//! | `cache` | leases as this node knows them |
//! | `session` | acquiring, renewing, losing the own session |
//! | `own_session` | what this process knows of it |
//! | `ending` | the end of the process: restart or departure |
//! | `peers` | the lease path: fencing sessions that are not renewed |
//! | `listening` | to which owners this node listens |
//! | `unlisted` | links that a session lists no longer |
//! | `silence` | the wire path: fencing owners that fell silent |
//! | `lapsed` | … what a node that answers has let lapse, while the API server is gone |
//! | `provisional` | taking over while the API server is gone |
//! | `claims` | a pass over the claims: settling, holding, releasing |
//! | `leaving` | giving claims up, and keeping what was to be given up after all |
//! | `tenure` | what this node knows and does about one claim |
//! | `validity` | who owns a claim |
//! | `taking` | taking a claim |
//! | `listed` | what claims list, and which of it is served here |
//! | `open` | which claims a pass looks at |
//! | `waiting` | which it need not look at before their time |
//! | `orphans` | claims without an owner, and whose turn it is |
//! | `joining` | speakers that have just joined wait for others before they give out what nobody has |
//! | `candidate` | whether a node may take a claim, as far as everybody can tell |
//! | `candidates` | the same for many claims at once |
//! | `segment` | which interface of a node is to carry a claim |
//! | `eligible` | whether this node can serve a claim |
//! | `carrier` | the interface that carries a claim while this node owns it |
//! | `readiness` | a node that is not ready for long |
//! | `proxy` | a node whose kube-proxy is silent or late |
//! | `refresh` | the turn of refreshes |
//! | `place` | who takes which orphan, and what goes to a better node |
//! | `improve` | moving it there, one claim after another |
//! | `handover` | planned moves |
//! | `conflict` | probes before the first add, foreign announcements |
//! | `yielded` | what another speaker announced while the API does not say whose it is |
//! | `speakers` | whose MAC addresses are whose |
//! | `old_owners` | asking those from whom claims were taken, by whomever, until they know |
//! | `story` | what is told of a change of ownership, and how long it took |
//! | `by_hand` | what people ask for by annotations of leases |
//! | `overview` | what the core knows, for people |
//! | `serving` | what the kernel is to hold |
//! | `voices` | what the wire is asked about owners, and what it says |
//! | `record` | what one process leaves for the next |

mod by_hand;
mod cache;
mod candidate;
mod candidates;
mod carrier;
mod claims;
mod conflict;
mod election;
mod eligible;
mod ending;
mod event;
mod handover;
mod improve;
mod joining;
mod lapsed;
mod leaving;
mod listed;
mod listening;
mod old_owners;
mod open;
mod orphans;
mod overview;
mod own_session;
mod peers;
mod place;
mod provisional;
mod proxy;
mod publish;
mod readiness;
mod record;
mod refresh;
mod requests;
mod segment;
mod serving;
mod session;
mod silence;
mod speakers;
mod story;
mod taking;
mod tenure;
mod unlisted;
mod validity;
mod voices;
mod waiting;
mod yielded;

pub use candidate::{Bar, answers, bar, carries, prefer_answering};
pub use election::{Config, Election};
pub use event::{
    Action, Answer, Change, Event, Fact, Follower, Frame, Heard, HeardFrame, Interface, RequestId,
    Target, Write,
};
pub use overview::{ClaimView, Remark, SpeakerView};
pub use own_session::LEAST_LEASE;
pub use peers::UNSTEADY;
pub use place::{Held, Late, Orphan, Turn, next_move, rank, turns, weight};
pub use proxy::{ProxyHealth, ProxyView, Rules, RulesQuestion, RulesWatch};
pub use record::{HeldClaim, OwnRecord};
pub use segment::{Carried, has_subnet_of};
pub use serving::{KernelAddress, KernelView, ServedVip, Serving};
pub use story::{Cause, OwnerId, Story};
pub use voices::{Ownership, Silence, Voice, VoiceId, Voices, Watched, Watchlist};
