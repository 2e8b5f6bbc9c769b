//! Which claims are valid: who owns them, as far as is known.

use std::collections::BTreeSet;

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::facts::is_under;
use crate::election::context::state::owner::Owner;
use crate::election::io::event::{Action, Target};

impl Context {
    /// Who owns `stored`, and under which session.
    pub(in crate::election) fn owner(&self, stored: &Stored<Claim>) -> Owner {
        // A number below one that was seen of this lease is an edit or a restored backup.
        let nobodys = stored.record.holder.is_none() || self.claims.is_set_back(stored);
        if nobodys { Owner::Nobody } else { self.named_owner(stored) }
    }

    /// Whom `stored` names, if its session lives: its owner, unless it was set back.
    pub(in crate::election) fn named_owner(&self, stored: &Stored<Claim>) -> Owner {
        let record = &stored.record;
        let (Some(holder), Some(session)) = (&record.holder, &record.session) else {
            return Owner::Nobody;
        };
        if *holder == self.config.node {
            return if self.names_us(stored) { Owner::Me } else { Owner::Nobody };
        }
        if !self.is_live(holder, session) && !self.is_in_doubt(stored) {
            return Owner::Nobody;
        }
        Owner::Other(holder.clone())
    }

    /// Whether `stored` names this node under its present session, and so is valid for all who have not
    /// seen a later state of it.
    pub(in crate::election) fn names_us(&self, stored: &Stored<Claim>) -> bool {
        let record = &stored.record;
        record.holder.as_ref() == Some(&self.config.node)
            && record.session.is_some()
            && record.session.as_ref() == self.own.id()
    }

    /// Whether `stored` is held under a session that this node does not know: the watch on the claims
    /// may be ahead of the one on the sessions. Until the session was read, its holder owns it.
    pub(in crate::election) fn is_in_doubt(&self, stored: &Stored<Claim>) -> bool {
        let (Some(holder), Some(session)) = (&stored.record.holder, &stored.record.session) else {
            return false;
        };
        if *holder == self.config.node || self.is_live(holder, session) {
            return false;
        }
        let known = self.sessions.get(holder.as_str());
        let later = known.is_some_and(|known| {
            known.uid == session.uid && known.record.transitions > session.transitions
        });
        let same = known.is_some_and(|known| is_under(known, session));
        let seen = self.claims.entry(&stored.name).map(|entry| entry.changed);
        let read = self.reads.read(holder);
        !later && !same && read.is_none_or(|read| seen.is_some_and(|seen| read < seen))
    }

    /// Reads the sessions that claims name and that this node does not know.
    pub(in crate::election) fn resolve_doubts(
        &mut self,
        now: Instant,
        names: &[LeaseName],
        actions: &mut Vec<Action>,
    ) {
        let doubtful: BTreeSet<LeaseName> = names
            .iter()
            .filter_map(|name| self.claims.get(name))
            .filter(|stored| self.is_in_doubt(stored))
            .filter_map(|stored| stored.record.holder.as_ref().map(LeaseName::session))
            .collect();
        for name in doubtful {
            let target = Target::Session(name.clone());
            if !self.is_pending(&target) && self.reads.may_read(now, &name) {
                self.read(now, target, actions);
            }
        }
    }
}
