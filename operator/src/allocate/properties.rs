//! Properties of the allocator for any cluster and any order of events, writes and failures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use leasehold_crds::lease::LeaseName;
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::{Family, IpRange};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::*;
use crate::clock::Instant;

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

fn any_rules() -> impl Strategy<Value = Rules> {
    let scope = (
        0i32..3,
        prop::option::weighted(0.3, select(vec!["red", "blue"])),
        prop::bool::weighted(0.05),
    );
    let scope = scope.prop_map(|(priority, namespace, closed)| Scope {
        priority,
        namespaces: namespace.into_iter().map(str::to_owned).collect(),
        closed,
        ..Scope::default()
    });
    let flags =
        (prop::bool::weighted(0.8), any::<bool>(), prop::bool::weighted(0.1), any::<bool>());
    (flags, scope).prop_map(|((auto_assign, avoid_buggy, disabled, any_namespace), scope)| Rules {
        auto_assign,
        avoid_buggy,
        disabled,
        sharing: if any_namespace { Sharing::AnyNamespace } else { Sharing::SameNamespace },
        scope,
    })
}

fn any_pools() -> impl Strategy<Value = BTreeMap<String, Pool>> {
    let pool = (0i64..3, prop::collection::vec(any_range(), 0..3), any_rules());
    let pool = pool.prop_map(|(created, ranges, rules)| Pool { created, ranges, rules });
    prop::collection::btree_map("[a-c]", pool, 0..4)
}

/// The input of a user in a Service.
#[derive(Clone, Debug)]
struct Spec {
    families: Vec<Family>,
    stack: Stack,
    request: Result<Request, Failure>,
    sharing: Option<Box<Terms>>,
    reassign: bool,
}

fn any_request() -> impl Strategy<Value = Result<Request, Failure>> {
    fn asked<T>(what: T) -> Asked<T> {
        Asked { what, place: "here" }
    }
    let addresses = prop::option::weighted(0.3, prop::collection::vec(any_address(), 1..3));
    let pool = prop::option::weighted(0.2, "[a-d]");
    let malformed = Failure::Malformed { place: "here", entry: "unreadable".to_owned() };
    prop_oneof![
        9 => (addresses, pool).prop_map(|(addresses, pool)| {
            Ok(Request { addresses: addresses.map(asked), pool: pool.map(asked) })
        }),
        1 => Just(Err(malformed)),
    ]
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let ports = prop::collection::btree_set(0u16..5, 1..3);
    let traffic = prop_oneof![
        6 => Just(Traffic::Cluster),
        1 => "[xy]".prop_map(|app| Traffic::Local([("app".to_owned(), app)].into())),
    ];
    let key = select(vec!["k", "k", "k", "k", "l"]).prop_map(str::to_owned);
    (key, ports, traffic).prop_map(|(key, ports, traffic)| Terms {
        key: Asked { what: key, place: "here" },
        ports: ports.into_iter().map(tcp).collect(),
        traffic,
    })
}

/// A specification that makes shared addresses likely.
fn sociable_spec() -> impl Strategy<Value = Spec> {
    let request = prop_oneof![
        3 => Just(Ok(Request::default())),
        1 => (0u8..3).prop_map(|low| {
            let asked = Asked { what: vec![address(false, low)], place: "here" };
            Ok(Request { addresses: Some(asked), pool: None })
        }),
    ];
    let ports = prop::collection::btree_set(0u16..6, 1..3);
    (request, ports).prop_map(|(request, ports)| Spec {
        families: vec![Family::V4],
        stack: Stack::All,
        request,
        sharing: Some(Box::new(Terms {
            key: Asked { what: "k".to_owned(), place: "here" },
            ports: ports.into_iter().map(tcp).collect(),
            traffic: Traffic::Cluster,
        })),
        reassign: false,
    })
}

fn tcp(number: u16) -> Port {
    Port { number, protocol: Protocol::Tcp }
}

fn any_spec() -> impl Strategy<Value = Spec> {
    prop_oneof![1 => motley_spec(), 1 => sociable_spec()]
}

fn motley_spec() -> impl Strategy<Value = Spec> {
    let families = subsequence(vec![Family::V4, Family::V6], 1..=2);
    let terms = prop::option::weighted(0.75, any_terms());
    (families, any::<bool>(), any_request(), terms, prop::bool::weighted(0.1)).prop_map(
        |(families, any, request, terms, reassign)| Spec {
            families,
            stack: if any { Stack::Any } else { Stack::All },
            request,
            sharing: terms.map(Box::new),
            reassign,
        },
    )
}

