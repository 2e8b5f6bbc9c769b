//! Recent changes of the owners of claims, for the time at which conditions report them.
//!
//! An owner is not reported at once: writes to Services stay out of the way of a failover, an owner that
//! has just changed may change again, and an unowned claim is about to be taken.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;

/// The time for which a claim has its owner before that is reported.
const OWNED: Duration = Duration::from_secs(1);
/// The time for which a claim is unowned before that is reported.
pub(super) const UNOWNED: Duration = Duration::from_secs(2);
/// The longest time for which that is put off because another node may have become able to take it.
const PUT_OFF: Duration = Duration::from_secs(3);

/// The claims whose owner changed recently.
#[derive(Debug, Default)]
pub(super) struct OwnerChanges {
    claims: BTreeMap<LeaseName, Since>,
}

/// The time of a change of owner.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// The time of the change.
    changed: Instant,
    /// The time at which another node may have become able to take the claim; at first that of the change.
    counts_from: Instant,
}

impl OwnerChanges {
    /// Notes that a claim has another owner at `now`, or none.
    pub(super) fn note(&mut self, name: &LeaseName, now: Instant) {
        self.claims.insert(name.clone(), Since { changed: now, counts_from: now });
    }

    /// Puts off the report of an unowned claim, because another node may be able to take it from `now` on.
    /// The delay is limited in total, so that repeated changes do not suppress the report.
    pub(super) fn put_off(&mut self, name: &LeaseName, now: Instant) {
        let new = Since { changed: now, counts_from: now };
        let since = self.claims.entry(name.clone()).or_insert(new);
        since.counts_from = now.min(since.changed + PUT_OFF);
    }

    /// The time from which the owner of a claim, or its lack of one, is reported; none: it already is.
    pub(super) fn reported_at(&self, name: &LeaseName, owned: bool) -> Option<Instant> {
        let since = self.claims.get(name)?;
        Some(since.counts_from + if owned { OWNED } else { UNOWNED })
    }

    /// The time of the next report after `now`.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let since = self.claims.values().map(|since| since.counts_from);
        since.flat_map(|since| [since + OWNED, since + UNOWNED]).filter(|at| *at > now).min()
    }

    /// Forgets the changes that are reported by `now`.
    pub(super) fn forget(&mut self, now: Instant) {
        self.claims.retain(|_, since| since.counts_from + UNOWNED > now);
    }
}
