//! What people ask for by annotations of leases.

use leasehold_core::desired::NodeState;
use leasehold_core::election::{Cause, Fact};

use super::{Run, millis, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, session, vip};

const ALL: [&str; 3] = ["a", "b", "c"];

fn another(world: &World, number: u8) -> String {
    let owner = world.owner(number).unwrap();
    ALL.into_iter().find(|node| *node != owner).unwrap().to_owned()
}

fn a_claim_goes_where_people_ask_for_and_stays_there() {
    let mut world = World::settled(&ALL, 3);
    let before: Vec<_> = [2, 3].map(|number| world.owner(number)).into();
    let to = another(&world, 1);
    world.edit_claim(1, |claim| claim.move_to = Some(to.parse().unwrap()));
    run_answered(&mut world, secs(1));
    assert_eq!(world.owner(1), Some(to.clone()));
    assert_eq!(world.having(vip(1)), [to.clone()].into());
    assert_eq!([2, 3].map(|number| world.owner(number)).to_vec(), before, "nothing else moves");
    let asked = |world: &World| world.store.claims[&claim(1)].record.move_to.clone();
    assert_eq!(asked(&world), None, "it is done");
    world.run(secs(60));
    assert_eq!(world.owner(1), Some(to));
    let moves = world.facts.iter().filter(
        |(.., fact)| matches!(fact, Fact::Serving { story, .. } if story.cause == Cause::Move),
    );
    assert_eq!(moves.count(), 1);
}

fn what_cannot_be_moved_stays_and_says_so() {
    let mut world = World::settled(&ALL, 1);
    let (owner, to) = (world.owner(1).unwrap(), another(&world, 1));
    let refused = |world: &World| {
        world.facts.iter().filter(|(.., fact)| matches!(fact, Fact::MoveRefused { .. })).count()
    };
    for (number, node) in [to.as_str(), "nowhere"].into_iter().enumerate() {
        world.set_state(&to, NodeState::Cordoned);
        world.edit_claim(1, |claim| claim.move_to = Some(node.parse().unwrap()));
        run_answered(&mut world, secs(1));
        assert_eq!(world.owner(1), Some(owner.clone()), "{node}");
        assert_eq!(world.store.claims[&claim(1)].record.move_to, None, "{node}");
        assert_eq!(refused(&world), number + 1, "{node}");
    }
    // Where it is already.
    world.edit_claim(1, |claim| claim.move_to = Some(owner.parse().unwrap()));
    world.run(secs(1));
    assert_eq!(world.store.claims[&claim(1)].record.move_to, None);
    assert_eq!(refused(&world), 2, "that is no refusal");
}

fn a_claim_does_not_go_to_a_node_that_does_not_take_it() {
    let mut world = World::settled(&ALL, 1);
    let (owner, to) = (world.owner(1).unwrap(), another(&world, 1));
    // It lives, and refuses the address.
    world.hosts.of(&to).kernel.refuses = true;
    world.edit_claim(1, |claim| claim.move_to = Some(to.parse().unwrap()));
    run_answered(&mut world, secs(5));
    assert_eq!(world.owner(1), Some(owner));
    assert_eq!(world.store.claims[&claim(1)].record.move_to, None);
}

fn a_node_that_is_drained_by_hand_gives_all_and_takes_nothing() {
    let mut world = World::settled(&ALL, 9);
    world.edit_session("a", |session| session.drain = true);
    run_answered(&mut world, secs(2));
    assert_eq!(world.loads().get("a"), None);
    world.assert_served();
    // What is lost elsewhere goes past it.
    world.kill_node("b");
    world.run(secs(10));
    assert_eq!(world.loads().get("a"), None);
    world.assert_served();
    // Alone it takes what nobody else can.
    assert!(world.store.sessions[&session("a")].record.drain, "renewals keep it");
    world.edit_session("a", |session| session.drain = false);
    run_answered(&mut world, secs(2));
    assert_eq!(world.loads().get("a"), None, "nothing moves back");
    world.kill_node("c");
    world.run(secs(10));
    assert_eq!(world.loads().get("a"), Some(&9));
}

fn how_long_a_takeover_took_is_told_and_written() {
    let mut world = World::listening(&ALL, 1);
    let owner = world.owner(1).unwrap();
    world.kill_node(&owner);
    let died = world.now;
    world.run_until(|world| world.having(vip(1)).iter().any(|node| *node != owner));
    let outage = world.now.saturating_since(died);
    world.run(secs(4));
    let took: Vec<_> = world
        .facts
        .iter()
        .filter_map(|(.., fact)| match fact {
            Fact::Serving { story, took, .. } if story.cause == Cause::Silence => {
                Some((story.clone(), *took))
            }
            _ => None,
        })
        .collect();
    let [(story, took)] = &took[..] else { panic!("{took:?}") };
    assert_eq!(story.from.as_ref().map(|from| from.node.to_string()), Some(owner));
    // From the first poll without an answer, which is up to one interval after the fault.
    assert!(*took <= outage + millis(5) && *took + millis(105) >= outage, "{took:?}, {outage:?}");
    let written = world.store.claims[&claim(1)].record.took.unwrap();
    assert_eq!(written.as_millis(), took.as_millis());
}

pub(super) const RUNS: &[Run] = runs![
    a_claim_goes_where_people_ask_for_and_stays_there,
    what_cannot_be_moved_stays_and_says_so,
    a_claim_does_not_go_to_a_node_that_does_not_take_it,
    a_node_that_is_drained_by_hand_gives_all_and_takes_nothing,
    how_long_a_takeover_took_is_told_and_written,
];
