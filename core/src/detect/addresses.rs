//! The addresses of one owner: which were heard, and when to ask for those that were not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::election::{Ownership, weight};

/// The first questions are spread over a second, so many at a time.
const SLOTS: u32 = 100;
const SLOT: Duration = Duration::from_millis(10);
/// Number of repetitions in short order of a question without an answer.
const SOON_REPEATED: u32 = 3;
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
struct Vip {
    ownership: Ownership,
    /// The time at which it was listed with this ownership: earlier questions do not count.
    since: Instant,
    /// The time of the next question for it, as long as it was not heard.
    due: Instant,
    asked: u32,
}

/// The addresses of one owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    vips: BTreeMap<IpAddr, Vip>,
    heard: BTreeSet<IpAddr>,
    due: BTreeSet<(Instant, IpAddr)>,
}

impl Addresses {
    /// Takes over what `node` owns. What was heard of an address counts as long as its ownership
    /// lasts.
    pub(super) fn update(
        &mut self,
        now: Instant,
        node: &NodeName,
        vips: &BTreeMap<IpAddr, Ownership>,
    ) {
        let Self { vips: known, heard, due } = self;
        // Both are in the order of addresses.
        let mut listed = vips.iter().peekable();
        let mut new = Vec::new();
        known.retain(|ip, vip| {
            while let Some(other) = listed.next_if(|(other, _)| *other < ip) {
                new.push(other);
            }
            let found = listed.next_if(|(other, _)| *other == ip);
            let same = found.is_some_and(|(_, ownership)| *ownership == vip.ownership);
            if !same {
                heard.remove(ip);
                due.remove(&(vip.due, *ip));
                new.extend(found);
            }
            same
        });
        for (ip, ownership) in new.into_iter().chain(listed) {
            let spread = weight(&ip.to_string(), node.as_str()) % u64::from(SLOTS);
            let at = now + SLOT * u32::try_from(spread).unwrap_or(0);
            due.insert((at, *ip));
            known.insert(*ip, Vip { ownership: ownership.clone(), since: now, due: at, asked: 0 });
        }
    }

    /// The owner answered for `ip` what was asked at `asked`: whether that says something of an
    /// address in its present ownership.
    pub(super) fn hear(&mut self, ip: IpAddr, asked: Instant) -> bool {
        let Some(vip) = self.vips.get(&ip).filter(|vip| vip.since <= asked) else { return false };
        if self.heard.insert(ip) {
            self.due.remove(&(vip.due, ip));
        }
        true
    }

    pub(super) fn is_heard(&self, ip: IpAddr) -> bool {
        self.heard.contains(&ip)
    }

    pub(super) fn any_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// The address to poll: `present` while it was heard, else the first that was, else any.
    pub(super) fn choose(&self, present: Option<IpAddr>) -> Option<IpAddr> {
        present
            .filter(|ip| self.is_heard(*ip))
            .or_else(|| self.heard.first().copied())
            .or(present.filter(|ip| self.vips.contains_key(ip)))
            .or_else(|| self.vips.keys().next().copied())
    }

    /// Another address that was heard, of the same family if there is one.
    pub(super) fn second(&self, polled: IpAddr) -> Option<IpAddr> {
        let mut others = self.heard.iter().copied().filter(|ip| *ip != polled);
        let first = others.clone().next();
        others.find(|ip| ip.is_ipv4() == polled.is_ipv4()).or(first)
    }

    /// The time of the next question.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// An address that is due to be asked for.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<IpAddr> {
        let (at, ip) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, ip));
        let vip = self.vips.get_mut(&ip)?;
        vip.asked = vip.asked.saturating_add(1);
        vip.due = now + if vip.asked <= SOON_REPEATED { SOON } else { LATER };
        self.due.insert((vip.due, ip));
        Some(ip)
    }
}
