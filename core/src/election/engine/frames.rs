//! Frames that were received: each claim of the address takes notice.

use crate::clock::Instant;
use crate::election::claim::state::tenure::Tenure;
use crate::election::engine::Election;
use crate::election::io::event::{Action, Heard};
use crate::election::wire::Wire;

impl Election {
    pub(in crate::election) fn advance_conflicts(
        &mut self,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        self.claims.advance_probes(&mut self.cx, now, actions);
        self.wire.ask_old_owners(&mut self.cx, &mut self.claims, now, actions);
        self.outage.probe_provisional(&self.cx, &self.claims, now, actions);
        self.wire.advance_yielded(&mut self.cx, &self.claims, now, actions);
        self.wire.advance_disputes(&mut self.cx, &self.claims, now, actions);
    }

    pub(in crate::election) fn heard(
        &mut self,
        now: Instant,
        heard: &Heard,
        actions: &mut Vec<Action>,
    ) {
        let mac = heard.frame.mac;
        if self.cx.own_interfaces().values().any(|interface| interface.mac == mac) {
            return;
        }
        let speaker = self.cx.speaker_with(mac).is_some();
        if speaker {
            self.cx.note_speaker(mac);
        }
        self.wire.hear_old_owner(&mut self.cx, &mut self.claims, now, heard, actions);
        self.wire.silences_mut().heard(now, heard);
        self.wire.yields_mut().answered(heard.frame.ip, mac, speaker);
        let address = heard.frame.ip;
        let claims = self.claims.claims_of(address);
        for name in &claims {
            self.cx.published_mut().touch(name);
        }
        if !claims.is_empty() && !speaker && !self.cx.heard_speakers().contains(&mac) {
            self.wire.conflicts_mut().note_foreign(now, address, mac);
        }
        for name in claims {
            let Some(tenure) = self.claims.tenures().get(&name) else { continue };
            if tenure.yielding().is_some_and(|yielding| yielding.is_served_by(mac)) {
                self.claims.with(&mut self.cx, &name, Tenure::end_yielding);
            } else if tenure.provisional().is_some() {
                self.outage.hear_provisional(
                    &mut self.cx,
                    &mut self.claims,
                    now,
                    &name,
                    heard,
                    speaker,
                    actions,
                );
            } else if tenure.probing().is_some() || tenure.awaits_rules() {
                let mine = tenure.is_mine();
                if !speaker {
                    self.claims.refuse_conflict(&mut self.cx, now, &name, address, mac, actions);
                } else if mine && !self.cx.is_api_answering(now) {
                    self.wire.yields_mut().hear_while_probing(now, heard);
                }
            } else if tenure.is_mine() {
                self.wire.dispute(&self.cx, now, &name, heard, speaker);
            }
        }
        // Before this process has a session, whoever announces what a former one left may have it now. Who
        // is a speaker is not known before the leases are.
        if Wire::is_left_behind(&self.cx, address) && (speaker || !self.cx.is_informed()) {
            self.wire.yields_mut().hear(now, heard);
        }
    }
}
