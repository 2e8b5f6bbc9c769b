//! What must hold after every step: the invariants of the design, each by its name.
//!
//! | law | what |
//! |---|---|
//! | S1 | never two valid claims for one address |
//! | CAS | no speaker lowers a number of transitions, or writes to a lease that was deleted |
//! | S2 | with `Drop`, on the lease path, never two hosts with one address |
//! | S3 | two connected hosts have one address for a bounded time only; the bound depends on why |
//! | S4 | nobody who can know better serves what another owns, or what nobody asks for |
//! | wire | who could hear an owner fall silent listens to it, for as long as owner and session are valid |
//! | fence | the kernel removes by itself what a process that is gone or stopped has left |
//! | L1 | with all well but one crash, somebody serves within the bound |
//! | L2 | nothing moves without a cause |
//! | L3 | after every fault heals: one owner, claim and address agree |
//! | L4 | no address stays unanswered while a node that clients reach could serve it, with the API server and without |
//! | down | who could know sees a node down soon after it died, and none that is well; and nobody sees one lost that answers |
//! | forward | no node forwards a packet twice, whichever it is sent to |
//! | state | the state of a claim changes by the table of transitions |
//! | busy | nobody asks or wakes in a hot loop |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Target, Write};
use leasehold_crds::names::{InterfaceName, NodeName};

use super::outage::Outage;
use super::spells::Health;
use super::{ROUTER, World};

/// How many requests for one lease within a second are a hot loop.
const REQUESTS: u32 = 60;
/// How many frames of one host within a second are a storm.
const FRAMES: u32 = 2000;
/// How many ticks of one speaker at the same moment are a hot loop.
const TICKS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Law {
    Overlap,
    Hung,
    Served,
    Fence,
    Unserved,
    Dark,
    Unasked,
    Unheard,
    Feigned,
    Overlooked,
}

pub(super) type Key = (Law, IpAddr, usize, usize);

/// Who is to have answered for an address, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) ip: IpAddr,
    pub(crate) by: Instant,
    pub(crate) since: Instant,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is said of a run, and what has changed")]
pub(crate) struct Laws {
    /// A fixed bound for S3; none: by what is wrong with the hosts.
    pub(crate) overlap: Option<Duration>,
    /// Who must go on having each address.
    pub(crate) still: Option<BTreeMap<IpAddr, BTreeSet<String>>>,
    /// No fault of this run is a cause for anything to move.
    pub(crate) innocent: bool,
    /// Whether everybody has to listen to whom it could hear: what is asked for and where the links are is known
    /// to all alike.
    pub(crate) listening: bool,
    pub(crate) expected: Vec<Expected>,
    /// Something has changed that laws depend on.
    pub(crate) dirty: bool,
    /// A lease has changed.
    pub(crate) stored: bool,
    /// When a bound will have been passed.
    pub(crate) due: Option<Instant>,
    timers: BTreeMap<Key, Instant>,
    /// Who had each address at the last look, and when each host last owned it.
    had: BTreeSet<(IpAddr, usize)>,
    owned: BTreeMap<(IpAddr, usize), Instant>,
    /// Which links each session lists, and since when.
    pub(super) links: BTreeMap<NodeName, (Vec<InterfaceName>, Instant)>,
    /// Which owner has had its address, since when.
    pub(super) served: BTreeMap<IpAddr, (usize, Instant)>,
    pub(super) outage: Outage,
    pub(super) owners: BTreeMap<IpAddr, NodeName>,
    requests: BTreeMap<(usize, Target), (u64, u32)>,
    frames: BTreeMap<usize, (u64, u32)>,
    ticks: BTreeMap<usize, (Instant, u32)>,
    turns: BTreeMap<usize, (Instant, u32)>,
}

/// Ends the run: a law is broken.
pub(crate) fn broken(now: Instant, law: &str, what: &dyn Display) -> ! {
    panic!("{law} is broken at {now}: {what}");
}

/// Counts one more of `what`; how many there have been in this second.
fn in_second<K: Ord>(counts: &mut BTreeMap<K, (u64, u32)>, what: K, now: Instant) -> u32 {
    let second = now.since_boot().as_secs();
    let count = counts.entry(what).or_default();
    *count = if count.0 == second { (second, count.1 + 1) } else { (second, 1) };
    count.1
}

impl Laws {
    pub(crate) fn requested(&mut self, now: Instant, id: usize, target: Target) {
        if in_second(&mut self.requests, (id, target), now) >= REQUESTS {
            broken(now, "busy", &format!("host {id} asks for the same lease in a hot loop"));
        }
    }

    pub(crate) fn transmitted(&mut self, now: Instant, id: usize) {
        if in_second(&mut self.frames, id, now) >= FRAMES {
            broken(now, "busy", &format!("host {id} sends frames in a hot loop"));
        }
    }

