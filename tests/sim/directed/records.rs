//! Records of Services: tools take them off, and nobody wishes anything by that.

use std::sync::Arc;

use leasehold_core::election::Target;

use super::{Run, millis, run_answered, runs, secs};
use crate::world::controls::{claim, vip};
use crate::world::{Lost, World};

const ALL: [&str; 3] = ["a", "b", "c"];

/// Of each claim its owner, and how often it has changed.
fn owners(world: &World) -> Vec<(Option<String>, i32)> {
    let one = |number| {
        let transitions = world.store.claims[&claim(number)].record.transitions;
        (world.owner(number), transitions)
    };
    (1..=3).map(one).collect()
}

fn a_record_that_somebody_removes_is_written_again_and_nothing_moves() {
    for lost in Lost::ANY {
        let mut world = World::listening(&ALL, 3);
        let before = owners(&world);
        world.hold_still();
        for _ in 0..5 {
            for number in 1..=3 {
                world.lose_record(&claim(number), lost);
            }
            run_answered(&mut world, secs(2));
            assert!(world.records_are_whole(), "{lost:?}");
        }
        assert_eq!(owners(&world), before, "{lost:?}");
    }
}

fn without_an_operator_the_list_of_the_claim_is_record_enough_also_for_the_next_process() {
    for lost in Lost::ANY {
        let mut world = World::listening(&ALL, 3);
        let before = owners(&world);
        world.hold_still();
        world.set_operator(false);
        for number in 1..=3 {
            world.lose_record(&claim(number), lost);
        }
        run_answered(&mut world, secs(30));
        for name in ALL {
            world.terminate(name);
            run_answered(&mut world, secs(2));
            world.start(name);
            run_answered(&mut world, secs(10));
            world.kill(name);
            run_answered(&mut world, secs(1));
            world.start(name);
            run_answered(&mut world, secs(10));
        }
        assert_eq!(owners(&world), before, "{lost:?}");
        world.set_operator(true);
        run_answered(&mut world, secs(2));
        assert!(world.records_are_whole(), "{lost:?}");
        assert_eq!(owners(&world), before, "{lost:?}");
    }
}

fn an_owner_that_dies_while_the_record_is_gone_is_followed_as_any_other() {
    for lost in Lost::ANY {
        let mut world = World::listening(&ALL, 3);
        world.set_operator(false);
        for number in 1..=3 {
            world.lose_record(&claim(number), lost);
        }
        world.run(secs(2));
        let owner = world.owner(1).unwrap();
        world.kill_node(&owner);
        world.run(millis(500));
        world.assert_served();
    }
}

fn the_lease_may_go_together_with_the_record() {
    for lost in Lost::ANY {
        for pause in [0, 5, 12] {
            let mut world = World::listening(&ALL, 3);
            world.hold_still();
            let owners = [1, 2, 3].map(|number| world.owner(number));
            for number in 1..=3 {
                world.lose_record(&claim(number), lost);
            }
            run_answered(&mut world, millis(pause));
            for number in 1..=3 {
                world.delete(&Target::Claim(claim(number)));
            }
            run_answered(&mut world, secs(10));
            assert_eq!([1, 2, 3].map(|number| world.owner(number)), owners, "{lost:?} {pause}");
            world.assert_served();
        }
    }
}

/// The lease is listed anew without an owner, and the one that serves it cannot reach the API server: another
/// takes it at last, and nothing is dark meanwhile.
fn what_was_deleted_is_taken_from_an_owner_that_cannot_restore_it_without_a_moment_in_the_dark() {
    let mut world = World::listening(&ALL, 3);
    let number = world.owned_by("a")[0];
    // Until who took it has told the old owner.
    world.laws.overlap = Some(secs(1));
    world.set_api_of("a", false);
    world.run(millis(100));
    world.delete(&Target::Claim(claim(number)));
    run_answered(&mut world, secs(15));
    let owner = world.owner(number);
    assert!(owner.is_some() && owner.as_deref() != Some("a"));
}

