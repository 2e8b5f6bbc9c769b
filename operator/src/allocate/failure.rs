//! Why a service did not get what it asked for, in words that say what to change.

use std::net::IpAddr;

use leasehold::explain::first_of;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

use super::Clash;
use super::unusable::Why;

/// Why a service did not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no pool at all.
    #[error("there is no IPAddressPool: create one with addresses for this service")]
    NoPool,
    /// No pool holds addresses of this family.
    #[error(
        "no IPAddressPool holds {0} addresses: add some to a pool, or change the ipFamilies of the \
         service"
    )]
    NoFamily(Family),
    /// The pools that hold addresses of this family do not serve the service.
    #[error(
        "no IPAddressPool gives this service an {family} address: {}: change one of these, or add a \
         pool",
        several(.pools, "; ")
    )]
    NoneServes {
        /// The family.
        family: Family,
        /// For each pool, why it does not.
        pools: Vec<String>,
    },
    /// The pools that could serve the service have no free address.
    #[error(
        "no {family} address is free in {}: add addresses, or delete services that need none",
        several(.pools, ", ")
    )]
    Exhausted {
        /// The family.
        family: Family,
        /// The pools that hold addresses of the family.
        pools: Vec<String>,
    },
    /// Each family has room, but no pool has room for both.
    #[error(
        "no IPAddressPool that serves this service has both an IPv4 and an IPv6 address free: add \
         addresses of the other family to a pool, or set ipFamilyPolicy to PreferDualStack"
    )]
    NoPoolForBoth,
    /// The pool of the service's addresses has none of the other family.
    #[error("pool {pool} has no free {family} address: add some to it")]
    PoolLacks {
        /// The pool.
        pool: String,
        /// The family.
        family: Family,
    },
    /// The pool of the service's addresses is gone.
    #[error(
        "the addresses of a service are from one pool, and pool {pool} is gone: create it again, or \
         set annotation leasehold.dev/reassign to have all replaced"
    )]
    PoolGone {
        /// The pool.
        pool: String,
    },
    /// The pool gives out nothing more.
    #[error(
        "pool {pool} is disabled and gives out nothing: ask for an address of another pool, or set \
         its spec.disabled to false"
    )]
    PoolDisabled {
        /// The pool.
        pool: String,
    },
    /// The pool does not serve the service.
    #[error(
        "pool {pool} serves only {scope}: ask for an address of another pool, or change its \
         spec.serviceAllocation"
    )]
    NotAdmitted {
        /// The pool.
        pool: String,
        /// Whom it serves.
        scope: String,
    },
    /// Whether a pool serves the service depends on a namespace that was not seen yet.
    #[error("the labels of namespace {0} are still to be read")]
    NamespaceUnseen(String),
    /// The service asks for a pool that does not exist.
    #[error(
        "{place} asks for pool {pool}, which does not exist: {}",
        if .pools.is_empty() {
            "create it; there is no IPAddressPool yet".to_owned()
        } else {
            format!("ask for one of {}, or create it", several(.pools, ", "))
        }
    )]
    UnknownPool {
        /// The pool.
        pool: String,
        /// The annotation.
        place: &'static str,
        /// The pools that exist.
        pools: Vec<String>,
    },
    /// The requested address is of another pool than the requested one.
    #[error(
        "{place} asks for pool {pool}, but the requested address {address} is {}: ask for an \
         address of that pool, or drop one of the requests",
        match .owner {
            Some(owner) => format!("from pool {owner}"),
            None => "in no IPAddressPool".to_owned(),
        }
    )]
    NotInThatPool {
        /// The requested address.
        address: IpAddr,
        /// The requested pool.
        pool: String,
        /// The annotation that asks for the pool.
        place: &'static str,
        /// The pool that holds the address.
        owner: Option<String>,
    },
    /// No pool holds the requested address.
    #[error(
        "no IPAddressPool holds the requested address {0}: ask for another, or add it to a pool"
    )]
    NotInPool(IpAddr),
    /// The pool leaves the requested address out.
    #[error(
        "pool {pool} leaves out addresses that end in .0 or .255 (avoidBuggyIPs), and the requested \
         address {address} does: ask for another"
    )]
    LeftOut {
        /// The requested address.
        address: IpAddr,
        /// Its pool.
        pool: String,
    },
    /// No host can have the requested address.
    #[error("no host can have the requested address {address}: it is {why}; ask for another")]
    Unusable {
        /// The requested address.
        address: IpAddr,
        /// Why not.
        why: Why,
    },
    /// Another service has the requested address.
    #[error("the requested address {address} belongs to service {owner}{clash}")]
    InUse {
        /// The requested address.
        address: IpAddr,
        /// Its owner, as `namespace/name`.
        owner: String,
        /// Why the two do not share it.
        clash: Clash,
    },
    /// The requested addresses belong to services that do not share with each other.
    #[error(
        "the addresses of a service are under one claim, but {first} is under claim {first_claim} \
         and {second} under claim {second_claim}: ask for addresses that the same service has"
    )]
    TwoClaims {
        /// One address.
        first: IpAddr,
        /// Its claim.
        first_claim: LeaseName,
        /// The other address.
        second: IpAddr,
        /// Its claim.
        second_claim: LeaseName,
    },
    /// The service asks for the very address that it would have replaced.
    #[error("the service asks for {0} itself: ask for another, or for none")]
    OwnRequest(IpAddr),
    /// A node has the requested address.
    #[error("the requested address {address} is an address of node {node}: ask for another")]
    OfNode {
        /// The requested address.
        address: IpAddr,
        /// The node.
        node: String,
    },
    /// The address is not given up yet.
    #[error("{address} is free as soon as its former owner has given it up ({by})")]
    Releasing {
        /// The address.
        address: IpAddr,
        /// The service that may still have it, or the claim that still lists it.
        by: String,
    },
    /// A requested address is of a family that the service does not have.
    #[error(
        "the request names {address}, but the ipFamilies of the service do not include {}: drop it \
         from the request, or add the family",
        Family::of(*.address)
    )]
    FamilyNotWanted {
        /// The requested address.
        address: IpAddr,
    },
    /// Two addresses of one family are requested.
    #[error("the request names both {0} and {1}: a service has one address per family")]
    TwoOfFamily(IpAddr, IpAddr),
    /// The requested addresses are from different pools.
    #[error(
        "{first} is from pool {first_pool} and {second} from pool {second_pool}: the addresses of a \
         service are from one pool"
    )]
    TwoPools {
        /// A requested address.
        first: IpAddr,
        /// Its pool.
        first_pool: String,
        /// The other requested address.
        second: IpAddr,
        /// Its pool.
        second_pool: String,
    },
    /// An annotation and a field ask for different addresses.
    #[error(
        "{field} asks for {address}, which annotation {annotation} does not name: remove one of them"
    )]
    TwoRequests {
        /// The field.
        field: &'static str,
        /// What it asks for.
        address: IpAddr,
        /// The annotation.
        annotation: &'static str,
    },
    /// An entry of the request is not an address.
    #[error(
        "{place}: `{entry}` is not an IP address: write 192.0.2.10, or 192.0.2.10,2001:db8::10"
    )]
    Malformed {
        /// The field or annotation.
        place: &'static str,
        /// What stands there.
        entry: String,
    },
}

