//! The view that the tenant gives back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::datapath::gate::{self, View};
use leasehold_core::election::{Layout, SpreadAddress, Spreading};

/// The spreading that is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The last one for which all was done that could be.
    pub applied: Option<Arc<Spreading>>,
    /// The number of addresses whose packets this node spreads over others.
    pub addresses: usize,
    /// Why packets take the slow path, if so.
    pub slow: Option<String>,
    /// Why it is not as it should be, if so.
    pub failure: Option<String>,
}

/// The gate that additions pass.
pub type Gate = gate::Gate<Placed>;

impl View for Placed {
    type Wanted = Spreading;

    fn applied(&self) -> Option<&Spreading> {
        self.applied.as_deref()
    }

    /// Packets of clients have to go where they should. Those of connections that no node knows may be dropped a little
    /// longer: the table of a node that has not heard yet that it is the owner resets none of them.
    fn settled<'a>(applied: &'a Spreading, wanted: &'a Spreading) -> impl Fn(&IpAddr) -> bool + 'a {
        // Most addresses share their layout with others.
        let compared: RefCell<BTreeMap<[*const Layout; 2], bool>> = RefCell::default();
        let alike = move |one: &Layout, other: &Layout| {
            let of = [std::ptr::from_ref(one), std::ptr::from_ref(other)];
            *compared.borrow_mut().entry(of).or_insert_with(|| one.leads_as(other))
        };
        let of = |it: &'a SpreadAddress| (&it.ports, it.by_client, &it.interface, &it.returns);
        move |ip| match (applied.addresses.get(ip), wanted.addresses.get(ip)) {
            (Some(one), Some(other)) => of(one) == of(other) && alike(&one.layout, &other.layout),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::Way;

    use super::*;
    use crate::datapath::spread::plan::testing::{address, hop, ip, layout, spreading};

    #[test]
    fn an_address_waits_for_the_way_of_new_connections_and_not_for_that_of_unknown_ones() {
        let met = |by| [Way::Here, Way::To(hop(12, by)), Way::To(hop(13, 1))];
        let of = |owner, ways: &[Way], orders: &[&[u16]]| {
            let layout = Layout { owner: Some(owner), ..layout(ways, orders) };
            Some(address(Some(1), &Arc::new(layout)))
        };
        let now = of(1, &met(1), &[&[0], &[1], &[1, 0]]).unwrap();
        for (name, then, settled) in [
            ("the same", Some(now.clone()), true),
            ("another owner", of(0, &met(1), &[&[0], &[1], &[1, 0]]), true),
            ("nodes before", of(1, &met(1), &[&[0], &[1, 2], &[1, 0]]), true),
            ("a bucket has another node", of(1, &met(1), &[&[0], &[2], &[1, 0]]), false),
            ("this node had it", of(1, &met(1), &[&[0], &[1, 0], &[1, 0]]), false),
            ("a node is met elsewhere", of(1, &met(2), &[&[0], &[1], &[1, 0]]), false),
            ("announced elsewhere", Some(SpreadAddress { interface: None, ..now.clone() }), false),
            ("by the client", Some(SpreadAddress { by_client: true, ..now.clone() }), false),
            ("not spread", None, false),
        ] {
            let wanted = spreading(then.map(|then| (ip(1), then)));
            let applied = spreading([(ip(1), now.clone())]);
            let is_settled = Placed::settled(&applied, &wanted);
            assert_eq!(is_settled(&ip(1)), settled, "{name}");
            assert!(is_settled(&ip(2)), "{name}: another one");
        }
    }
}