/// Of a repair and the edit after it others may see only the last state.
fn what_is_edited_once_more_after_a_repair_is_left_to_its_owner_too() {
    let mut world = World::listening(&ALL, 3);
    let before = owners(&world);
    world.hold_still();
    world.set_api_of("a", false);
    for number in world.owned_by("a") {
        world.edit_claim(number, |claim| {
            claim.transitions += 1;
            claim.session = None;
        });
    }
    run_answered(&mut world, millis(1500));
    world.set_api_of("a", true);
    run_answered(&mut world, secs(5));
    let owners: Vec<_> = owners(&world).into_iter().map(|(owner, _)| owner).collect();
    assert_eq!(owners, before.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>());
}

/// It has never seen who owns the claim; the claim still names the node.
fn a_speaker_that_starts_after_an_edit_leaves_the_claim_to_its_owner() {
    let mut world = World::listening(&ALL, 3);
    let before: Vec<_> = owners(&world).into_iter().map(|(owner, _)| owner).collect();
    world.set_api_of("a", false);
    for name in ["b", "c"] {
        world.kill(name);
    }
    for number in world.owned_by("a") {
        world.edit_claim(number, |claim| claim.session = None);
    }
    for name in ["b", "c"] {
        world.start(name);
    }
    run_answered(&mut world, millis(1500));
    world.set_api_of("a", true);
    run_answered(&mut world, secs(5));
    let owners: Vec<_> = owners(&world).into_iter().map(|(owner, _)| owner).collect();
    assert_eq!(owners, before);
}

fn an_address_that_the_operator_takes_from_a_service_goes_at_once_and_for_good() {
    for lost in [None, Some(Lost::Claim), Some(Lost::All)] {
        let mut world = World::listening(&ALL, 3);
        for number in 1..=3 {
            let asked = world.desired.claims.get_mut(&claim(number)).unwrap();
            Arc::make_mut(asked).addresses = [vip(number + 10)].into();
        }
        world.publish_desired();
        world.run(millis(900));
        world.assert_served();
        for number in 1..=3 {
            assert!(world.having(vip(number)).is_empty(), "{lost:?}");
            let listed = &world.store.claims[&claim(number)].record.addresses;
            assert_eq!(*listed, [vip(number + 10)].into(), "{lost:?}");
            if let Some(lost) = lost {
                world.lose_record(&claim(number), lost);
            }
        }
        world.set_operator(false);
        world.run(secs(20));
        world.assert_served();
        assert!((1..=3).all(|number| world.having(vip(number)).is_empty()), "{lost:?}");
    }
}

fn a_service_that_is_gone_is_gone_whatever_the_claim_lists() {
    let mut world = World::listening(&ALL, 3);
    world.set_operator(false);
    world.desired.claims.remove(&claim(1));
    world.publish_desired();
    world.run(millis(100));
    assert!(world.having(vip(1)).is_empty());
    world.run(secs(20));
    assert!(world.having(vip(1)).is_empty());
}

pub(super) const RUNS: &[Run] = runs![
    a_record_that_somebody_removes_is_written_again_and_nothing_moves,
    without_an_operator_the_list_of_the_claim_is_record_enough_also_for_the_next_process,
    an_owner_that_dies_while_the_record_is_gone_is_followed_as_any_other,
    the_lease_may_go_together_with_the_record,
    what_was_deleted_is_taken_from_an_owner_that_cannot_restore_it_without_a_moment_in_the_dark,
    what_is_edited_once_more_after_a_repair_is_left_to_its_owner_too,
    a_speaker_that_starts_after_an_edit_leaves_the_claim_to_its_owner,
    an_address_that_the_operator_takes_from_a_service_goes_at_once_and_for_good,
    a_service_that_is_gone_is_gone_whatever_the_claim_lists,
];
