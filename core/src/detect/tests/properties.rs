//! Properties of the detector for any input.

use std::time::Duration;

use proptest::prelude::*;

use super::world::{World, fast, ms};
use crate::desired::Detection;

fn detection() -> impl Strategy<Value = Detection> {
    prop_oneof![
        Just(Detection::default()),
        Just(fast()),
        (20_u64..10_000, 5_u64..1_000, 2_u32..=10).prop_map(|(interval, retry, misses)| {
            Detection {
                interval: ms(interval),
                retry_interval: ms(retry.min(interval)),
                misses,
                wire: true,
            }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_owner_that_answers_is_never_silent_however_late_this_node_wakes(
        detection in detection(),
        lateness in prop::collection::vec(
            prop_oneof![3 => 0_u64..2_000, 2 => 0_u64..60_000, 1 => 0_u64..3_000_000],
            1..400,
        ),
    ) {
        let mut world = World::new(2, detection);
        world.lateness = lateness.iter().map(|micros| Duration::from_micros(*micros)).collect();
        world.update();
        while !world.lateness.is_empty() {
            world.run(ms(100));
        }
        prop_assert!(!world.was_silent(2) && !world.was_silent(3), "{:?}", world.voices);
    }

    #[test]
    fn an_owner_that_dies_is_silent_in_time(detection in detection(), at in 1_500_000_u64..2_500_000) {
        let mut world = World::new(3, detection);
        world.update();
        world.run(Duration::from_micros(at));
        world.host(2).dead = true;
        let bound = detection.interval + detection.retry_interval * detection.misses + ms(5);
        let took = world.run_to(bound, |world| world.silence(2).is_some());
        prop_assert!(took.is_some(), "not within {bound:?}");
    }

    #[test]
    fn a_cut_node_takes_nobody_for_silent(
        detection in detection(),
        cuts in prop::collection::vec((0_u64..2_000_000, 0_u64..2_500_000), 1..6),
    ) {
        let mut world = World::new(2, detection);
        world.update();
        world.run(ms(1_100));
        for (until, lasting) in cuts {
            world.run(Duration::from_micros(until));
            world.cut = true;
            world.run(Duration::from_micros(lasting));
            world.cut = false;
        }
        world.run((detection.interval + detection.retry_interval * detection.misses) * 3);
        prop_assert!(!world.was_silent(2) && !world.was_silent(3), "{:?}", world.voices);
    }
}
