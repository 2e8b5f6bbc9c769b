//! Rivals: other controllers that repeatedly revert our writes to Services, and the back-off against them.
//!
//! A change by another client is reverted at once: most clients write once, or now and then. A rival, a
//! controller that treats the Service as its own, is recognised by its behaviour: it answers each write with
//! the same state again, and then stops. Against a rival the pauses grow, from none to [`LONGEST`]; they
//! get shorter while our write stands, and end [`LEFT_ALONE`] after the last change. The condition of such
//! a Service names the rival, and one event does.
//!
//! ```text
//! written ──► stands ──► undone ── due? ──► written again
//!               │           │
//!               │           └─ as after the write before, or the one before that: more debt, else none
//!               └─ pays the debt off, second by second
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::service::Claims;

use super::managers::Rival;
use crate::allocate::ServiceKey;
use crate::clock::Instant;

/// The time that a write has to stand to make up for one that was undone.
const STEP: Duration = Duration::from_secs(5);
/// The number of writes that may be undone to a known state, one right after the other, before the first
/// pause.
const FREE: u32 = 8;
/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: a rival's change is reverted within this.
pub(in crate::reconcile) const LONGEST: Duration = Duration::from_secs(30);
/// The number of pauses up to the longest.
const PAUSES: u32 = 6;
/// The least time between two writes to a Service of which many were undone, by any client.
const SPACING: Duration = Duration::from_millis(20);
/// The number of writes that a rival may undo, however slowly, before that is reported.
const MANY: u32 = 10;
/// After this time without a change a Service is no longer contested.
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// The largest number of rivals of one Service that are named.
const NAMED: usize = 4;

/// Hashes of the fields that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct Mark {
    /// With their whole content.
    pub(in crate::reconcile) whole: u64,
    /// Without the content of conditions: distinguishes the states that others leave behind.
    pub(in crate::reconcile) shape: u64,
}

/// The addresses, pool and claims that a write gives a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct Given {
    pub(in crate::reconcile) addresses: Vec<IpAddr>,
    pub(in crate::reconcile) allocated_from: Option<String>,
    pub(in crate::reconcile) claims: Option<Claims>,
}

/// The last write to a Service, and the fate of those before.
#[derive(Debug)]
struct Bout {
    given: Given,
    /// The hash of the state as written.
    ours: u64,
    written: Instant,
    /// The time since which it is undone.
    undone: Option<Instant>,
    /// The states to which others first changed the last two writes, the latest first.
    shapes: [Option<u64>; 2],
    /// The number of times in a row that this state was that after the write before, and that after the
    /// one before: a rival may write in two steps.
    streaks: [u32; 2],
    /// The state to which others changed a write that they had undone already.
    further: Option<u64>,
    /// Whether the writer that undid it wrote again without waiting for our answer: that is no rival.
    restless: bool,
    /// The time for which writes have to stand to make up for undone ones.
    debt: Duration,
    /// The number of undone writes.
    rounds: u32,
    /// The number of those in a row that were undone to a known state.
    again: u32,
    by: BTreeSet<Rival>,
    contested: bool,
    reported: bool,
    /// The time of the last write by any client.
    touched: Instant,
}

/// A Service that a rival writes to.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconcile) struct Contest<'a> {
    /// The rivals, as far as the API server records them.
    pub(in crate::reconcile) by: &'a BTreeSet<Rival>,
    /// Whether an event has reported it.
    pub(in crate::reconcile) reported: bool,
}

/// The Services that were written recently.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct Rivals {
    bouts: BTreeMap<ServiceKey, Bout>,
}

