//! The rules of the election. No clock and no I/O: `now` is an argument.
//!
//! Nobody's timestamps are compared with a local clock. A foreign tenure is over when this process
//! has not seen the record change for its duration; the own one counts from the *sending* of the
//! last renewal that was answered.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::client::CALL_TIMEOUT;
use crate::clock::Instant;

/// The lease as last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) holder: Option<String>,
    pub(super) transitions: i32,
    pub(super) duration: Duration,
    pub(super) acquired: Option<MicroTime>,
    /// The annotations, which are kept as they are: users write some.
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// Which process this is.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    /// The prefix of the names of all processes in the same place; `None` on a host with several processes.
    place: Option<String>,
}

impl Identity {
    /// The process `instance`, a text that no other has, in a `place` where one runs at a time, and only
    /// after the former has ended: a pod.
    pub fn in_pod(place: &str, instance: &str) -> Self {
        let place = format!("{place}_");
        Self { name: format!("{place}{instance}"), place: Some(place) }
    }

    /// The process `instance` of a host where others may run, too.
    pub fn on_host(host: &str, instance: &str) -> Self {
        Self { name: format!("{host}_{instance}"), place: None }
    }

    /// The name that the lease bears.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `holder` was a process in the same place, which is dead now.
    fn follows(&self, holder: &str) -> bool {
        let place = self.place.as_deref();
        holder != self.name && place.is_some_and(|place| holder.starts_with(place))
    }
}

/// The next action of the elector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no lease: create it.
    Create,
    /// The tenure of the holder is over: take the lease.
    Take(Record),
    /// Renew the own tenure.
    Renew(Record),
    /// Nothing before this.
    Wait(Instant),
}

/// For how long what a dead process has sent may still be carried out.
const AFTERMATH: Duration = CALL_TIMEOUT;

/// One replica's view of the election.
#[derive(Debug)]
pub(super) struct Contest {
    identity: Identity,
    duration: Duration,
    renewal: Duration,
    margin: Duration,
    record: Option<Record>,
    changed_at: Instant,
    /// The lease was deleted under its holder, who may not know yet: not to be created before.
    vacant_from: Instant,
    /// Whether a read was answered.
    looked: bool,
    /// The sending of the last own write that was answered, while the lease is still ours.
    valid_from: Option<Instant>,
    term: u64,
}

impl Contest {
    pub(super) fn new(
        identity: Identity,
        duration: Duration,
        renewal: Duration,
        margin: Duration,
    ) -> Self {
        let (record, changed_at, vacant_from, looked, valid_from, term) = Default::default();
        Self {
            identity,
            duration,
            renewal,
            margin,
            record,
            changed_at,
            vacant_from,
            looked,
            valid_from,
            term,
        }
    }

    pub(super) fn identity(&self) -> &str {
        self.identity.name()
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.record.as_ref().and_then(|record| record.holder.as_deref())
    }

