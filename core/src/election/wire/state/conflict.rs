//! Disputes with other hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use pnet_base::MacAddr;

use crate::clock::Instant;

pub(in crate::election) const FOREIGN: usize = 8;

/// Foreign hosts that were heard.
#[derive(Debug, Default)]
pub(in crate::election) struct Conflicts {
    pub(in crate::election::wire) disputes: BTreeMap<LeaseName, Dispute>,
    /// Up to when reads because of frames are accounted for.
    pub(in crate::election::wire) reads: Instant,
    /// Addresses of ours that hosts announced that are no speakers, and when.
    pub(in crate::election::wire) foreign: BTreeMap<(IpAddr, MacAddr), Instant>,
}

impl Conflicts {
    /// Addresses of ours that hosts announced of late that are no speakers.
    pub(in crate::election) fn foreign(&self) -> Vec<(IpAddr, MacAddr)> {
        self.foreign.keys().copied().collect()
    }

    pub(in crate::election) fn note_foreign(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        let is_known = self.foreign.contains_key(&(ip, mac));
        if is_known || self.foreign.len() < FOREIGN {
            self.foreign.insert((ip, mac), now);
        }
    }
}

/// Somebody else announces an address of ours.
#[derive(Debug)]
pub(in crate::election) struct Dispute {
    pub(in crate::election::wire) address: IpAddr,
    pub(in crate::election::wire) mac: MacAddr,
    /// The claim is to be read, and when it was last.
    pub(in crate::election::wire) unread: bool,
    pub(in crate::election::wire) read: Option<Instant>,
    pub(in crate::election::wire) defended: Option<Instant>,
    pub(in crate::election::wire) defences: u32,
    /// A speaker announced it and is to be told, and when one was told last.
    pub(in crate::election::wire) tell: bool,
    pub(in crate::election::wire) told: Option<Instant>,
}
