//! The addresses of one service.

use std::net::IpAddr;

use leasehold_crds::range::Family;

/// At most one address of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByFamily {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl ByFamily {
    pub(super) fn get(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Adds `ip`; returns the address of its family that it replaces.
    pub(super) fn insert(&mut self, ip: IpAddr) -> Option<IpAddr> {
        match Family::of(ip) {
            Family::V4 => self.v4.replace(ip),
            Family::V6 => self.v6.replace(ip),
        }
    }

    pub(super) fn remove(&mut self, ip: IpAddr) {
        self.v4 = self.v4.filter(|other| *other != ip);
        self.v6 = self.v6.filter(|other| *other != ip);
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.get(family).is_some()
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.get(Family::of(ip)) == Some(ip)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.into_iter().chain(self.v6)
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

impl Extend<IpAddr> for ByFamily {
    fn extend<T: IntoIterator<Item = IpAddr>>(&mut self, addresses: T) {
        for ip in addresses {
            self.insert(ip);
        }
    }
}
