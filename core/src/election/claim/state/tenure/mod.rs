//! The tenure of a claim: what this node knows and does about it.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Members, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::clock::Instant;
use crate::election::claim::state::addresses::List;
use crate::election::claim::state::cold_start::Origin;
use crate::election::claim::state::former::Former;
use crate::election::claim::state::moves::{Handover, Yielding};
use crate::election::claim::state::preflight::{Ineligible, Missing};
use crate::election::claim::state::probe::Probing;
use crate::election::claim::state::provisional::Provisional;
use crate::election::claim::state::release::Leaving;
use crate::election::claim::state::unowned::{LastOwner, Unowned};
use crate::election::io::claim_state::ClaimState;
use crate::election::io::transition::Story;

/// A speaker that joined this shortly before others that started together gave something out had no part in it, either.
pub(in crate::election) const TOGETHER: Duration = Duration::from_millis(500);

/// The time after its release for which an address is as good as in use.
pub(in crate::election) const IN_USE: Duration = Duration::from_secs(1);

/// The tenures of all claims, by their names. There may be ten thousand: the nodes of the map, which are half
/// empty, hold no more than pointers, and what few of them have is boxed.
#[derive(Debug, Default)]
pub(in crate::election) struct Tenures(BTreeMap<LeaseName, Box<Tenure>>);

impl Tenures {
    pub(in crate::election) fn get(&self, name: &LeaseName) -> Option<&Tenure> {
        self.0.get(name).map(|tenure| &**tenure)
    }

    pub(in crate::election) fn get_mut(&mut self, name: &LeaseName) -> Option<&mut Tenure> {
        self.0.get_mut(name).map(|tenure| &mut **tenure)
    }

    /// Begins with one of which nothing is known, unless there is one.
    pub(in crate::election) fn begin(&mut self, now: Instant, name: &LeaseName) {
        if !self.0.contains_key(name) {
            self.0.insert(name.clone(), Box::new(Tenure::new(now)));
        }
    }

    pub(in crate::election) fn remove(&mut self, name: &LeaseName) {
        self.0.remove(name);
    }

    pub(in crate::election) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &Tenure)> + Clone {
        self.0.iter().map(|(name, tenure)| (name, &**tenure))
    }

    pub(in crate::election) fn iter_mut(
        &mut self,
    ) -> impl Iterator<Item = (&LeaseName, &mut Tenure)> {
        self.0.iter_mut().map(|(name, tenure)| (name, &mut **tenure))
    }

    pub(in crate::election) fn keys(&self) -> impl Iterator<Item = &LeaseName> {
        self.0.keys()
    }

    pub(in crate::election) fn values(&self) -> impl Iterator<Item = &Tenure> {
        self.0.values().map(|tenure| &**tenure)
    }
}

/// A claim whose owner gave it up in order, after its link was lost: what it lists was in use until then.
#[derive(Debug)]
pub(in crate::election) struct GivenUp {
    /// When this node saw it.
    at: Instant,
    /// The version of the lease that said so.
    version: Arc<str>,
}

/// The knowledge of this node about one claim, and its work on it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of the claim")]
pub(in crate::election) struct Tenure {
    /// The state at the last comparison with the table.
    state: ClaimState,
    /// This node is the owner, as far as it knows.
    mine: bool,
    /// Which ownership this is.
    ownership: u64,
    /// The interface that carries the addresses while they are mine.
    interface: Option<InterfaceName>,
    /// The list of the Lease while it was mine.
    list: List,
    /// The addresses that are served although no Lease lists them: the Lease was deleted or edited, and the operator
    /// has not listed the addresses again.
    unlisted: BTreeSet<IpAddr>,
    /// Since when it lists an address that no service asks for.
    unasked: Option<Instant>,
    /// Since when the addresses are to be in the kernel and are not.
    missing: Option<Missing>,
    /// The claim is being given up.
    leaving: Option<Leaving>,
    handover: Option<Handover>,
    yielding: Option<Box<Yielding>>,
    probing: Option<Probing>,
    /// The addresses wait for the rules of their Services.
    unproxied: bool,
    /// This node serves it, or is about to, although another is the owner.
    provisional: Option<Box<Provisional>>,
    unowned: Option<Box<Unowned>>,
    /// The last valid ownership that was seen.
    last: Option<LastOwner>,
    /// The one before, if the claim was taken from it.
    former: Option<Box<LastOwner>>,
    /// The knowledge of it from before it had an owner, and the time at which it was given to its first.
    origin: Origin,
    given_out: Option<Instant>,
    /// The last owner's node was started anew, together with this one.
    anew: bool,
    /// The last owner gave it up because its link was lost.
    given_up: Option<Box<GivenUp>>,
    /// The reason and the beginning of the change of ownership, until this node serves it.
    story: Option<Box<Story>>,
    /// The duration of that, until the Lease contains it.
    took: Option<Duration>,
    /// The Lease is to name former owners no longer.
    forgets: bool,
    /// The nodes over which this node is to spread packets, once that is known.
    members: Option<Box<Members>>,
    /// Those over which it does so, if the Lease has never named them.
    unnamed_members: Option<Box<Members>>,
    /// The owner that the Lease names.
    shown: Option<Former>,
    /// Those from whom it was taken, by whomever, and who may not know.
    untold: Vec<Former>,
    /// When this node asked for the claim nobody had ever held it, or its holder had released it, and
    /// not just now: another host may have its addresses.
    vacant: bool,
    must_read: bool,
    retry: Instant,
    ineligible: Option<Ineligible>,
    /// The address that cannot be served because a node has it, as far as it was reported.
    address_of_a_node: Option<IpAddr>,
    /// Nodes that did not serve what was handed to them.
    excluded: BTreeMap<NodeName, Instant>,
}

