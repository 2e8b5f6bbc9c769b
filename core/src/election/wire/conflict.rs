//! What the wire says against what the leases say.
//!
//! * A claim that nobody holds, new or released, is probed for twice before its address is added: an answer
//!   from a host that is no speaker is a conflict.
//! * Whoever announces an address of ours makes us read its claim anew: still ours, we defend it
//!   (RFC 5227 section 2.4). Anybody can send such frames, and reads go the way of renewals: so there are
//!   never many at once, nor for long. Without the API we yield to a known speaker that has it.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::{Action, Answer, Fact, Heard, Target};
use crate::election::wire::Wire;
use crate::election::wire::dispute::REREAD;
use crate::election::wire::state::conflict::Dispute;

/// How often an address is defended at most (RFC 5227 section 2.4, `DEFEND_INTERVAL`).
pub(in crate::election) const DEFEND: Duration = Duration::from_secs(10);

/// After how many defences the conflict is reported.
pub(in crate::election) const DEFENCES: u32 = 3;

/// For how long it is told that a host that is no speaker announced an address of ours, and of how many.
pub(in crate::election) const FOREIGN_FOR: Duration = Duration::from_secs(600);

/// How often a claim is read anew where a speaker announces its address, and that speaker is told. It
/// yields as soon as it hears that another has read that it is the owner; a defence may have been lost
/// on the wire.
pub(in crate::election) const TELL: Duration = Duration::from_millis(20);

/// How often claims are read because of frames, for long, and how many in less time.
pub(in crate::election) const READ_PACE: Duration = Duration::from_millis(50);

pub(in crate::election) const READ_BURST: u32 = 100;

impl Wire {
    pub(in crate::election) fn conflicts_deadline(
        &self,
        cx: &Context,
        claims: &Claims,
    ) -> Option<Instant> {
        let probes = claims
            .open()
            .iter()
            .filter_map(|name| Some(claims.tenures().get(name)?.probing()?.deadline()));
        let asks = self.old_owners.deadlines();
        let unread = self.conflicts.disputes.values().any(|dispute| dispute.unread);
        let reads = unread.then_some(self.conflicts.reads);
        cx.first_ahead(probes.chain(asks).chain(reads))
    }

    /// Frames were dropped: that a probe was not answered says nothing.
    pub(in crate::election) fn note_missed(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
    ) {
        self.yields.note_missed();
        let waits = |name: &&LeaseName| {
            claims
                .tenures()
                .get(name)
                .is_some_and(|t| t.probing().is_some() || t.yielding().is_some())
        };
        let names: Vec<LeaseName> = claims.open().iter().filter(waits).cloned().collect();
        for name in names {
            claims.with(cx, &name, |tenure| tenure.note_missed(now));
        }
    }

    pub(in crate::election) fn advance_disputes(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let tenures = claims.tenures();
        self.conflicts.disputes.retain(|name, _| {
            tenures.get(name).is_some_and(super::super::claim::state::tenure::Tenure::is_mine)
        });
        self.read_disputed(cx, now, actions);
        self.conflicts.foreign.retain(|_, at| now < *at + FOREIGN_FOR);
    }

    /// Somebody else says that it has an address of ours: the claim is read anew.
    pub(in crate::election) fn dispute(
        &mut self,
        cx: &Context,
        now: Instant,
        name: &LeaseName,
        heard: &Heard,
        speaker: bool,
    ) {
        let (address, mac) = (heard.frame.ip, heard.frame.mac);
        if !cx.is_api_answering(now) {
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
    pub(in crate::election) fn read_disputed(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        while cx.has_room_to_read() && self.conflicts.reads <= now {
            let unread = self.conflicts.disputes.iter_mut().filter(|(_, dispute)| dispute.unread);
            let Some((name, dispute)) = unread.min_by_key(|(_, dispute)| dispute.read) else {
                return;
            };
            dispute.unread = false;
            dispute.read = Some(now);
            let target = Target::Claim(name.clone());
            if !cx.is_pending(&target) {
                let burst = READ_PACE * READ_BURST;
                self.conflicts.reads = self.conflicts.reads.max(now - burst) + READ_PACE;
                cx.read(now, target, actions);
            }
        }
    }

    /// A claim in dispute was read: still ours, it is defended.
    pub(in crate::election) fn conflict_answered(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        let Answer::Claim(stored) = answer else { return };
        if pending.purpose != Purpose::Read || cx.owner(stored) != Owner::Me {
            return;
        }
        for address in &stored.record.addresses {
            self.yields.settle(*address);
        }
        let interface = claims.tenures().get(name).and_then(|tenure| tenure.interface().cloned());
        let (Some(dispute), Some(interface)) = (self.conflicts.disputes.get_mut(name), interface)
        else {
            return;
        };
        if !stored.record.addresses.contains(&dispute.address) {
            let address = dispute.address;
            claims.give_up_unlisted(cx, name, address);
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
        Context::announce(&interface, address, actions);
        if defends && defences == DEFENCES {
            let cause = format!("{mac} announces {address} as well");
            Context::report(Fact::AddressConflict { claim: name.clone(), address, cause }, actions);
        }
    }
}
