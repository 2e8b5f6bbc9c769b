//! The lists of claims, by address and by claim.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

/// The claims that list each address, or may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The claims of each address, in the order of the names.
    claims: BTreeMap<IpAddr, Vec<LeaseName>>,
    /// The addresses of each claim, ascending.
    addresses: BTreeMap<LeaseName, Vec<IpAddr>>,
}

impl<'a> FromIterator<(IpAddr, &'a LeaseName)> for Listed {
    fn from_iter<T: IntoIterator<Item = (IpAddr, &'a LeaseName)>>(entries: T) -> Self {
        let mut all: BTreeMap<&LeaseName, BTreeSet<IpAddr>> = BTreeMap::new();
        for (ip, claim) in entries {
            all.entry(claim).or_default().insert(ip);
        }
        let mut listed = Self::default();
        for (claim, addresses) in all {
            listed.set(claim, addresses);
        }
        listed
    }
}

impl Listed {
    /// Replaces the addresses that `claim` lists; they are ascending.
    pub fn set(&mut self, claim: &LeaseName, addresses: impl IntoIterator<Item = IpAddr>) {
        for ip in self.addresses.remove(claim).unwrap_or_default() {
            if let Some(claims) = self.claims.get_mut(&ip) {
                claims.retain(|other| other != claim);
                if claims.is_empty() {
                    self.claims.remove(&ip);
                }
            }
        }
        let addresses: Vec<IpAddr> = addresses.into_iter().collect();
        for &ip in &addresses {
            let claims = self.claims.entry(ip).or_insert_with(|| Vec::with_capacity(1));
            let at = claims.partition_point(|other| other < claim);
            claims.insert(at, claim.clone());
        }
        if !addresses.is_empty() {
            self.addresses.insert(claim.clone(), addresses);
        }
    }

    /// The claims that list `ip`.
    pub fn of(&self, ip: IpAddr) -> impl Iterator<Item = &LeaseName> {
        self.claims.get(&ip).into_iter().flatten()
    }

    /// The claim that alone lists `ip`.
    pub(super) fn only(&self, ip: IpAddr) -> Option<&LeaseName> {
        let mut claims = self.of(ip);
        claims.next().filter(|_| claims.next().is_none())
    }

    /// The addresses that `claim` lists, ascending.
    pub(super) fn under(&self, claim: &LeaseName) -> impl Iterator<Item = IpAddr> {
        self.addresses.get(claim).into_iter().flatten().copied()
    }
}
