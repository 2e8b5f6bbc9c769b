//! Old owners that may not know yet: after a takeover the old owner's MAC address is asked until its
//! new session is seen. As long as it answers, what was taken from it is announced again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use super::claims::Owner;
use super::election::{Election, is_under};
use super::event::{Action, Fact, Frame, Heard};
use crate::clock::Instant;

/// How often an old owner is asked at first, and after [`FRESH`].
const ASK: Duration = Duration::from_millis(20);
const ASK_LATER: Duration = Duration::from_millis(100);
const FRESH: Duration = Duration::from_secs(60);
/// How many renewals of an old owner that was not fenced say that it knows what it lost, once it has
/// been quiet for [`QUIET`].
const ACKNOWLEDGED: u32 = 2;
const QUIET: Duration = Duration::from_secs(1);
/// How many announcements follow an old owner's answers at once.
const AT_ONCE: u32 = 5;
/// How many announcements are sent per second at most.
const PACE: u32 = 200;

/// Old owners whose claims this node took, by interface and MAC address.
#[derive(Debug, Default)]
pub(super) struct OldOwners {
    /// From whom each claim was last asked for.
    pub(super) asked_from: BTreeMap<LeaseName, Former>,
    pub(super) watched: BTreeMap<(InterfaceName, MacAddr), OldOwner>,
}

/// The owner of a claim before this node.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) node: NodeName,
    pub(super) session: SessionId,
    pub(super) mac: MacAddr,
}

/// An old owner that may not know yet.
#[derive(Debug)]
pub(super) struct OldOwner {
    pub(super) former: Former,
    pub(super) claims: BTreeSet<LeaseName>,
    pub(super) since: Instant,
    pub(super) ask: Instant,
    pub(super) answers: u32,
    answered: Option<Instant>,
    pub(super) announce: Instant,
    /// The version of its session as it was last seen, and how often it has changed since.
    version: Option<String>,
    renewals: u32,
}

impl Election {
    /// Remembers from whom `base` is about to be taken, unless it is handed over.
    pub(super) fn note_former(&mut self, name: &LeaseName, base: Option<&Stored<Claim>>) {
        self.old_owners.asked_from.remove(name);
        let forsaken = self.silences.forsaken(name).is_some();
        let untold = |base: &&Stored<Claim>| forsaken || self.owner(base) == Owner::Nobody;
        let Some(base) = base.filter(untold) else { return };
        let record = &base.record;
        if let (Some(node), Some(session), Some(mac)) =
            (&record.holder, &record.session, record.mac)
            && *node != self.config.node
        {
            let former = Former { node: node.clone(), session: session.clone(), mac };
            self.old_owners.asked_from.insert(name.clone(), former);
        }
    }

    /// The claim is ours: its former owner is watched until it knows.
    pub(super) fn after_take(&mut self, now: Instant, name: &LeaseName) {
        let interface = self.claims.get(name).and_then(|stored| stored.record.interface.clone());
        self.watch_former(now, name, interface);
    }

    /// The addresses of `name` are served here: whoever had them before is watched until it knows.
    pub(super) fn watch_former(
        &mut self,
        now: Instant,
        name: &LeaseName,
        interface: Option<InterfaceName>,
    ) {
        let Some(former) = self.old_owners.asked_from.remove(name) else { return };
        let Some(interface) = interface else { return };
        let version = self.session_version(&former.node);
        let old =
            self.old_owners.watched.entry((interface, former.mac)).or_insert_with(|| OldOwner {
                former: former.clone(),
                claims: BTreeSet::new(),
                since: now,
                ask: now,
                answers: 0,
                answered: None,
                announce: now,
                version,
                renewals: 0,
            });
        old.former = former;
        old.claims.insert(name.clone());
    }

    pub(super) fn ask_old_owners(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut watched = std::mem::take(&mut self.old_owners.watched);
        watched.retain(|(interface, mac), old| {
            old.claims.retain(|name| {
                self.tenures.get(name).is_some_and(|t| t.mine) || self.serves_provisionally(name)
            });
            let version = self.session_version(&old.former.node);
            if version != old.version {
                old.version = version;
                old.renewals = old.renewals.saturating_add(1);
            }
            let Some(address) = self.taken_addresses(old).next() else { return false };
            if self.knows(now, old) {
                return false;
            }
            if now >= old.ask {
                let fresh = now.saturating_since(old.since) < FRESH;
                old.ask = now + if fresh { ASK } else { ASK_LATER };
                let frame = Frame::Ask(address, *mac);
                actions.push(Action::Transmit { interface: interface.clone(), frame });
            }
            true
        });
        self.old_owners.watched = watched;
    }

    pub(super) fn taken_addresses<'a>(
        &'a self,
        old: &'a OldOwner,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        old.claims
            .iter()
            .filter_map(|name| self.claims.get(name))
            .flat_map(|stored| stored.record.addresses.iter().copied())
    }

    fn lists(&self, claim: &LeaseName, ip: IpAddr) -> bool {
        self.claims.get(claim).is_some_and(|stored| stored.record.addresses.contains(&ip))
    }

    /// Whether a former owner has shown that it knows, or is no more: it removes what it lost before
    /// it acquires a new session.
    fn knows(&self, now: Instant, old: &OldOwner) -> bool {
        let former = &old.former;
        let gone = self.desired.as_ref().is_some_and(|d| !d.nodes.contains_key(&former.node));
        let live = self.live_session(&former.node);
        if live.is_some_and(|stored| is_under(stored, &former.session)) {
            // It was not fenced. Two renewals later its watch is known to be alive (it checks that
            // itself), and has told it.
            let quiet = old.answered.is_none_or(|at| now.saturating_since(at) > QUIET);
            return gone || old.renewals >= ACKNOWLEDGED && quiet;
        }
        gone || live.is_some()
    }

    pub(super) fn session_version(&self, node: &NodeName) -> Option<String> {
        let stored = self.sessions.get(node.as_str())?;
        Some(stored.resource_version.clone())
    }

    /// An old owner still answers: what was taken from it is announced again.
    pub(super) fn hear_old_owner(
        &mut self,
        now: Instant,
        heard: &Heard,
        actions: &mut Vec<Action>,
    ) {
        let key = (heard.interface.clone(), heard.frame.mac);
        let Some(mut old) = self.old_owners.watched.remove(&key) else { return };
        let answered_for = old.claims.iter().find(|name| self.lists(name, heard.frame.ip)).cloned();
        if answered_for.is_some() {
            old.answered = Some(now);
        }
        if now >= old.announce
            && let Some(claim) = answered_for
        {
            let addresses: Vec<IpAddr> = self.taken_addresses(&old).collect();
            for address in &addresses {
                Self::announce(&heard.interface, *address, actions);
            }
            if old.answers == 0 {
                let (mac, address) = (heard.frame.mac, heard.frame.ip);
                Self::report(Fact::OldOwnerAnswers { claim, mac, address }, actions);
            }
            old.answers = old.answers.saturating_add(1);
            let pause = match old.answers.saturating_sub(AT_ONCE) {
                0 => Duration::ZERO,
                1 => Duration::from_millis(100),
                2 => Duration::from_millis(500),
                _ => Duration::from_secs(1),
            };
            let frames = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
            old.announce = now + pause.max(Duration::from_secs(1) * frames / PACE);
        }
        self.old_owners.watched.insert(key, old);
    }
}