/// An event in a cluster.
#[derive(Clone, Debug)]
enum Step {
    /// A service is created, or its spec changes.
    Apply(u8, Spec),
    Delete(u8),
    Pools(BTreeMap<String, Pool>),
    /// A status that a user wrote by hand.
    Forge(u8, Vec<IpAddr>),
    /// A claim still lists an address that nobody has.
    Claim(IpAddr, u8),
    Release(IpAddr),
    /// The quarantine of released addresses is over.
    Rested,
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
        1 => Just(Step::Rested),
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
    listed: BTreeMap<IpAddr, BTreeSet<LeaseName>>,
    quarantine: BTreeMap<IpAddr, Freed>,
    /// Which rule a write broke.
    broken: Option<String>,
}

fn key(id: u8) -> ServiceKey {
    let namespace = if id < 4 { "red" } else { "blue" };
    ServiceKey { namespace: namespace.to_owned(), name: id.to_string() }
}

fn own_claim(key: &ServiceKey) -> LeaseName {
    LeaseName::claim(&key.namespace, &key.name)
}

/// The rule of sharing, as it is promised to users.
fn may_share(
    (a_key, a): (&ServiceKey, &Service),
    (b_key, b): (&ServiceKey, &Service),
    across_namespaces: bool,
) -> bool {
    let (Some(a), Some(b)) = (&a.sharing, &b.sharing) else { return false };
    let one_namespace = a_key.namespace == b_key.namespace;
    a.key.what == b.key.what
        && a.ports.is_disjoint(&b.ports)
        && match (&a.traffic, &b.traffic) {
            (Traffic::Cluster, Traffic::Cluster) => one_namespace || across_namespaces,
            (Traffic::Local(a), Traffic::Local(b)) => a == b && one_namespace,
            _ => false,
        }
}

impl World {
    fn new(pools: BTreeMap<String, Pool>, nodes: Vec<IpAddr>) -> Self {
        let nodes = nodes.into_iter().map(|ip| (ip, "node".to_owned())).collect();
        Self { pools, nodes, ..Self::default() }
    }

    fn run(mut self, steps: Vec<Step>) -> Self {
        for step in steps {
            self.step(step);
        }
        self
    }

    fn plan(&self) -> Plan {
        plan(&State {
            pool_map: &PoolMap::new(&self.pools, Unusable::default()),
            namespaces: BTreeMap::new(),
            services: self.services.iter().collect(),
            nodes: &self.nodes,
            occupancy: &Occupancy::default(),
            foreign: &BTreeMap::new(),
            departing: Vec::new(),
            listed: &self.listed.iter().flat_map(|(ip, it)| it.iter().map(|c| (*ip, c))).collect(),
            quarantine: &self.quarantine,
        })
    }

