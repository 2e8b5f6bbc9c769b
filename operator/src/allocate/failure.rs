//! The reasons for which a service lacks an address that it requests, each with its remedy.

use std::net::IpAddr;

use leasehold_core::explain::first_of;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

use super::sharing::Clash;
use super::unusable::Why;

/// The reason for which a service lacks an address that it requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no pool at all.
    #[error("no IPAddressPool exists: create one")]
    NoPool,
    /// No pool holds addresses of this family.
    #[error(
        "no IPAddressPool contains {0} addresses: add some to a pool, or change the ipFamilies of the \
         Service"
    )]
    NoFamily(Family),
    /// The pools that hold addresses of this family do not serve the service.
    #[error(
        "no IPAddressPool gives this Service an {family} address: {}: change one of these pools, or \
         add a pool",
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
        "no free {family} address in {}: add addresses to a pool",
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
        "no IPAddressPool that serves this Service has a free address of each family: add addresses of \
         the missing family to a pool, or set ipFamilyPolicy to PreferDualStack"
    )]
    NoPoolForBoth,
    /// The pool of the service's addresses has none of the other family.
    #[error("pool {pool} has no free {family} address: add addresses to it")]
    PoolLacks {
        /// The pool.
        pool: String,
        /// The family.
        family: Family,
    },
    /// The pool of the service's addresses is gone.
    #[error(
        "pool {pool} does not exist anymore, and all addresses of a Service come from one pool: create \
         the pool again, or set the annotation leasehold.dev/reassign to replace all addresses"
    )]
    PoolGone {
        /// The pool.
        pool: String,
    },
    /// The pool gives out nothing more.
    #[error(
        "pool {pool} is disabled: request an address of another pool, or set spec.disabled of the pool \
         to false"
    )]
    PoolDisabled {
        /// The pool.
        pool: String,
    },
    /// The pool does not serve the service.
    #[error(
        "pool {pool} {scope}: request an address of another pool, or change spec.serviceAllocation of \
         the pool"
    )]
    NotAdmitted {
        /// The pool.
        pool: String,
        /// The services that it serves, as a predicate.
        scope: String,
    },
    /// The decision about a pool needs the labels of a namespace that was not seen yet.
    #[error("the labels of namespace {0} have not been read yet")]
    NamespaceUnseen(String),
    /// The service asks for a pool that does not exist.
    #[error(
        "{place} requests pool {pool}, which does not exist: {}",
        if .pools.is_empty() {
            "create it; no IPAddressPool exists yet".to_owned()
        } else {
            format!("request one of {}, or create it", several(.pools, ", "))
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
        "{place} requests pool {pool}, but the requested address {address} is in {}: request an address \
         of pool {pool}, or remove one of the two requests",
        match .owner {
            Some(owner) => format!("pool {owner}"),
            None => "no IPAddressPool".to_owned(),
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
        "no IPAddressPool contains the requested address {0}: request another one, or add it to a pool"
    )]
    NotInPool(IpAddr),
    /// The pool leaves the requested address out.
    #[error(
        "pool {pool} excludes the requested address {address}, because it ends in .0 or .255 \
         (avoidBuggyIPs): request another one"
    )]
    LeftOut {
        /// The requested address.
        address: IpAddr,
        /// Its pool.
        pool: String,
    },
    /// No host can have the requested address.
    #[error("no host can use the requested address {address}: it is {why}; request another one")]
    Unusable {
        /// The requested address.
        address: IpAddr,
        /// The reason.
        why: Why,
    },
    /// Another service has the requested address.
    #[error("the requested address {address} belongs to Service {owner}{clash}")]
    InUse {
        /// The requested address.
        address: IpAddr,
        /// Its owner, as `namespace/name`.
        owner: String,
        /// The reason for which the two do not share it.
        clash: Clash,
    },
    /// The requested addresses belong to services that do not share with each other.
    #[error(
        "the addresses of a Service belong to one claim, but {first} belongs to claim {first_claim} \
         and {second} to claim {second_claim}: request addresses of the same Service"
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
    #[error(
        "the Service requests {0} explicitly, so it is not replaced: request another one, or remove \
         the request"
    )]
    OwnRequest(IpAddr),
    /// A node has the requested address.
    #[error("the requested address {address} is an address of node {node}: request another one")]
    OfNode {
        /// The requested address.
        address: IpAddr,
        /// The node.
        node: String,
    },
    /// The address is not given up yet.
    #[error("{address} becomes free when its former owner has released it ({by})")]
    Releasing {
        /// The address.
        address: IpAddr,
        /// The service that may still have it, or the claim that still lists it.
        by: String,
    },
    /// A requested address is of a family that the service does not have.
    #[error(
        "the request contains {address}, but the ipFamilies of the Service do not include {}: remove \
         it from the request, or add the family",
        Family::of(*.address)
    )]
    FamilyNotWanted {
        /// The requested address.
        address: IpAddr,
    },
    /// Two addresses of one family are requested.
    #[error(
        "the request contains both {0} and {1}, but a Service has one address per family: remove one \
         of them"
    )]
    TwoOfFamily(IpAddr, IpAddr),
    /// The requested addresses are from different pools.
    #[error(
        "{first} is in pool {first_pool} and {second} in pool {second_pool}, but all addresses of a \
         Service come from one pool: request addresses of one pool"
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
        "{field} requests {address}, which is not in the annotation {annotation}: remove one of the two"
    )]
    TwoRequests {
        /// The field.
        field: &'static str,
        /// The requested address.
        address: IpAddr,
        /// The annotation.
        annotation: &'static str,
    },
    /// An entry of the request is not an address.
    #[error(
        "{place}: `{entry}` is not a valid IP address: write 192.0.2.10, or 192.0.2.10,2001:db8::10"
    )]
    Malformed {
        /// The field or annotation.
        place: &'static str,
        /// The invalid entry.
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
