//! News of a Service: the effect of an own write, or a change by another client.

use super::outstanding::Outstanding;
use super::record::{Record, Seen};
use super::tables::Tables;
use crate::allocate::ServiceKey;
use crate::clock::Instant;
use crate::reconcile::service::rivals::Rivals;

/// The state of a Service before news of it came.
#[derive(Debug)]
pub(super) struct Before {
    version: Option<u64>,
    uid: Option<String>,
    seen: Option<Seen>,
}

impl Before {
    /// The state of a Service as it is now.
    pub(super) fn of(tables: &Tables, key: &ServiceKey) -> Self {
        let row = tables.services().get(key);
        Self {
            version: tables.services().version(key),
            uid: row.map(|row| row.uid.clone()),
            seen: row.and_then(Seen::of),
        }
    }

    /// Notes at `now` in the record, and for the rivals, how a Service has changed since.
    pub(super) fn compare(
        self,
        key: &ServiceKey,
        tables: &Tables,
        outstanding: &Outstanding,
        record: &mut Record,
        rivals: &mut Rivals,
        now: Instant,
    ) {
        let row = tables.services().get(key).filter(|row| tables.request(row).is_some());
        let Some(row) = row.filter(|row| self.uid.as_ref().is_none_or(|uid| *uid == row.uid))
        else {
            // It is gone, is no longer ours, or is another one of its name.
            record.drop(key);
            rivals.drop(key);
            return;
        };
        let own = outstanding.services().get(key).is_some_and(|pending| {
            row.present == pending.addresses
                && row.claims() == pending.claims.as_ref()
                && row.noted() == pending.allocated_from.as_deref()
        });
        if !own && tables.services().version(key) > self.version {
            rivals.changed(key, row.mark(), row.rival(), now);
        }
        record.note(key, row, self.seen, own);
    }
}
