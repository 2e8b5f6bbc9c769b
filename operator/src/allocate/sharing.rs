//! Sharing: the terms on which services have one address together, and the addresses that can be joined.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::Family;

use super::scope::Labels;
use super::types::{Asked, ServiceKey};

/// A transport protocol of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// `TCP`.
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

/// A port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        write!(f, "{}/{protocol}", self.number)
    }
}

/// The nodes that forward the traffic of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// All: `externalTrafficPolicy: Cluster`.
    Cluster,
    /// The nodes with a pod that the selector matches: `externalTrafficPolicy: Local`.
    Local(Labels),
}

/// The terms on which a service shares an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The sharing key: services of the same key share.
    pub key: Asked<String>,
    /// The ports that it needs for itself.
    pub ports: BTreeSet<Port>,
    /// The nodes of its traffic: one serves all or none of the services that share.
    pub traffic: Traffic,
}

/// The reason for which two services may not have one address together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// The other is no service of ours.
    Foreign,
    /// One of them has no key.
    NoKey,
    /// Their keys differ.
    OtherKey {
        /// The key of the one that asks.
        own: String,
        /// The key of the other.
        other: String,
    },
    /// Both need this port.
    Port(Port),
    /// Not the same nodes serve them.
    Traffic,
    /// They are of different namespaces, and this pool, if any, does not allow that.
    Namespace(Option<String>),
}

impl fmt::Display for Clash {
    /// The text after `belongs to Service web/shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str(": request another one"),
            Self::NoKey => f.write_str(
                ": request another one, or set the annotation leasehold.dev/shared-address of both \
                 to the same key",
            ),
            Self::OtherKey { own, other } => write!(
                f,
                ", which shares it with the key `{other}`, not `{own}`: request another one, or use \
                 the same key"
            ),
            Self::Port(port) => write!(
                f,
                ", which also uses port {port}: request another one, or use different ports"
            ),
            Self::Traffic => f.write_str(
                "; Services that share an address must all have externalTrafficPolicy Cluster, or \
                 all Local with the same selector in one namespace: request another one, or change \
                 these fields",
            ),
            Self::Namespace(Some(pool)) => write!(
                f,
                " of another namespace: request another one, or set spec.sharing of pool {pool} to \
                 AnyNamespace"
            ),
            Self::Namespace(None) => f.write_str(
                " of another namespace; no IPAddressPool contains the address, so it cannot be \
                 shared between namespaces: request another one",
            ),
        }
    }
}

/// An address of others of its key that a service does not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The address.
    pub address: IpAddr,
    /// The service that has it.
    pub owner: ServiceKey,
    /// The reason for which they do not share it.
    pub clash: Clash,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, owner, clash } = self;
        write!(f, "{address} is not shared with Service {owner}: ")?;
        match clash {
            Clash::Port(port) => write!(f, "both use port {port}"),
            _ => f.write_str(
                "Services that share an address must all have externalTrafficPolicy Cluster, or all \
                 Local with the same selector in one namespace",
            ),
        }
    }
}

/// A service as one that has or seeks an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) terms: Option<&'a Terms>,
}

impl<'a> Party<'a> {
    /// The clash that keeps the two from having one address; without `namespaces`, whatever their namespaces.
    pub(super) fn clash(
        &self,
        other: &Party<'a>,
        namespaces: Option<Borders<'a>>,
    ) -> Option<Clash> {
        let (Some(own), Some(others)) = (self.terms, other.terms) else {
            return Some(Clash::NoKey);
        };
        if own.key.what != others.key.what {
            let (own, other) = (own.key.what.clone(), others.key.what.clone());
            return Some(Clash::OtherKey { own, other });
        }
        if self.circle() != other.circle() {
            return Some(Clash::Traffic);
        }
        if let Some(port) = own.ports.intersection(&others.ports).next() {
            return Some(Clash::Port(*port));
        }
        let borders = namespaces?;
        (borders.sharing == Sharing::SameNamespace && self.key.namespace != other.key.namespace)
            .then(|| Clash::Namespace(borders.pool.map(str::to_owned)))
    }

    /// The circle of those that may share, but for ports and namespaces.
    pub(super) fn circle(&self) -> Option<Circle<'a>> {
        let terms = self.terms?;
        let local = match &terms.traffic {
            Traffic::Cluster => None,
            Traffic::Local(selector) => Some((self.key.namespace.as_str(), selector)),
        };
        Some(Circle { key: &terms.key.what, local })
    }
}

/// The rules of a pool about sharing across namespaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Borders<'a> {
    pub(super) pool: Option<&'a str>,
    pub(super) sharing: Sharing,
}

/// A circle: the services of one key whose traffic goes to the same nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Circle<'a> {
    key: &'a str,
    local: Option<(&'a str, &'a Labels)>,
}

/// The services that have an address.
#[derive(Debug)]
pub(super) struct Holding<'a> {
    /// The claim that governs the address.
    claim: LeaseName,
    /// The services that have it, the one with the best right to it first.
    parties: Vec<Party<'a>>,
    /// The service that needs each port; only of those that share.
    ports: BTreeMap<Port, &'a ServiceKey>,
}