impl Failure {
    /// The reason of those that no pool has an address for.
    pub const EXHAUSTED: &'static str = "PoolExhausted";

    /// A fixed word for the kind, for conditions and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoPool | Self::NoFamily(_) | Self::NoneServes { .. } | Self::PoolGone { .. } => {
                "NoPool"
            }
            Self::PoolDisabled { .. } => "PoolDisabled",
            Self::NotAdmitted { .. } => "NotAdmitted",
            Self::NamespaceUnseen(_) => "NamespaceUnseen",
            Self::UnknownPool { .. } => "UnknownPool",
            Self::LeftOut { .. } => "AddressLeftOut",
            Self::Unusable { .. } => "AddressUnusable",
            Self::Exhausted { .. } | Self::NoPoolForBoth | Self::PoolLacks { .. } => {
                Self::EXHAUSTED
            }
            Self::NotInPool(_) => "AddressNotInPool",
            Self::InUse { .. } => "AddressInUse",
            Self::OfNode { .. } => "NodeAddress",
            Self::Releasing { .. } => "AddressReleasing",
            Self::FamilyNotWanted { .. }
            | Self::TwoOfFamily(..)
            | Self::TwoPools { .. }
            | Self::TwoRequests { .. }
            | Self::NotInThatPool { .. }
            | Self::TwoClaims { .. }
            | Self::OwnRequest(_) => "ContradictoryRequest",
            Self::Malformed { .. } => "MalformedRequest",
        }
    }

    /// Whether the request cannot be understood: what the service has is no reason to be given up by it.
    pub const fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::Malformed { .. }
                | Self::UnknownPool { .. }
                | Self::NotInThatPool { .. }
                | Self::FamilyNotWanted { .. }
                | Self::TwoOfFamily(..)
                | Self::TwoPools { .. }
                | Self::TwoRequests { .. }
        )
    }

    /// Whether it passes by itself within a moment: nothing for people to act on.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Releasing { .. } | Self::NamespaceUnseen(_))
    }
}

/// The first few of `items`, and how many there are beside.
fn several(items: &[String], separator: &str) -> String {
    const SHOWN: usize = 8;
    first_of(items, SHOWN, separator)
}
