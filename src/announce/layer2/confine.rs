//! ARP settings by which links answer only for their own addresses. They are set back when Leasehold is
//! uninstalled.
//!
//! Other programs may set their own values again, and a link that comes back from another namespace has the
//! defaults: the settings are checked when the links change, and at an interval.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::announce::counters::AnnouncementCounters;
use crate::clock;
use crate::host::{HostError, StateFolder};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::{Link, Links};
use crate::net::rtnl::netlink::Netlink;
use crate::net::rtnl::sysctl::ArpSettings;
use leasehold_core::clock::Instant;

/// Interval between checks of the settings of a link.
const LOOK: Duration = Duration::from_secs(60);

/// A failure to confine a link, or to set it back.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Its settings cannot be read.
    #[error("cannot read arp_ignore and arp_announce")]
    Read(#[from] io::Error),
    /// The former settings cannot be kept.
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
    /// The time of the last check of each link.
    looked: BTreeMap<u32, Instant>,
    /// The links whose settings were right at the last check, …
    confined: BTreeSet<u32>,
    /// … and those of which it was said that they cannot be.
    failed: BTreeSet<u32>,
    counters: Arc<AnnouncementCounters>,
}

impl Confinement {
    /// None yet; what the settings were is kept in `state`.
    pub fn new(netlink: Netlink, state: StateFolder, counters: Arc<AnnouncementCounters>) -> Self {
        Self {
            netlink,
            state,
            looked: BTreeMap::new(),
            confined: BTreeSet::new(),
            failed: BTreeSet::new(),
            counters,
        }
    }

    /// The links have changed: all are looked at when they are next to be confined.
    pub fn look_again(&mut self) {
        self.looked.clear();
    }

    /// The time of the next check of the links that are confined.
    pub fn due(&self) -> Option<Instant> {
        self.looked.values().min().map(|looked| *looked + LOOK)
    }

    /// Keeps links from answering for addresses that they do not have; before the first is added, for as long
    /// as any is carried, and where kube-proxy gives each node all addresses.
    /// `carrying` are those that are to carry addresses.
    pub async fn confine(&mut self, links: &Links, carrying: &BTreeSet<&InterfaceName>) {
        let before = std::mem::take(&mut self.looked);
        if carrying.is_empty() && !links.0.values().any(|link| link.name.as_str() == IPVS) {
            return;
        }
        let now = clock::now();
        let concerned = |link: &&Link| may_share_a_segment(link) || carrying.contains(&link.name);
        for link in links.0.values().filter(concerned) {
            let looked = before.get(&link.index).filter(|looked| now < **looked + LOOK);
            self.looked.insert(link.index, looked.copied().unwrap_or(now));
            if looked.is_none() {
                let result = self.confine_link(link).await;
                self.note(link, result);
            }
        }
    }

    /// Returns whether the link was not confined.
    async fn confine_link(&self, link: &Link) -> Result<bool, ConfineError> {
        let present = ArpSettings::of(&link.name)?;
        let confined = present.confined();
        if confined == present {
            return Ok(false);
        }
        let mut former = self.state.arp_settings();
        former.entry(link.name.clone()).or_insert(present);
        self.state.keep_arp_settings(&former)?;
        self.netlink.set_arp(link.index, confined).await?;
        Ok(true)
    }

    /// Says what is to be known of it, once.
    fn note(&mut self, link: &Link, result: Result<bool, ConfineError>) {
        match result {
            Ok(anew) => {
                self.failed.remove(&link.index);
                if !self.confined.insert(link.index) && anew {
                    self.counters.confined_again.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        interface = %link.name,
                        "somebody set arp_ignore or arp_announce back: setting them again",
                    );
                }
            }
            Err(error) => {
                self.confined.remove(&link.index);
                if self.failed.insert(link.index) {
                    tracing::info!(
                        interface = %link.name,
                        error = crate::api::causes(&error),
                        "cannot set arp_ignore and arp_announce: where two interfaces are on one \
                         segment, both answer for an address that one of them has",
                    );
                }
            }
        }
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

/// The link on which kube-proxy in IPVS mode has the addresses of all Services
/// (Kubernetes, pkg/proxy/ipvs, `defaultDummyDevice`).
const IPVS: &str = "kube-ipvs0";

/// Not the loopback device, ports of a bridge or bond, nor the ends of pods' links: those have no
/// subnet.
fn may_share_a_segment(link: &Link) -> bool {
    let pod = link.kind.as_deref() == Some("veth")
        && !link.addresses.iter().any(|address| address.ip.is_ipv4() && address.prefix_len < 32);
    !link.loopback && !link.mac.is_zero() && link.master.is_none() && !pod
}
