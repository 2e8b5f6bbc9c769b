//! The addresses that a claim lists.

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::Claim;

/// The services of a claim, and their addresses. Only the operator puts an address there, and only when
/// no other claim lists it: however old a speaker's view of the services is, an address is never on the
/// lists of two claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::election) struct List {
    pub(in crate::election::claim) services: Vec<String>,
    pub(in crate::election::claim) uids: Vec<String>,
    pub(in crate::election::claim) addresses: AddressSet,
    pub(in crate::election::claim) pool: Option<String>,
    pub(in crate::election::claim) withdrawn: AddressSet,
}

impl List {
    /// The addresses.
    pub(in crate::election) const fn addresses(&self) -> &AddressSet {
        &self.addresses
    }

    pub(in crate::election) fn is_of(&self, record: &Claim) -> bool {
        self.addresses == record.addresses
            && self.services == record.services
            && self.uids == record.uids
            && self.pool == record.pool
            && self.withdrawn == record.withdrawn
    }

    pub(in crate::election) fn of(record: &Claim) -> Self {
        Self {
            services: record.services.clone(),
            uids: record.uids.clone(),
            addresses: record.addresses.clone(),
            pool: record.pool.clone(),
            withdrawn: record.withdrawn.clone(),
        }
    }

    /// The same list without its addresses.
    pub(in crate::election) fn emptied(&self) -> Self {
        let (addresses, withdrawn) = Default::default();
        Self { addresses, withdrawn, ..self.clone() }
    }
}
