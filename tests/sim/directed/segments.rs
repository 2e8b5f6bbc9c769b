//! Which interface carries an address.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::desired::{Detection, OnApiOutage};
use leasehold_core::election::Fact;
use leasehold_crds::lease::{DefaultRoutes, Detours};

use super::{Run, run_answered, runs, secs};
use crate::world::controls::claim;
use crate::world::{Own, World};

/// In no subnet of the hosts that a world has by itself; on the segment of `eth1` by its second byte.
const OFF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 1, 0, 1));

/// Three hosts on two segments, with the default route on the second, and one address in no subnet.
fn world() -> World {
    let mut world = World::empty(0);
    for name in ["a", "b", "c"] {
        world.add_host_on(name, name, 2);
    }
    for id in 0..3 {
        world.hosts[id].nics[1].default_routes = DefaultRoutes::BOTH;
        world.start_host(id);
    }
    world.run(secs(1));
    let claimed = world.claimed(1, OFF, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(1), claimed.into());
    world.publish_desired();
    world.run(secs(4));
    world
}

fn interface(world: &World) -> Vec<String> {
    let claims = world.store.valid_claims();
    claims.filter_map(|claim| claim.interface.as_ref()).map(ToString::to_string).collect()
}

fn an_address_in_no_subnet_is_announced_where_the_default_route_leads() {
    let world = world();
    world.assert_served();
    assert_eq!(interface(&world), ["eth1"]);
}

fn an_address_in_no_subnet_and_without_a_default_route_is_nobodys() {
    let mut world = world();
    let owner = world.owner_of(OFF).unwrap();
    for id in 0..3 {
        world.hosts[id].nics[1].default_routes = DefaultRoutes::NONE;
        world.set_carrier_of(id, 1, true);
    }
    run_answered(&mut world, secs(10));
    assert_eq!(world.owner_of(OFF), Some(owner.clone()), "nothing moves for that");
    let id = world.hosts.id(&owner);
    world.power_off(id);
    world.run(secs(8));
    assert_eq!(world.owner_of(OFF), None);
}

fn an_address_goes_to_the_node_that_has_its_subnet_and_stays_there() {
    let mut world = world();
    world.add_host_on("d", "d", 2);
    world.hosts[3].nics[1].address = IpAddr::from([192, 1, 255, 4]);
    let nodes: Arc<BTreeSet<_>> = Arc::new(world.desired.nodes.keys().cloned().collect());
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.nodes = Arc::clone(&nodes);
    }
    world.publish_desired();
    world.start_host(3);
    run_answered(&mut world, secs(10));
    assert_eq!(world.owner_of(OFF).as_deref(), Some("d"));
    world.assert_served();
    // The others do not take it to their segment: its clients are on the one that is gone.
    world.power_off(3);
    world.run(secs(8));
    assert_eq!(world.owner_of(OFF), None);
}

fn an_interface_that_only_a_policy_may_choose_is_not_chosen_without_one() {
    let mut world = World::empty(0);
    for (id, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.add_host_on(name, name, 2);
        world.hosts[id].nics[1].only_if_named = true;
        world.start_host(id);
    }
    world.run(secs(1));
    let ip = IpAddr::from([10, 1, 0, 1]);
    let claimed = world.claimed(1, ip, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(1), claimed.into());
    world.publish_desired();
    world.run(secs(4));
    assert_eq!(world.owner_of(ip), None);
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.interfaces = vec!["eth1".parse().unwrap()];
    }
    world.publish_desired();
    world.run(secs(4));
    world.assert_served();
    assert_eq!(interface(&world), ["eth1"]);
}

/// Has the policy name these interfaces.
fn name(world: &mut World, interfaces: &[&str]) {
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.interfaces = interfaces.iter().map(|name| name.parse().unwrap()).collect();
    }
    world.publish_desired();
}

/// The interface of the owner's kernel that has the address.
fn carrying(world: &World) -> String {
    let owner = world.owner_of(OFF).unwrap();
    let serving = world.hosts[owner.as_str()].core.as_ref().unwrap().serving();
    serving.vips[&OFF].attachment.interface().unwrap().to_string()
}

