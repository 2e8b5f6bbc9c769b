//! Previous owners that are asked for what was taken from them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, SessionId};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;

/// How often an old owner is asked at first, after [`FRESH`], and after [`LONG`]. By its three pollers: all others
/// together ask as often as these. A switch that has forgotten a dead node floods each of the questions.
pub(in crate::election) const ASK: Duration = Duration::from_millis(20);

pub(in crate::election) const ASK_LATER: Duration = Duration::from_millis(100);

pub(in crate::election) const ASK_RARELY: Duration = Duration::from_secs(1);

/// Each is asked as often as this at least.
pub(in crate::election) const ASK_AT_LEAST: Duration = Duration::from_secs(10);

pub(in crate::election) const FRESH: Duration = Duration::from_secs(60);

pub(in crate::election) const LONG: Duration = Duration::from_secs(600);

pub(in crate::election) const QUIET: Duration = Duration::from_secs(1);

/// How many announcements follow an old owner's answers at once.
pub(in crate::election) const AT_ONCE: u32 = 5;

/// How many announcements are sent per second at most.
pub(in crate::election) const PACE: u32 = 200;

/// How often a fenced node that answers is asked whether it is still there.
pub(in crate::election) const STILL_THERE: Duration = Duration::from_millis(500);

/// What was taken from whom, by interface and MAC address.
pub(in crate::election) type Taken =
    BTreeMap<(InterfaceName, MacAddr), BTreeMap<IpAddr, LeaseName>>;

/// Old owners of what this node serves.
#[derive(Debug, Default)]
pub(in crate::election) struct OldOwners {
    /// By interface and MAC address.
    pub(in crate::election::wire) asked: BTreeMap<(InterfaceName, MacAddr), OldOwner>,
    /// Claims that were taken from somebody who may not know, or are served provisionally.
    pub(in crate::election::wire) claims: BTreeSet<LeaseName>,
    /// When it was last looked who they are, from which sessions, and what was served.
    pub(in crate::election::wire) looked: Option<Instant>,
    pub(in crate::election::wire) made_from: (u64, u64),
    /// They may be others because of something else.
    pub(in crate::election::wire) stale: bool,
}

/// An old owner that may not know yet.
#[derive(Debug)]
pub(in crate::election) struct OldOwner {
    /// What was taken from it.
    pub(in crate::election::wire) taken: BTreeMap<IpAddr, LeaseName>,
    /// Its session was fenced: it may have anything else, too.
    pub(in crate::election::wire) fenced: Option<Fenced>,
    since: Instant,
    pub(in crate::election::wire) ask: Instant,
    /// How many there are to ask it for each of its pollers; one where this node is one of these.
    pub(in crate::election::wire) share: u32,
    /// What it was asked for last.
    asked: Option<IpAddr>,
    pub(in crate::election::wire) asked_in_doubt: Option<IpAddr>,
    /// It was asked for what it may have, so that what was taken is next.
    doubted: bool,
    /// When it last answered at all.
    lives: Option<Instant>,
    pub(in crate::election::wire) answers: u32,
    pub(in crate::election::wire) answered: Option<Instant>,
    pub(in crate::election::wire) announce: Instant,
}

/// A node whose session was fenced.
#[derive(Debug)]
pub(in crate::election) struct Fenced {
    pub(in crate::election::wire) node: NodeName,
    pub(in crate::election::wire) session: SessionId,
    /// Its own address there.
    pub(in crate::election::wire) own: Option<IpAddr>,
}

impl OldOwners {
    /// They may be others now.
    pub(in crate::election) const fn note_all(&mut self) {
        self.stale = true;
    }

    /// The claim was taken from somebody, or is about to be.
    pub(in crate::election) fn note(&mut self, claim: &LeaseName) {
        self.claims.insert(claim.clone());
        self.stale = true;
    }

    /// When the old owner with this MAC address last answered for anything that was taken from it.
    pub(in crate::election) fn answered(
        &self,
        interface: &InterfaceName,
        mac: MacAddr,
    ) -> Option<Instant> {
        self.asked.get(&(interface.clone(), mac)).and_then(|old| old.answered)
    }

