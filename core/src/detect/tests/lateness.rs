//! Judgments of a node that does not run in time.

use std::time::Duration;

use super::world::{World, heard, longest, ms, node, vip};
use crate::desired::Detection;

#[test]
fn a_judgement_that_is_late_is_void() {
    // By how much each judgement is late, and whether a dead owner is found silent all the same.
    // The wake-ups: poll, judgement, judgement, half-way probe, judgement.
    let rows = [(0, true), (9, true), (21, false), (200, false)];
    for (late, silent) in rows {
        let mut world = heard(Detection::default());
        world.host(2).dead = true;
        world.host(3).dead = true;
        world.lateness = vec![ms(late); 400];
        world.run(ms(1_500));
        assert_eq!(world.was_silent(2), silent, "{late} ms late");
        world.lateness.clear();
        world.run(longest(Detection::default()) + ms(100));
        assert!(world.was_silent(2), "{late} ms late, then on time");
    }
}

#[test]
fn without_its_second_probe_the_last_poll_is_void() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    let since = world.now;
    let polls = |world: &World| {
        let all = world.asked_for(since, vip(20)).into_iter();
        all.filter(|(_, asked)| asked.mac.is_some()).count()
    };
    world.run_to(ms(200), |world| polls(world) == 3).unwrap();
    // The second probe is due after 10 ms, the judgement after 20.
    world.lateness = vec![ms(15)];
    world.run_to(ms(100), |world| polls(world) == 4).unwrap();
    assert!(!world.was_silent(2));
    assert!(world.run_to(ms(21), |world| world.silence(2).is_some()).is_some());
}

#[test]
fn twenty_milliseconds_are_not_too_late() {
    for (late, counted) in [(20_000, true), (20_001, false)] {
        let mut world = World::new(1, Detection::default());
        world.update();
        world.run(ms(150));
        world.host(2).dead = true;
        // The poll at 200 ms goes out on time; its judgement is late.
        world.run(ms(55));
        let witness = world.asked_for(world.now, node(254)).len();
        assert_eq!(witness, 0);
        let since = world.now;
        world.lateness = vec![Duration::from_micros(late)];
        world.run(ms(41));
        let asked = !world.asked_for(since, node(254)).is_empty();
        assert_eq!(asked, counted, "{late} us: a miss that counts makes witnesses be asked");
        assert!(!world.asked_for(since, vip(20)).is_empty(), "repeated at once");
    }
}

#[test]
fn old_misses_are_forgotten() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    // Two count, then this node does not run for a while, then one more counts.
    world.run_to(ms(200), |world| world.asked.last().is_some_and(|(_, last)| last.mac.is_none()));
    let since = world.now;
    world.lateness = vec![ms(150)];
    world.run(ms(195));
    assert!(!world.was_silent(2), "the first two are older than 160 ms");
    assert!(!world.asked_for(since + ms(100), vip(20)).is_empty());
    world.run(ms(80));
    assert!(world.was_silent(2));
}

#[test]
fn an_answer_that_waited_while_this_node_did_not_run_counts() {
    let mut world = heard(Detection::default());
    world.lateness = (0..200).map(|n| ms(n * 37 % 211)).collect();
    world.run(ms(10_000));
    assert!(!world.was_silent(2) && !world.was_silent(3));
}

#[test]
fn a_poll_that_did_not_leave_says_nothing() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    let end = world.now + ms(2_000);
    while world.now < end {
        let before = world.asked.len();
        world.run_to(ms(100), |_| true);
        for (_, question) in &world.asked[before..] {
            world.detector.unsent(question);
        }
    }
    assert!(!world.was_silent(2));
    world.run(longest(Detection::default()));
    assert!(world.silence(2).is_some());
}

#[test]
fn a_poll_during_which_frames_were_dropped_says_nothing() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    world.dropping = true;
    world.run(ms(1_500));
    assert!(!world.was_silent(2) && !world.was_silent(3));
    world.dropping = false;
    world.run(longest(Detection::default()));
    assert!(world.silence(2).is_some() && world.silence(3).is_none());
    // Nor does it that it goes on being silent: what was found before is kept.
    world.dropping = true;
    world.run(ms(1_500));
    assert!(world.silence(2).is_some());
    world.host(2).dead = false;
    world.run(ms(200));
    assert!(world.silence(2).is_none(), "an answer counts all the same");
}

#[test]
fn of_a_silence_one_poll_during_which_frames_were_dropped_is_repeated_at_once() {
    let polls = Detection::default().misses;
    for dropped in 0..=polls {
        let mut world = heard(Detection::default());
        world.host(2).dead = true;
        let since = world.now;
        let count = |world: &World| world.polls(since, vip(20)).len();
        let nth = usize::try_from(dropped).unwrap();
        world.run_to(ms(200), |world| count(world) == nth.max(1)).unwrap();
        let first = world.polls(since, vip(20))[0].0;
        if dropped > 0 {
            world.detector.dropped(7);
        }
        world.run_to(ms(300), |world| world.silence(2).is_some()).unwrap();
        let took = world.silence(2).unwrap().since.saturating_since(first);
        let expected = polls + u32::from(dropped > 0);
        assert_eq!(took, Detection::default().retry_interval * expected, "{dropped}");
    }
}

#[test]
fn what_left_this_node_late_is_waited_for_from_then_on() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    let delay = ms(7);
    let took = {
        let start = world.now;
        while world.silence(2).is_none() {
            let before = world.asked.len();
            world.run_to(ms(100), |_| true).unwrap();
            if world.asked.len() > before {
                let noted = world.now;
                world.detector.delayed(noted, noted + delay);
            }
        }
        let first = world.asked_for(start, vip(20)).first().map(|(at, _)| *at).unwrap();
        world.now.saturating_since(first)
    };
    let polls = Detection::default().misses;
    assert!(took >= Detection::default().retry_interval * polls + delay * polls, "{took:?}");
    // The node itself answers what was asked then, too.
    let mut world = heard(Detection::default());
    world.host(2).addresses.remove(&vip(20));
    while world.silence(2).is_none() {
        world.run_to(ms(100), |_| true).unwrap();
        let noted = world.now;
        world.detector.delayed(noted, noted + delay);
    }
    assert!(world.silence(2).unwrap().node_answers);
}
