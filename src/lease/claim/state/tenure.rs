//! claim/state/tenure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::lease::claim::state::addresses::List;
use crate::lease::claim::state::cold_start::Origin;
use crate::lease::claim::state::former::Former;
use crate::lease::claim::state::interface::CARRIER_LOST;
use crate::lease::claim::state::moves::{Handover, Yielding};
use crate::lease::claim::state::preflight::{Ineligible, Missing};
use crate::lease::claim::state::probe::Probing;
use crate::lease::claim::state::provisional::Provisional;
use crate::lease::claim::state::reconcile::released_by;
use crate::lease::claim::state::release::Leaving;
use crate::lease::claim::state::unowned::{LastOwner, Orphan};
use crate::lease::io::transition::Story;

/// Who joined so shortly before speakers that started together gave something out had no part in it, either.
pub(in crate::lease) const TOGETHER: Duration = Duration::from_millis(500);

/// ... where it was given out so lately that the policy has no say.
pub(in crate::lease) const JOINED: &str = "a node has joined";

/// How long after its owner gave it up an address is as good as in use.
pub(in crate::lease) const IN_USE: Duration = Duration::from_secs(1);

/// The tenures of all claims, by their names. There may be ten thousand: the nodes of the map, which are half
/// empty, hold no more than pointers, and what few of them have is boxed.
#[derive(Debug, Default)]
pub(in crate::lease) struct Tenures(BTreeMap<LeaseName, Box<Tenure>>);

impl Tenures {
    pub(in crate::lease) fn get(&self, name: &LeaseName) -> Option<&Tenure> {
        self.0.get(name).map(|tenure| &**tenure)
    }

    pub(in crate::lease) fn get_mut(&mut self, name: &LeaseName) -> Option<&mut Tenure> {
        self.0.get_mut(name).map(|tenure| &mut **tenure)
    }

    /// Begins with one of which nothing is known, unless there is one.
    pub(in crate::lease) fn begin(&mut self, now: Instant, name: &LeaseName) {
        if !self.0.contains_key(name) {
            self.0.insert(name.clone(), Box::new(Tenure::new(now)));
        }
    }

    pub(in crate::lease) fn remove(&mut self, name: &LeaseName) {
        self.0.remove(name);
    }

    pub(in crate::lease) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &Tenure)> + Clone {
        self.0.iter().map(|(name, tenure)| (name, &**tenure))
    }

    pub(in crate::lease) fn iter_mut(&mut self) -> impl Iterator<Item = (&LeaseName, &mut Tenure)> {
        self.0.iter_mut().map(|(name, tenure)| (name, &mut **tenure))
    }

    pub(in crate::lease) fn keys(&self) -> impl Iterator<Item = &LeaseName> {
        self.0.keys()
    }

    pub(in crate::lease) fn values(&self) -> impl Iterator<Item = &Tenure> {
        self.0.values().map(|tenure| &**tenure)
    }
}

/// A claim whose owner gave it up in order, after its link was lost: what it lists was in use until then.
#[derive(Debug)]
pub(in crate::lease) struct GivenUp {
    /// When this node saw it.
    pub(in crate::lease) at: Instant,
    /// The version of the lease that said so.
    pub(in crate::lease) version: Arc<str>,
}

