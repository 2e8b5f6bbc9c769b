//! Old owners that may not know yet: after a takeover the old owner's MAC address is asked until its
//! new session is seen. As long as it answers, what was taken from it is announced again.
//!
//! Whoever serves an address asks all from whom it was taken, by whomever: the one in between may be
//! gone. And since a process does not know what was before it, it asks every node whose session was
//! fenced, whether it is there again, and then for all addresses that it may still have. A process that
//! starts without the API server asks those whom the former one had still to ask.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Reason, Session, SessionId, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::former::Former;
use crate::election::context::Context;
use crate::election::context::fence::is_fence;
use crate::election::context::segments::POLLERS;
use crate::election::context::state::facts::is_under;
use crate::election::context::state::segments::Crews;
use crate::election::io::event::{Action, Fact, Frame, Heard};
use crate::election::wire::Wire;
use crate::election::wire::state::stale_owners::{ASK, Fenced, OldOwner, QUIET, Taken, in_turn};

/// How many renewals of an old owner that was not fenced say that it knows what it lost, once it has
/// been quiet for [`QUIET`].
pub(in crate::election) const ACKNOWLEDGED: u32 = 2;

/// For how many addresses it is asked at once when it is there again.
pub(in crate::election) const WHEN_BACK: usize = 50;

/// It is looked who they are not more often than they are asked, and for so long for each claim that was taken
/// from somebody: it costs as much as there are such claims.
pub(in crate::election) const LOOK_PER_CLAIM: Duration = Duration::from_micros(50);

/// How often it is looked who they are, at least while anything happens.
pub(in crate::election) const LOOK: Duration = Duration::from_millis(500);

