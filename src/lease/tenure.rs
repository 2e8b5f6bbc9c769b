//! What this node knows and does about one claim.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use super::carrier::CARRIER_LOST;
use super::claims::released_by;
use super::conflict::Probing;
use super::eligible::{Ineligible, Missing};
use super::handover::{Handover, Yielding};
use super::improve::TOGETHER;
use super::joining::Origin;
use super::leaving::Leaving;
use super::listed::List;
use super::old_owners::Former;
use super::orphans::{LastOwner, Orphan};
use super::provisional::Provisional;
use super::story::Story;
use crate::clock::Instant;
use crate::desired::DesiredClaim;

/// How long after its owner gave it up an address is as good as in use.
const IN_USE: Duration = Duration::from_secs(1);

/// The tenures of all claims, by their names. There may be ten thousand: the nodes of the map, which are half
/// empty, hold no more than pointers, and what few of them have is boxed.
#[derive(Debug, Default)]
pub(super) struct Tenures(BTreeMap<LeaseName, Box<Tenure>>);

impl Tenures {
    pub(super) fn get(&self, name: &LeaseName) -> Option<&Tenure> {
        self.0.get(name).map(|tenure| &**tenure)
    }

    pub(super) fn get_mut(&mut self, name: &LeaseName) -> Option<&mut Tenure> {
        self.0.get_mut(name).map(|tenure| &mut **tenure)
    }

    /// Begins with one of which nothing is known, unless there is one.
    pub(super) fn begin(&mut self, now: Instant, name: &LeaseName) {
        if !self.0.contains_key(name) {
            self.0.insert(name.clone(), Box::new(Tenure::new(now)));
        }
    }

