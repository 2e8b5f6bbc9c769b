//! What the wire says against what the leases say.
//!
//! * A claim that nobody holds, new or released, is probed for twice before its address is added: an answer
//!   from a host that is no speaker is a conflict.
//! * Whoever announces an address of ours makes us read its claim anew: still ours, we defend it
//!   (RFC 5227 section 2.4). Anybody can send such frames, and reads go the way of renewals: so there are
//!   never many at once, nor for long. Without the API we yield to a known speaker that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use super::election::Election;
use super::event::{Action, Answer, Fact, Frame, Heard, Interface, Target};
use super::leaving::{Leaving, Reason};
use super::requests::{Pending, Purpose};
use super::tenure::Tenure;
use super::validity::Owner;
use super::yielded::REREAD;
use crate::clock::Instant;
use crate::desired::DesiredClaim;

/// Between the two probes of a new claim, and after the second.
const PROBE: Duration = Duration::from_millis(20);
/// Who looks at the probes so late may have been stopped, with the answers still to be read: they are
/// sent again.
const PROBED_LATE: Duration = Duration::from_millis(200);
/// How often they are sent again, at most, where frames were dropped meanwhile: in a storm that does not end an
/// address is served all the same.
pub(super) const ROUNDS: u32 = 3;
/// How often an address is defended at most (RFC 5227 section 2.4, `DEFEND_INTERVAL`).
const DEFEND: Duration = Duration::from_secs(10);
/// After how many defences the conflict is reported.
const DEFENCES: u32 = 3;
/// For how long it is told that a host that is no speaker announced an address of ours, and of how many.
const FOREIGN_FOR: Duration = Duration::from_secs(600);
const FOREIGN: usize = 8;
/// How often a claim is read anew where a speaker announces its address, and that speaker is told. It
/// yields as soon as it hears that another has read that it is the owner; a defence may have been lost
/// on the wire.
const TELL: Duration = Duration::from_millis(20);

/// How often claims are read because of frames, for long, and how many in less time.
const READ_PACE: Duration = Duration::from_millis(50);
const READ_BURST: u32 = 100;

/// A new claim whose address is probed for before it is added.
#[derive(Debug)]
pub(super) struct Probing {
    until: Instant,
    second: Option<Instant>,
    /// How often they were sent again.
    round: u32,
    /// An answer may have been dropped.
    missed: bool,
}

impl Probing {
    fn new(now: Instant, round: u32) -> Self {
        Self { until: now + PROBE * 2, second: Some(now + PROBE), round, missed: false }
    }
}

/// Foreign hosts that were heard.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    disputes: BTreeMap<LeaseName, Dispute>,
    /// Up to when reads because of frames are accounted for.
    reads: Instant,
    /// Addresses of ours that hosts announced that are no speakers, and when.
    foreign: BTreeMap<(IpAddr, MacAddr), Instant>,
}

impl Conflicts {
    /// Addresses of ours that hosts announced of late that are no speakers.
    pub(super) fn foreign(&self) -> Vec<(IpAddr, MacAddr)> {
        self.foreign.keys().copied().collect()
    }

    fn note_foreign(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        let is_known = self.foreign.contains_key(&(ip, mac));
        if is_known || self.foreign.len() < FOREIGN {
            self.foreign.insert((ip, mac), now);
        }
    }

}

/// Somebody else announces an address of ours.
#[derive(Debug)]
struct Dispute {
    address: IpAddr,
    mac: MacAddr,
    /// The claim is to be read, and when it was last.
    unread: bool,
    read: Option<Instant>,
    defended: Option<Instant>,
    defences: u32,
    /// A speaker announced it and is to be told, and when one was told last.
    tell: bool,
    told: Option<Instant>,
}

impl Election {
    pub(super) fn conflicts_deadline(&self) -> Option<Instant> {
        let probes = self.open.iter().filter_map(|name| {
            let probing = self.tenures.get(name)?.probing.as_ref()?;
            Some(probing.second.unwrap_or(probing.until))
        });
        let asks = self.old_owners.deadlines();
        let unread = self.conflicts.disputes.values().any(|dispute| dispute.unread);
        let reads = unread.then_some(self.conflicts.reads);
        self.first_ahead(probes.chain(asks).chain(reads))
    }

    /// Begins to probe for the addresses of a claim that nobody holds.
    pub(super) fn probe_first(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Stored<Claim>,
        actions: &mut Vec<Action>,
    ) {
        let Some(interface) = &stored.record.interface else { return };
        self.probe_on(now, name, interface, &stored.record.addresses, actions);
    }

    /// Begins to probe for `addresses` on `interface`.
    pub(super) fn probe_on(
        &mut self,
        now: Instant,
        name: &LeaseName,
        interface: &InterfaceName,
        addresses: &AddressSet,
        actions: &mut Vec<Action>,
    ) {
        self.with(name, |tenure| tenure.probing = Some(Probing::new(now, 0)));
        Self::probe(interface, addresses, actions);
    }