impl Rivals {
    /// Notes a write that was carried out at `now`, with the hash of the state after it. Returns whether it
    /// reverted a change of others. `reported`: an event reports the contest.
    pub(in crate::reconcile) fn written(
        &mut self,
        key: &ServiceKey,
        given: Given,
        mark: Mark,
        reported: bool,
        now: Instant,
    ) -> bool {
        let bout = self.bouts.entry(key.clone()).or_insert_with(|| Bout {
            given: given.clone(),
            ours: mark.whole,
            written: now,
            undone: None,
            shapes: [None; 2],
            streaks: [0; 2],
            further: None,
            restless: false,
            debt: Duration::ZERO,
            rounds: 0,
            again: 0,
            by: BTreeSet::new(),
            contested: false,
            reported: false,
            touched: now,
        });
        let restored = bout.undone.take().is_some() && bout.given == given;
        bout.reported |= reported;
        bout.restless = false;
        (bout.given, bout.ours, bout.written, bout.touched) = (given, mark.whole, now, now);
        restored
    }

    /// Notes that another client has written to a Service at `now`, with the hash of the state after it.
    pub(in crate::reconcile) fn changed(
        &mut self,
        key: &ServiceKey,
        mark: Mark,
        rival: Option<&Rival>,
        now: Instant,
    ) {
        let Some(bout) = self.bouts.get_mut(key) else { return };
        if mark.whole == bout.ours {
            bout.undone = None;
            return;
        }
        bout.touched = now;
        if bout.by.len() < NAMED {
            bout.by.extend(rival.cloned());
        }
        if bout.undone.is_none() {
            bout.undone = Some(now);
            bout.undo(mark.shape, now);
        } else if !bout.shapes.contains(&Some(mark.shape)) && bout.further != Some(mark.shape) {
            bout.further = Some(mark.shape);
            (bout.restless, bout.debt, bout.again) = (true, Duration::ZERO, 0);
        }
        bout.contested |= !bout.pause().is_zero() || bout.again >= MANY;
    }

    /// Forgets a Service that is gone, or not ours any more.
    pub(in crate::reconcile) fn drop(&mut self, key: &ServiceKey) {
        self.bouts.remove(key);
    }

    /// Whether such a write has to wait at `now`, because the same write was undone by a rival.
    pub(in crate::reconcile) fn holds_back(
        &self,
        key: &ServiceKey,
        given: &Given,
        now: Instant,
    ) -> bool {
        let bout = self.bouts.get(key).filter(|bout| bout.given == *given);
        bout.and_then(Bout::due).is_some_and(|due| due > now)
    }

    /// The contest with rivals about a Service, if there is one.
    pub(in crate::reconcile) fn contest(&self, key: &ServiceKey) -> Option<Contest<'_>> {
        let bout = self.bouts.get(key).filter(|bout| bout.contested)?;
        Some(Contest { by: &bout.by, reported: bout.reported })
    }

    /// The number of Services to which rivals write.
    pub(in crate::reconcile) fn contested(&self) -> usize {
        self.bouts.values().filter(|bout| bout.contested).count()
    }

    /// The time of the next write that is due, or of the next end of a contest, after `now`.
    pub(in crate::reconcile) fn next(&self, now: Instant) -> Option<Instant> {
        let end = |bout: &Bout| bout.contested.then(|| bout.touched + LEFT_ALONE);
        let times = self.bouts.values().flat_map(|bout| [bout.due(), end(bout)]).flatten();
        times.filter(|at| *at > now).min()
    }

    /// Forgets at `now` the Services to which no client has written for long enough.
    pub(in crate::reconcile) fn forget(&mut self, now: Instant) {
        self.bouts.retain(|_, bout| bout.touched + LEFT_ALONE > now);
    }
}

impl Bout {
    /// Notes that the write is undone at `now`, to the state `shape`.
    fn undo(&mut self, shape: u64, now: Instant) {
        let [latest, earlier] = self.shapes;
        let [mut once, mut twice] = self.streaks;
        let before = once.max(twice);
        once = if latest == Some(shape) { once.saturating_add(1) } else { 0 };
        twice = if earlier == Some(shape) { twice.saturating_add(1) } else { 0 };
        (self.shapes, self.streaks) = ([Some(shape), latest], [once, twice]);
        self.rounds = self.rounds.saturating_add(1);
        self.debt = self.debt.saturating_sub(now.saturating_sub(self.written));
        if once.max(twice) > before {
            self.again = self.again.saturating_add(1);
            self.debt = (self.debt + STEP).min(STEP * (FREE + PAUSES));
        } else {
            (self.again, self.debt) = (0, Duration::ZERO);
        }
    }