    pub(crate) fn ticked(&mut self, now: Instant, id: usize) {
        let count = self.ticks.entry(id).or_default();
        *count = if count.0 == now { (now, count.1 + 1) } else { (now, 1) };
        if count.1 >= TICKS {
            broken(
                now,
                "busy",
                &format!("the core of host {id} wants to be called at once, for ever"),
            );
        }
    }

    pub(crate) fn turned(&mut self, now: Instant, id: usize) {
        let count = self.turns.entry(id).or_default();
        *count = if count.0 == now { (now, count.1 + 1) } else { (now, 1) };
        if count.1 >= TICKS {
            broken(
                now,
                "busy",
                &format!("the listener of host {id} wants to run at once, for ever"),
            );
        }
    }
}

impl World {
    pub(super) fn check(&mut self) {
        if self.laws.stored {
            self.laws.stored = false;
            self.note_links();
            self.check_claims();
        }
        if !self.laws.expected.is_empty() {
            self.check_expected();
        }
        if self.laws.dirty || self.laws.due.is_some_and(|due| due <= self.now) {
            self.laws.dirty = false;
            self.examine();
            self.note_outage();
            self.check_holders();
            self.check_still();
        }
    }

    /// S1, and L2 where it applies.
    fn check_claims(&mut self) {
        let mut owners: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
        for claim in self.store.valid_claims() {
            let Some(owner) = &claim.holder else { continue };
            for ip in &claim.addresses {
                if let Some(other) = owners.insert(*ip, owner) {
                    let text = format!("{other} and {owner} hold valid claims for {ip}");
                    broken(self.now, "S1", &text);
                }
            }
        }
        for (ip, owner) in owners {
            let known = self.laws.owners.get(&ip);
            if known == Some(owner) {
                continue;
            }
            if let (true, Some(known)) = (self.laws.innocent, known) {
                broken(self.now, "L2", &format!("{ip} moved from {known} to {owner}"));
            }
            self.laws.owners.insert(ip, owner.clone());
        }
    }

    /// What no write of a speaker may do, whatever became of the lease since it was read.
    pub(super) fn check_write(
        &self,
        write: &Write,
        before: Option<(u64, i32)>,
        after: Option<(u64, i32)>,
    ) {
        let (name, base) = match write {
            Write::Session(change) => (&change.name, change.base.is_some()),
            Write::Claim(change) => (&change.name, change.base.is_some()),
        };
        match (before, after) {
            (None, _) if base => {
                let text = format!("{name} was deleted, and a late write creates it again");
                broken(self.now, "CAS", &text);
            }
            (Some((old, before)), Some((new, after))) if old == new && after < before => {
                let text = format!("the transitions of {name} fall from {before} to {after}");
                broken(self.now, "CAS", &text);
            }
            _ => {}
        }
    }

    fn check_still(&self) {
        let Some(still) = &self.laws.still else { return };
        for (ip, hosts) in still {
            let have = self.having(*ip);
            if have != *hosts {
                let text = format!("{ip} moved from {hosts:?} to {have:?}, and nothing moved it");
                broken(self.now, "L2", &text);
            }
        }
    }

    fn check_expected(&mut self) {
        let mut expected = std::mem::take(&mut self.laws.expected);
        expected.retain(|expected| {
            if self.is_answered(expected.ip) {
                return false;
            }
            if self.now > expected.by {
                let waited = self.now.saturating_since(expected.since);
                broken(
                    self.now,
                    "L1",
                    &format!("nobody answers for {} after {waited:?}", expected.ip),
                );
            }
            true
        });
        self.laws.expected = expected;
    }

    /// Whether a client would get an answer for `ip`.
    pub(crate) fn is_answered(&self, ip: IpAddr) -> bool {
        let segment = Self::segment_of(ip);
        (0..self.hosts.len()).any(|id| {
            self.hosts[id].kernel.has(ip) && (!self.router || self.connected(segment, ROUTER, id))
        })
    }

    fn check_holders(&mut self) {
        let mut holders: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
        for (id, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.powered) {
            for ip in host.kernel.ours.keys() {
                holders.entry(*ip).or_default().push(id);
            }
        }
        self.check_additions(&holders);
        let mut active: Vec<(Key, Duration)> = Vec::new();
        if let Some(overlap) = self.laws.overlap {
            self.plain_overlaps(&holders, overlap, &mut active);
        } else {
            for (ip, holders) in &holders {
                self.allowed_overlaps(*ip, holders, &mut active);
            }
            self.allowed_gaps(&holders, &mut active);
        }
        self.dark_in_an_outage(&mut active);
        if self.laws.listening {
            self.unheard_owners(&mut active);
        }
        self.downs(&mut active);
        let mut due: Option<Instant> = None;
        let mut timers = BTreeMap::new();
        for (key, limit) in active {
            let since = self.laws.timers.get(&key).copied().unwrap_or(self.now);
            if self.now.saturating_since(since) > limit {
                self.report(key, limit);
            }
            let end = since + limit + Duration::from_micros(1);
            due = Some(due.map_or(end, |due| due.min(end)));
            timers.insert(key, since);
        }
        self.laws.timers = timers;
        self.laws.due = due;
    }

