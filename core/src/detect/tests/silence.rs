//! When an owner is silent, and when it is not.

use std::time::Duration;

use super::world::{World, eth0, fast, heard, host, longest, mac, ms, node, owned, vip};
use crate::desired::Detection;
use crate::election::Voice;

#[test]
fn a_dead_owner_is_silent_in_time() {
    for detection in [Detection::default(), fast()] {
        let mut world = heard(detection);
        world.host(2).dead = true;
        let took = world.run_to(ms(1_000), |world| world.silence(2).is_some()).unwrap();
        assert!(took <= longest(detection), "{took:?}");
        let silence = world.silence(2).unwrap();
        assert_eq!((silence.address, silence.since), (vip(20), world.now));
        assert!(!silence.node_answers);
        assert_eq!(*world.voice(3), Voice::Heard);
    }
}

#[test]
fn within_the_last_wait_everybody_and_the_node_are_asked() {
    let mut world = heard(Detection::default());
    world.watched(2).vips.insert(vip(21), owned(1));
    world.host(2).addresses.insert(vip(21));
    world.update();
    world.run(ms(1_500));
    let since = world.now;
    world.host(2).dead = true;
    world.run_to(ms(200), |world| world.silence(2).is_some()).unwrap();
    let silent = world.now;
    let before = |millis: u64| silent - ms(millis);
    let asked = |ip| -> Vec<_> {
        let all = world.asked_for(since, ip).into_iter();
        all.map(|(at, asked)| (*at, asked.mac)).filter(|(at, _)| *at < silent).collect()
    };
    let (owner, everybody) = (Some(mac(2)), None);
    assert_eq!(
        asked(vip(20)),
        [
            (before(60), owner),
            (before(40), owner),
            (before(20), owner),
            (before(20), everybody),
            (before(10), everybody),
        ]
    );
    assert_eq!(asked(node(2)), [(before(20), owner)]);
    assert_eq!(asked(vip(21)), [(before(20), owner)]);
}

#[test]
fn an_answer_in_time_resets_the_misses() {
    let mut world = heard(Detection::default());
    // Until when it is dead: the second poll was missed; the third, too, but not its probes.
    for polls in [2, 3].repeat(10) {
        let since = world.now;
        world.host(2).dead = true;
        let sent = |world: &World| world.asked_for(since, vip(20)).len() >= polls;
        world.run_to(ms(200), sent).unwrap();
        world.run(ms(5));
        world.host(2).dead = false;
        world.run(ms(16));
        assert_eq!(*world.voice(2), Voice::Heard);
    }
    world.run(ms(300));
    assert!(!world.was_silent(2));
}

#[test]
fn an_owner_that_was_never_heard_cannot_fall_silent() {
    let mut world = World::new(2, Detection::default());
    world.host(2).dead = true;
    world.update();
    let start = world.now;
    world.run(ms(20_000));
    assert_eq!(*world.voice(2), Voice::Unheard);
    let polls = world.asked_for(start, vip(20)).len();
    assert!((199..=201).contains(&polls), "each interval, not fast: {polls}");
}

#[test]
fn who_answers_for_the_address_decides() {
    // Number of the host that has the address now, and whether the owner is silent.
    let rows = [
        ("another speaker: taken over, the owner is silent", 3, true),
        ("a stranger: nobody knows whose address it is", 77, false),
        ("another interface of the owner: its claim does not say so yet", 78, false),
    ];
    for (name, other, silent) in rows {
        let mut world = heard(Detection::default());
        world.speaks(mac(78), 2);
        world.update();
        world.hosts.entry(mac(other)).or_default().addresses.insert(vip(20));
        world.host(2).dead = true;
        world.run(ms(2_000));
        assert_eq!(world.was_silent(2), silent, "{name}");
        if !silent {
            // The stranger goes: the misses start anew, and are enough.
            world.host(other).dead = true;
            let took = world.run_to(ms(1_000), |world| world.silence(2).is_some());
            assert!(took.unwrap() <= longest(Detection::default()) * 2, "{name}: {took:?}");
        }
    }
}

#[test]
fn a_node_that_answers_is_in_question_only_for_its_address() {
    let mut world = heard(Detection::default());
    world.host(2).addresses.remove(&vip(20));
    world.run(longest(Detection::default()));
    assert!(world.silence(2).unwrap().node_answers);
    let since = world.silence(2).unwrap().since;
    // It dies altogether: what is known stays.
    world.host(2).dead = true;
    world.run(ms(5_000));
    assert_eq!(world.silence(2).unwrap().since, since);
    // It has it again.
    world.host(2).dead = false;
    world.host(2).addresses.insert(vip(20));
    world.run(ms(150));
    assert_eq!(*world.voice(2), Voice::Heard);
}

#[test]
fn a_second_address_that_answers_speaks_for_the_node() {
    let mut world = heard(Detection::default());
    world.watched(2).own.clear();
    world.watched(2).vips.insert(vip(21), owned(1));
    world.host(2).addresses.insert(vip(21));
    world.update();
    world.run(ms(1_500));
    world.host(2).addresses.remove(&vip(20));
    world.run(longest(Detection::default()));
    assert!(world.silence(2).unwrap().node_answers);
}