    pub(super) fn remove(&mut self, name: &LeaseName) {
        self.0.remove(name);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &Tenure)> + Clone {
        self.0.iter().map(|(name, tenure)| (name, &**tenure))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&LeaseName, &mut Tenure)> {
        self.0.iter_mut().map(|(name, tenure)| (name, &mut **tenure))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &LeaseName> {
        self.0.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Tenure> {
        self.0.values().map(|tenure| &**tenure)
    }
}

/// A claim whose owner gave it up in order, after its link was lost: what it lists was in use until then.
#[derive(Debug)]
pub(super) struct GivenUp {
    /// When this node saw it.
    pub(super) at: Instant,
    /// The version of the lease that said so.
    pub(super) version: Arc<str>,
}

/// What this node knows and does about one claim.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of the claim")]
pub(super) struct Tenure {
    /// This node is the owner, as far as it knows.
    pub(super) mine: bool,
    /// Which ownership this is.
    pub(super) ownership: u64,
    /// The interface that carries the addresses while they are mine.
    pub(super) interface: Option<InterfaceName>,
    /// What the lease listed while it was mine.
    pub(super) list: List,
    /// What is served although no lease lists it: somebody deleted or edited the lease, and the operator
    /// has not listed the addresses again.
    pub(super) unlisted: BTreeSet<IpAddr>,
    /// Since when it lists an address that no service asks for.
    pub(super) unasked: Option<Instant>,
    /// Since when the addresses are to be in the kernel and are not.
    pub(super) missing: Option<Missing>,
    /// The claim is being given up.
    pub(super) leaving: Option<Leaving>,
    pub(super) handover: Option<Handover>,
    pub(super) yielding: Option<Box<Yielding>>,
    pub(super) probing: Option<Probing>,
    /// The addresses wait for the rules of their Services.
    pub(super) unproxied: bool,
    /// This node serves it, or is about to, although another is the owner.
    pub(super) provisional: Option<Box<Provisional>>,
    pub(super) orphan: Option<Box<Orphan>>,
    /// The last valid ownership that was seen.
    pub(super) last: Option<LastOwner>,
    /// The one before, if the claim was taken from it.
    pub(super) former: Option<Box<LastOwner>>,
    /// What was known of it before it had an owner, and when it was given to its first.
    pub(super) origin: Origin,
    pub(super) given_out: Option<Instant>,
    /// The last owner's node was started anew, together with this one.
    pub(super) anew: bool,
    /// The last owner gave it up because its link was lost.
    pub(super) given_up: Option<Box<GivenUp>>,
    /// How this node comes to serve it, until it does.
    pub(super) story: Option<Box<Story>>,
    /// How long that took, until the claim says so.
    pub(super) took: Option<Duration>,
    /// Whom the claim names.
    pub(super) shown: Option<Former>,
    /// Those from whom it was taken, by whomever, and who may not know.
    pub(super) untold: Vec<Former>,
    /// When this node asked for the claim nobody had ever held it, or its holder had released it, and
    /// not just now: another host may have its addresses.
    pub(super) vacant: bool,
    pub(super) must_read: bool,
    pub(super) retry: Instant,
    pub(super) ineligible: Option<Ineligible>,
    /// The address that cannot be served because a node has it, as far as it was reported.
    pub(super) address_of_a_node: Option<IpAddr>,
    /// Nodes that did not serve what was handed to them.
    pub(super) excluded: BTreeMap<NodeName, Instant>,
}

impl Tenure {
    fn new(now: Instant) -> Self {
        Self {
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
            orphan: None,
            last: None,
            former: None,
            origin: Origin::Unknown,
            given_out: None,
            anew: false,
            given_up: None,
            story: None,
            took: None,
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

    /// The claim has a valid owner. Returns whether it has been given out just now.
    pub(super) fn note_owner(&mut self, now: Instant, owner: Option<LastOwner>) -> bool {
        let anew = std::mem::take(&mut self.anew);
        let changed = |before: &LastOwner| {
            owner.as_ref().is_some_and(|owner| {
                owner.session != before.session && before.successor.as_ref() != Some(&owner.node)
            })
        };
        let owners = self.last.as_ref().zip(owner.as_ref());
        if owners.is_some_and(|(before, owner)| before.session != owner.session) {
            self.given_out = None;
        }
        if let Some(before) = self.last.take_if(|before| changed(before)) {
            self.former = Some(Box::new(before));
            self.origin = Origin::Unknown;
        }
        let first = self.former.is_none() && self.origin != Origin::Unknown;
        let given_out = self.last.is_none() && owner.is_some() && (first || anew);
        if given_out {
            // Of those that started together nobody knew all.
            let together = anew || self.origin == Origin::Awaiting;
            self.given_out = Some(if together { now - TOGETHER } else { now });
        }
        self.given_up = None;
        self.last = owner;
        given_out
    }

    /// The claim has no owner: notes whether the last one gave it up because its link was lost.
    pub(super) fn note_given_up(&mut self, now: Instant, stored: &Stored<Claim>) {
        let Some(last) = self.last.as_ref().filter(|_| self.given_up.is_none()) else { return };
        let record = &stored.record;
        let next = record.transitions == last.transitions.saturating_add(1);
        if record.holder.is_none() && next && record.cause == released_by(&last.node, CARRIER_LOST)
        {
            let version = Arc::clone(&stored.resource_version);
            self.given_up = Some(Box::new(GivenUp { at: now, version }));
        }
    }

    /// Whether what the vacant claim lists was in use until a moment ago: no other host can have it yet.
    pub(super) fn was_in_use(&self, now: Instant, stored: &Stored<Claim>) -> bool {
        self.given_up.as_ref().is_some_and(|given_up| {
            given_up.version == stored.resource_version && now < given_up.at + IN_USE
        })
    }

    /// This node serves it, or is about to, or has done so until a moment ago.
    pub(super) const fn counts(&self) -> bool {
        self.mine || self.yielding.is_some() || self.provisional.is_some()
    }

    /// The lease lists something else while the claim is mine. What it does not list any more was not
    /// taken off by anybody who may: it is served on.
    pub(super) fn relist(&mut self, list: List, claim: Option<&DesiredClaim>) {
        let before = std::mem::replace(&mut self.list, list);
        let gone = before.addresses.difference(&self.list.addresses);
        let asked = |address: &&IpAddr| claim.is_some_and(|it| it.addresses.contains(address));
        self.unlisted.extend(gone.filter(asked).copied());
    }

    /// Forgets everything that came with owning the claim.
    pub(super) fn end(&mut self) {
        self.mine = false;
        self.story = None;
        self.took = None;
        self.unlisted.clear();
        self.unasked = None;
        self.missing = None;
        self.leaving = None;
        self.handover = None;
        self.probing = None;
        self.unproxied = false;
    }
}