    fn pool_allows_sharing(&self, ip: IpAddr) -> bool {
        let pool_map = PoolMap::new(&self.pools, Unusable::default());
        let rules = pool_map.owner(ip).map(|pool| &self.pools[pool].rules);
        rules.is_some_and(|rules| rules.sharing == Sharing::AnyNamespace)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Apply(id, spec) => {
                self.clock += 1;
                let service = self.services.entry(key(id)).or_insert_with(|| Service {
                    created: self.clock / 2,
                    labels: Labels::new(),
                    families: Vec::new(),
                    stack: Stack::All,
                    request: Ok(Request::default()),
                    sharing: None,
                    reassign: false,
                    present: Vec::new(),
                    allocated_from: None,
                    claim: None,
                    own_claim: own_claim(&key(id)),
                });
                let Spec { families, stack, request, sharing, reassign } = spec;
                let old = service.clone();
                *service = Service { families, stack, request, sharing, reassign, ..old };
            }
            Step::Delete(id) => {
                if let Some(service) = self.services.remove(&key(id)) {
                    self.freed(&key(id), &service.present);
                }
            }
            Step::Pools(pools) => self.pools = pools,
            Step::Forge(id, present) => {
                if let Some(service) = self.services.get_mut(&key(id)) {
                    service.present = present;
                    service.allocated_from = None;
                }
            }
            Step::Claim(ip, id) => {
                if !self.services.values().any(|service| service.present.contains(&ip)) {
                    self.listed.entry(ip).or_default().insert(own_claim(&key(id)));
                }
            }
            Step::Release(ip) => {
                self.listed.remove(&ip);
            }
            Step::Rested => self.quarantine.clear(),
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

    fn freed(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        self.clock += 1;
        let since = Instant::from_secs(self.clock.unsigned_abs());
        let rest = addresses.iter().map(|ip| (*ip, Freed { since, former: key.clone() }));
        self.quarantine.extend(rest);
    }

    fn write(&mut self, key: &ServiceKey, decision: &Decision) {
        let had = self.services[key].present.clone();
        for ip in decision.addresses.iter().filter(|ip| !had.contains(ip)) {
            self.check(key, *ip, decision);
        }
        let lost: Vec<_> = had.into_iter().filter(|ip| !decision.addresses.contains(ip)).collect();
        self.freed(key, &lost);
        let service = self.services.get_mut(key).unwrap();
        service.present.clone_from(&decision.addresses);
        service.allocated_from.clone_from(&decision.allocated_from);
        service.claim.clone_from(&decision.claim);
    }

    /// Checks the conditions under which a Service gets an address that it did not have.
    fn check(&mut self, key: &ServiceKey, ip: IpAddr, decision: &Decision) {
        let across = self.pool_allows_sharing(ip);
        let service = &self.services[key];
        for (other_key, other) in &self.services {
            if other_key == key || !other.present.contains(&ip) {
                continue;
            }
            if !may_share((key, service), (other_key, other), across) {
                self.broken = Some(format!("{key} gets {ip}, which {other_key} has"));
            } else if other.claim != decision.claim {
                self.broken = Some(format!("{key} gets {ip} under another claim than {other_key}"));
            }
        }
        let listing = self.listed.get(&ip).into_iter().flatten();
        if let Some(other) =
            listing.into_iter().find(|claim| Some(*claim) != decision.claim.as_ref())
        {
            self.broken = Some(format!("{key} gets {ip}, which claim {other} lists"));
        }
    }

    /// Writes until there is nothing to write any more.
    fn settle(&mut self) -> Plan {
        for _ in 0..12 {
            let before = self.services.clone();
            for (key, decision) in self.plan().services {
                self.write(&key, &decision);
            }
            if self.services == before {
                return self.plan();
            }
        }
        panic!("it never settles: {self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn two_services_have_one_address_only_where_they_may_share_it_whichever_writes_succeed(
        pools in any_pools(),
        nodes in prop::collection::vec(any_address(), 0..3),
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut world = World::new(pools, nodes);
        for step in steps {
            world.step(step);
            prop_assert!(world.broken.is_none(), "{:?}: {:?}", world.broken, world);
        }
    }

    #[test]
    fn an_address_stays_under_its_claim_as_long_as_anybody_has_it(
        pools in any_pools(),
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut world = World::new(pools, Vec::new());
        for step in steps {
            world.step(step);
            let mut claims: BTreeMap<IpAddr, &LeaseName> = BTreeMap::new();
            for service in world.services.values() {
                for ip in &service.present {
                    let claim = service.claim.as_ref().unwrap();
                    prop_assert_eq!(*claims.entry(*ip).or_insert(claim), claim);
                }
            }
            for (key, decision) in world.plan().services {
                let service = &world.services[&key];
                if decision.addresses.iter().any(|ip| service.present.contains(ip)) {
                    prop_assert_eq!(&decision.claim, &service.claim);
                }
            }
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
            let pool_map = PoolMap::new(&world.pools, Unusable::default());
            for (key, decision) in &plan.services {
                let service = &world.services[key];
                let fresh = || decision.addresses.iter().filter(|ip| !service.present.contains(ip));
                for ip in fresh() {
                    let pool = pool_map.owner(*ip);
                    prop_assert_eq!(pool, decision.allocated_from.as_deref());
                    let rules = &world.pools[pool.unwrap()].rules;
                    let namespaces = &rules.scope.namespaces;
                    prop_assert!(!rules.disabled && !rules.scope.closed);
                    prop_assert!(namespaces.is_empty() || namespaces.contains(&key.namespace));
                    prop_assert!(!(rules.avoid_buggy && *ip == address(false, 0)));
                    prop_assert!(!world.nodes.contains_key(ip));
                }
                for ip in &decision.addresses {
                    let across = world.pool_allows_sharing(*ip);
                    for (other_key, other) in plan.services.iter().filter(|(other, _)| *other != key) {
                        if !other.addresses.contains(ip) {
                            continue;
                        }
                        let shared_before = service.claim == decision.claim
                            && world.services[other_key].claim == decision.claim;
                        let parties =
                            ((key, service), (other_key, &world.services[other_key]));
                        prop_assert!(may_share(parties.0, parties.1, across || shared_before));
                        prop_assert_eq!(&other.claim, &decision.claim);
                    }
                }
                let families: Vec<_> = decision.addresses.iter().map(|ip| Family::of(*ip)).collect();
                prop_assert!(families.iter().all(|family| service.families.contains(family)));
                prop_assert!(families.len() < 2 || families[0] != families[1]);
                prop_assert_eq!(decision.allocated_from.is_none(), decision.addresses.is_empty());
                prop_assert_eq!(decision.claim.is_none(), decision.addresses.is_empty());
                let complete = families.len() == service.families.len();
                prop_assert!(complete || decision.failure.is_some() || decision.shortfall.is_some());
                if decision.failure.is_some() {
                    prop_assert_eq!(fresh().count(), 0, "nothing is given with a failure");
                }
            }
        }
    }

    #[test]
    fn once_written_a_plan_is_final_and_survives_any_change_of_the_pools(
        pools in any_pools(),
        others in any_pools(),
        steps in prop::collection::vec(any_step_with_forgery(), 0..40),
    ) {
        let mut world = World::new(pools, Vec::new()).run(steps);
        let settled = world.settle();
        for pools in [others, BTreeMap::new()] {
            world.pools = pools;
            for (key, decision) in world.plan().services {
                let had = &settled.services[&key];
                // A request that can be met at last may move the service.
                if !world.services[&key].reassign && had.failure.is_none() {
                    let keeps = had.addresses.iter().all(|ip| decision.addresses.contains(ip));
                    prop_assert!(keeps, "{key}: {had:?}, then {decision:?}");
                    prop_assert_eq!(&decision.claim, &had.claim);
                }
            }
        }
    }

    #[test]
    fn of_those_that_share_the_elder_keeps_the_address_whatever_ports_selectors_and_policies_become(
        pools in any_pools(),
        steps in prop::collection::vec(any_step(), 0..30),
        terms in prop::collection::btree_map(0u8..6, any_terms(), 1..6),
    ) {
        let mut world = World::new(pools, Vec::new()).run(steps);
        let first = world.settle();
        for (id, terms) in terms {
            if let Some(sharing) =
                world.services.get_mut(&key(id)).and_then(|service| service.sharing.as_mut())
            {
                **sharing = terms;
            }
        }
        let before = world.services.clone();
        let plan = world.plan();
        let older = |a: &ServiceKey, b: &ServiceKey| (before[a].created, a) < (before[b].created, b);
        for (key, decision) in &plan.services {
            let service = &before[key];
            for ip in service.present.iter().filter(|ip| !decision.addresses.contains(ip)) {
                // Somebody keeps it to whom it belongs by age, and with whom it could not be served.
                let keeps = plan.services.iter().find(|(other, it)| {
                    it.addresses.contains(ip)
                        && older(other, key)
                        && !may_share((key, service), (other, &before[*other]), true)
                });
                // A request that can be met at last may move the service.
                let content = first.services[key].failure.is_none() && !service.reassign;
                prop_assert!(keeps.is_some() || !content, "{key} loses {ip}: {world:?}");
            }
        }
        // It is done once, and then nobody moves any more, but for those that may be given what no pool offered them
        // before.
        let settled = world.settle();
        for (key, decision) in plan.services.iter().filter(|(_, it)| it.stuck.is_none()) {
            for ip in &decision.addresses {
                prop_assert!(settled.services[key].addresses.contains(ip), "{key}: {world:?}");
            }
        }
    }

    #[test]
    fn nobody_waits_while_an_address_is_free(
        pools in any_pools(),
        nodes in prop::collection::vec(any_address(), 0..3),
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut world = World::new(pools, nodes).run(steps);
        world.listed.clear();
        let plan = world.settle();
        let held: BTreeSet<IpAddr> =
            world.services.values().flat_map(|service| service.present.clone()).collect();
        let pool_map = PoolMap::new(&world.pools, Unusable::default());
        let free = |key: &ServiceKey, family| {
            let serves = |rules: &Rules| {
                let namespaces = &rules.scope.namespaces;
                rules.auto_assign
                    && !rules.disabled
                    && !rules.scope.closed
                    && (namespaces.is_empty() || namespaces.contains(&key.namespace))
            };
            pool_map
                .domains()
                .filter(|(_, domain)| serves(&domain.rules))
                .flat_map(|(_, domain)| {
                    let avoid = domain.rules.avoid_buggy;
                    let all = domain.ranges(family).iter().flat_map(IpRange::addresses);
                    all.filter(move |ip| !(avoid && *ip == address(false, 0))).collect::<Vec<_>>()
                })
                .any(|ip| !held.contains(&ip) && !world.nodes.contains_key(&ip))
        };
        for (key, decision) in plan.services {
            let service = &world.services[&key];
            let silent = service.request == Ok(Request::default());
            if silent && decision.addresses.is_empty() && service.families.len() == 1 {
                prop_assert!(!free(&key, service.families[0]), "{key}: {:?}", decision.failure);
            }
        }
    }
}