    /// Whether an old owner with this MAC address has answered for anything since then.
    pub(in crate::election) fn has_answered_since(&self, mac: MacAddr, since: Instant) -> bool {
        let mut its = self.asked.iter().filter(|((_, of), _)| *of == mac);
        its.any(|(_, old)| old.lives.is_some_and(|at| at > since))
    }

    /// Those who may have any of `addresses` still.
    pub(in crate::election) fn untold(
        &self,
        interface: &InterfaceName,
        addresses: &[IpAddr],
    ) -> Box<[MacAddr]> {
        let may_have = |old: &OldOwner| {
            old.fenced.is_some() || addresses.iter().any(|ip| old.taken.contains_key(ip))
        };
        let asked = self.asked.iter();
        asked
            .filter(|((on, _), old)| on == interface && may_have(old))
            .map(|((_, mac), _)| *mac)
            .collect()
    }

    pub(in crate::election) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.asked.values().map(|old| old.ask)
    }
}

impl OldOwner {
    pub(in crate::election) fn new(now: Instant) -> Self {
        Self {
            taken: BTreeMap::new(),
            fenced: None,
            since: now,
            ask: now,
            share: 1,
            asked: None,
            asked_in_doubt: None,
            doubted: false,
            lives: None,
            answers: 0,
            answered: None,
            announce: now,
        }
    }

    /// It answers, so it hears this node: if it has not for a while, it is as if it had just been
    /// replaced.
    pub(in crate::election) fn speaks(&mut self, now: Instant) -> bool {
        let back = self.lives.is_none_or(|at| now.saturating_since(at) > QUIET);
        self.lives = Some(now);
        if back {
            self.since = now;
            self.ask = now;
            self.answers = 0;
            self.announce = now;
        }
        back
    }

    /// How long after a question the next one follows. What it had is asked for by whoever has taken it, at once.
    pub(in crate::election) fn rest(&self, now: Instant) -> Duration {
        let share = self.share;
        match now.saturating_since(self.since) {
            age if age < FRESH && !self.taken.is_empty() => ASK,
            age if age < FRESH => ASK * share,
            age if age < LONG => ASK_LATER * share,
            _ => ASK_RARELY * share,
        }
        .min(ASK_AT_LEAST)
    }

    /// How long after the next announcement the one after that may follow.
    pub(in crate::election) fn pause(&self) -> Duration {
        let pause = match self.answers.saturating_sub(AT_ONCE) {
            0 => Duration::ZERO,
            1 => Duration::from_millis(100),
            2 => Duration::from_millis(500),
            _ => Duration::from_secs(1),
        };
        let frames = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        pause.max(Duration::from_secs(1) * frames / PACE)
    }

    /// What to ask it for now, in turn: something that was taken from it; and if it was fenced whether
    /// it is there, or else something that it may have, if there is any. Both at once at first, one after the
    /// other later.
    pub(in crate::election) fn questions(
        &mut self,
        now: Instant,
        in_doubt: Option<IpAddr>,
    ) -> Vec<IpAddr> {
        let mut questions = Vec::new();
        let fresh = now.saturating_since(self.since) < FRESH;
        let doubted = std::mem::take(&mut self.doubted);
        if let Some(address) = in_turn(&self.taken, self.asked).next()
            && (fresh || doubted || in_doubt.is_none())
        {
            self.asked = Some(address);
            questions.push(address);
        }
        let Some(address) = in_doubt.filter(|_| fresh || questions.is_empty()) else {
            return questions;
        };
        self.doubted = true;
        let own = self.fenced.as_ref().and_then(|fenced| fenced.own);
        let there = self.lives.is_some_and(|at| now.saturating_since(at) < STILL_THERE);
        if let Some(own) = own.filter(|_| !there) {
            questions.push(own);
        } else {
            self.asked_in_doubt = Some(address);
            questions.push(address);
        }
        questions
    }
}

/// The addresses after `last`, in order and round again.
pub(in crate::election) fn in_turn<T>(
    addresses: &BTreeMap<IpAddr, T>,
    last: Option<IpAddr>,
) -> impl Iterator<Item = IpAddr> {
    let start = last.map_or(Bound::Unbounded, Bound::Excluded);
    let again = last.map(|last| addresses.range(..=last));
    addresses.range((start, Bound::Unbounded)).chain(again.into_iter().flatten()).map(|(ip, _)| *ip)
}