impl Tenure {
    pub(in crate::election) fn new(now: Instant) -> Self {
        Self {
            state: ClaimState::Foreign,
            mine: false,
            ownership: 0,
            interface: None,
            list: List::default(),
            unlisted: BTreeSet::new(),
            unasked: None,
            missing: None,
            leaving: None,
            handover: None,
            yielding: None,
            probing: None,
            unproxied: false,
            provisional: None,
            unowned: None,
            last: None,
            former: None,
            origin: Origin::Unknown,
            given_out: None,
            anew: false,
            given_up: None,
            story: None,
            took: None,
            forgets: false,
            members: None,
            unnamed_members: None,
            shown: None,
            untold: Vec::new(),
            vacant: false,
            must_read: false,
            retry: now,
            ineligible: None,
            address_of_a_node: None,
            excluded: BTreeMap::new(),
        }
    }

    /// The state of the claim at this node.
    pub(in crate::election) const fn state(&self) -> ClaimState {
        if self.mine {
            if self.leaving.is_some() {
                ClaimState::Releasing
            } else if self.probing.is_some() || self.unproxied {
                ClaimState::Preparing
            } else if self.handover.is_some() {
                ClaimState::HandingOver
            } else {
                ClaimState::Serving
            }
        } else if self.yielding.is_some() {
            ClaimState::Yielding
        } else if self.provisional.is_some() {
            if self.probing.is_some() {
                ClaimState::ProvisionalProbe
            } else {
                ClaimState::Provisional
            }
        } else if self.unowned.is_some() {
            ClaimState::Unowned
        } else {
            ClaimState::Foreign
        }
    }

    /// Notes the present state. Returns the state before if the table has no transition from it to this one.
    pub(in crate::election) fn check_state(&mut self) -> Option<ClaimState> {
        let state = self.state();
        let before = std::mem::replace(&mut self.state, state);
        if before.may_become(self.state) { None } else { Some(before) }
    }

    /// Whether this node is the owner, as far as it knows.
    pub(in crate::election) const fn is_mine(&self) -> bool {
        self.mine
    }

    /// The number of this ownership, among those of this process.
    pub(in crate::election) const fn ownership(&self) -> u64 {
        self.ownership
    }

    /// The interface that carries the addresses while this node serves them.
    pub(in crate::election) const fn interface(&self) -> Option<&InterfaceName> {
        self.interface.as_ref()
    }

    /// The list of the Lease, as it was while this node owned the claim.
    pub(in crate::election) const fn list(&self) -> &List {
        &self.list
    }

    /// The addresses that are served although no Lease lists them.
    pub(in crate::election) const fn unlisted(&self) -> &BTreeSet<IpAddr> {
        &self.unlisted
    }

    /// The beginning of the time in which the Lease lists an address that no Service asks for.
    pub(in crate::election) const fn unasked(&self) -> Option<Instant> {
        self.unasked
    }

    /// The absence of an address from the kernel that should be there.
    pub(in crate::election) const fn missing(&self) -> Option<&Missing> {
        self.missing.as_ref()
    }