    /// The time from which it may be written again; none while it stands.
    fn due(&self) -> Option<Instant> {
        self.undone?;
        let spacing = if self.rounds > FREE { SPACING } else { Duration::ZERO };
        let pause = if self.restless { Duration::ZERO } else { self.pause() };
        Some(self.written + pause.max(spacing))
    }

    /// The pause after a write, by the debt.
    fn pause(&self) -> Duration {
        let mut level = FREE;
        let mut pause = Duration::ZERO;
        while self.debt > STEP * level && pause < LONGEST {
            pause = (pause * 2).clamp(FIRST, LONGEST);
            level += 1;
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Service that is written to at once when that is due, by a clock that stands still meanwhile.
    struct World {
        rivals: Rivals,
        now: Instant,
        /// When it was written.
        writes: Vec<Instant>,
    }

    const OURS: Mark = Mark { whole: 1, shape: 1 };

    fn key() -> ServiceKey {
        ServiceKey { namespace: "web".to_owned(), name: "shop".to_owned() }
    }

    fn given(address: &str) -> Given {
        let addresses = vec![address.parse().unwrap()];
        Given { addresses, allocated_from: Some("lan".to_owned()), claims: None }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    impl World {
        fn new() -> Self {
            let mut world =
                Self { rivals: Rivals::default(), now: seconds(1000.0), writes: Vec::new() };
            world.write();
            world
        }

        fn write(&mut self) {
            let told = self.rivals.contest(&key()).is_some();
            self.rivals.written(&key(), given("10.0.0.0"), OURS, told, self.now);
            self.writes.push(self.now);
        }

        /// Another writer sets this state.
        fn undo(&mut self, state: u64) {
            let mark = Mark { whole: state, shape: state };
            self.rivals.changed(&key(), mark, None, self.now);
        }

        /// Time passes, and what is due by then is written.
        fn pass(&mut self, time: Duration) {
            let until = self.now + time;
            while self.undone() {
                let due = self.rivals.bouts[&key()].due().unwrap().max(self.now);
                if due > until {
                    break;
                }
                self.now = due;
                self.write();
            }
            self.now = until;
            self.rivals.forget(self.now);
        }

        fn undone(&self) -> bool {
            self.rivals.bouts.get(&key()).is_some_and(|bout| bout.undone.is_some())
        }

        fn contested(&self) -> bool {
            self.rivals.contest(&key()).is_some()
        }

        /// The number of writes within this span, in seconds from the first write.
        fn writes_within(&self, from: f64, to: f64) -> usize {
            let span = seconds(1000.0 + from)..seconds(1000.0 + to);
            self.writes.iter().filter(|at| span.contains(at)).count()
        }
    }

    /// A rival that answers each write after `reply` with the same state, for `time`.
    fn fight(world: &mut World, reply: Duration, time: Duration) {
        let end = world.now + time;
        while world.now < end {
            if world.undone() {
                let due = world.rivals.bouts[&key()].due().unwrap();
                world.pass(due.saturating_sub(world.now).min(end.saturating_sub(world.now)));
            } else {
                world.pass(reply.min(end.saturating_sub(world.now)));
                world.undo(9);
            }
        }
    }

    #[test]
    fn against_a_rival_pauses_grow_from_nothing_to_half_a_minute() {
        let mut world = World::new();
        fight(&mut world, seconds(0.01), seconds(300.0));
        assert!(world.contested());
        // The first, the one after which the state is known, eight that are free, and those after pauses
        // of 1, 2 and 4 s.
        assert_eq!(world.writes_within(0.0, 10.0), 13, "{:?}", world.writes);
        assert_eq!(world.writes_within(10.0, 60.0), 2, "{:?}", world.writes);
        assert_eq!(world.writes_within(120.0, 300.0), 6, "{:?}", world.writes);
        let pauses = world.writes.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert!(pauses.max().unwrap() <= LONGEST);
    }

    #[test]
    fn a_rival_that_takes_its_time_is_told_and_slowed_down_less() {
        let mut world = World::new();
        fight(&mut world, seconds(6.0), seconds(50.0));
        assert!(!world.contested());
        fight(&mut world, seconds(6.0), seconds(100.0));
        assert!(world.contested(), "ten times the same");
        let gaps = world.writes.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert!(gaps.max().unwrap() <= seconds(8.0), "each is put right at once");
        let mut world = World::new();
        fight(&mut world, seconds(1.0), seconds(120.0));
        assert!(world.writes_within(0.0, 120.0) < 30, "{:?}", world.writes);
    }

    #[test]
    fn what_is_undone_now_and_then_is_put_right_at_once() {
        let mut world = World::new();
        for _ in 0..20 {
            world.pass(seconds(5.0));
            world.undo(9);
            assert!(!world.rivals.holds_back(&key(), &given("10.0.0.0"), world.now));
            world.pass(seconds(0.0));
        }
        assert_eq!(world.writes.len(), 21);
    }

    #[test]
    fn edits_of_many_kinds_are_no_rivalry_and_are_put_right_soon() {
        let mut world = World::new();
        // A sequence in which one state follows on itself seldom.
        let mut state: u64 = 7;
        for _ in 0..300 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            world.undo(2 + (state >> 33) % 8);
            world.pass(seconds(0.25));
        }
        world.pass(seconds(2.0));
        assert!(!world.undone());
        let gaps = world.writes.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert!(gaps.max().unwrap() <= seconds(2.0), "{:?}", world.writes);
    }

    #[test]
    fn edits_by_the_hundred_of_which_many_do_the_same_are_put_right_within_two_seconds() {
        let (mut world, mut dice) = (World::new(), 7_u64);
        for _ in 0..2_000 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            // One in three takes all annotations off.
            world.undo(if dice.is_multiple_of(3) { 2 } else { 3 + dice % 7 });
            let due = world.rivals.bouts[&key()].due().unwrap();
            assert!(due <= world.now + seconds(2.0), "at {:?}", world.now);
            world.pass(seconds(0.06));
        }
        assert!(!world.contested());
    }

    #[test]
    fn a_state_that_differs_each_time_is_put_right_fifty_times_a_second_at_most() {
        let mut world = World::new();
        for state in 0..1000 {
            world.undo(10 + state);
            world.pass(seconds(0.01));
        }
        assert!(world.writes.len() <= 520, "{}", world.writes.len());
    }

    #[test]
    fn left_alone_a_service_is_contested_no_longer_and_what_is_next_undone_is_put_right_at_once() {
        let mut world = World::new();
        fight(&mut world, seconds(0.01), seconds(20.0));
        assert!(world.contested() && world.rivals.contested() == 1);
        world.pass(LONGEST);
        assert!(!world.undone(), "it is put right within the longest pause");
        let end = *world.writes.last().unwrap() + LEFT_ALONE;
        assert_eq!(world.rivals.next(world.now), Some(end));
        world.pass(end.saturating_sub(world.now));
        assert!(!world.contested());
        let before = world.writes.len();
        world.write();
        world.undo(9);
        world.pass(seconds(0.0));
        assert_eq!(world.writes.len(), before + 2);
    }

    #[test]
    fn another_decision_waits_for_nobody_and_nobody_is_told_twice() {
        let mut world = World::new();
        fight(&mut world, seconds(0.01), seconds(5.0));
        assert!(world.undone());
        assert!(world.rivals.holds_back(&key(), &given("10.0.0.0"), world.now));
        assert!(!world.rivals.holds_back(&key(), &given("10.0.0.1"), world.now));
        assert!(world.rivals.contest(&key()).unwrap().reported);
        world.undo(OURS.whole);
        assert!(!world.undone(), "it was put right by who had undone it");
    }
}
