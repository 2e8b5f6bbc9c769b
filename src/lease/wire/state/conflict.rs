//! Disputes with other hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use pnet_base::MacAddr;

use crate::clock::Instant;

pub(in crate::lease) const FOREIGN: usize = 8;

/// Foreign hosts that were heard.
#[derive(Debug, Default)]
pub(in crate::lease) struct Conflicts {
    pub(in crate::lease::wire) disputes: BTreeMap<LeaseName, Dispute>,
    /// Up to when reads because of frames are accounted for.
    pub(in crate::lease::wire) reads: Instant,
    /// Addresses of ours that hosts announced that are no speakers, and when.
    pub(in crate::lease::wire) foreign: BTreeMap<(IpAddr, MacAddr), Instant>,
}

impl Conflicts {
    /// Addresses of ours that hosts announced of late that are no speakers.
    pub(in crate::lease) fn foreign(&self) -> Vec<(IpAddr, MacAddr)> {
        self.foreign.keys().copied().collect()
    }

    pub(in crate::lease) fn note_foreign(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        let is_known = self.foreign.contains_key(&(ip, mac));
        if is_known || self.foreign.len() < FOREIGN {
            self.foreign.insert((ip, mac), now);
        }
    }
}

/// Somebody else announces an address of ours.
#[derive(Debug)]
pub(in crate::lease) struct Dispute {
    pub(in crate::lease::wire) address: IpAddr,
    pub(in crate::lease::wire) mac: MacAddr,
    /// The claim is to be read, and when it was last.
    pub(in crate::lease::wire) unread: bool,
    pub(in crate::lease::wire) read: Option<Instant>,
    pub(in crate::lease::wire) defended: Option<Instant>,
    pub(in crate::lease::wire) defences: u32,
    /// A speaker announced it and is to be told, and when one was told last.
    pub(in crate::lease::wire) tell: bool,
    pub(in crate::lease::wire) told: Option<Instant>,
}
