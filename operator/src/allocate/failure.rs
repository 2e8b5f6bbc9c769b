//! Why a service did not get what it asked for, in words that say what to change.

use std::net::IpAddr;

use leasehold_crds::range::Family;

/// Why a service did not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no pool at all.
    #[error("there is no IPAddressPool: create one with addresses for this service")]
    NoPool,
    /// No pool serves services that name no address with this family.
    #[error(
        "no IPAddressPool with autoAssign holds {0} addresses: add some to a pool, or change the \
         ipFamilies of the service"
    )]
    NoFamily(Family),
    /// The pools that could serve the service have no free address.
    #[error(
        "no {family} address is free in {}: add addresses, or delete services that need none",
        .pools.join(", ")
    )]
    Exhausted {
        /// The family.
        family: Family,
        /// The pools that hold addresses of the family.
        pools: Vec<String>,
    },
    /// Each family has room, but no pool has room for both.
    #[error(
        "no IPAddressPool with autoAssign has both an IPv4 and an IPv6 address free: add addresses \
         of the other family to a pool, or set ipFamilyPolicy to PreferDualStack"
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
    /// No pool holds the requested address.
    #[error(
        "no IPAddressPool holds the requested address {0}: ask for another, or add it to a pool"
    )]
    NotInPool(IpAddr),
    /// Another service has the requested address.
    #[error("the requested address {address} belongs to service {owner}: ask for another")]
    InUse {
        /// The requested address.
        address: IpAddr,
        /// Its owner, as `namespace/name`.
        owner: String,
    },
    /// A node has the requested address.
    #[error("the requested address {address} is an address of node {node}: ask for another")]
    OfNode {
        /// The requested address.
        address: IpAddr,
        /// The node.
        node: String,
    },
    /// The address is still in use under the claim of its former owner.
    #[error("{address} is free as soon as its former owner has given it up (claim {claim})")]
    Releasing {
        /// The address.
        address: IpAddr,
        /// The claim that still lists it.
        claim: String,
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
    /// A fixed word for the kind, for conditions and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoPool | Self::NoFamily(_) => "NoPool",
            Self::Exhausted { .. } | Self::NoPoolForBoth | Self::PoolLacks { .. } => {
                "PoolExhausted"
            }
            Self::NotInPool(_) => "AddressNotInPool",
            Self::InUse { .. } => "AddressInUse",
            Self::OfNode { .. } => "NodeAddress",
            Self::Releasing { .. } => "AddressReleasing",
            Self::FamilyNotWanted { .. }
            | Self::TwoOfFamily(..)
            | Self::TwoPools { .. }
            | Self::TwoRequests { .. } => "ContradictoryRequest",
            Self::Malformed { .. } => "MalformedRequest",
        }
    }

    /// Whether it passes by itself within a moment: nothing for people to act on.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Releasing { .. })
    }
}
