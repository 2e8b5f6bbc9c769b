//! Errors of rtnetlink.

use std::io;

/// A request to rtnetlink that failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The address is there already.
    #[error("the address exists already on the interface")]
    Exists,
    /// The address to delete is not there.
    #[error("there is no such address on the interface")]
    NotFound,
    /// The process may not change addresses.
    #[error("no permission to change addresses: the speaker needs CAP_NET_ADMIN")]
    NoPermission,
    /// The interface is gone.
    #[error("there is no such interface")]
    NoInterface,
    /// IPv6 is switched off on the interface.
    #[error("the interface does not accept IPv6 addresses (disable_ipv6)")]
    Disabled,
    /// Another answer of the kernel.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
    /// No answer.
    #[error("the kernel did not answer: {0}")]
    Silent(io::Error),
    /// Changes came between the parts of a dump, time and again: rows of it may be missing.
    #[error("changes came between the parts of what was read")]
    Interrupted,
    /// A message that the kernel does not send in answer to this.
    #[error("unexpected answer from the kernel: {0}")]
    Unexpected(String),
    /// The socket could not be opened.
    #[error("cannot open a netlink socket: {0}")]
    Open(io::Error),
    /// The connection has ended.
    #[error("the netlink connection has ended")]
    Closed,
}

impl From<rtnetlink::Error> for NetlinkError {
    fn from(error: rtnetlink::Error) -> Self {
        match error {
            rtnetlink::Error::NetlinkError(message) => Self::refused(message.to_io()),
            rtnetlink::Error::RequestFailed => Self::Closed,
            other => Self::Unexpected(other.to_string()),
        }
    }
}

impl NetlinkError {
    pub(super) fn refused(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EEXIST) => Self::Exists,
            Some(libc::EADDRNOTAVAIL) => Self::NotFound,
            Some(libc::EPERM) => Self::NoPermission,
            Some(libc::ENODEV | libc::ENXIO) => Self::NoInterface,
            Some(libc::EACCES) => Self::Disabled,
            _ => Self::Refused(error),
        }
    }
}
