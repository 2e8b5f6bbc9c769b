//! Probes: receivers, times and forms.

use std::time::Duration;

use super::world::{World, eth0, fast, host, id, mac, ms, node, owned, vip};
use crate::clock::Instant;
use crate::desired::Detection;
use crate::election::Voice;

#[test]
fn an_owner_is_polled_each_interval_by_unicast_without_a_sender() {
    for detection in [Detection::default(), fast()] {
        let mut world = World::new(1, detection);
        world.update();
        assert_eq!(*world.voice(2), Voice::Unheard);
        let start = world.now;
        world.run(detection.interval * 10 + ms(1));
        assert_eq!(*world.voice(2), Voice::Heard);
        let polls = world.polls(start, vip(20));
        assert_eq!(polls.len(), 11, "{polls:?}");
        for (at, poll) in &polls {
            assert_eq!((poll.mac, poll.named), (Some(mac(2)), false));
            let phase = at.saturating_since(start).as_millis() % detection.interval.as_millis();
            assert_eq!(phase, 0, "{polls:?}");
        }
    }
}

#[test]
fn owners_that_are_due_together_share_a_wake_up() {
    let mut world = World::new(10, Detection::default());
    world.update();
    // One for the first polls, one for their answers; the VIPs that are polled are not asked for.
    world.run(ms(1_001));
    assert_eq!(world.polls(world.now - ms(1_001), vip(20)).len(), 11);
    // Besides: the schedule of the addresses that were not yet heard, and the gateway.
    assert!(world.wakeups <= 24, "{} wake-ups", world.wakeups);
}

#[test]
fn owners_that_come_at_different_times_share_a_wake_up_soon_at_the_phase_of_this_node() {
    let mut world = World::new(3, Detection::default());
    world.watchlist.phase = 1 << 14;
    let all = std::mem::take(&mut world.watchlist.owners);
    for (id, watched) in all {
        world.watchlist.owners.insert(id, watched);
        world.update();
        world.run(ms(37));
    }
    world.run(ms(200));
    let start = world.now;
    world.run(ms(1_000));
    for number in 2..5 {
        let polls = world.asked_for(start, vip(number * 10));
        assert_eq!(polls.len(), 10, "{polls:?}");
        for (at, _) in polls {
            assert_eq!(at.since_boot().as_millis() % 100, 25);
        }
    }
}

#[test]
fn every_owner_is_asked_once_for_each_address_so_that_it_can_be_polled_later() {
    let mut world = World::new(1, Detection::default());
    world.watched(2).polled = false;
    let vips: Vec<_> = (100..150).map(vip).collect();
    world.watched(2).vips = vips.iter().map(|ip| (*ip, owned(1))).collect();
    world.host(2).addresses.extend(vips.iter().copied());
    world.update();
    world.run(ms(5_000));
    assert_eq!(*world.voice(2), Voice::Heard);
    let times: Vec<Instant> = world.asked.iter().map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 50, "each once, and nothing else");
    let last = times.iter().max().unwrap().saturating_since(times[0]);
    assert!(ms(500) < last && last < ms(1_000), "spread over {last:?}");
    // It becomes a poller: what was heard can be polled.
    world.watched(2).polled = true;
    world.update();
    assert_eq!(*world.voice(2), Voice::Heard);
    world.host(2).dead = true;
    assert!(world.run_to(ms(200), |world| world.silence(2).is_some()).is_some());
}

#[test]
fn an_address_that_does_not_answer_is_asked_for_ever_more_rarely() {
    let mut world = World::new(1, Detection::default());
    world.watched(2).polled = false;
    world.host(2).dead = true;
    world.update();
    world.run(ms(25_000));
    let times: Vec<u128> = world.asked.iter().map(|(at, _)| at.since_boot().as_millis()).collect();
    let gaps: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [1_000, 1_000, 1_000, 10_000, 10_000]);
    assert_eq!(*world.voice(2), Voice::Unheard);
}

#[test]
fn ownership_that_changed_must_be_heard_again() {
    let mut world = World::new(1, Detection::default());
    world.update();
    world.run(ms(550));
    assert_eq!(*world.voice(2), Voice::Heard);
    world.watched(2).vips = [(vip(20), owned(2))].into();
    world.host(2).dead = true;
    world.update();
    assert_eq!(*world.voice(2), Voice::Unheard);
    world.run(ms(3_000));
    assert!(!world.was_silent(2), "never heard under this ownership");
    world.host(2).dead = false;
    world.run(ms(200));
    assert_eq!(*world.voice(2), Voice::Heard);
}

#[test]
fn an_answer_to_what_was_asked_before_the_ownership_began_does_not_count() {
    let mut world = World::new(1, Detection::default());
    world.update();
    world.wake(world.now);
    world.now = world.now + Duration::from_micros(1);
    world.watched(2).vips = [(vip(20), owned(2))].into();
    world.update();
    world.host(2).dead = true;
    world.run(ms(50));
    assert_eq!(*world.voice(2), Voice::Unheard);
}

