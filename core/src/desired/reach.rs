//! The ports of a node that an address of a Service leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::HostProtection;

use super::Sharing;

/// A transport protocol of Services (core/v1, `ServicePort.protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `TCP`.
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Its number in the IP header (IANA, Assigned Internet Protocol Numbers).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.number() == number)
    }
}

/// A port that a Service serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

impl ServicePort {
    /// The port as the API server stores it; `None` for what nobody could serve.
    pub(super) fn of(protocol: Option<&str>, port: i32) -> Option<Self> {
        // The API server writes the default, too.
        let name = protocol.unwrap_or("TCP");
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)?;
        Some(Self { protocol, port: u16::try_from(port).ok()? })
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol.name())
    }
}

/// The ports of the owner that an address leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All that listens on it: the policy says `hostProtection: Disabled`.
    Everything,
    /// The ports of its Services, and ICMP.
    Only(Arc<BTreeSet<ServicePort>>),
}

/// Gathers what may be reached by each address, Service by Service.
#[derive(Debug, Default)]
pub(super) struct Reaches<'a> {
    /// The claim that governs each address, and the ports of its Services.
    governed: BTreeMap<IpAddr, (&'a LeaseName, Arc<BTreeSet<ServicePort>>)>,
    protected: BTreeSet<&'a LeaseName>,
}

impl<'a> Reaches<'a> {
    /// Adds what one Service serves under its claim. The claim that first names an address governs
    /// it; one protected Service protects the claim.
    pub(super) fn add(
        &mut self,
        claim: &'a LeaseName,
        addresses: &AddressSet,
        ports: &Arc<BTreeSet<ServicePort>>,
        protection: HostProtection,
    ) {
        if protection == HostProtection::Enabled {
            self.protected.insert(claim);
        }
        for address in addresses {
            let anew = || (claim, Arc::clone(ports));
            let (governing, open) = self.governed.entry(*address).or_insert_with(anew);
            if *governing == claim && !ports.is_subset(open) {
                Arc::make_mut(open).extend(ports.iter());
            }
        }
    }

    /// The reach of each address.
    pub(super) fn finish(self, sharing: &Sharing<'_>) -> BTreeMap<IpAddr, Reach> {
        let reach = |(address, (claim, ports))| {
            let protected = self.protected.contains(claim);
            let reach = if protected { Reach::Only(ports) } else { Reach::Everything };
            (address, sharing.reach(address, reach))
        };
        self.governed.into_iter().map(reach).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Protocol::{Tcp, Udp};

    fn port(protocol: Protocol, port: u16) -> ServicePort {
        ServicePort { protocol, port }
    }

    fn reaches(rows: &[(&str, &[&str], &[ServicePort], HostProtection)]) -> Vec<(String, Reach)> {
        let mut reaches = Reaches::default();
        let claims: Vec<LeaseName> = rows.iter().map(|row| row.0.parse().unwrap()).collect();
        for (claim, (_, addresses, ports, protection)) in claims.iter().zip(rows) {
            let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
            let ports = Arc::new(ports.iter().copied().collect());
            reaches.add(claim, &addresses, &ports, *protection);
        }
        reaches
            .finish(&Sharing::with(None))
            .into_iter()
            .map(|(ip, reach)| (ip.to_string(), reach))
            .collect()
    }

    fn only(ports: &[ServicePort]) -> Reach {
        Reach::Only(Arc::new(ports.iter().copied().collect()))
    }

    #[test]
    fn services_of_one_claim_open_their_ports_on_the_addresses_that_they_have() {
        use HostProtection::{Disabled, Enabled};
        let (http, dns) = ([port(Tcp, 80)], [port(Udp, 53)]);
        let (v4, v6) = ("192.0.2.1", "2001:db8::1");
        let row = |ip: &str, reach| (ip.to_owned(), reach);
        for (name, rows, expected) in [
            (
                "both families of one service",
                vec![("web.a", &[v4, v6][..], &http[..], Enabled)],
                vec![row(v4, only(&http)), row(v6, only(&http))],
            ),
            (
                "one address of two services, another of one",
                vec![
                    ("web.a", &[v4, v6][..], &http[..], Enabled),
                    ("web.a", &[v4][..], &dns[..], Enabled),
                ],
                vec![row(v4, only(&[http[0], dns[0]])), row(v6, only(&http))],
            ),
            (
                "unprotected",
                vec![("web.a", &[v4][..], &http[..], Disabled)],
                vec![row(v4, Reach::Everything)],
            ),
            (
                "one of two that share the claim is protected",
                vec![
                    ("web.a", &[v4][..], &http[..], Disabled),
                    ("web.a", &[v6][..], &dns[..], Enabled),
                ],
                vec![row(v4, only(&http)), row(v6, only(&dns))],
            ),
            (
                "another claim's service opens nothing",
                vec![
                    ("web.a", &[v4][..], &http[..], Enabled),
                    ("web.b", &[v4][..], &dns[..], Disabled),
                ],
                vec![row(v4, only(&http))],
            ),
        ] {
            assert_eq!(reaches(&rows), expected, "{name}");
        }
    }

    #[test]
    fn ports_are_read_as_the_api_server_stores_them() {
        let read = |protocol: Option<&str>, port| {
            ServicePort::of(protocol, port).map(|port| port.to_string())
        };
        for (protocol, port, expected) in [
            (None, 80, Some("80/TCP")),
            (Some("TCP"), 443, Some("443/TCP")),
            (Some("UDP"), 53, Some("53/UDP")),
            (Some("SCTP"), 38412, Some("38412/SCTP")),
            (Some("ICMP"), 1, None),
            (None, 65_536, None),
        ] {
            assert_eq!(read(protocol, port).as_deref(), expected);
        }
    }
}
