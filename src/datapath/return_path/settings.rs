//! `src_valid_mark` of interfaces: set while one carries such addresses, and set back to what it was.

use std::collections::BTreeSet;

use leasehold_crds::names::InterfaceName;

use crate::host::{HostError, StateFolder};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::Links;
use crate::net::rtnl::netlink::Netlink;
use crate::net::rtnl::sysctl::source_marks;

/// A failure to set it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingError {
    /// It cannot be read.
    #[error("cannot read src_valid_mark of {0}: {1}")]
    Read(InterfaceName, std::io::Error),
    /// It cannot be kept what it was.
    #[error(transparent)]
    Record(#[from] HostError),
    /// The kernel does not set it.
    #[error("cannot set src_valid_mark of {0}: {1}")]
    Set(InterfaceName, NetlinkError),
}

/// Sets it on these interfaces where it is not set, and remembers on which.
pub(super) async fn set(
    netlink: &Netlink,
    state: &StateFolder,
    links: &Links,
    wanted: &BTreeSet<InterfaceName>,
) -> Result<(), SettingError> {
    for link in wanted.iter().filter_map(|name| links.get(name)) {
        let name = || link.name.clone();
        if source_marks(&link.name).map_err(|error| SettingError::Read(name(), error))? {
            continue;
        }
        let mut ours = state.source_marks();
        if ours.insert(name()) {
            state.keep_source_marks(&ours)?;
        }
        let set = netlink.set_source_marks(link.index, true).await;
        set.map_err(|error| SettingError::Set(name(), error))?;
    }
    Ok(())
}

/// Sets it back on all others on which this process has set it, or one before it.
pub(super) async fn set_back(
    netlink: &Netlink,
    state: &StateFolder,
    links: &Links,
    wanted: &BTreeSet<InterfaceName>,
) -> Result<(), SettingError> {
    let ours = state.source_marks();
    let (kept, others): (BTreeSet<_>, BTreeSet<_>) =
        ours.into_iter().partition(|name| wanted.contains(name));
    if others.is_empty() {
        return Ok(());
    }
    for link in others.iter().filter_map(|name| links.get(name)) {
        let set = netlink.set_source_marks(link.index, false).await;
        set.map_err(|error| SettingError::Set(link.name.clone(), error))?;
    }
    Ok(state.keep_source_marks(&kept)?)
}
