//! Deaths that come in pieces: of the last writes of an owner some are carried out and others are not.

use std::time::Duration;

use leasehold_core::desired::NodeState;
use leasehold_core::election::{Frame, Write};
use leasehold_crds::lease::EvidenceKind;

use super::{Run, millis, run_answered, runs, secs};
use crate::world::controls::{on_claim, on_session, session, vip};
use crate::world::{Trouble, World};

const ALL: [&str; 3] = ["a", "b", "c"];

/// What of a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// Its port on the clients' segment.
    Port,
    /// Its way to the API server.
    Api,
    /// All of it.
    Power,
}

const ORDERS: [[Piece; 3]; 6] = [
    [Piece::Port, Piece::Api, Piece::Power],
    [Piece::Port, Piece::Power, Piece::Api],
    [Piece::Api, Piece::Port, Piece::Power],
    [Piece::Api, Piece::Power, Piece::Port],
    [Piece::Power, Piece::Port, Piece::Api],
    [Piece::Power, Piece::Api, Piece::Port],
];

/// Ends a node piece by piece; returns how long no client got an answer for something it owned.
fn outage_of_pieces(
    world: &mut World,
    node: &str,
    order: [Piece; 3],
    pauses: [Duration; 2],
) -> Duration {
    let mut dark = None;
    for (piece, pause) in order.into_iter().zip([Duration::ZERO].into_iter().chain(pauses)) {
        world.run(pause);
        match piece {
            Piece::Port => world.set_carrier(node, false),
            Piece::Api => world.set_api_of(node, false),
            Piece::Power => world.kill_node(node),
        }
        if piece != Piece::Api {
            dark.get_or_insert(world.now);
        }
    }
    world.outage();
    dark.map_or(Duration::ZERO, |at| world.now.saturating_since(at))
}

/// Whether it gives up a claim, or all of them.
fn gives_up(write: &Write) -> bool {
    match write {
        Write::Claim(change) => change.record.holder.is_none(),
        Write::Session(change) => change.record.holder.is_none(),
    }
}

fn on_anything(_: &Write) -> bool {
    true
}

fn a_node_that_dies_piece_by_piece_is_replaced_as_soon_as_one_that_dies_at_once() {
    let mut longest = (Duration::ZERO, String::new());
    for services in [3, 15] {
        for order in ORDERS {
            for first in [0, 1, 3, 8, 20] {
                for second in [0, 1, 3, 8, 20] {
                    let mut world = World::listening(&ALL, services);
                    world.run(millis(37 * (first + 2 * second)));
                    let pauses = [millis(first), millis(second)];
                    let took = outage_of_pieces(&mut world, "a", order, pauses);
                    let what = format!("{services} services, {order:?}, {first} ms, {second} ms");
                    longest = longest.max((took, what));
                    world.run(secs(2));
                    world.assert_served();
                }
            }
        }
    }
    let (took, what) = longest;
    assert!(took < millis(200), "{took:?}: {what}");
}

fn an_owner_that_dies_between_its_two_writes_is_heard_to_be_silent() {
    for services in [3, 9] {
        for after in [0, 1, 2, 4, 8, 20] {
            let mut world = World::listening(&ALL, services);
            // What it gives up with never arrives.
            world.fault(Some("a"), gives_up, Trouble::Lost, 100);
            let since = world.now;
            world.set_carrier("a", false);
            world.run(millis(after));
            world.kill_node("a");
            world.outage();
            let took = world.now.saturating_since(since);
            assert!(took < millis(200), "{services} services, after {after} ms: {took:?}");
            let fences = world.fences("a", since);
            assert!(fences.iter().any(|it| {
                let Write::Session(change) = &it.write else { return false };
                change.record.silence.is_some_and(|it| it.evidence == EvidenceKind::Wire)
            }));
        }
    }
}

/// The list of its links is stored, and what it gives up with is not: nobody else says so of it.
fn an_owner_whose_session_lists_its_link_no_longer_is_still_heard_there() {
    for services in [3, 9] {
        let mut world = World::listening(&ALL, services);
        world.fault(Some("a"), on_anything, Trouble::Lost, 100);
        let since = world.now;
        world.set_carrier("a", false);
        world.run(millis(1));
        world.kill_node("a");
        world.edit_session("a", |session| session.interfaces.clear());
        world.outage();
        let took = world.now.saturating_since(since);
        assert!(took < millis(200), "{services} services: {took:?}");
    }
}