impl Wire {
    /// Follows whom the stored claim names. Whoever was named before and neither gave it up nor handed
    /// it over may not know.
    pub(in crate::election) fn note_holder(
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
                shown.node() == node && shown.session() == session && shown.mac() == mac
            })
        };
        if tenure.shown().map_or(named.is_none(), same) {
            return;
        }
        // Where somebody else took its name from the lease, or the lease itself, it may not know.
        let released = |shown: &Former| Reason::is_released_by(&record.cause, shown.node());
        if named.is_none() && tenure.shown().is_some_and(|shown| !released(shown)) {
            return;
        }
        let handed = |from: &NodeName| Reason::is_moved_from(&record.cause, from);
        let lost = tenure.shown().filter(|shown| {
            let other = record.holder.as_ref().is_some_and(|holder| holder != shown.node());
            other && *shown.node() != cx.config().node && !handed(shown.node())
        });
        let lost = lost.map(|shown| {
            let version = cx.session_version(shown.node());
            Former::new(shown.node(), shown.session(), shown.mac(), version)
        });
        let shown = named.map(|((node, session), mac)| Former::new(node, session, mac, None));
        let holder = record.holder.clone();
        if lost.is_some() {
            self.old_owners.note(name);
        }
        claims.with(cx, name, |tenure| tenure.show(shown, holder.as_ref(), lost));
    }

    /// Asks the old owners of what this node serves.
    pub(in crate::election) fn ask_old_owners(
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
    pub(in crate::election) fn is_look_due(&mut self, cx: &Context, now: Instant) -> bool {
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

    pub(in crate::election) fn ask(
        interface: &InterfaceName,
        ip: IpAddr,
        mac: MacAddr,
        actions: &mut Vec<Action>,
    ) {
        let frame = Frame::Ask(ip, mac);
        actions.push(Action::Transmit { interface: interface.clone(), frame });
    }

    /// Forgets those that have shown that they know, or are no more.
    pub(in crate::election) fn follow_formers(
        &mut self,
        cx: &Context,
        claims: &mut Claims,
        now: Instant,
    ) {
        let mut names = std::mem::take(&mut self.old_owners.claims);
        names.retain(|name| {
            claims.retain_untold(name, |former| {
                former.note_version(cx.session_version(former.node()));
                !self.knows(cx, now, former)
            });
            claims
                .tenures()
                .get(name)
                .is_some_and(|tenure| tenure.provisional().is_some() || !tenure.untold().is_empty())
        });
        self.old_owners.claims = names;
    }

    /// Whether a former owner has shown that it knows, or is no more: it removes what it lost before
    /// it acquires a new session.
    pub(in crate::election) fn knows(&self, cx: &Context, now: Instant, former: &Former) -> bool {
        // The operator deletes what is left of the session of a node that is no more, after a while.
        let gone = cx.desired().is_some_and(|d| !d.nodes.contains_key(former.node()))
            && cx.sessions().get(former.node().as_str()).is_none();
        let live = cx.live_session(former.node());
        if live.is_some_and(|stored| is_under(stored, former.session())) {
            // It was not fenced. Two renewals later its watch is known to be alive (it checks that
            // itself), and has told it.
            let old = self.old_owners.asked.iter().filter(|((_, mac), _)| *mac == former.mac());
            let mut answered = old.filter_map(|(_, old)| old.answered);
            let quiet = answered.all(|at| now.saturating_since(at) > QUIET);
            return gone || former.renewals() >= ACKNOWLEDGED && quiet;
        }
        gone || live.is_some()
    }

    /// Whom to ask: from whom anything was taken that is served here, and whose session was fenced.
    pub(in crate::election) fn find_old_owners(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
    ) {
        let mut taken = Self::untold_before(cx);
        for name in &self.old_owners.claims {
            let Some(tenure) = claims.tenures().get(name) else { continue };
            let provisional = tenure.provisional().is_some() && tenure.probing().is_none();
            if !tenure.is_mine() && !provisional {
                continue;
            }
            let named = tenure.shown().into_iter().filter(|_| provisional);
            for former in tenure.untold().iter().chain(named) {
                let stored = cx.claims().get(name).into_iter();
                for ip in stored.flat_map(|stored| &stored.record.addresses) {
                    let Some(interface) = Self::has_here(cx, *ip) else { continue };
                    let key = (interface.clone(), former.mac());
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
    pub(in crate::election) fn share_of<'a>(
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
    pub(in crate::election) fn untold_before(cx: &Context) -> Taken {
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
    pub(in crate::election) fn fenced_nodes(
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
    pub(in crate::election) fn fenced_sessions(
        cx: &Context,
    ) -> impl Iterator<Item = (NodeName, &Arc<Stored<Session>>)> {
        let ended = cx.sessions().stored().filter(|stored| is_fence(&stored.record));
        ended.filter_map(|stored| {
            let node = stored.name.as_str().parse::<NodeName>().ok()?;
            (node != cx.config().node).then_some((node, stored))
        })
    }

    /// The own addresses of nodes whose session was fenced: what they send in these says that they are back.
    pub(in crate::election) fn fenced_addresses(cx: &Context) -> impl Iterator<Item = IpAddr> {
        let links = Self::fenced_sessions(cx).flat_map(|(_, stored)| &stored.record.interfaces);
        links.flat_map(SessionInterface::own_addresses)
    }

    /// The interface on which this node has `ip`, for all it knows: only what it would answer for is
    /// announced.
    pub(in crate::election) fn has_here(cx: &Context, ip: IpAddr) -> Option<&InterfaceName> {
        let interface = cx.serving().vips.get(&ip)?.attachment.interface()?;
        cx.kernel().ours.contains_key(&ip).then_some(interface)
    }

    /// What is served here and may be on a fenced node, too: the addresses after `last`, and round again.
    pub(in crate::election) fn in_doubt(
        cx: &Context,
        interface: &InterfaceName,
        old: &OldOwner,
        last: Option<IpAddr>,
    ) -> impl Iterator<Item = IpAddr> {
        in_turn(&cx.serving().vips, last).filter(|ip| Self::may_have(cx, interface, old, *ip))
    }

    /// Whether `ip` is served here, and may be on this node, too, because it was fenced.
    pub(in crate::election) fn may_have(
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
    pub(in crate::election) fn hear_old_owner(
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
            claims.with(cx, &claim, |tenure| tenure.add_untold(former));
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