    /// Frames were dropped: that a probe was not answered says nothing.
    pub(super) fn note_missed(&mut self, now: Instant) {
        self.yields.note_missed();
        let waits = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|t| t.probing.is_some() || t.yielding.is_some())
        };
        let names: Vec<LeaseName> = self.open.iter().filter(waits).cloned().collect();
        for name in names {
            self.with(&name, |tenure| {
                if let Some(probing) = &mut tenure.probing {
                    probing.missed = true;
                }
                if let Some(yielding) = &mut tenure.yielding {
                    yielding.note_missed(now);
                }
            });
        }
    }

    /// Asks everybody for `addresses`.
    pub(super) fn probe(
        interface: &InterfaceName,
        addresses: &AddressSet,
        actions: &mut Vec<Action>,
    ) {
        for address in addresses {
            let frame = Frame::Probe(*address);
            actions.push(Action::Transmit { interface: interface.clone(), frame });
        }
    }

    pub(super) fn advance_conflicts(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.advance_probes(now, actions);
        self.ask_old_owners(now, actions);
        self.probe_provisional(now, actions);
        self.advance_yielded(now, actions);
        let tenures = &self.tenures;
        self.conflicts.disputes.retain(|name, _| tenures.get(name).is_some_and(|t| t.mine));
        self.read_disputed(now, actions);
        self.conflicts.foreign.retain(|_, at| now < *at + FOREIGN_FOR);
    }

    fn advance_probes(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let probing =
            |name: &&LeaseName| self.tenures.get(name).is_some_and(|t| t.probing.is_some());
        let names: Vec<LeaseName> = self.open.iter().filter(probing).cloned().collect();
        for name in names {
            let Some(probing) = self.tenures.get(&name).and_then(|t| t.probing.as_ref()) else {
                continue;
            };
            let again = probing.second.is_some_and(|at| now >= at);
            let over = now >= probing.until;
            let late = now >= probing.until + PROBED_LATE;
            let missed = over && probing.missed && probing.round < ROUNDS;
            let round = probing.round + u32::from(missed);
            let interface = self.tenures.get(&name).and_then(|tenure| tenure.interface.clone());
            if (late || missed)
                && let Some(stored) = self.claims.get(&name)
                && let Some(interface) = &interface
            {
                let addresses = stored.record.addresses.clone();
                self.with(&name, |tenure| tenure.probing = Some(Probing::new(now, round)));
                Self::probe(interface, &addresses, actions);
                continue;
            }
            if again
                && !over
                && let (Some(stored), Some(interface)) = (self.claims.get(&name), interface)
            {
                Self::probe(&interface, &stored.record.addresses, actions);
            }
            self.with(&name, |tenure| {
                if over {
                    tenure.probing = None;
                } else if again && let Some(probing) = &mut tenure.probing {
                    probing.second = None;
                }
            });
            if over {
                self.serve_provisionally(now, &name, actions);
            }
        }
    }

    pub(super) fn heard(&mut self, now: Instant, heard: &Heard, actions: &mut Vec<Action>) {
        let mac = heard.frame.mac;
        if self.interfaces.values().any(|interface| interface.mac == mac) {
            return;
        }
        let speaker = self.speaker_with(mac).is_some();
        if speaker {
            self.heard_speakers.insert(mac);
        }
        self.hear_old_owner(now, heard, actions);
        self.silences.heard(now, heard);
        self.yields.answered(heard.frame.ip, mac, speaker);
        let address = heard.frame.ip;
        let claims = self.claims_of(address);
        for name in &claims {
            self.published.touch(name);
        }
        if !claims.is_empty() && !speaker && !self.heard_speakers.contains(&mac) {
            self.conflicts.note_foreign(now, address, mac);
        }
        for name in claims {
            let Some(tenure) = self.tenures.get_mut(&name) else { continue };
            if tenure.yielding.as_ref().is_some_and(|yielding| yielding.is_served_by(mac)) {
                tenure.yielding = None;
            } else if tenure.provisional.is_some() {
                self.hear_provisional(now, &name, heard, speaker, actions);
            } else if tenure.probing.is_some() || tenure.unproxied {
                let mine = tenure.mine;
                if !speaker {
                    self.refuse_conflict(now, &name, address, mac, actions);
                } else if mine && !self.is_api_answering(now) {
                    self.yields.hear_while_probing(now, heard);
                }
            } else if tenure.mine {
                self.dispute(now, &name, heard, speaker);
            }
        }
        // Before this process has a session, whoever announces what a former one left may have it now. Who
        // is a speaker is not known before the leases are.
        if self.is_left_behind(address) && (speaker || !self.is_informed()) {
            self.yields.hear(now, heard);
        }
    }

    /// The claims under which `address` is, was or will be served here.
    pub(super) fn claims_of(&self, address: IpAddr) -> Vec<LeaseName> {
        let held = |name: &&LeaseName| self.tenures.get(name).is_some_and(Tenure::counts);
        self.open.governing(address).filter(held).cloned().collect()
    }

    /// An address that a node has without our mark, and the node: to serve it would take the node
    /// off the network, or let two hosts answer.
    pub(super) fn address_of_a_node(&self, claim: &DesiredClaim) -> Option<(IpAddr, NodeName)> {
        let own = |address: &&IpAddr| {
            let has = |interface: &Interface| {
                interface.addresses.iter().any(|net| net.addr() == **address)
            };
            self.kernel.foreign.contains_key(*address) || self.interfaces.values().any(has)
        };
        if let Some(address) = claim.addresses.iter().find(own) {
            return Some((*address, self.config.node.clone()));
        }
        self.live_sessions().find_map(|(node, stored)| {
            let theirs = stored.record.addresses().find(|own| claim.addresses.contains(own))?;
            Some((theirs, node.clone()))
        })
    }

    /// Says once that an address cannot be served because a node has it.
    pub(super) fn report_address_of_a_node(
        &mut self,
        name: &LeaseName,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) {
        let found = self.address_of_a_node(claim);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        let address = found.as_ref().map(|(address, _)| *address);
        let known = std::mem::replace(&mut tenure.address_of_a_node, address);
        if let Some((address, node)) = found.filter(|_| known != address) {
            let cause = format!("node {node} itself has this address");
            Self::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
        }
    }

    /// A host that is no speaker has the address of a new claim.
    fn refuse_conflict(
        &mut self,
        now: Instant,
        name: &LeaseName,
        address: IpAddr,
        mac: MacAddr,
        actions: &mut Vec<Action>,
    ) {
        let cause = format!("{address} is used by {mac}, which is no speaker");
        self.exclude_self(now, name);
        self.with(name, |tenure| {
            tenure.probing = None;
            tenure.leaving = Some(Leaving::new(Reason::Address, &cause));
        });
        Self::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
    }

    /// Somebody else says that it has an address of ours: the claim is read anew.
    fn dispute(&mut self, now: Instant, name: &LeaseName, heard: &Heard, speaker: bool) {
        let (address, mac) = (heard.frame.ip, heard.frame.mac);
        if !self.is_api_answering(now) {
            if speaker {
                self.yields.hear(now, heard);
            }
            return;
        }
        let dispute = self.conflicts.disputes.entry(name.clone()).or_insert_with(|| Dispute {
            address,
            mac,
            unread: false,
            read: None,
            defended: None,
            defences: 0,
            tell: false,
            told: None,
        });
        dispute.address = address;
        dispute.mac = mac;
        let tell = speaker && heard.frame.announcement;
        dispute.tell |= tell;
        if tell {
            self.yields.doubt(now, heard);
        }
        let pause = if tell { TELL } else { REREAD };
        dispute.unread |= dispute.read.is_none_or(|at| now.saturating_since(at) >= pause);
    }

    /// Reads the claims in dispute, those first that have not been read for longest.
    fn read_disputed(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.has_room_to_read() && self.conflicts.reads <= now {
            let unread = self.conflicts.disputes.iter_mut().filter(|(_, dispute)| dispute.unread);
            let Some((name, dispute)) = unread.min_by_key(|(_, dispute)| dispute.read) else {
                return;
            };
            dispute.unread = false;
            dispute.read = Some(now);
            let target = Target::Claim(name.clone());
            if !self.is_pending(&target) {
                let burst = READ_PACE * READ_BURST;
                self.conflicts.reads = self.conflicts.reads.max(now - burst) + READ_PACE;
                self.read(now, target, actions);
            }
        }
    }

    /// A claim in dispute was read: still ours, it is defended.
    pub(super) fn conflict_answered(
        &mut self,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        let Answer::Claim(stored) = answer else { return };
        if pending.purpose != Purpose::Read || self.owner(stored) != Owner::Me {
            return;
        }
        for address in &stored.record.addresses {
            self.yields.settle(*address);
        }
        let interface = self.tenures.get(name).and_then(|tenure| tenure.interface.clone());
        let (Some(dispute), Some(interface)) = (self.conflicts.disputes.get_mut(name), interface)
        else {
            return;
        };
        if !stored.record.addresses.contains(&dispute.address) {
            let address = dispute.address;
            self.give_up_unlisted(name, address);
            return;
        }
        let over =
            |last: Option<Instant>, pause| last.is_none_or(|at| now.saturating_since(at) >= pause);
        let defends = over(dispute.defended, DEFEND);
        let tells = std::mem::take(&mut dispute.tell) && over(dispute.told, TELL);
        if !defends && !tells {
            return;
        }
        dispute.told = Some(now);
        if defends {
            dispute.defended = Some(now);
            dispute.defences += 1;
        }
        let (address, mac, defences) = (dispute.address, dispute.mac, dispute.defences);
        Self::announce(&interface, address, actions);
        if defends && defences == DEFENCES {
            let cause = format!("{mac} announces {address} as well");
            Self::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
        }
    }
}
