//! Probes for the addresses of a claim before they are served (RFC 5227 section 2.1.1).

use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::state::probe::ROUNDS;
use crate::election::claim::state::release::{Leaving, Obstacle};
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::io::event::{Action, Fact, Frame};

/// A process that looks at its probes this late may have been stopped, with the answers still to be read: they are
/// sent again.
pub(in crate::election) const PROBED_LATE: Duration = Duration::from_millis(200);

impl Claims {
    /// Begins to probe for the addresses of a claim that nobody holds.
    pub(in crate::election) fn probe_first(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        stored: &Stored<Claim>,
        actions: &mut Vec<Action>,
    ) {
        let Some(interface) = &stored.record.interface else { return };
        self.probe_on(cx, now, name, interface, &stored.record.addresses, actions);
    }

    /// Begins to probe for `addresses` on `interface`.
    pub(in crate::election) fn probe_on(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        interface: &InterfaceName,
        addresses: &AddressSet,
        actions: &mut Vec<Action>,
    ) {
        self.with(cx, name, |tenure| tenure.probe(now, 0));
        Self::probe(interface, addresses, actions);
    }

    /// Asks everybody for `addresses`.
    pub(in crate::election) fn probe(
        interface: &InterfaceName,
        addresses: &AddressSet,
        actions: &mut Vec<Action>,
    ) {
        for address in addresses {
            let frame = Frame::Probe(*address);
            actions.push(Action::Transmit { interface: interface.clone(), frame });
        }
    }

    pub(in crate::election) fn advance_probes(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let probing =
            |name: &&LeaseName| self.tenures.get(name).is_some_and(|t| t.probing().is_some());
        let names: Vec<LeaseName> = self.open.iter().filter(probing).cloned().collect();
        for name in names {
            let Some(probing) = self.tenures.get(&name).and_then(|t| t.probing()) else {
                continue;
            };
            let again = probing.second.is_some_and(|at| now >= at);
            let over = now >= probing.until;
            let late = now >= probing.until + PROBED_LATE;
            let missed = over && probing.missed && probing.round < ROUNDS;
            let round = probing.round + u32::from(missed);
            let interface = self.tenures.get(&name).and_then(|tenure| tenure.interface().cloned());
            if (late || missed)
                && let Some(stored) = cx.claims().get(&name)
                && let Some(interface) = &interface
            {
                let addresses = stored.record.addresses.clone();
                self.with(cx, &name, |tenure| tenure.probe(now, round));
                Self::probe(interface, &addresses, actions);
                continue;
            }
            if again
                && !over
                && let (Some(stored), Some(interface)) = (cx.claims().get(&name), interface)
            {
                Self::probe(&interface, &stored.record.addresses, actions);
            }
            self.with(cx, &name, |tenure| {
                if over {
                    tenure.end_probing();
                } else if again {
                    tenure.note_second_probe();
                }
            });
            if over {
                self.serve_provisionally(cx, now, &name, actions);
            }
        }
    }

    /// The claims under which `address` is, was or will be served here.
    pub(in crate::election) fn claims_of(&self, address: IpAddr) -> Vec<LeaseName> {
        let held = |name: &&LeaseName| self.tenures.get(name).is_some_and(Tenure::counts);
        self.open.governing(address).filter(held).cloned().collect()
    }

    /// Says once that an address cannot be served because a node has it.
    pub(in crate::election) fn report_address_of_a_node(
        &mut self,
        cx: &Context,
        name: &LeaseName,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) {
        let found = cx.address_of_a_node(claim);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        let address = found.as_ref().map(|(address, _)| *address);
        let known = tenure.set_address_of_a_node(address);
        if let Some((address, node)) = found.filter(|_| known != address) {
            let cause = format!("node {node} itself has this address");
            Context::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
        }
    }

    /// A host that is no speaker has the address of a new claim.
    pub(in crate::election) fn refuse_conflict(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        address: IpAddr,
        mac: MacAddr,
        actions: &mut Vec<Action>,
    ) {
        let cause = format!("{address} is used by {mac}, which is no speaker");
        self.exclude_self(cx, now, name);
        self.with(cx, name, |tenure| tenure.refuse(Leaving::new(Obstacle::Address, &cause)));
        Context::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
    }
}