    /// The record while it names us.
    pub(super) fn own(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.holder.as_deref() == Some(self.identity()))
    }

    /// Whether this version of the lease has been read already.
    pub(super) fn knows(&self, resource_version: Option<&str>) -> bool {
        self.record.as_ref().map(|record| record.resource_version.as_str()) == resource_version
    }

    /// A read was answered at `now`.
    pub(super) fn observed(&mut self, now: Instant, record: Option<Record>) {
        // Nor does who looks for the first time know whether it was deleted a moment ago.
        if !std::mem::replace(&mut self.looked, true) && record.is_none() {
            self.vacant_from = now + self.duration;
        }
        if record != self.record {
            let other = self.holder().is_some_and(|holder| holder != self.identity());
            if record.is_none() && other {
                self.vacant_from = now + self.duration;
            }
            self.record = record;
            self.changed_at = now;
        }
        if self.own().is_none() {
            self.valid_from = None;
        }
    }

    /// An own write, sent at `sent`, was answered with `record`.
    pub(super) fn wrote(&mut self, sent: Instant, record: Option<Record>) {
        // A tenure that had lapsed meanwhile is another one: others may have acted in between.
        if self.tenure().is_none_or(|(_, until)| sent >= until + self.margin) {
            self.term += 1;
        }
        self.record = record;
        self.changed_at = sent;
        self.valid_from = Some(sent);
    }

    /// The number of the present tenure, and until when it permits to write.
    pub(super) fn tenure(&self) -> Option<(u64, Instant)> {
        let valid_from = self.valid_from?;
        Some((self.term, valid_from + self.duration.saturating_sub(self.margin)))
    }

    /// The action that is due at `now`.
    pub(super) fn next(&self, now: Instant) -> Step {
        let Some(record) = &self.record else {
            return if now < self.vacant_from {
                Step::Wait(self.vacant_from)
            } else {
                Step::Create
            };
        };
        let due = match &record.holder {
            // Ours without a known sending: a write that seemed to have failed was carried out.
            Some(holder) if holder == self.identity() => {
                self.valid_from.map_or(now, |sent| sent + self.renewal)
            }
            Some(holder) if self.identity.follows(holder) => self.changed_at + AFTERMATH,
            Some(_) => self.changed_at + self.duration.max(record.duration),
            None => now,
        };
        if now < due {
            Step::Wait(due)
        } else if record.holder.as_deref() == Some(self.identity()) {
            Step::Renew(record.clone())
        } else {
            Step::Take(record.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn contest(identity: &str) -> Contest {
        Contest::new(Identity::on_host(identity, "1"), seconds(15), seconds(5), seconds(5))
    }

    fn record(version: u32, holder: Option<&str>) -> Record {
        Record {
            uid: "uid".to_owned(),
            resource_version: version.to_string(),
            holder: holder.map(|host| format!("{host}_1")),
            transitions: 1,
            duration: seconds(15),
            acquired: None,
            annotations: None,
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_an_absent_one_created_when_nobody_can_have_it() {
        let mut me = contest("me");
        me.observed(seconds(100), None);
        me.observed(seconds(101), None);
        assert_eq!(me.next(seconds(101)), Step::Wait(seconds(115)));
        assert_eq!(me.next(seconds(115)), Step::Create);
        me.observed(seconds(101), Some(record(1, None)));
        assert_eq!(me.next(seconds(101)), Step::Take(record(1, None)));
    }

    #[test]
    fn a_foreign_tenure_ends_when_the_record_was_not_seen_to_change_for_its_duration() {
        let mut me = contest("me");
        me.observed(seconds(100), Some(record(1, Some("other"))));
        me.observed(seconds(110), Some(record(1, Some("other"))));
        assert_eq!(me.next(seconds(114)), Step::Wait(seconds(115)));
        me.observed(seconds(114), Some(record(2, Some("other"))));
        assert_eq!(me.next(seconds(115)), Step::Wait(seconds(129)));
        assert_eq!(me.next(seconds(129)), Step::Take(record(2, Some("other"))));
    }

    #[test]
    fn a_lease_that_was_deleted_under_its_holder_is_not_created_before_that_must_have_stopped() {
        let mut me = contest("me");
        me.observed(seconds(100), Some(record(1, Some("other"))));
        me.observed(seconds(101), None);
        assert_eq!(me.next(seconds(102)), Step::Wait(seconds(116)));
        assert_eq!(me.next(seconds(116)), Step::Create);
    }

    #[test]
    fn a_longer_duration_in_the_record_is_respected() {
        let mut me = contest("me");
        let long = Record { duration: seconds(60), ..record(1, Some("other")) };
        me.observed(seconds(100), Some(long));
        assert_eq!(me.next(seconds(116)), Step::Wait(seconds(160)));
    }

    #[test]
    fn the_own_tenure_counts_from_the_sending_and_ends_before_others_may_take_it() {
        let mut me = contest("me");
        me.wrote(seconds(100), Some(record(1, Some("me"))));
        assert_eq!(me.tenure(), Some((1, seconds(110))));
        assert_eq!(me.next(seconds(103)), Step::Wait(seconds(105)));
        assert_eq!(me.next(seconds(105)), Step::Renew(record(1, Some("me"))));
        // Another replica has seen the write at 100 at the earliest.
        let mut other = contest("other");
        other.observed(seconds(100), Some(record(1, Some("me"))));
        assert_eq!(other.next(seconds(114)), Step::Wait(seconds(115)));
    }

    #[test]
    fn renewing_keeps_the_term_and_a_lapse_begins_another() {
        let mut me = contest("me");
        me.wrote(seconds(100), Some(record(1, Some("me"))));
        me.wrote(seconds(105), Some(record(2, Some("me"))));
        assert_eq!(me.tenure(), Some((1, seconds(115))));
        // It has not written for a while, but nobody else could have.
        me.wrote(seconds(119), Some(record(3, Some("me"))));
        assert_eq!(me.tenure(), Some((1, seconds(129))));
        me.wrote(seconds(134), Some(record(4, Some("me"))));
        assert_eq!(me.tenure(), Some((2, seconds(144))));
    }

    #[test]
    fn whoever_reads_another_holder_is_no_longer_active() {
        let mut me = contest("me");
        me.wrote(seconds(100), Some(record(1, Some("me"))));
        me.observed(seconds(101), Some(record(2, Some("other"))));
        assert_eq!(me.tenure(), None);
        assert_eq!(me.own(), None);
    }

    #[test]
    fn a_write_that_seemed_lost_but_was_carried_out_is_renewed_before_it_counts() {
        let mut me = contest("me");
        me.observed(seconds(100), Some(record(2, Some("me"))));
        assert_eq!(me.tenure(), None);
        assert_eq!(me.next(seconds(100)), Step::Renew(record(2, Some("me"))));
    }

    #[test]
    fn a_process_that_was_killed_is_followed_at_once_by_the_next_in_its_pod_only() {
        let duration = seconds(15);
        for (identity, follows) in [
            (Identity::in_pod("pod", "2"), true),
            (Identity::in_pod("po", "2"), false),
            (Identity::in_pod("pod_1", "2"), false),
            (Identity::in_pod("other", "2"), false),
            (Identity::on_host("pod", "2"), false),
        ] {
            let mut me = Contest::new(identity, duration, seconds(5), seconds(5));
            me.observed(seconds(100), Some(record(1, Some("pod"))));
            let due = seconds(100) + if follows { AFTERMATH } else { duration };
            assert_eq!(me.next(seconds(100)), Step::Wait(due), "{me:?}");
            assert_eq!(me.next(due), Step::Take(record(1, Some("pod"))), "{me:?}");
        }
    }
}
