//! Who may take claims, for many at once: claims that ask for the same share a list.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;
use leasehold_crds::lease::Members;
use leasehold_crds::names::{InterfacePattern, NodeName};

use crate::desired::{Desired, DesiredClaim};
use crate::election::context::Context;
use crate::election::placement::eligibility::{answers, bar, prefer_answering};

/// All of a claim that says who may take it, as far as nodes can be told apart by it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::election) struct Asked<'a> {
    /// Which of them are left out for another reason.
    sieve: usize,
    nodes: *const BTreeSet<NodeName>,
    interfaces: &'a [InterfacePattern],
    /// The nodes with endpoints, where one that cannot spread packets has to have one.
    spread: Option<*const Members>,
    /// Of each address the subnets that hold it, by their numbers.
    subnets: BTreeSet<Vec<usize>>,
}

/// Lists of candidates, each made once.
#[derive(Debug)]
pub(in crate::election) struct Candidates<'a> {
    cx: &'a Context,
    desired: &'a Desired,
    /// All subnets of which any node says that it is in them.
    subnets: Vec<IpNet>,
    lists: BTreeMap<Asked<'a>, Rc<[&'a NodeName]>>,
}

impl<'a> Candidates<'a> {
    pub(in crate::election) fn new(cx: &'a Context, desired: &'a Desired) -> Self {
        let own = cx.interfaces.values().flat_map(|link| &link.addresses);
        let sessions = cx.sessions.stored();
        let theirs = sessions.flat_map(|stored| &stored.record.interfaces);
        let theirs = theirs.flat_map(|link| &link.addresses);
        let subnets: BTreeSet<IpNet> = own.chain(theirs).map(IpNet::trunc).collect();
        let subnets = subnets.into_iter().collect();
        Self { cx, desired, subnets, lists: BTreeMap::new() }
    }

    /// The live nodes that may take `claim`, as far as everybody can tell, and that `keep` does not leave
    /// out. It is asked once for all claims with this `sieve`, and leaves out the same nodes of each.
    pub(in crate::election) fn of(
        &mut self,
        claim: &'a DesiredClaim,
        sieve: usize,
        keep: impl Fn(&NodeName) -> bool,
    ) -> Rc<[&'a NodeName]> {
        let holding = |address: &IpAddr| {
            let subnets = self.subnets.iter().enumerate();
            subnets.filter(|(_, net)| net.contains(address)).map(|(number, _)| number).collect()
        };
        let asked = Asked {
            sieve,
            nodes: std::ptr::from_ref(&*claim.nodes),
            interfaces: &claim.interfaces,
            spread: claim.spread.as_ref().map(|spread| std::ptr::from_ref(&*spread.members)),
            subnets: claim.addresses.iter().map(holding).collect(),
        };
        let (cx, desired) = (self.cx, self.desired);
        let list = self.lists.entry(asked).or_insert_with(|| {
            cx.candidates(claim, desired).into_iter().filter(|node| keep(node)).collect()
        });
        Rc::clone(list)
    }
}

impl Context {
    /// The live nodes that may take `claim`, as far as everybody can tell, in the order of their names.
    pub(in crate::election) fn candidates<'a>(
        &'a self,
        claim: &'a DesiredClaim,
        desired: &Desired,
    ) -> Vec<&'a NodeName> {
        // Often there are fewer than nodes: those with an endpoint.
        let may = claim.nodes.iter().filter_map(|node| {
            let session = &self.live_session(node)?.record;
            let state = self.state_of(node, desired);
            let subnets = |vip| self.is_in_a_subnet(vip);
            let interface = bar(claim, node, state, session, subnets).ok()?;
            Some((node, answers(claim, session, interface)))
        });
        prefer_answering(may.collect())
    }
}