fn transitions(world: &World) -> i32 {
    world.store.claims[&claim(1)].record.transitions
}

fn where_the_policy_names_another_interface_the_same_owner_goes_there() {
    let mut world = world();
    let (owner, before) = (world.owner_of(OFF), transitions(&world));
    name(&mut world, &["eth0"]);
    world.run(secs(1));
    assert_eq!((interface(&world), carrying(&world).as_str()), (vec!["eth0".to_owned()], "eth0"));
    assert_eq!((world.owner_of(OFF), transitions(&world)), (owner, before));
    // Both fit; that which carries it fits less well than that with the default route.
    name(&mut world, &["eth*"]);
    world.run(secs(1));
    assert_eq!((interface(&world), carrying(&world).as_str()), (vec!["eth1".to_owned()], "eth1"));
    assert_eq!(transitions(&world), before);
    name(&mut world, &["bond0"]);
    world.run(secs(2));
    assert_eq!(world.owner_of(OFF), None);
    assert!(world.having(OFF).is_empty());
    name(&mut world, &[]);
    world.run(secs(2));
    world.assert_served();
}

fn what_loses_its_link_goes_to_another_interface_of_its_owner_that_fits() {
    let mut world = world();
    name(&mut world, &["eth?"]);
    world.run(secs(1));
    let (owner, before) = (world.owner_of(OFF).unwrap(), transitions(&world));
    let id = world.hosts.id(&owner);
    world.set_carrier_of(id, 1, false);
    world.run(secs(1));
    assert_eq!((interface(&world), transitions(&world)), (vec!["eth0".to_owned()], before));
    world.set_carrier_of(id, 1, true);
    world.run(secs(1));
    assert_eq!((interface(&world), transitions(&world)), (vec!["eth1".to_owned()], before));
    world.assert_served();
}

/// An owner with the subnet of its address, among others that have it.
fn world_with_the_subnet() -> (World, usize) {
    let mut world = world();
    for (id, last) in [(0, 1), (1, 2), (2, 3)] {
        readdress(&mut world, id, IpAddr::from([192, 1, 255, last]));
    }
    world.run(secs(3));
    let owner = world.owner_of(OFF).unwrap();
    let id = world.hosts.id(&owner);
    (world, id)
}

/// Replaces the address of `eth1`.
fn readdress(world: &mut World, id: usize, address: IpAddr) {
    world.hosts[id].nics[1].address = address;
    world.set_carrier_of(id, 1, true);
}

fn an_owner_whose_own_address_is_replaced_keeps_what_it_has() {
    let (mut world, id) = world_with_the_subnet();
    let before = transitions(&world);
    let address = world.hosts[id].nics[1].address;
    readdress(&mut world, id, IpAddr::from([198, 51, 100, 1]));
    world.run(Duration::from_millis(900));
    readdress(&mut world, id, address);
    run_answered(&mut world, secs(3));
    assert_eq!(transitions(&world), before);
}

fn an_owner_that_loses_the_subnet_gives_to_one_that_has_it() {
    let (mut world, id) = world_with_the_subnet();
    let owner = world.owner_of(OFF);
    readdress(&mut world, id, IpAddr::from([198, 51, 100, 1]));
    run_answered(&mut world, secs(3));
    assert_ne!(world.owner_of(OFF), owner);
    world.assert_served();
}

/// Three hosts whose two interfaces are in one subnet, and one address there. Of each the kernel reaches the
/// subnet's hosts by `eth1`, and answers them nowhere else.
fn world_with_two_ways() -> World {
    let mut world = World::empty(0);
    for (id, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.add_host_on(name, name, 2);
        let last = u8::try_from(id).unwrap() + 1;
        world.hosts[id].nics[0].address = IpAddr::from([192, 1, 255, last]);
        world.hosts[id].nics[1].address = IpAddr::from([192, 1, 255, last + 100]);
        world.hosts[id].nics[0].detours = detours(true);
        world.set_carrier_of(id, 0, true);
        world.start_host(id);
    }
    world.run(secs(1));
    let claimed = world.claimed(1, OFF, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(1), claimed.into());
    world.publish_desired();
    world.run(secs(4));
    world
}

