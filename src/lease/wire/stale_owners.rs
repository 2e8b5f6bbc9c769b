//! Old owners that may not know yet: after a takeover the old owner's MAC address is asked until its
//! new session is seen. As long as it answers, what was taken from it is announced again.
//!
//! Whoever serves an address asks all from whom it was taken, by whomever: the one in between may be
//! gone. And since a process does not know what was before it, it asks every node whose session was
//! fenced, whether it is there again, and then for all addresses that it may still have. A process that
//! starts without the API server asks those whom the former one had still to ask.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Session, SessionId, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::lease::claim::Claims;
use crate::lease::claim::former::Former;
use crate::lease::context::Context;
use crate::lease::context::facts::is_under;
use crate::lease::context::segments::{Crews, POLLERS};
use crate::lease::context::session_reads::FENCED_BY;
use crate::lease::io::event::{Action, Fact, Frame, Heard};
use crate::lease::wire::Wire;

/// How often an old owner is asked at first, after [`FRESH`], and after [`LONG`]. By its three pollers: all others
/// together ask as often as these. A switch that has forgotten a dead node floods each of the questions.
pub(in crate::lease) const ASK: Duration = Duration::from_millis(20);

pub(in crate::lease) const ASK_LATER: Duration = Duration::from_millis(100);

pub(in crate::lease) const ASK_RARELY: Duration = Duration::from_secs(1);

/// Each is asked as often as this at least.
pub(in crate::lease) const ASK_AT_LEAST: Duration = Duration::from_secs(10);

pub(in crate::lease) const FRESH: Duration = Duration::from_secs(60);

pub(in crate::lease) const LONG: Duration = Duration::from_secs(600);

/// How many renewals of an old owner that was not fenced say that it knows what it lost, once it has
/// been quiet for [`QUIET`].
pub(in crate::lease) const ACKNOWLEDGED: u32 = 2;

pub(in crate::lease) const QUIET: Duration = Duration::from_secs(1);

/// How many announcements follow an old owner's answers at once.
pub(in crate::lease) const AT_ONCE: u32 = 5;

/// How many announcements are sent per second at most.
pub(in crate::lease) const PACE: u32 = 200;

/// How often a fenced node that answers is asked whether it is still there.
pub(in crate::lease) const STILL_THERE: Duration = Duration::from_millis(500);

/// For how many addresses it is asked at once when it is there again.
pub(in crate::lease) const WHEN_BACK: usize = 50;

/// It is looked who they are not more often than they are asked, and for so long for each claim that was taken
/// from somebody: it costs as much as there are such claims.
pub(in crate::lease) const LOOK_PER_CLAIM: Duration = Duration::from_micros(50);

/// How often it is looked who they are, at least while anything happens.
pub(in crate::lease) const LOOK: Duration = Duration::from_millis(500);

/// What was taken from whom, by interface and MAC address.
pub(in crate::lease) type Taken = BTreeMap<(InterfaceName, MacAddr), BTreeMap<IpAddr, LeaseName>>;

/// Old owners of what this node serves.
#[derive(Debug, Default)]
pub(in crate::lease) struct OldOwners {
    /// By interface and MAC address.
    asked: BTreeMap<(InterfaceName, MacAddr), OldOwner>,
    /// Claims that were taken from somebody who may not know, or are served provisionally.
    claims: BTreeSet<LeaseName>,
    /// When it was last looked who they are, from which sessions, and what was served.
    looked: Option<Instant>,
    made_from: (u64, u64),
    /// They may be others because of something else.
    stale: bool,
}

/// An old owner that may not know yet.
#[derive(Debug)]
pub(in crate::lease) struct OldOwner {
    /// What was taken from it.
    taken: BTreeMap<IpAddr, LeaseName>,
    /// Its session was fenced: it may have anything else, too.
    fenced: Option<Fenced>,
    since: Instant,
    ask: Instant,
    /// How many there are to ask it for each of its pollers; one where this node is one of these.
    share: u32,
    /// What it was asked for last.
    asked: Option<IpAddr>,
    asked_in_doubt: Option<IpAddr>,
    /// It was asked for what it may have, so that what was taken is next.
    doubted: bool,
    /// When it last answered at all.
    lives: Option<Instant>,
    answers: u32,
    answered: Option<Instant>,
    announce: Instant,
}