#[test]
fn a_silent_node_that_answers_again_without_the_address_is_told() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    world.run(longest(Detection::default()));
    let silence = world.silence(2).unwrap().clone();
    assert!(!silence.node_answers);
    world.host(2).dead = false;
    world.host(2).addresses.remove(&vip(20));
    world.run(ms(110));
    let now = world.silence(2).unwrap();
    assert!(now.node_answers, "every fifth poll asks the node, fast at first");
    assert_eq!(now.since, silence.since);
}

#[test]
fn a_deaf_node_takes_nobody_for_silent() {
    for detection in [Detection::default(), fast()] {
        let mut world = heard(detection);
        for cut in [1_u64, 10, 70, 100, 199, 450, 1_000, 5_003] {
            for phase in 0..7_u64 {
                world.cut = true;
                world.run(ms(cut) + Duration::from_micros(phase * 3_571));
                world.cut = false;
                world.run(ms(700));
            }
        }
        assert!(!world.was_silent(2) && !world.was_silent(3));
    }
}

#[test]
fn a_deaf_node_tells_the_silence_once_it_hears_again() {
    let mut world = heard(Detection::default());
    world.cut = true;
    world.run(ms(3_000));
    world.host(2).dead = true;
    world.run(ms(3_000));
    let asked = world.asked.len();
    world.run(ms(1_000));
    let rate = world.asked.len() - asked;
    assert!(rate <= 60, "{rate} questions in a second: slow while nothing can be learned");
    world.cut = false;
    let took = world.run_to(ms(1_000), |world| world.silence(2).is_some()).unwrap();
    assert!(took < ms(300), "{took:?}");
    assert!(!world.was_silent(3));
}

#[test]
fn two_that_die_at_once_are_both_silent_with_one_witness() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    world.host(3).dead = true;
    world.run(longest(Detection::default()));
    assert!(world.silence(2).is_some() && world.silence(3).is_some());
}

#[test]
fn all_others_silent_at_once_is_no_silence() {
    let mut world = heard(Detection::default());
    for number in [2, 3, 254] {
        world.host(number).dead = true;
    }
    world.run(ms(10_000));
    assert!(!world.was_silent(2) && !world.was_silent(3));
}

#[test]
fn one_way_loss_of_the_broadcast_alone_does_not_matter() {
    let mut world = heard(Detection::default());
    world.host(2).unicast_only = true;
    world.run(ms(5_000));
    assert!(!world.was_silent(2));
}

#[test]
fn a_silent_owner_that_answers_is_heard_and_is_polled_slowly_meanwhile() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    world.run(longest(Detection::default()));
    let since = world.now;
    assert!(world.silence(2).is_some());
    world.run(ms(990));
    assert!(world.asked_for(since, vip(20)).len() >= 45, "fast for a second");
    world.run(ms(110));
    let since = world.now;
    world.run(ms(1_000));
    let polls = world.asked_for(since, vip(20)).len();
    assert!((9..=11).contains(&polls), "{polls}: then each interval");
    world.host(2).dead = false;
    world.run(ms(101));
    assert_eq!(*world.voice(2), Voice::Heard);
}

#[test]
fn a_silent_address_that_leaves_is_replaced_by_another() {
    for node_answers in [true, false] {
        let mut world = heard(Detection::default());
        world.watched(2).vips.insert(vip(21), owned(1));
        world.host(2).addresses.insert(vip(21));
        world.update();
        world.run(ms(1_500));
        world.host(2).addresses.remove(&vip(20));
        world.host(2).dead = !node_answers;
        world.run(longest(Detection::default()));
        assert_eq!(world.silence(2).unwrap().node_answers, node_answers);
        world.watched(2).vips.remove(&vip(20));
        world.update();
        assert_eq!(*world.voice(2), Voice::Heard);
        let took = world.run_to(ms(2_000), |world| world.silence(2).is_some());
        let expected = (!node_answers).then_some(ms(60));
        assert_eq!(took, expected, "its own misses, fast");
    }
}

#[test]
fn an_owner_that_is_no_longer_polled_is_not_silent() {
    let mut world = heard(Detection::default());
    world.host(2).dead = true;
    world.run(longest(Detection::default()));
    assert!(world.silence(2).is_some());
    world.watched(2).polled = false;
    world.update();
    assert_eq!(*world.voice(2), Voice::Heard);
    let since = world.now;
    world.run(ms(1_000));
    assert!(world.asked_for(since, vip(20)).is_empty());
}

#[test]
fn an_ipv6_address_falls_silent_like_any_other() {
    let vip = "2001:db8::20".parse().unwrap();
    let mut world = World::new(1, fast());
    world.watched(2).vips = [(vip, owned(1))].into();
    world.host(2).addresses.insert(vip);
    world.host(2).form = Some(true);
    world.witnesses.insert(eth0(), [(node(254), mac(254))].into());
    world.hosts.insert(mac(2), host(&[vip, node(2)]));
    world.update();
    world.run(ms(500));
    assert_eq!(*world.voice(2), Voice::Heard);
    world.host(2).dead = true;
    world.run(longest(fast()));
    assert_eq!(world.silence(2).map(|silence| silence.address), Some(vip));
}
