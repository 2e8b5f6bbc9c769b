//! What holds for any cluster and any order of events, writes and failures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;

fn address(v6: bool, low: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(low)).into()
    } else {
        Ipv4Addr::new(10, 0, 0, low).into()
    }
}

/// Addresses are few, so that everything collides.
fn any_address() -> impl Strategy<Value = IpAddr> {
    (any::<bool>(), 0u8..12).prop_map(|(v6, low)| address(v6, low))
}

fn any_range() -> impl Strategy<Value = IpRange> {
    (any::<bool>(), 0u8..12, 0u8..4).prop_map(|(v6, low, more)| {
        IpRange::new(address(v6, low), address(v6, low + more)).unwrap()
    })
}

fn any_pools() -> impl Strategy<Value = BTreeMap<String, Pool>> {
    let pool = (0i64..3, prop::collection::vec(any_range(), 0..3), prop::bool::weighted(0.8));
    let pool =
        pool.prop_map(|(created, ranges, auto_assign)| Pool { created, ranges, auto_assign });
    prop::collection::btree_map("[a-c]", pool, 0..4)
}

/// What a user may write into a service.
#[derive(Clone, Debug)]
struct Spec {
    families: Vec<Family>,
    stack: Stack,
    request: Result<Vec<IpAddr>, Failure>,
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let request = prop_oneof![
        4 => Just(Ok(Vec::new())),
        3 => prop::collection::vec(any_address(), 1..3).prop_map(Ok),
        1 => Just(Err(Failure::Malformed { place: "here", entry: "unreadable".to_owned() })),
    ];
    let families = subsequence(vec![Family::V4, Family::V6], 1..=2);
    (families, any::<bool>(), request).prop_map(|(families, any, request)| Spec {
        families,
        stack: if any { Stack::Any } else { Stack::All },
        request,
    })
}

/// What happens to a cluster.
#[derive(Clone, Debug)]
enum Step {
    /// A service is created, or its spec changes.
    Apply(u8, Spec),
    Delete(u8),
    Pools(BTreeMap<String, Pool>),
    /// Somebody writes a status by hand.
    Forge(u8, Vec<IpAddr>),
    Claim(IpAddr, u8),
    Release(IpAddr),
    /// The allocator plans, and some of its writes succeed, in some order.
    Write(Vec<Index>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..6, any_spec()).prop_map(|(id, spec)| Step::Apply(id, spec)),
        2 => (0u8..6).prop_map(Step::Delete),
        2 => any_pools().prop_map(Step::Pools),
        1 => (any_address(), 0u8..6).prop_map(|(ip, id)| Step::Claim(ip, id)),
        1 => any_address().prop_map(Step::Release),
        8 => prop::collection::vec(any::<Index>(), 0..8).prop_map(Step::Write),
    ]
}

fn any_step_with_forgery() -> impl Strategy<Value = Step> {
    let forgery = (0u8..6, prop::collection::vec(any_address(), 0..3));
    prop_oneof![9 => any_step(), 1 => forgery.prop_map(|(id, ips)| Step::Forge(id, ips))]
}

#[derive(Clone, Debug, Default)]
struct World {
    clock: Created,
    pools: BTreeMap<String, Pool>,
    services: BTreeMap<ServiceKey, Service>,
    nodes: BTreeMap<IpAddr, String>,
    claimed: BTreeMap<IpAddr, BTreeSet<String>>,
}

fn key(id: u8) -> ServiceKey {
    ServiceKey { namespace: "web".to_owned(), name: id.to_string() }
}

impl World {
    fn new(pools: BTreeMap<String, Pool>, nodes: Vec<IpAddr>) -> Self {
        let nodes = nodes.into_iter().map(|ip| (ip, "node".to_owned())).collect();
        Self { pools, nodes, ..Self::default() }
    }

    fn plan(&self) -> Plan {
        plan(&State {
            territory: &Territory::new(&self.pools),
            services: self.services.iter().collect(),
            nodes: &self.nodes,
            claimed: self.claimed.clone(),
            foreign: BTreeMap::new(),
        })
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Apply(id, spec) => {
                self.clock += 1;
                let service = self.services.entry(key(id)).or_insert_with(|| Service {
                    created: self.clock / 2,
                    families: Vec::new(),
                    stack: Stack::All,
                    request: Ok(Vec::new()),
                    present: Vec::new(),
                    allocated_from: None,
                    claim: format!("web.{id}"),
                });
                let Spec { families, stack, request } = spec;
                *service = Service { families, stack, request, ..service.clone() };
            }
            Step::Delete(id) => {
                self.services.remove(&key(id));
            }
            Step::Pools(pools) => self.pools = pools,
            Step::Forge(id, present) => {
                if let Some(service) = self.services.get_mut(&key(id)) {
                    service.present = present;
                }
            }
            Step::Claim(ip, id) => {
                self.claimed.entry(ip).or_default().insert(format!("web.{id}"));
            }
            Step::Release(ip) => {
                self.claimed.remove(&ip);
            }
            Step::Write(writes) => {
                let plan: Vec<_> = self.plan().services.into_iter().collect();
                if !plan.is_empty() {
                    for index in writes {
                        let (key, decision) = index.get(&plan);
                        self.write(key, decision);
                    }
                }
            }
        }
    }

    fn write(&mut self, key: &ServiceKey, decision: &Decision) {
        let service = self.services.get_mut(key).unwrap();
        service.present.clone_from(&decision.addresses);
        service.allocated_from.clone_from(&decision.allocated_from);
    }

    fn write_all(&mut self) {
        for (key, decision) in self.plan().services {
            self.write(&key, &decision);
        }
    }
}

