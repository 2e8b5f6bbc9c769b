//! The host: identity, lock, and the state that outlives the process.
//!
//! | module | what |
//! |---|---|
//! | `identity` | the id of the host and its boot; capabilities of the process |
//! | `lock` | the lock against a second speaker |
//! | `state` | the state folder |
//! | `recorder` | the task that writes the record for the next process |
//! | `error` | reasons for which the host cannot be used |

mod error;
mod identity;
mod lock;
mod recorder;
mod state;

pub use error::HostError;
pub use identity::{check_capabilities, incarnation};
pub use lock::{HostLock, lock};
pub use recorder::Recorder;
pub use state::StateFolder;