/// That hosts of the subnet are answered by another interface, if at all.
fn detours(strict: bool) -> Detours {
    let subnet = vec!["192.1.0.0/16".parse().unwrap()];
    Detours { bypassed: subnet.clone(), unanswered: if strict { subnet } else { Vec::new() } }
}

/// Has these be the detours of `eth0` and `eth1`.
fn detour(world: &mut World, id: usize, of_both: [Detours; 2]) {
    for (nic, detours) in world.hosts[id].nics.iter_mut().zip(of_both) {
        nic.detours = detours;
    }
    world.set_carrier_of(id, 0, true);
}

fn of_two_interfaces_in_one_subnet_the_one_by_which_the_kernel_answers_carries() {
    let world = world_with_two_ways();
    assert_eq!((interface(&world), carrying(&world).as_str()), (vec!["eth1".to_owned()], "eth1"));
}

fn where_the_way_back_changes_the_same_owner_carries_by_the_other_interface() {
    let mut world = world_with_two_ways();
    let (owner, before) = (world.owner_of(OFF).unwrap(), transitions(&world));
    let id = world.hosts.id(&owner);
    // Answered by another interface it is as good as before.
    detour(&mut world, id, [Detours::default(), detours(false)]);
    world.run(secs(3));
    assert_eq!(carrying(&world), "eth1");
    detour(&mut world, id, [Detours::default(), detours(true)]);
    world.run(secs(3));
    assert_eq!((interface(&world), carrying(&world).as_str()), (vec!["eth0".to_owned()], "eth0"));
    assert_eq!((world.owner_of(OFF), transitions(&world)), (Some(owner), before));
}

fn an_owner_that_answers_no_client_gives_to_one_that_does() {
    let mut world = world_with_two_ways();
    let owner = world.owner_of(OFF).unwrap();
    for id in 0..3 {
        detour(&mut world, id, [detours(true), detours(true)]);
    }
    world.run(secs(3));
    assert_eq!(world.owner_of(OFF), Some(owner.clone()), "none is better");
    let other = (0..3).find(|id| world.hosts[*id].name != owner).unwrap();
    detour(&mut world, other, [detours(true), Detours::default()]);
    world.run(secs(3));
    assert_eq!(world.owner_of(OFF), Some(world.hosts[other].name.clone()));
    // It dies: the others are better than nobody.
    world.power_off(other);
    world.run(secs(8));
    assert!(world.owner_of(OFF).is_some());
}

/// Three hosts that have no address on `eth1` but that of the link, if they have that, and an address for which
/// the policy names it.
fn world_without_addresses(link_locals: bool, router: bool) -> World {
    let mut world = World::empty(0);
    world.router = router;
    for (id, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.add_host_on(name, name, 2);
        let last = u16::try_from(id).unwrap() + 1;
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        world.hosts[id].nics[1].own = if link_locals { Own::OfLink(link_local) } else { Own::None };
        world.set_carrier_of(id, 1, true);
        world.start_host(id);
    }
    world.run(secs(1));
    let claimed = world.claimed(1, OFF, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(1), claimed.into());
    name(&mut world, &["eth1"]);
    world.run(secs(6));
    world
}

fn an_address_on_interfaces_without_one_is_announced_and_taken_when_its_owner_dies() {
    // Others answer by the address of the link, or another host does.
    for (link_locals, router) in [(true, true), (true, false), (false, true)] {
        let mut world = world_without_addresses(link_locals, router);
        world.assert_served();
        assert_eq!(interface(&world), ["eth1"]);
        let owner = world.owner_of(OFF).unwrap();
        world.kill_node(&owner);
        let outage = world.outage();
        assert!(outage < Duration::from_millis(400), "{link_locals} {router}: {outage:?}");
    }
}

