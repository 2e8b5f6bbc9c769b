//! Without the API server a node may answer whose speaker is gone: what it had lapses, all of it. The listener
//! polls one address of an owner, and as no claim changes hands it goes on with that one. So each of the others is
//! asked for here, of the node alone and a few at a time, and what is not answered for is taken over like the
//! one that is polled.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::event::{Action, Frame};
use super::voices::VoiceId;
use crate::clock::Instant;

/// How long an answer is waited for, and how many questions in a row have none where an address has lapsed.
const ANSWER: Duration = Duration::from_millis(50);
const UNANSWERED: u32 = 3;
/// Whoever looks so late may have stood still, with the answer still to be read: the question does not count.
const LATE: Duration = Duration::from_millis(200);
/// How often an address is asked for of which it is known.
const AGAIN: Duration = Duration::from_secs(1);
/// How many are asked for at once, and how soon after that the next.
const AT_ONCE: usize = 16;
const PACE: Duration = Duration::from_millis(10);

/// The addresses of an owner beside the one that is polled.
#[derive(Debug, Default)]
pub(super) struct Lapses {
    addresses: BTreeMap<IpAddr, Asked>,
    /// When the next are asked for at the earliest.
    paced: Instant,
}

/// An address that the owner is asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// When the question was sent whose answer is awaited; …
    sent: Option<Instant>,
    /// … and when the next is sent at the earliest.
    next: Instant,
    /// How many questions in a row were not answered.
    unanswered: u32,
}

impl Asked {
    const fn new(next: Instant) -> Self {
        Self { sent: None, next, unanswered: 0 }
    }

    const fn has_lapsed(self) -> bool {
        self.unanswered >= UNANSWERED
    }

    /// Judges the question, if its answer is due.
    fn judge(&mut self, now: Instant) {
        let Some(due) = self.sent.map(|sent| sent + ANSWER).filter(|due| now >= *due) else {
            return;
        };
        self.sent = None;
        self.unanswered = self.unanswered.saturating_add(u32::from(now < due + LATE));
        self.next = if self.has_lapsed() { now + AGAIN } else { now };
    }
}

impl Lapses {
    /// Asks for what is due of all that the owner is to have beside the address that is polled.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        id: &VoiceId,
        addresses: &BTreeSet<IpAddr>,
        actions: &mut Vec<Action>,
    ) {
        self.addresses.retain(|address, _| addresses.contains(address));
        for address in addresses {
            self.addresses.entry(*address).or_insert(Asked::new(now)).judge(now);
        }
        if now < self.paced {
            return;
        }
        let due = |asked: &Asked| asked.sent.is_none() && now >= asked.next;
        let mut due: Vec<_> = self.addresses.iter_mut().filter(|(_, asked)| due(asked)).collect();
        due.sort_by_key(|(_, asked)| asked.next);
        for (address, asked) in due.into_iter().take(AT_ONCE) {
            self.paced = now + PACE;
            asked.sent = Some(now);
            let frame = Frame::Ask(*address, id.mac);
            actions.push(Action::Transmit { interface: id.interface.clone(), frame });
        }
    }

    /// The owner has this address.
    pub(super) fn answered(&mut self, now: Instant, address: IpAddr) {
        if let Some(asked) = self.addresses.get_mut(&address) {
            *asked = Asked::new(now + AGAIN);
        }
    }

    pub(super) fn has_lapsed(&self, address: IpAddr) -> bool {
        self.addresses.get(&address).is_some_and(|asked| asked.has_lapsed())
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let of = |asked: &Asked| {
            asked.sent.map_or_else(|| asked.next.max(self.paced), |sent| sent + ANSWER)
        };
        self.addresses.values().map(of)
    }
}