/// What this node knows and does about one claim.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of the claim")]
pub(in crate::lease) struct Tenure {
    /// This node is the owner, as far as it knows.
    pub(in crate::lease) mine: bool,
    /// Which ownership this is.
    pub(in crate::lease) ownership: u64,
    /// The interface that carries the addresses while they are mine.
    pub(in crate::lease) interface: Option<InterfaceName>,
    /// What the lease listed while it was mine.
    pub(in crate::lease) list: List,
    /// What is served although no lease lists it: somebody deleted or edited the lease, and the operator
    /// has not listed the addresses again.
    pub(in crate::lease) unlisted: BTreeSet<IpAddr>,
    /// Since when it lists an address that no service asks for.
    pub(in crate::lease) unasked: Option<Instant>,
    /// Since when the addresses are to be in the kernel and are not.
    pub(in crate::lease) missing: Option<Missing>,
    /// The claim is being given up.
    pub(in crate::lease) leaving: Option<Leaving>,
    pub(in crate::lease) handover: Option<Handover>,
    pub(in crate::lease) yielding: Option<Box<Yielding>>,
    pub(in crate::lease) probing: Option<Probing>,
    /// The addresses wait for the rules of their Services.
    pub(in crate::lease) unproxied: bool,
    /// This node serves it, or is about to, although another is the owner.
    pub(in crate::lease) provisional: Option<Box<Provisional>>,
    pub(in crate::lease) orphan: Option<Box<Orphan>>,
    /// The last valid ownership that was seen.
    pub(in crate::lease) last: Option<LastOwner>,
    /// The one before, if the claim was taken from it.
    pub(in crate::lease) former: Option<Box<LastOwner>>,
    /// What was known of it before it had an owner, and when it was given to its first.
    pub(in crate::lease) origin: Origin,
    pub(in crate::lease) given_out: Option<Instant>,
    /// The last owner's node was started anew, together with this one.
    pub(in crate::lease) anew: bool,
    /// The last owner gave it up because its link was lost.
    pub(in crate::lease) given_up: Option<Box<GivenUp>>,
    /// How this node comes to serve it, until it does.
    pub(in crate::lease) story: Option<Box<Story>>,
    /// How long that took, until the claim says so.
    pub(in crate::lease) took: Option<Duration>,
    /// Whom the claim names.
    pub(in crate::lease) shown: Option<Former>,
    /// Those from whom it was taken, by whomever, and who may not know.
    pub(in crate::lease) untold: Vec<Former>,
    /// When this node asked for the claim nobody had ever held it, or its holder had released it, and
    /// not just now: another host may have its addresses.
    pub(in crate::lease) vacant: bool,
    pub(in crate::lease) must_read: bool,
    pub(in crate::lease) retry: Instant,
    pub(in crate::lease) ineligible: Option<Ineligible>,
    /// The address that cannot be served because a node has it, as far as it was reported.
    pub(in crate::lease) address_of_a_node: Option<IpAddr>,
    /// Nodes that did not serve what was handed to them.
    pub(in crate::lease) excluded: BTreeMap<NodeName, Instant>,
}

impl Tenure {
    pub(in crate::lease) fn new(now: Instant) -> Self {
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
    pub(in crate::lease) fn note_owner(&mut self, now: Instant, owner: Option<LastOwner>) -> bool {
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
    pub(in crate::lease) fn note_given_up(&mut self, now: Instant, stored: &Stored<Claim>) {
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
    pub(in crate::lease) fn was_in_use(&self, now: Instant, stored: &Stored<Claim>) -> bool {
        self.given_up.as_ref().is_some_and(|given_up| {
            given_up.version == stored.resource_version && now < given_up.at + IN_USE
        })
    }

    /// This node serves it, or is about to, or has done so until a moment ago.
    pub(in crate::lease) const fn counts(&self) -> bool {
        self.mine || self.yielding.is_some() || self.provisional.is_some()
    }

    /// The lease lists something else while the claim is mine. What it does not list any more was not
    /// taken off by anybody who may: it is served on.
    pub(in crate::lease) fn relist(&mut self, list: List, claim: Option<&DesiredClaim>) {
        let before = std::mem::replace(&mut self.list, list);
        let gone = before.addresses.difference(&self.list.addresses);
        let asked = |address: &&IpAddr| claim.is_some_and(|it| it.addresses.contains(address));
        self.unlisted.extend(gone.filter(asked).copied());
    }

    /// Forgets everything that came with owning the claim.
    pub(in crate::lease) fn end(&mut self) {
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
