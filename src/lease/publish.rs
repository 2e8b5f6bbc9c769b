//! What the core wants of the kernel, and what it leaves for the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::election::Election;
use super::event::Action;
use super::record::OwnRecord;
use super::serving::{ServedVip, Serving};
use crate::clock::Instant;
use crate::desired::Announcements;

impl Election {
    /// Publishes what is served, and the record for the next process, where they changed.
    pub(super) fn publish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let complete = self.is_informed() && self.own.is_settled();
        let until = self.own.renewed_until();
        let served_until = Some((self.own.kernel_until, until, now >= until));
        let moved = std::mem::replace(&mut self.open.served_until, served_until) != served_until;
        let yielded = self.yields.any();
        let stale = std::mem::replace(&mut self.open.yielded, yielded)
            || yielded
            || self.open.stale
            || !self.serving.complete;
        if complete && !stale && !moved {
            return;
        }
        if std::mem::take(&mut self.open.stale) {
            self.open.changes += 1;
            let (holding, dropping) = (self.held().count() > 0, self.drops_any());
            self.open.holding = holding;
            self.open.dropping = dropping;
        }
        let vips = if complete { self.served_vips(now) } else { self.adopted_vips(now) };
        let yielded = if complete { BTreeSet::new() } else { self.yields.addresses() };
        let same = vips == self.serving.vips && yielded == self.serving.yielded;
        if !same || complete != self.serving.complete {
            self.open.changes += 1;
            self.open.note_changed(&self.serving.vips, &vips);
            let generation = self.serving.generation + 1;
            self.serving = Serving { generation, vips, complete, yielded };
            actions.push(Action::Serve(self.serving.clone()));
        }
        if !complete {
            return;
        }
        self.adopted = None;
        if !stale {
            return;
        }
        let record = OwnRecord {
            node: self.config.node.clone(),
            incarnation: self.config.incarnation.clone(),
            session: self.own.id.clone(),
            transitions: self.sessions.highest(&self.own_name),
            claims: self.held_claims(),
        };
        if self.persisted.as_ref() != Some(&record) {
            actions.push(Action::Persist(record.clone()));
            self.persisted = Some(record);
        }
    }

    /// What a former process left, as long as the kernel still has it.
    fn adopted_vips(&self, now: Instant) -> BTreeMap<IpAddr, ServedVip> {
        let mut vips = BTreeMap::new();
        for (claim, held) in self.adopted.iter().flat_map(|record| &record.claims) {
            for address in &held.addresses {
                let Some(present) = self.kernel.ours.get(address) else { continue };
                if now >= present.until || self.yields.contains(*address) {
                    continue;
                }
                vips.insert(
                    *address,
                    ServedVip {
                        claim: claim.clone(),
                        interface: present.interface.clone(),
                        until: if held.drops {
                            present.until
                        } else {
                            self.own.kernel_until.max(present.until)
                        },
                        ownership: 0,
                        announced: Some(Announcements::default()),
                    },
                );
            }
        }
        vips
    }

    /// Whether the kernel is known to hold `address` no longer since it was last published without.
    pub(super) fn is_removed(&self, address: IpAddr) -> bool {
        !self.serving.vips.contains_key(&address)
            && self.kernel.applied >= self.serving.generation
            && !self.kernel.ours.contains_key(&address)
    }

    /// Whether the kernel holds none of our addresses, and is to hold none.
    pub(super) fn is_kernel_clear(&self) -> bool {
        self.serving.vips.is_empty()
            && self.serving.complete
            && self.kernel.applied >= self.serving.generation
            && self.kernel.ours.is_empty()
    }

    pub(super) fn is_served(&self, address: IpAddr) -> bool {
        self.serving.vips.contains_key(&address)
    }

    /// Ends the process once what it was asked to leave behind is in place.
    pub(super) fn finish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.own.is_ending() {
            return;
        }
        let kept = self.serving.vips.iter().all(|(address, vip)| {
            // The kernel counts whole seconds.
            self.kernel
                .ours
                .get(address)
                .is_some_and(|present| present.until + Duration::from_millis(1100) >= vip.until)
        });
        let clear = self.tenures.values().all(|tenure| !tenure.mine) && self.is_kernel_clear();
        if self.own.may_exit(now, kept, clear) {
            actions.push(Action::Exit);
        }
    }
}
