//! Services and pools, as the operator's allocation is told of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;
use leasehold_operator::allocate::{
    Labels, Listed, Occupancy, Plan, Pool, PoolMap, Request, Rules, Service, ServiceKey, Stack,
    State, Unusable, plan,
};

/// Pool, its first address, Services that have an address, and that have none.
pub const SIZES: [(&str, Ipv4Addr, u32, u32); 3] = [
    ("10.0.0.0/8", Ipv4Addr::new(10, 0, 0, 0), 10_000, 1),
    ("10.0.0.0/8", Ipv4Addr::new(10, 0, 0, 0), 0, 10_000),
    ("10.0.0.0/16", Ipv4Addr::new(10, 0, 0, 0), 65_000, 100),
];

/// One pool, Services that have the lowest addresses of it, and others that have none.
pub struct Fleet {
    pool_map: PoolMap,
    occupancy: Occupancy,
    listed: Listed,
    new: BTreeMap<ServiceKey, Service>,
}

impl Fleet {
    /// `pool` is a range of IPv4 addresses whose first is `first`.
    pub fn new(pool: &str, first: Ipv4Addr, settled: u32, new: u32) -> Self {
        let ranges = vec![pool.parse().expect("a range")];
        let pool = Pool { created: 0, ranges, rules: Rules::default() };
        let pools = BTreeMap::from([("lan".to_owned(), pool)]);
        let pool_map = PoolMap::new(&pools, Unusable::default());
        let mut fleet = Self {
            pool_map,
            occupancy: Occupancy::default(),
            listed: Listed::default(),
            new: BTreeMap::new(),
        };
        for number in 0..settled {
            let key = key(number);
            let address = IpAddr::from(Ipv4Addr::from_bits(first.to_bits() + number));
            fleet.listed.set(&LeaseName::claim(&key.namespace, &key.name), [address]);
            fleet.occupancy.insert(&key, &[address], &fleet.pool_map);
        }
        for number in settled..settled + new {
            let key = key(number);
            let service = Service {
                created: number.into(),
                labels: Labels::new(),
                families: vec![Family::V4],
                stack: Stack::All,
                request: Ok(Request::default()),
                sharing: None,
                reassign: false,
                present: Vec::new(),
                allocated_from: None,
                claim: None,
                own_claim: LeaseName::claim(&key.namespace, &key.name),
            };
            fleet.new.insert(key, service);
        }
        fleet
    }

    /// Each of the new ones gets an address.
    pub fn plan(&self) -> Plan {
        let nothing = BTreeMap::new();
        let (foreign, quarantine) = (BTreeMap::new(), BTreeMap::new());
        let plan = plan(&State {
            pool_map: &self.pool_map,
            namespaces: BTreeMap::new(),
            services: self.new.iter().collect(),
            occupancy: &self.occupancy,
            nodes: &nothing,
            foreign: &foreign,
            departing: Vec::new(),
            listed: &self.listed,
            quarantine: &quarantine,
        });
        assert!(plan.services.values().all(|it| it.addresses.len() == 1), "no room");
        plan
    }
}

fn key(number: u32) -> ServiceKey {
    ServiceKey { namespace: "shop".to_owned(), name: format!("service-{number:05}") }
}
