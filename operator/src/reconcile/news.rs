//! What became of a Service: by an own write, or by somebody else's.

use super::index::Index;
use super::record::Seen;
use crate::allocate::ServiceKey;
use crate::clock::Instant;

/// What was known of a Service before news of it came.
#[derive(Debug)]
pub(super) struct Before {
    version: Option<u64>,
    uid: Option<String>,
    seen: Option<Seen>,
}

impl Index {
    /// What is known of a Service, for [`Index::compare`].
    pub(super) fn before(&self, key: &ServiceKey) -> Before {
        let row = self.services.get(key);
        Before {
            version: self.services.version(key),
            uid: row.map(|row| row.uid.clone()),
            seen: row.and_then(Seen::of),
        }
    }

    /// Takes in at `now` what became of a Service since `before`.
    pub(super) fn compare(&mut self, key: &ServiceKey, before: Before, now: Instant) {
        let row = self.services.get(key).filter(|row| self.wish(row).is_some());
        let Some(row) = row.filter(|row| before.uid.as_ref().is_none_or(|uid| *uid == row.uid))
        else {
            // It has gone, is no longer ours, or is another one of its name.
            self.memory.drop(key);
            self.rivals.drop(key);
            return;
        };
        let own = self.pending().get(key).is_some_and(|pending| {
            row.present == pending.addresses
                && row.claims() == pending.claims.as_ref()
                && row.noted() == pending.allocated_from.as_deref()
        });
        if !own && self.services.version(key) > before.version {
            self.rivals.changed(key, row.mark(), row.rival(), now);
        }
        self.memory.note(key, row, before.seen, own);
    }
}
