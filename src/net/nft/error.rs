//! Errors of nfnetlink.

use std::io;

use netlink_packet_core::ErrorMessage;

/// A request to `nf_tables` that failed.
#[derive(Debug, thiserror::Error)]
pub enum NfnetlinkError {
    /// The socket could not be opened.
    #[error("cannot open a netlink socket for nf_tables")]
    Open(#[source] io::Error),
    /// The process may not change `nf_tables`.
    #[error("no permission to change nf_tables: the speaker needs CAP_NET_ADMIN")]
    NoPermission,
    /// The kernel does not know what it was asked for.
    #[error(
        "the kernel has no nf_tables for {0} (an option CONFIG_NF_TABLES_* or CONFIG_NFT_*, or its module)"
    )]
    Unsupported(&'static str, #[source] io::Error),
    /// Another refusal.
    #[error("the kernel refused to change nf_tables ({0})")]
    Refused(&'static str, #[source] io::Error),
    /// No answer, or half of one.
    #[error("the kernel did not answer about nf_tables")]
    Silent(#[source] io::Error),
    /// A message that the kernel does not send in answer to this.
    #[error("unexpected answer from nf_tables: {0}")]
    Unexpected(String),
}

impl NfnetlinkError {
    pub(super) fn refused(what: &'static str, error: &ErrorMessage) -> Self {
        let error = error.to_io();
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::NoPermission,
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => {
                Self::Unsupported(what, error)
            }
            _ => Self::Refused(what, error),
        }
    }
}