/// A node whose session was fenced.
#[derive(Debug)]
pub(in crate::lease) struct Fenced {
    node: NodeName,
    session: SessionId,
    /// Its own address there.
    own: Option<IpAddr>,
}

impl OldOwners {
    /// They may be others now.
    pub(in crate::lease) const fn note_all(&mut self) {
        self.stale = true;
    }

    /// The claim was taken from somebody, or is about to be.
    pub(in crate::lease) fn note(&mut self, claim: &LeaseName) {
        self.claims.insert(claim.clone());
        self.stale = true;
    }

    /// When the old owner with this MAC address last answered for anything that was taken from it.
    pub(in crate::lease) fn answered(
        &self,
        interface: &InterfaceName,
        mac: MacAddr,
    ) -> Option<Instant> {
        self.asked.get(&(interface.clone(), mac)).and_then(|old| old.answered)
    }

    /// Those who may have any of `addresses` still.
    pub(in crate::lease) fn untold(
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

    pub(in crate::lease) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.asked.values().map(|old| old.ask)
    }
}

impl OldOwner {
    pub(in crate::lease) fn new(now: Instant) -> Self {
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
    pub(in crate::lease) fn speaks(&mut self, now: Instant) -> bool {
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
    pub(in crate::lease) fn rest(&self, now: Instant) -> Duration {
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
    pub(in crate::lease) fn pause(&self) -> Duration {
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
    pub(in crate::lease) fn questions(
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
pub(in crate::lease) fn in_turn<T>(
    addresses: &BTreeMap<IpAddr, T>,
    last: Option<IpAddr>,
) -> impl Iterator<Item = IpAddr> {
    let start = last.map_or(Bound::Unbounded, Bound::Excluded);
    let again = last.map(|last| addresses.range(..=last));
    addresses.range((start, Bound::Unbounded)).chain(again.into_iter().flatten()).map(|(ip, _)| *ip)
}

impl Wire {
    /// Follows whom the stored claim names. Whoever was named before and neither gave it up nor handed
    /// it over may not know.
    pub(in crate::lease) fn note_holder(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        name: &LeaseName,
    ) {
        let Some(stored) = cx.claims().get(name) else { return };
        let record = &stored.record;
        let named = record.holder.as_ref().zip(record.session.as_ref()).zip(record.mac);
        let Some(tenure) = claims.tenures().get(name) else { return };
        let same = |shown: &Former| {
            named.is_some_and(|((node, session), mac)| {
                shown.node == *node && shown.session == *session && shown.mac == mac
            })
        };
        if tenure.shown.as_ref().map_or(named.is_none(), same) {
            return;
        }
        // Where somebody else took its name from the lease, or the lease itself, it may not know.
        let released = |shown: &Former| {
            let cause = record.cause.strip_prefix("released by ");
            let rest = cause.and_then(|rest| rest.strip_prefix(shown.node.as_str()));
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        if named.is_none() && tenure.shown.as_ref().is_some_and(|shown| !released(shown)) {
            return;
        }
        let handed = |from: &NodeName| {
            let cause = record.cause.strip_prefix("moved from ");
            cause
                .and_then(|rest| rest.strip_prefix(from.as_str()))
                .is_some_and(|c| c.starts_with(':'))
        };
        let lost = tenure.shown.as_ref().filter(|shown| {
            let other = record.holder.as_ref().is_some_and(|holder| *holder != shown.node);
            other && shown.node != cx.config().node && !handed(&shown.node)
        });
        let lost = lost.map(|shown| {
            let version = cx.session_version(&shown.node);
            Former::new(&shown.node, &shown.session, shown.mac, version)
        });
        let shown = named.map(|((node, session), mac)| Former::new(node, session, mac, None));
        let holder = record.holder.clone();
        if lost.is_some() {
            self.old_owners.note(name);
        }
        claims.with(cx, name, |tenure| {
            tenure.untold.retain(|former| {
                let lost = lost.as_ref().is_some_and(|lost| lost.node == former.node);
                !lost && holder.as_ref() != Some(&former.node)
            });
            tenure.untold.extend(lost);
            tenure.shown = shown;
        });
    }

    /// Asks the old owners of what this node serves.
    pub(in crate::lease) fn ask_old_owners(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if self.is_look_due(cx, now) {
            self.follow_formers(cx, claims, now);
            self.find_old_owners(cx, claims, now);
        }
        if self.old_owners.deadlines().all(|at| now < at) {
            return;
        }
        let mut old_owners = std::mem::take(&mut self.old_owners.asked);
        for ((interface, mac), old) in &mut old_owners {
            if now < old.ask {
                continue;
            }
            let in_doubt = Self::in_doubt(cx, interface, old, old.asked_in_doubt).next();
            let questions = old.questions(now, in_doubt);
            if questions.is_empty() {
                continue;
            }
            old.ask = now + old.rest(now);
            for address in questions {
                Self::ask(interface, address, *mac, actions);
            }
        }
        self.old_owners.asked = old_owners;
    }

    /// Whether it is to be looked who they are: while some are asked and only what is served changes, not more
    /// often than they are asked. Notes that it is done.
    pub(in crate::lease) fn is_look_due(&mut self, cx: &Context, now: Instant) -> bool {
        let made_from = (cx.sessions().revision(), cx.serving().generation);
        let old = &mut self.old_owners;
        let fenced = old.made_from.0 != made_from.0;
        let other = old.stale || old.made_from != made_from;
        let for_long = |time| old.looked.is_none_or(|looked| now >= looked + time);
        let claims = u32::try_from(old.claims.len()).unwrap_or(u32::MAX);
        let pause = ASK.max(LOOK_PER_CLAIM.saturating_mul(claims));
        if !fenced && !(other && (old.asked.is_empty() || for_long(pause))) && !for_long(LOOK) {
            return false;
        }
        old.stale = false;
        old.made_from = made_from;
        old.looked = Some(now);
        true
    }

    pub(in crate::lease) fn ask(
        interface: &InterfaceName,
        ip: IpAddr,
        mac: MacAddr,
        actions: &mut Vec<Action>,
    ) {
        let frame = Frame::Ask(ip, mac);
        actions.push(Action::Transmit { interface: interface.clone(), frame });
    }

    /// Forgets those that have shown that they know, or are no more.
    pub(in crate::lease) fn follow_formers(
        &mut self,
        cx: &Context,
        claims: &mut Claims,
        now: Instant,
    ) {
        let mut names = std::mem::take(&mut self.old_owners.claims);
        names.retain(|name| {
            let Some(tenure) = claims.tenures_mut().get_mut(name) else { return false };
            let provisional = tenure.provisional.is_some();
            let mut untold = std::mem::take(&mut tenure.untold);
            untold.retain_mut(|former| {
                let version = cx.session_version(&former.node);
                if version != former.version {
                    former.version = version;
                    former.renewals = former.renewals.saturating_add(1);
                }
                !self.knows(cx, now, former)
            });
            let stays = provisional || !untold.is_empty();
            if let Some(tenure) = claims.tenures_mut().get_mut(name) {
                tenure.untold = untold;
            }
            stays
        });
        self.old_owners.claims = names;
    }

    /// Whether a former owner has shown that it knows, or is no more: it removes what it lost before
    /// it acquires a new session.
    pub(in crate::lease) fn knows(&self, cx: &Context, now: Instant, former: &Former) -> bool {
        // The operator deletes what is left of the session of a node that is no more, after a while.
        let gone = cx.desired().is_some_and(|d| !d.nodes.contains_key(&former.node))
            && cx.sessions().get(former.node.as_str()).is_none();
        let live = cx.live_session(&former.node);
        if live.is_some_and(|stored| is_under(stored, &former.session)) {
            // It was not fenced. Two renewals later its watch is known to be alive (it checks that
            // itself), and has told it.
            let old = self.old_owners.asked.iter().filter(|((_, mac), _)| *mac == former.mac);
            let mut answered = old.filter_map(|(_, old)| old.answered);
            let quiet = answered.all(|at| now.saturating_since(at) > QUIET);
            return gone || former.renewals >= ACKNOWLEDGED && quiet;
        }
        gone || live.is_some()
    }

    /// Whom to ask: from whom anything was taken that is served here, and whose session was fenced.
    pub(in crate::lease) fn find_old_owners(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
    ) {
        let mut taken = Self::untold_before(cx);
        for name in &self.old_owners.claims {
            let Some(tenure) = claims.tenures().get(name) else { continue };
            let provisional = tenure.provisional.is_some() && tenure.probing.is_none();
            if !tenure.mine && !provisional {
                continue;
            }
            let named = tenure.shown.iter().filter(|_| provisional);
            for former in tenure.untold.iter().chain(named) {
                let stored = cx.claims().get(name).into_iter();
                for ip in stored.flat_map(|stored| &stored.record.addresses) {
                    let Some(interface) = Self::has_here(cx, *ip) else { continue };
                    let key = (interface.clone(), former.mac);
                    taken.entry(key).or_default().insert(*ip, name.clone());
                }
            }
        }
        let mut fenced = Self::fenced_nodes(cx);
        let mut before = std::mem::take(&mut self.old_owners.asked);
        let keys: BTreeSet<_> = taken.keys().chain(fenced.keys()).cloned().collect();
        let mut crews = Crews::default();
        let share = |key: (InterfaceName, MacAddr)| {
            let share = Self::share_of(cx, &key.0, fenced.get(&key), &mut crews);
            (key, share)
        };
        let shares: Vec<_> = keys.into_iter().map(share).collect();
        for (key, share) in shares {
            let known = before.remove(&key);
            let mut changed = known.is_none();
            let mut old = known.unwrap_or_else(|| OldOwner::new(now));
            let taken = taken.remove(&key).unwrap_or_default();
            let fenced = fenced.remove(&key);
            changed |= old.taken != taken || old.fenced.is_some() != fenced.is_some();
            if changed {
                cx.published_mut().touch_record();
            }
            old.share = share;
            old.taken = taken;
            old.fenced = fenced;
            self.old_owners.asked.insert(key, old);
        }
        if !before.is_empty() {
            cx.published_mut().touch_record();
        }
    }

    /// How many speakers on the segment there are for each that polls the old owner there; one for those.
    pub(in crate::lease) fn share_of<'a>(
        cx: &'a Context,
        interface: &InterfaceName,
        fenced: Option<&Fenced>,
        crews: &mut Crews<'a>,
    ) -> u32 {
        if fenced.is_some_and(|fenced| cx.polls(&fenced.node, interface, crews)) {
            return 1;
        }
        let all = cx.crew(interface, crews).len();
        u32::try_from(all / POLLERS).unwrap_or(u32::MAX).max(1)
    }

    /// What the record of the former process says, until this one has a record of its own.
    pub(in crate::lease) fn untold_before(cx: &Context) -> Taken {
        let mut taken = Taken::new();
        for (name, held) in cx.adopted().iter().flat_map(|record| &record.claims) {
            for ip in &held.addresses {
                let Some(interface) = Self::has_here(cx, *ip) else { continue };
                for mac in &held.untold {
                    let key = (interface.clone(), *mac);
                    taken.entry(key).or_default().insert(*ip, name.clone());
                }
            }
        }
        taken
    }

    /// The links of nodes whose session was fenced and that have no other yet, on segments where this
    /// node serves anything.
    pub(in crate::lease) fn fenced_nodes(
        cx: &Context,
    ) -> BTreeMap<(InterfaceName, MacAddr), Fenced> {
        let mut nodes = BTreeMap::new();
        if cx.serving().vips.is_empty() {
            return nodes;
        }
        for (node, stored) in Self::fenced_sessions(cx) {
            let transitions = stored.record.transitions.saturating_sub(1);
            let session = SessionId { uid: stored.uid.clone(), transitions };
            for link in &stored.record.interfaces {
                let Some(interface) = cx.meets(link) else { continue };
                let own = link.own_addresses().next();
                let fenced = Fenced { node: node.clone(), session: session.clone(), own };
                nodes.insert((interface.clone(), link.mac), fenced);
            }
        }
        nodes
    }

    /// The sessions of other nodes that were fenced and not acquired again.
    pub(in crate::lease) fn fenced_sessions(
        cx: &Context,
    ) -> impl Iterator<Item = (NodeName, &Arc<Stored<Session>>)> {
        let ended = cx.sessions().stored().filter(|stored| {
            stored.record.holder.is_none() && stored.record.cause.contains(FENCED_BY)
        });
        ended.filter_map(|stored| {
            let node = stored.name.as_str().parse::<NodeName>().ok()?;
            (node != cx.config().node).then_some((node, stored))
        })
    }

    /// The own addresses of nodes whose session was fenced: what they send in these says that they are back.
    pub(in crate::lease) fn fenced_addresses(cx: &Context) -> impl Iterator<Item = IpAddr> {
        let links = Self::fenced_sessions(cx).flat_map(|(_, stored)| &stored.record.interfaces);
        links.flat_map(SessionInterface::own_addresses)
    }

    /// The interface on which this node has `ip`, for all it knows: only what it would answer for is
    /// announced.
    pub(in crate::lease) fn has_here(cx: &Context, ip: IpAddr) -> Option<&InterfaceName> {
        let vip = cx.serving().vips.get(&ip)?;
        cx.kernel().ours.contains_key(&ip).then_some(&vip.interface)
    }

    /// What is served here and may be on a fenced node, too: the addresses after `last`, and round again.
    pub(in crate::lease) fn in_doubt(
        cx: &Context,
        interface: &InterfaceName,
        old: &OldOwner,
        last: Option<IpAddr>,
    ) -> impl Iterator<Item = IpAddr> {
        in_turn(&cx.serving().vips, last).filter(|ip| Self::may_have(cx, interface, old, *ip))
    }

    /// Whether `ip` is served here, and may be on this node, too, because it was fenced.
    pub(in crate::lease) fn may_have(
        cx: &Context,
        interface: &InterfaceName,
        old: &OldOwner,
        ip: IpAddr,
    ) -> bool {
        old.fenced.is_some()
            && !old.taken.contains_key(&ip)
            && Self::has_here(cx, ip) == Some(interface)
    }

    /// An old owner still answers: what was taken from it is announced again.
    pub(in crate::lease) fn hear_old_owner(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        heard: &Heard,
        actions: &mut Vec<Action>,
    ) {
        let (interface, mac, ip) = (&heard.interface, heard.frame.mac, heard.frame.ip);
        let key = (interface.clone(), mac);
        let Some(mut old) = self.old_owners.asked.remove(&key) else { return };
        if !heard.frame.announcement && old.speaks(now) {
            for address in Self::in_doubt(cx, interface, &old, None).take(WHEN_BACK) {
                Self::ask(interface, address, mac, actions);
            }
        }
        if Self::may_have(cx, interface, &old, ip)
            && let Some(fenced) = &old.fenced
            && let Some(claim) = cx.serving().vips.get(&ip).map(|vip| vip.claim.clone())
        {
            let version = cx.session_version(&fenced.node);
            let former = Former::new(&fenced.node, &fenced.session, mac, version);
            claims.with(cx, &claim, |tenure| tenure.untold.push(former));
            self.old_owners.note(&claim);
            old.taken.insert(ip, claim);
        }
        if let Some(claim) = old.taken.get(&ip) {
            old.answered = Some(now);
            if now >= old.announce {
                // Some of it may have gone since it was looked: another has that, and this would silence it.
                let here = |ip: &&IpAddr| Self::has_here(cx, **ip) == Some(interface);
                for address in old.taken.keys().filter(here) {
                    Context::announce(interface, *address, actions);
                }
                if old.answers == 0 {
                    let fact = Fact::OldOwnerAnswers { claim: claim.clone(), mac, address: ip };
                    Context::report(fact, actions);
                }
                old.answers = old.answers.saturating_add(1);
                old.announce = now + old.pause();
            }
        }
        self.old_owners.asked.insert(key, old);
    }
}
