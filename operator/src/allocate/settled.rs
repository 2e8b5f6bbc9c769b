//! Services about which nothing is to be decided: only the addresses that they have matter to others.
//!
//! Of ten thousand services nearly all have what they want, from a pool that would give it to them
//! again, and share it with nobody. Whatever is decided about others, they keep that. A plan leaves
//! them out, and costs what the others cost.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::usage::Tally;
use super::{ServiceKey, Territory};

/// The addresses of settled services. Each is alone with its own, under the claim that is named after
/// it.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    holders: BTreeMap<IpAddr, ServiceKey>,
    /// What they have of each pool.
    pub(super) tally: Tally,
}

impl Settled {
    /// Who has `ip`.
    pub fn holder(&self, ip: IpAddr) -> Option<&ServiceKey> {
        self.holders.get(&ip)
    }

    /// The addresses from `ip` on, ascending.
    pub(super) fn from(&self, ip: IpAddr) -> impl Iterator<Item = IpAddr> + use<'_> {
        self.holders.range(ip..).map(|(ip, _)| *ip)
    }

    /// Adds a service with its addresses, which nobody else has.
    pub fn insert(&mut self, key: &ServiceKey, addresses: &[IpAddr], territory: &Territory) {
        for &ip in addresses {
            self.holders.insert(ip, key.clone());
            self.tally.add(ip, territory);
        }
    }

    /// Takes out what [`Settled::insert`] has added, in the same territory.
    pub fn remove(&mut self, addresses: &[IpAddr], territory: &Territory) {
        for ip in addresses {
            self.holders.remove(ip);
            self.tally.remove(*ip, territory);
        }
    }

    /// Takes out all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