fn an_owner_that_lives_and_cannot_give_up_what_its_link_carried_is_relieved_of_it() {
    for trouble in [Trouble::Throttled, Trouble::Refused, Trouble::Lost] {
        for services in [3, 9] {
            let mut world = World::listening(&ALL, services);
            world.fault(Some("a"), gives_up, trouble, 100);
            let since = world.now;
            world.set_carrier("a", false);
            world.outage();
            let took = world.now.saturating_since(since);
            assert!(took < millis(200), "{trouble:?}, {services} services: {took:?}");
            world.clear_faults();
            world.run(secs(5));
            world.set_carrier("a", true);
            world.run(secs(5));
            world.assert_served();
        }
    }
}

fn what_a_lost_carrier_releases_is_served_again_without_probes() {
    for services in [3, 9] {
        let mut world = World::listening(&ALL, services);
        let since = world.now;
        world.set_carrier("a", false);
        let took = world.outage();
        assert!(took < millis(25), "{services} services: {took:?}");
        let probes = |(_, frame): &(&str, &Frame)| matches!(frame, Frame::Probe(_));
        assert_eq!(world.frames_since(since).filter(probes).count(), 0);
        world.run(secs(5));
        world.assert_served();
    }
}

/// Another may have taken it meanwhile.
fn what_was_vacant_for_a_while_is_probed_for() {
    let mut world = World::listening(&ALL, 3);
    let lost = (1..=3).find(|number| world.owner(*number).as_deref() == Some("a")).unwrap();
    for node in ["b", "c"] {
        world.set_state(node, NodeState::Cordoned);
    }
    world.run(secs(1));
    world.set_carrier("a", false);
    world.run(secs(2));
    assert_eq!(world.owner(lost), None);
    let since = world.now;
    for node in ["b", "c"] {
        world.set_state(node, NodeState::Ready);
    }
    world.outage();
    let probes = |(_, frame): &(&str, &Frame)| **frame == Frame::Probe(vip(lost));
    assert_eq!(world.frames_since(since).filter(probes).count(), 2);
}

fn a_dead_owner_comes_last_even_where_no_node_is_better() {
    for services in [3, 9] {
        for unsteady in [false, true] {
            let mut world = World::listening(&ALL, services);
            for node in ALL {
                if unsteady {
                    world.edit_session(node, |session| session.fences = 3);
                } else {
                    world.set_state(node, NodeState::NotReady);
                }
            }
            world.run(secs(1));
            // What it gives up is stored before its session says anything.
            world.fault(Some("a"), on_session, Trouble::Late(millis(8)), 1);
            let since = world.now;
            world.set_carrier("a", false);
            world.run(millis(6));
            world.kill_node("a");
            world.outage();
            let took = world.now.saturating_since(since);
            assert!(took < millis(120), "{services} services, unsteady {unsteady}: {took:?}");
        }
    }
}

/// One switch of two nodes, or of three, that lead the line.
fn candidates_that_lose_their_link_are_waited_for_no_longer() {
    for victims in [2, 3] {
        let mut longest = Duration::ZERO;
        for number in 1..=12 {
            let names = ["a", "b", "c", "d"];
            let mut world = World::new(&names);
            world.add_services_with(
                number,
                number,
                leasehold_core::desired::Detection::default(),
                leasehold_core::desired::OnApiOutage::Hold,
            );
            world.run(secs(6));
            let owner = world.owner(number).unwrap();
            let others = names.iter().filter(|name| **name != owner).take(victims - 1);
            world.set_carrier(&owner, false);
            // The others have ranked by now who is to take it.
            world.run(millis(9));
            for other in others {
                world.set_carrier(other, false);
            }
            let took = world.outage();
            longest = longest.max(took);
            world.run(secs(5));
            world.assert_served();
        }
        assert!(longest < millis(120), "{victims} nodes: {longest:?}");
    }
}

