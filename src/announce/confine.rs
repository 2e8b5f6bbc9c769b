//! Has links answer by ARP only for what they have, and makes that undone when Leasehold is uninstalled.

use std::collections::BTreeSet;
use std::io;

use leasehold_crds::names::InterfaceName;

use crate::host::{HostError, StateFolder};
use crate::net::links::{Link, Links};
use crate::net::netlink::{Netlink, NetlinkError};
use crate::net::sysctl::ArpSettings;

/// Why a link cannot be confined, or set back.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Its settings cannot be read.
    #[error("cannot read arp_ignore and arp_announce")]
    Read(#[from] io::Error),
    /// What they were cannot be kept.
    #[error(transparent)]
    Record(#[from] HostError),
    /// The kernel does not set them.
    #[error(transparent)]
    Set(#[from] NetlinkError),
}

/// The links that are confined.
#[derive(Debug)]
pub struct Confinement {
    netlink: Netlink,
    state: StateFolder,
    /// Those that were tried.
    tried: BTreeSet<u32>,
}

impl Confinement {
    /// None yet; what the settings were is kept in `state`.
    pub fn new(netlink: Netlink, state: StateFolder) -> Self {
        Self { netlink, state, tried: BTreeSet::new() }
    }

    /// Keeps links from answering for addresses that they do not have; before the first is added.
    /// `carrying` are those that are to carry addresses.
    pub async fn confine(&mut self, links: &Links, carrying: &BTreeSet<&InterfaceName>) {
        let concerned = |link: &&Link| may_share_a_segment(link) || carrying.contains(&link.name);
        for link in links.0.values().filter(concerned) {
            if !self.tried.insert(link.index) {
                continue;
            }
            if let Err(error) = self.confine_link(link).await {
                tracing::info!(
                    interface = %link.name,
                    error = crate::api::causes(&error),
                    "cannot set arp_ignore and arp_announce: where two interfaces are on one \
                     segment, both answer for an address that one of them has",
                );
            }
        }
    }

    async fn confine_link(&self, link: &Link) -> Result<(), ConfineError> {
        let present = ArpSettings::of(&link.name)?;
        let confined = present.confined();
        if confined != present {
            let mut former = self.state.arp_settings();
            former.entry(link.name.clone()).or_insert(present);
            self.state.keep_arp_settings(&former)?;
            self.netlink.set_arp(link.index, confined).await?;
        }
        Ok(())
    }
}

/// Sets all links back that are as they were confined, by this process or one before it.
pub async fn restore(netlink: &Netlink, state: &StateFolder, links: &Links) {
    for (name, former) in state.arp_settings() {
        let Some(link) = links.get(&name) else { continue };
        if ArpSettings::of(&name).is_ok_and(|present| present != former.confined()) {
            continue;
        }
        if let Err(error) = netlink.set_arp(link.index, former).await {
            tracing::warn!(interface = %name, %error, "cannot set arp_ignore and arp_announce back");
            return;
        }
    }
    state.forget_arp_settings();
}

/// Not the loopback device, ports of a bridge or bond, nor the ends of pods' links: those have no
/// subnet.
fn may_share_a_segment(link: &Link) -> bool {
    let pod = link.kind.as_deref() == Some("veth")
        && !link.addresses.iter().any(|address| address.ip.is_ipv4() && address.prefix_len < 32);
    !link.loopback && !link.mac.is_zero() && link.master.is_none() && !pod
}