    /// The reason for which this node gives the claim up.
    pub(in crate::election) const fn leaving(&self) -> Option<&Leaving> {
        self.leaving.as_ref()
    }

    /// The handover to a successor, at its owner.
    pub(in crate::election) const fn handover(&self) -> Option<&Handover> {
        self.handover.as_ref()
    }

    /// The wait for the announcement of the successor, at the node that owned the claim before.
    pub(in crate::election) fn yielding(&self) -> Option<&Yielding> {
        self.yielding.as_deref()
    }

    /// The probes for the addresses that are under way.
    pub(in crate::election) const fn probing(&self) -> Option<&Probing> {
        self.probing.as_ref()
    }

    /// Whether the addresses wait for the rules of kube-proxy.
    pub(in crate::election) const fn awaits_rules(&self) -> bool {
        self.unproxied
    }

    /// The provisional ownership by this node.
    pub(in crate::election) fn provisional(&self) -> Option<&Provisional> {
        self.provisional.as_deref()
    }

    /// The rank of this node while the claim has no valid owner.
    pub(in crate::election) fn unowned(&self) -> Option<&Unowned> {
        self.unowned.as_deref()
    }

    /// The last valid ownership that this node observed.
    pub(in crate::election) const fn last(&self) -> Option<&LastOwner> {
        self.last.as_ref()
    }

    /// The ownership before the last one, if the claim was taken from it.
    pub(in crate::election) fn former(&self) -> Option<&LastOwner> {
        self.former.as_deref()
    }

    /// The knowledge of this process from before the claim had an owner.
    pub(in crate::election) const fn origin(&self) -> Origin {
        self.origin
    }

    /// The time at which the claim was given to its first owner, if this node observed it.
    pub(in crate::election) const fn given_out(&self) -> Option<Instant> {
        self.given_out
    }

    /// The reason and the beginning of the change of ownership, until this node serves the addresses.
    pub(in crate::election) fn story(&self) -> Option<&Story> {
        self.story.as_deref()
    }

    /// The duration of the change of ownership, until the Lease contains it.
    pub(in crate::election) const fn took(&self) -> Option<Duration> {
        self.took
    }

    /// Whether the Lease is to name former owners no longer.
    pub(in crate::election) const fn forgets_former_owners(&self) -> bool {
        self.forgets
    }

    /// The nodes over which this node is to spread packets, as long as it is the owner and that is known.
    pub(in crate::election) fn members(&self) -> Option<&Members> {
        self.members.as_deref()
    }

    /// The nodes over which this node spreads packets, if the Lease has never named them.
    pub(in crate::election) fn unnamed_members(&self) -> Option<&Members> {
        self.unnamed_members.as_deref()
    }

    /// The owner that the Lease names.
    pub(in crate::election) const fn shown(&self) -> Option<&Former> {
        self.shown.as_ref()
    }

    /// The previous owners that may not have observed their loss.
    pub(in crate::election) fn untold(&self) -> &[Former] {
        &self.untold
    }

    /// Whether the claim was vacant when this node asked for it, and its addresses were not in use a moment before:
    /// another host may have them.
    pub(in crate::election) const fn was_vacant(&self) -> bool {
        self.vacant
    }

    /// Whether the Lease must be read before the next write.
    pub(in crate::election) const fn must_read(&self) -> bool {
        self.must_read
    }

    /// The earliest time of the next request for the claim.
    pub(in crate::election) const fn retry(&self) -> Instant {
        self.retry
    }

    /// The time in which this node does not take the claim, after it could not serve it.
    pub(in crate::election) const fn ineligible(&self) -> Option<&Ineligible> {
        self.ineligible.as_ref()
    }

    /// The nodes that did not serve the claim after a handover, each with the end of its exclusion.
    pub(in crate::election) const fn excluded(&self) -> &BTreeMap<NodeName, Instant> {
        &self.excluded
    }

    /// Whether what the vacant claim lists was in use until a moment ago: no other host can have it yet.
    pub(in crate::election) fn was_in_use(&self, now: Instant, stored: &Stored<Claim>) -> bool {
        self.given_up.as_ref().is_some_and(|given_up| {
            given_up.version == stored.resource_version && now < given_up.at + IN_USE
        })
    }

    /// This node serves it, or is about to, or has done so until a moment ago.
    pub(in crate::election) const fn counts(&self) -> bool {
        self.mine || self.yielding.is_some() || self.provisional.is_some()
    }
}