fn where_nobody_can_answer_on_interfaces_without_an_address_leases_tell() {
    let mut world = world_without_addresses(false, false);
    world.assert_served();
    let blind = |fact: &Fact| matches!(fact, Fact::WireBlind { interface, blind: true } if interface.as_str() == "eth1");
    assert!(world.facts.iter().any(|(_, _, fact)| blind(fact)), "and it is said");
    let owner = world.owner_of(OFF).unwrap();
    world.kill_node(&owner);
    let outage = world.outage();
    assert!(secs(2) < outage && outage < secs(8), "{outage:?}");
}

fn an_interface_without_an_address_says_nothing_until_a_policy_names_it() {
    let mut world = world_without_addresses(true, true);
    let listed = |world: &World| {
        let sessions = world.store.sessions.values();
        sessions.filter(|it| it.record.interfaces.len() == 2).count()
    };
    assert_eq!(listed(&world), 3);
    name(&mut world, &[]);
    world.run(secs(3));
    assert_eq!((listed(&world), world.owner_of(OFF)), (0, None));
}

fn an_owner_that_answers_polls_and_not_clients_is_told_of_and_not_fenced() {
    let mut world = world();
    let owner = world.owner_of(OFF).unwrap();
    let (id, since) = (world.hosts.id(&owner), world.now);
    let said = |world: &World, which: bool| {
        let says = |fact: &Fact| {
            matches!(fact, Fact::ClientsUnanswered { owner: of, unanswered, .. }
                if of.node.as_str() == owner && *unanswered == which)
        };
        world.facts.iter().any(|(at, _, fact)| *at >= since && says(fact))
    };
    world.hosts[id].nics[1].answers_no_clients = true;
    run_answered(&mut world, secs(20));
    assert!(said(&world, true) && !said(&world, false));
    assert_eq!(world.owner_of(OFF).as_ref(), Some(&owner));
    let told = |world: &World| {
        let mut sessions = world.store.sessions.values();
        sessions.any(|it| it.record.unanswering.iter().any(|node| node.as_str() == owner))
    };
    assert!(told(&world), "sessions say so");
    world.hosts[id].nics[1].answers_no_clients = false;
    run_answered(&mut world, secs(15));
    assert!(said(&world, false) && !told(&world));
}

fn the_default_route_of_the_other_family_leads_nowhere() {
    let mut world = World::empty(0);
    let (v4, v6) = (
        DefaultRoutes { v4: true, ..DefaultRoutes::NONE },
        DefaultRoutes { v6: true, ..DefaultRoutes::NONE },
    );
    for (id, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.add_host_on(name, name, 2);
        world.hosts[id].nics[0].default_routes = v6;
        world.hosts[id].nics[1].default_routes = v4;
        world.start_host(id);
    }
    world.run(secs(1));
    let claimed = world.claimed(1, OFF, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(1), claimed.into());
    world.publish_desired();
    world.run(secs(4));
    world.assert_served();
    assert_eq!((interface(&world), carrying(&world).as_str()), (vec!["eth1".to_owned()], "eth1"));
}

pub(super) const RUNS: &[Run] = runs![
    an_address_in_no_subnet_is_announced_where_the_default_route_leads,
    an_address_in_no_subnet_and_without_a_default_route_is_nobodys,
    an_address_goes_to_the_node_that_has_its_subnet_and_stays_there,
    an_interface_that_only_a_policy_may_choose_is_not_chosen_without_one,
    where_the_policy_names_another_interface_the_same_owner_goes_there,
    what_loses_its_link_goes_to_another_interface_of_its_owner_that_fits,
    an_owner_whose_own_address_is_replaced_keeps_what_it_has,
    an_owner_that_loses_the_subnet_gives_to_one_that_has_it,
    of_two_interfaces_in_one_subnet_the_one_by_which_the_kernel_answers_carries,
    where_the_way_back_changes_the_same_owner_carries_by_the_other_interface,
    an_owner_that_answers_no_client_gives_to_one_that_does,
    an_address_on_interfaces_without_one_is_announced_and_taken_when_its_owner_dies,
    where_nobody_can_answer_on_interfaces_without_an_address_leases_tell,
    an_interface_without_an_address_says_nothing_until_a_policy_names_it,
    an_owner_that_answers_polls_and_not_clients_is_told_of_and_not_fenced,
    the_default_route_of_the_other_family_leads_nowhere,
];