/// The writes of a planned move, one after another: the successor is named, it takes, the old owner sees it.
fn an_owner_that_dies_in_the_middle_of_a_planned_move_is_replaced() {
    for troubled in [None, Some("a"), Some("b"), Some("c")] {
        for after in (0..24).step_by(2) {
            let mut world = World::listening(&ALL, 9);
            world.laws.overlap = Some(secs(1));
            if let Some(node) = troubled {
                world.fault(Some(node), on_claim, Trouble::Lost, 2);
            }
            world.drain("a", true);
            world.run(millis(after));
            let since = world.now;
            world.kill_node("a");
            world.outage();
            let took = world.now.saturating_since(since);
            let most = if matches!(troubled, Some("b" | "c")) { secs(2) } else { millis(300) };
            assert!(took < most, "{troubled:?}, after {after} ms: {took:?}");
            world.clear_faults();
            world.run(secs(5));
            world.assert_served();
        }
    }
}

/// Its session is being lengthened, or was.
fn a_node_that_dies_while_its_speaker_restarts_is_replaced() {
    for trouble in [None, Some(Trouble::Lost), Some(Trouble::Late(millis(8)))] {
        for after in [0, 1, 3, 6, 12, 100, 1000] {
            let mut world = World::listening(&ALL, 9);
            if let Some(trouble) = trouble {
                world.fault(Some("a"), on_session, trouble, 1);
            }
            world.terminate("a");
            world.run(millis(after));
            let since = world.now;
            world.kill_node("a");
            world.outage();
            let took = world.now.saturating_since(since);
            assert!(took < millis(300), "{trouble:?}, after {after} ms: {took:?}");
            world.run(secs(5));
            world.assert_served();
        }
    }
}

/// It has no claim, or has it and does not know.
fn a_provisional_owner_that_dies_as_the_api_server_returns_is_replaced() {
    for after in [0, 2, 5, 20, 320, 340, 660, 700] {
        let mut world = World::listening(&["a", "b", "c", "d"], 8);
        world.laws.overlap = Some(secs(1));
        world.set_down(Some(crate::world::Down::Silent));
        world.run(secs(20));
        world.kill_node("a");
        world.run(secs(2));
        world.set_down(None);
        world.run(millis(after));
        let since = world.now;
        world.set_carrier("b", false);
        world.run(millis(2));
        world.kill_node("b");
        world.outage();
        let took = world.now.saturating_since(since);
        assert!(took < secs(2), "after {after} ms: {took:?}");
        run_answered(&mut world, secs(10));
        world.assert_served();
    }
}

/// Its session goes on, and what is half done is done.
fn a_speaker_that_is_killed_between_two_writes_and_started_again_serves_on() {
    for after in 0..10 {
        let mut world = World::listening(&ALL, 9);
        world.set_carrier("a", false);
        world.run(millis(after));
        world.kill("a");
        world.run(millis(20));
        world.start("a");
        world.set_carrier("a", true);
        world.run(secs(8));
        world.assert_served();
        assert!(world.store.sessions[&session("a")].record.holder.is_some());
    }
}

pub(super) const RUNS: &[Run] = runs![
    a_node_that_dies_piece_by_piece_is_replaced_as_soon_as_one_that_dies_at_once,
    an_owner_that_dies_between_its_two_writes_is_heard_to_be_silent,
    an_owner_whose_session_lists_its_link_no_longer_is_still_heard_there,
    an_owner_that_lives_and_cannot_give_up_what_its_link_carried_is_relieved_of_it,
    what_a_lost_carrier_releases_is_served_again_without_probes,
    what_was_vacant_for_a_while_is_probed_for,
    a_dead_owner_comes_last_even_where_no_node_is_better,
    candidates_that_lose_their_link_are_waited_for_no_longer,
    an_owner_that_dies_in_the_middle_of_a_planned_move_is_replaced,
    a_node_that_dies_while_its_speaker_restarts_is_replaced,
    a_provisional_owner_that_dies_as_the_api_server_returns_is_replaced,
    a_speaker_that_is_killed_between_two_writes_and_started_again_serves_on,
];
