//! Which claims list which addresses.

use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

/// Under which claims each address is listed, or may be.
#[derive(Clone, Debug, Default)]
pub struct Listed<'a> {
    /// Sorted, without repetition.
    entries: Vec<(IpAddr, &'a LeaseName)>,
}

impl<'a> FromIterator<(IpAddr, &'a LeaseName)> for Listed<'a> {
    fn from_iter<T: IntoIterator<Item = (IpAddr, &'a LeaseName)>>(entries: T) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_unstable();
        entries.dedup();
        Self { entries }
    }
}

impl<'a> Listed<'a> {
    /// The claims that list `ip`.
    pub fn of(&self, ip: IpAddr) -> impl Iterator<Item = &'a LeaseName> + '_ {
        let start = self.entries.partition_point(|(other, _)| *other < ip);
        let rest = self.entries.get(start..).unwrap_or_default();
        rest.iter().take_while(move |(other, _)| *other == ip).map(|(_, claim)| *claim)
    }

    /// The claim that alone lists `ip`.
    pub(super) fn only(&self, ip: IpAddr) -> Option<&'a LeaseName> {
        let mut claims = self.of(ip);
        claims.next().filter(|_| claims.next().is_none())
    }

    /// All addresses that are listed, once for each claim.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.entries.iter().map(|(ip, _)| *ip)
    }
}