    /// Nobody adds an address that another owns and serves, and that it could hear.
    fn check_additions(&mut self, holders: &BTreeMap<IpAddr, Vec<usize>>) {
        let long = Duration::from_secs(3);
        let mut had = BTreeSet::new();
        for (ip, hosts) in holders {
            let claim = self.store.valid_claims().find(|claim| claim.addresses.contains(ip));
            let owner = claim.and_then(|claim| claim.holder.as_ref());
            let owner = owner.and_then(|owner| self.host_of(owner));
            had.extend(hosts.iter().map(|host| (*ip, *host)));
            let Some(owner) = owner else {
                self.laws.served.remove(ip);
                continue;
            };
            self.laws.owned.insert((*ip, owner), self.now);
            if !hosts.contains(&owner) {
                self.laws.served.remove(ip);
                continue;
            }
            let known = self.laws.served.get(ip).filter(|(who, _)| *who == owner);
            let since = known.map_or(self.now, |(_, since)| *since);
            self.laws.served.insert(*ip, (owner, since));
            let serves = self.now.saturating_since(since) >= long;
            for host in hosts.iter().copied().filter(|host| *host != owner) {
                let last = self.laws.owned.get(&(*ip, host));
                let before = last.is_some_and(|at| self.now.saturating_since(*at) < long);
                // What a process was about to do when it was stopped it does when it goes on.
                let resumed = self.hosts[host].kernel.resumed;
                let halfway = resumed == Some(self.hosts[host].clock.at(self.now));
                let new = !halfway && !self.laws.had.contains(&(*ip, host));
                let hear = [host, owner].iter().all(|id| self.is_well_for(*id, Health::Wire, long));
                if new && serves && !before && hear {
                    let (host, owner) = (&self.hosts[host].name, &self.hosts[owner].name);
                    let text = format!("{host} adds {ip}, which {owner} owns and serves");
                    broken(self.now, "S4", &text);
                }
            }
        }
        self.laws.served.retain(|ip, _| holders.contains_key(ip));
        self.laws.had = had;
    }

    fn report(&self, (law, ip, one, other): Key, limit: Duration) -> ! {
        let name = |id: usize| self.hosts[id].name.as_str();
        let (law, text) = match law {
            Law::Overlap if limit.is_zero() => {
                ("S2", format!("{} and {} have {ip}", name(one), name(other)))
            }
            Law::Overlap => {
                ("S3", format!("{} and {} have had {ip} for {limit:?}", name(one), name(other)))
            }
            Law::Hung => (
                "S3",
                format!(
                    "{} has had {ip} for {limit:?} beside {}, its process stopped",
                    name(one),
                    name(other)
                ),
            ),
            Law::Served => (
                "S4",
                format!("{} has served {ip} for {limit:?}, which {} owns", name(one), name(other)),
            ),
            Law::Unasked => (
                "S4",
                format!("{} has served {ip} for {limit:?}, for which nothing asks", name(one)),
            ),
            Law::Unheard => (
                "wire",
                format!(
                    "{} has not listened to {} for {limit:?}, which owns {ip}",
                    name(one),
                    name(other)
                ),
            ),
            Law::Feigned => (
                "down",
                format!("{} has seen {} down for {limit:?}, which is well", name(one), name(other)),
            ),
            Law::Overlooked => (
                "down",
                format!("{} has not seen for {limit:?} that {} is down", name(one), name(other)),
            ),
            Law::Fence => {
                ("fence", format!("{} has {ip}, {limit:?} after its process stopped", name(one)))
            }
            Law::Unserved => ("L4", format!("nobody has answered for {ip} for {limit:?}")),
            Law::Dark => {
                ("L4", format!("without the API server nobody has answered for {ip} for {limit:?}"))
            }
        };
        broken(self.now, law, &text);
    }

    /// The hosts whose kernels have `ip`.
    pub(crate) fn having(&self, ip: IpAddr) -> BTreeSet<String> {
        let has = |host: &&super::Host| host.kernel.ours.contains_key(&ip) && host.powered;
        self.hosts.iter().filter(has).map(|host| host.name.clone()).collect()
    }
}