fn disjoint<'a>(sets: impl Iterator<Item = &'a Vec<IpAddr>>) -> bool {
    let mut seen = BTreeSet::new();
    sets.flatten().all(|ip| seen.insert(*ip))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_two_services_ever_have_one_address_whichever_writes_succeed(
        pools in any_pools(),
        nodes in prop::collection::vec(any_address(), 0..3),
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut world = World::new(pools, nodes);
        for step in steps {
            world.step(step);
            let present = world.services.values().map(|service| &service.present);
            prop_assert!(disjoint(present), "{:?}", world);
        }
    }

    #[test]
    fn every_plan_is_sound_even_over_forged_statuses(
        pools in any_pools(),
        nodes in prop::collection::vec(any_address(), 0..3),
        steps in prop::collection::vec(any_step_with_forgery(), 0..40),
    ) {
        let mut world = World::new(pools, nodes);
        for step in steps {
            world.step(step);
            let plan = world.plan();
            let territory = Territory::new(&world.pools);
            prop_assert!(disjoint(plan.services.values().map(|decision| &decision.addresses)));
            for (key, decision) in &plan.services {
                let service = &world.services[key];
                let fresh = || decision.addresses.iter().filter(|ip| !service.present.contains(ip));
                for ip in fresh() {
                    prop_assert_eq!(territory.owner(*ip), decision.allocated_from.as_deref());
                    prop_assert!(!world.nodes.contains_key(ip));
                    let claims = world.claimed.get(ip).into_iter().flatten();
                    prop_assert!(claims.into_iter().all(|claim| *claim == service.claim));
                    let others = world.services.iter().filter(|(other, _)| *other != key);
                    prop_assert!(others.into_iter().all(|(_, other)| !other.present.contains(ip)));
                }
                let families: Vec<_> = decision.addresses.iter().map(|ip| Family::of(*ip)).collect();
                prop_assert!(families.iter().all(|family| service.families.contains(family)));
                prop_assert!(families.len() < 2 || families[0] != families[1]);
                prop_assert_eq!(decision.allocated_from.is_none(), decision.addresses.is_empty());
                let complete = families.len() == service.families.len();
                prop_assert!(complete || decision.failure.is_some() || decision.shortfall.is_some());
                if decision.failure.is_some() {
                    prop_assert_eq!(fresh().count(), 0, "nothing is given with a failure");
                }
            }
        }
    }

    #[test]
    fn once_written_a_plan_is_final_and_survives_the_loss_of_all_pools(
        pools in any_pools(),
        steps in prop::collection::vec(any_step_with_forgery(), 0..40),
    ) {
        let mut world = World::new(pools, Vec::new());
        for step in steps {
            world.step(step);
        }
        // What is being given up becomes free with the first round of writes; the second gives
        // it out.
        world.write_all();
        world.write_all();
        let settled = world.plan();
        world.write_all();
        prop_assert_eq!(&world.plan(), &settled);
        world.pools.clear();
        for (key, decision) in world.plan().services {
            prop_assert_eq!(&decision.addresses, &settled.services[&key].addresses);
        }
    }

    #[test]
    fn nobody_waits_while_an_address_is_free(
        pools in any_pools(),
        nodes in prop::collection::vec(any_address(), 0..3),
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut world = World::new(pools, nodes);
        for step in steps {
            world.step(step);
        }
        world.write_all();
        world.claimed.clear();
        world.write_all();
        world.write_all();
        let held: BTreeSet<IpAddr> =
            world.services.values().flat_map(|service| service.present.clone()).collect();
        let territory = Territory::new(&world.pools);
        let free = |family| {
            let auto = territory.domains().filter(|(_, domain)| domain.auto_assign);
            auto.flat_map(move |(_, domain)| domain.ranges(family).to_vec())
                .flat_map(|range| range.addresses())
                .any(|ip| !held.contains(&ip) && !world.nodes.contains_key(&ip))
        };
        for (key, decision) in world.plan().services {
            let service = &world.services[&key];
            let silent = service.request.as_ref().is_ok_and(Vec::is_empty);
            if silent && decision.addresses.is_empty() && service.families.len() == 1 {
                prop_assert!(!free(service.families[0]), "{key}: {:?}", decision.failure);
            }
        }
    }
}
