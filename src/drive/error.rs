//! Errors that end the speaker.

use crate::detect::listener::ListenerError;
use crate::net::edge::EdgeError;

/// An end of the speaker that was not requested.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The kernel edge ended.
    #[error("the connection to the kernel has ended")]
    Edge(#[from] EdgeError),
    /// The listener ended.
    #[error("nobody listens to the owners any more")]
    Listener(#[from] ListenerError),
    /// An essential task ended.
    #[error("the task `{0}` has ended")]
    Task(&'static str),
}
