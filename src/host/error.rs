//! Errors of the host.

use std::path::PathBuf;

/// A reason for which the speaker cannot use the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A capability is missing.
    #[error(
        "the speaker lacks {}: grant CAP_NET_ADMIN (addresses, nftables) and CAP_NET_RAW (ARP and NDP), \
         in a pod by securityContext.capabilities.add",
        .0.join(" and ")
    )]
    Capabilities(Vec<&'static str>),
    /// The capabilities cannot be read.
    #[error("cannot read the capabilities of the process")]
    Unreadable(#[source] rustix::io::Errno),
    /// The ids of host and boot cannot be read.
    #[error("cannot read `{path}`, which tells this host and boot from others: mount /proc")]
    Identity {
        /// The file.
        path: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The state folder cannot be used.
    #[error("cannot use the state folder `{path}` (--state-dir)")]
    State {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The lock cannot be taken for another reason than that it is held.
    #[error("cannot lock the host against a second speaker")]
    Lock(#[source] std::io::Error),
}