#[test]
fn the_form_that_is_answered_is_found_and_kept() {
    for named in [false, true] {
        let mut world = World::new(1, Detection::default());
        world.host(2).form = Some(named);
        world.update();
        world.run(ms(1_000));
        assert_eq!(*world.voice(2), Voice::Heard, "named: {named}");
        let since = world.now;
        world.run(ms(1_000));
        let asked = world.asked_for(since, vip(20)).into_iter();
        let (polls, others): (Vec<_>, Vec<_>) = asked.partition(|(_, it)| it.named == named);
        assert!(polls.len() >= 10);
        // In the node's own name it is asked now and then, all the same.
        assert!(others.len() <= usize::from(!named), "{others:?}");
    }
}

#[test]
fn a_heard_address_is_polled_rather_than_the_first() {
    let mut world = World::new(1, Detection::default());
    world.watched(2).vips.insert(vip(10), owned(1));
    world.update();
    world.run(ms(1_500));
    let since = world.now;
    world.run(ms(450));
    assert!(world.asked_for(since, vip(20)).len() >= 4, "the one that answers");
    assert!(world.asked_for(since, vip(10)).len() <= 1, "the other is only asked for now and then");
}

#[test]
fn witnesses_are_asked_at_the_first_miss_and_not_the_suspect() {
    let mut world = World::new(3, Detection::default());
    world.witnesses.get_mut(&eth0()).unwrap().insert(node(2), mac(2));
    world.update();
    world.run(ms(350));
    world.host(2).dead = true;
    let since = world.now;
    world.run_to(ms(200), |world| world.silence(2).is_some()).unwrap();
    let first = *world.asked_for(since, node(254)).first().unwrap();
    assert_eq!(first.1.mac, Some(mac(254)));
    assert!(first.1.named, "witnesses are asked in this node's name");
    for owner in [3, 4] {
        let other = world.asked_for(since, node(owner));
        assert_eq!((other[0].0, other[0].1.mac), (first.0, Some(mac(owner))));
    }
    let suspect = world.asked_for(since, node(2));
    assert!(suspect.iter().all(|(at, _)| *at > first.0), "only within the last wait");
}

#[test]
fn a_segment_where_only_the_suspect_ever_answered_is_blind() {
    let mut world = World::without_gateway(1, Detection::default());
    world.update();
    world.run(ms(500));
    assert!(world.detector.voices().blind.contains(&eth0()));
    world.host(2).addresses.remove(&vip(20));
    world.run(ms(1_000));
    assert!(!world.was_silent(2), "the suspect is no witness");
    world.host(2).dead = true;
    world.run(ms(10_000));
    assert!(!world.was_silent(2), "it may be this node that is deaf");
    // A third host is found: the owner's silence is told at once.
    world.hosts.insert(mac(9), host(&[node(9)]));
    world.witnesses.insert(eth0(), [(node(9), mac(9))].into());
    world.update();
    world.run(ms(500));
    assert!(!world.detector.voices().blind.contains(&eth0()));
    assert!(world.silence(2).is_some());
}

#[test]
fn another_owner_that_answers_ends_blindness() {
    let mut world = World::without_gateway(2, Detection::default());
    world.update();
    assert!(world.detector.voices().blind.contains(&eth0()), "nobody has answered");
    world.run(ms(200));
    assert!(world.detector.voices().blind.is_empty());
    world.watchlist.owners.remove(&id(2));
    world.watchlist.owners.remove(&id(3));
    world.update();
    assert_eq!(*world.detector.voices(), crate::election::Voices::default());
    assert_eq!(world.detector.next(), None, "nothing to do");
}

#[test]
fn without_the_wire_nothing_is_polled() {
    let mut world = World::new(1, Detection { wire: false, ..Detection::default() });
    world.update();
    world.run(ms(3_000));
    assert_eq!(world.asked.len(), 1, "only so that it can be polled later");
    world.host(2).dead = true;
    world.run(ms(3_000));
    assert!(!world.was_silent(2));
}

#[test]
fn an_owner_that_answers_only_from_0_0_0_0_leaves_clients_unanswered() {
    let unanswering = |world: &World| {
        let owners = world.detector.voices().unanswering.iter();
        owners.map(|id| id.node.to_string()).collect::<Vec<_>>()
    };
    let mut world = World::new(2, fast());
    world.host(2).form = Some(false);
    world.update();
    world.run(ms(2_000));
    assert_eq!(unanswering(&world), Vec::<String>::new(), "two questions may be lost");
    world.run(ms(2_000));
    assert_eq!(unanswering(&world), ["node-2"]);
    assert_eq!(
        (world.voice(2), world.voice(3)),
        (&Voice::Heard, &Voice::Heard),
        "nobody is silent"
    );
    let since = world.now;
    world.run(ms(30_000));
    let named = |number: u8| {
        let asked = world.asked_for(since, vip(number * 10));
        asked.iter().filter(|(_, question)| question.named).count()
    };
    assert_eq!([named(2), named(3)], [3, 3], "each ten seconds");
    world.host(2).form = None;
    world.run(ms(10_100));
    assert_eq!(unanswering(&world), Vec::<String>::new());
    // Nor are questions counted whose answers may have been dropped.
    world.host(2).form = Some(false);
    world.dropping = true;
    world.run(ms(30_000));
    assert_eq!(unanswering(&world), Vec::<String>::new());
    world.dropping = false;
    // A new ownership is asked for anew.
    world.watched(2).vips.insert(vip(20), owned(2));
    world.update();
    world.run(ms(5_000));
    assert_eq!(unanswering(&world), ["node-2"]);
    world.host(2).dead = true;
    world.run(ms(1_000));
    assert!(world.silence(2).is_some());
}