impl<'a> Holding<'a> {
    pub(super) fn new(claim: LeaseName, party: Party<'a>) -> Self {
        let mut holding = Self { claim, parties: Vec::with_capacity(1), ports: BTreeMap::new() };
        holding.add(party);
        holding
    }

    /// The claim that governs the address.
    pub(super) const fn claim(&self) -> &LeaseName {
        &self.claim
    }

    /// The service with the best right to the address.
    pub(super) fn first(&self) -> Option<&'a ServiceKey> {
        self.parties.first().map(|party| party.key)
    }

    /// Whether this service has the address.
    pub(super) fn has(&self, key: &ServiceKey) -> bool {
        self.parties.iter().any(|party| party.key == key)
    }

    pub(super) fn add(&mut self, party: Party<'a>) {
        let ports = party.terms.iter().flat_map(|terms| &terms.ports);
        self.ports.extend(ports.map(|port| (*port, party.key)));
        self.parties.push(party);
    }

    /// Gives up the part of `key`; returns whether another service is left.
    pub(super) fn remove(&mut self, key: &ServiceKey) -> bool {
        self.parties.retain(|party| party.key != key);
        self.ports.retain(|_, owner| *owner != key);
        !self.parties.is_empty()
    }

    /// The service with which `party` clashes, and the reason. All that hold it are of one circle.
    pub(super) fn clash(
        &self,
        party: &Party<'a>,
        namespaces: Option<Borders<'a>>,
    ) -> Option<(&'a ServiceKey, Clash)> {
        let first = self.parties.first()?;
        let alike =
            self.parties.len() > 1 && party.terms.is_some() && party.circle() == first.circle();
        if !alike {
            return Some((first.key, party.clash(first, namespaces)?));
        }
        let ports = party.terms.into_iter().flat_map(|terms| &terms.ports);
        for port in ports {
            if let Some(owner) = self.ports.get(port) {
                return Some((owner, Clash::Port(*port)));
            }
        }
        let borders = namespaces.filter(|borders| borders.sharing == Sharing::SameNamespace)?;
        let stranger =
            self.parties.iter().find(|other| other.key.namespace != party.key.namespace)?;
        Some((stranger.key, Clash::Namespace(borders.pool.map(str::to_owned))))
    }

    fn needs(&self, port: Port) -> bool {
        self.ports.contains_key(&port)
    }
}

/// The addresses of services that share, in the order in which they are joined.
#[derive(Debug, Default)]
pub(super) struct Meeting<'a> {
    circles: BTreeMap<Circle<'a>, Line>,
    /// The first address of each key and family: that of the older services.
    eldest: BTreeMap<(&'a str, Family), IpAddr>,
    by_claim: BTreeMap<LeaseName, Vec<IpAddr>>,
}

/// The addresses of one circle.
#[derive(Debug, Default)]
struct Line {
    addresses: Vec<IpAddr>,
    /// The number of first addresses at which the port is taken. It only grows: no port becomes free during a
    /// plan.
    full: BTreeMap<Port, usize>,
}

impl<'a> Meeting<'a> {
    /// Notes that a service has `ip` that shares it.
    pub(super) fn open(&mut self, ip: IpAddr, party: &Party<'a>, claim: &LeaseName) {
        let Some(circle) = party.circle() else { return };
        self.eldest.entry((circle.key, Family::of(ip))).or_insert(ip);
        self.circles.entry(circle).or_default().addresses.push(ip);
        self.by_claim.entry(claim.clone()).or_default().push(ip);
    }

    /// The first address of its circle at which `party` may find room: at those before, its ports are taken.
    pub(super) fn start(
        &mut self,
        party: &Party<'a>,
        held: &BTreeMap<IpAddr, Holding<'a>>,
    ) -> usize {
        let line = party.circle().and_then(|circle| self.circles.get_mut(&circle));
        let (Some(line), Some(terms)) = (line, party.terms) else { return 0 };
        let mut from = 0;
        for port in &terms.ports {
            let full = line.full.entry(*port).or_default();
            let needs = |ip: &&IpAddr| held.get(*ip).is_some_and(|holding| holding.needs(*port));
            *full += line.addresses.iter().skip(*full).take_while(needs).count();
            from = from.max(*full);
        }
        from
    }

    /// One address of the circle of `party`.
    pub(super) fn candidate(&self, party: &Party<'a>, index: usize) -> Option<IpAddr> {
        self.circles.get(&party.circle()?)?.addresses.get(index).copied()
    }

    /// The first address of this family that those with the key of `party` have.
    pub(super) fn eldest(&self, party: &Party<'a>, family: Family) -> Option<IpAddr> {
        self.eldest.get(&(party.circle()?.key, family)).copied()
    }

    /// The addresses under `claim` of those that would share.
    pub(super) fn under(&self, claim: &LeaseName) -> &[IpAddr] {
        self.by_claim.get(claim).map_or(&[], Vec::as_slice)
    }
}
