//! One row of the allocation's rules per test, against small clusters written in a few words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

use super::*;
use crate::clock::Instant;

mod pools;
mod quarantine;
mod retained;
mod sharing;

/// A cluster in a few words.
#[derive(Clone, Default)]
struct Cluster {
    pools: BTreeMap<String, Pool>,
    namespaces: BTreeMap<String, Labels>,
    services: BTreeMap<ServiceKey, Service>,
    nodes: BTreeMap<IpAddr, String>,
    listed: BTreeMap<IpAddr, BTreeSet<LeaseName>>,
    foreign: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    quarantine: BTreeMap<IpAddr, Freed>,
    unusable: Unusable,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// `shop` in namespace `web`, or `namespace/name`.
fn key(name: &str) -> ServiceKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("web", name));
    ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const V4: &[Family] = &[Family::V4];
const V6: &[Family] = &[Family::V6];
const BOTH: &[Family] = &[Family::V4, Family::V6];

impl Cluster {
    fn pool(mut self, name: &str, entries: &[&str]) -> Self {
        let created = i64::try_from(self.pools.len()).unwrap();
        let ranges = entries.iter().map(|entry| entry.parse().unwrap()).collect();
        self.pools.insert(name.to_owned(), Pool { created, ranges, rules: Rules::default() });
        self
    }

    fn rules(mut self, name: &str, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.pools.get_mut(name).unwrap().rules);
        self
    }

    fn on_request_only(self, name: &str) -> Self {
        self.rules(name, |rules| rules.auto_assign = false)
    }

    fn disabled(self, name: &str) -> Self {
        self.rules(name, |rules| rules.disabled = true)
    }

    /// Only for this namespace.
    fn pinned(self, name: &str, namespace: &str) -> Self {
        self.rules(name, |rules| {
            rules.scope.namespaces.insert(namespace.to_owned());
        })
    }

    fn namespace(mut self, name: &str, pairs: &[(&str, &str)]) -> Self {
        self.namespaces.insert(name.to_owned(), labels(pairs));
        self
    }

    /// Later services are younger.
    fn service(mut self, name: &str, families: &[Family]) -> Self {
        let created = i64::try_from(self.services.len()).unwrap();
        let key = key(name);
        let service = Service {
            created,
            labels: Labels::new(),
            families: families.to_vec(),
            stack: Stack::All,
            request: Ok(Request::default()),
            sharing: None,
            reassign: false,
            present: Vec::new(),
            allocated_from: None,
            claim: None,
            own_claim: LeaseName::claim(&key.namespace, &key.name),
        };
        self.services.insert(key, service);
        self
    }

    fn last(&mut self) -> &mut Service {
        self.services.values_mut().max_by_key(|service| service.created).unwrap()
    }

    fn any(mut self) -> Self {
        self.last().stack = Stack::Any;
        self
    }

    fn asks(mut self, addresses: &[&str]) -> Self {
        let what = addresses.iter().map(|text| ip(text)).collect();
        let addresses = Some(Asked { what, place: "leasehold.dev/addresses" });
        let request = self.last().request.clone().unwrap();
        self.last().request = Ok(Request { addresses, ..request });
        self
    }

    fn asks_pool(mut self, pool: &str) -> Self {
        let pool = Some(Asked { what: pool.to_owned(), place: "leasehold.dev/address-pool" });
        let request = self.last().request.clone().unwrap();
        self.last().request = Ok(Request { pool, ..request });
        self
    }

    /// With the claim that is named after it, if it was us who gave it the addresses.
    fn has(mut self, addresses: &[&str], pool: Option<&str>) -> Self {
        let last = self.last();
        last.present = addresses.iter().map(|text| ip(text)).collect();
        last.allocated_from = pool.map(str::to_owned);
        last.claim = pool.map(|_| last.own_claim.clone());
        self
    }

    fn under(mut self, claim: &str) -> Self {
        self.last().claim = Some(claim.parse().unwrap());
        self
    }

    fn reassign(mut self) -> Self {
        self.last().reassign = true;
        self
    }

    /// Shares by the key `k`, with these TCP ports.
    fn shares(mut self, ports: &[u16]) -> Self {
        let port = |number: &u16| Port { number: *number, protocol: Protocol::Tcp };
        self.last().sharing = Some(Box::new(Terms {
            key: Asked { what: "k".to_owned(), place: "leasehold.dev/shared-address" },
            ports: ports.iter().map(port).collect(),
            traffic: Traffic::Cluster,
        }));
        self
    }

    fn node(mut self, address: &str) -> Self {
        self.nodes.insert(ip(address), "node-1".to_owned());
        self
    }

    /// Nodes have these addresses, in subnets.
    fn subnets(mut self, addresses: &[&str]) -> Self {
        self.unusable = Unusable::new(addresses.iter().map(|net| net.parse().unwrap()));
        self
    }

    fn foreign(mut self, address: &str, name: &str) -> Self {
        self.foreign.entry(ip(address)).or_default().insert(key(name));
        self
    }

    fn claim(mut self, address: &str, claim: &str) -> Self {
        self.listed.entry(ip(address)).or_default().insert(claim.parse().unwrap());
        self
    }

    fn rests(mut self, address: &str, since: u64, former: &str) -> Self {
        let since = Instant::from_secs(since);
        self.quarantine.insert(ip(address), Freed { since, former: key(former) });
        self
    }

    fn plan(&self) -> Plan {
        let pool_map = PoolMap::new(&self.pools, self.unusable.clone());
        plan(&State {
            pool_map: &pool_map,
            namespaces: self.namespaces.iter().map(|(name, it)| (name.as_str(), it)).collect(),
            services: self.services.iter().collect(),
            nodes: &self.nodes,
            occupancy: &Occupancy::default(),
            foreign: &self.foreign,
            departing: Vec::new(),
            listed: &self.listed.iter().flat_map(|(ip, it)| it.iter().map(|c| (*ip, c))).collect(),
            quarantine: &self.quarantine,
        })
    }

    fn decision(&self, name: &str) -> Decision {
        self.plan().services[&key(name)].clone()
    }

    /// The decision for a Service, as `address address (pool) reason`.
    fn gets(&self, name: &str) -> String {
        let decision = self.decision(name);
        let mut words: Vec<String> = decision.addresses.iter().map(ToString::to_string).collect();
        words.extend(decision.allocated_from.iter().map(|pool| format!("({pool})")));
        words.extend(decision.failure.iter().map(|failure| failure.reason().to_owned()));
        words
            .extend(decision.shortfall.iter().map(|failure| format!("short:{}", failure.reason())));
        words.join(" ")
    }

    /// Why a service does not get all that it needs.
    fn says(&self, name: &str) -> String {
        let decision = self.decision(name);
        decision.failure.or(decision.shortfall).map(|it| it.to_string()).unwrap_or_default()
    }

    /// The claim that governs what a service gets.
    fn governs(&self, name: &str) -> String {
        self.decision(name).claim.map(|claim| claim.to_string()).unwrap_or_default()
    }

    /// The cluster after all decisions were written.
    fn written(mut self) -> Self {
        for (key, decision) in self.plan().services {
            let service = self.services.get_mut(&key).unwrap();
            service.present = decision.addresses;
            service.allocated_from = decision.allocated_from;
            service.claim = decision.claim;
        }
        self
    }
}

#[test]
fn services_are_served_by_age_with_the_lowest_free_address() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.5-10.0.0.9", "10.0.0.1-10.0.0.2"])
        .service("c", V4)
        .service("a", V4)
        .service("b", V4);
    assert_eq!(cluster.gets("c"), "10.0.0.1 (lan)");
    assert_eq!(cluster.gets("a"), "10.0.0.2 (lan)");
    assert_eq!(cluster.gets("b"), "10.0.0.5 (lan)");
}

#[test]
fn the_first_pool_by_name_with_room_for_all_families_serves() {
    let cluster = Cluster::default()
        .pool("c", &["10.3.0.0/31", "2001:db8:3::/64"])
        .pool("b", &["10.2.0.0/31", "2001:db8:2::/64"])
        .pool("a", &["10.1.0.0/31"])
        .service("one", BOTH)
        .service("two", V4)
        .service("three", V6);
    assert_eq!(cluster.gets("one"), "10.2.0.0 2001:db8:2:: (b)");
    assert_eq!(cluster.gets("two"), "10.1.0.0 (a)");
    assert_eq!(cluster.gets("three"), "2001:db8:2::1 (b)");
}

#[test]
fn pools_without_auto_assign_serve_requests_only() {
    let cluster = Cluster::default()
        .pool("kept", &["10.0.0.0/31"])
        .on_request_only("kept")
        .service("asks", V4)
        .asks(&["10.0.0.1"])
        .service("silent", V4);
    assert_eq!(cluster.gets("asks"), "10.0.0.1 (kept)");
    assert_eq!(cluster.gets("silent"), "NoPool");
}

#[test]
fn a_service_keeps_its_address_whatever_happens_to_the_pools() {
    let has = |cluster: Cluster| {
        cluster.service("old", V4).service("web", V4).has(&["10.0.0.7"], Some("lan")).gets("web")
    };
    assert_eq!(has(Cluster::default().pool("lan", &["10.0.0.0/24"])), "10.0.0.7 (lan)");
    assert_eq!(has(Cluster::default().pool("lan", &["10.9.0.0/24"])), "10.0.0.7 (lan)");
    assert_eq!(has(Cluster::default().pool("other", &["10.0.0.0/24"])), "10.0.0.7 (other)");
    assert_eq!(has(Cluster::default()), "10.0.0.7 (lan)");
}

#[test]
fn an_address_that_we_never_assigned_is_kept_only_if_a_pool_holds_it() {
    let with = |address| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .service("web", V4)
            .has(&[address], None)
            .gets("web")
    };
    assert_eq!(with("10.0.0.7"), "10.0.0.7 (lan)");
    assert_eq!(with("172.16.0.7"), "10.0.0.0 (lan)");
}

#[test]
fn on_a_clash_the_older_keeps_unless_only_the_younger_was_given_the_address() {
    let clash = |older: Option<&str>| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .service("older", V4)
            .has(&["10.0.0.7"], older)
            .service("younger", V4)
            .has(&["10.0.0.7"], Some("lan"))
    };
    assert_eq!(clash(Some("lan")).gets("older"), "10.0.0.7 (lan)");
    assert_eq!(clash(Some("lan")).gets("younger"), "10.0.0.0 (lan)");
    assert_eq!(clash(None).gets("older"), "10.0.0.0 (lan)");
    assert_eq!(clash(None).gets("younger"), "10.0.0.7 (lan)");
}

#[test]
fn requests_that_cannot_be_met_say_why_and_leave_the_service_pending() {
    let request = |addresses: &[&str], families| {
        let cluster = Cluster::default()
            .pool("lan", &["10.0.0.0/24", "2001:db8::/64"])
            .pool("other", &["10.1.0.0/24"])
            .node("10.0.0.3")
            .claim("10.0.0.4", "web.gone")
            .service("old", V4)
            .has(&["10.0.0.2"], Some("lan"))
            .service("web", families)
            .asks(addresses)
            .has(&["10.0.0.9"], Some("lan"));
        (cluster.gets("web"), cluster.says("web"))
    };
    for (addresses, families, gets, says) in [
        (&["10.0.0.5"][..], V4, "10.0.0.5 (lan)", ""),
        (&["10.1.0.5"], V4, "10.1.0.5 (other)", ""),
        (&["10.0.0.9"], V4, "10.0.0.9 (lan)", ""),
        (
            &["172.16.0.1"],
            V4,
            "AddressNotInPool",
            "no IPAddressPool contains the requested address 172.16.0.1",
        ),
        (&["10.0.0.2"], V4, "AddressInUse", "10.0.0.2 belongs to Service web/old"),
        (&["10.0.0.3"], V4, "NodeAddress", "10.0.0.3 is an address of node node-1"),
        (&["10.0.0.4"], V4, "AddressReleasing", "claim web.gone"),
        (&["2001:db8::1"], V4, "10.0.0.9 (lan) ContradictoryRequest", "do not include IPv6"),
        (
            &["10.0.0.5", "10.0.0.6"],
            V4,
            "10.0.0.9 (lan) ContradictoryRequest",
            "both 10.0.0.5 and 10.0.0.6",
        ),
        (
            &["10.1.0.5", "2001:db8::1"],
            BOTH,
            "10.0.0.9 (lan) ContradictoryRequest",
            "from one pool",
        ),
        (&["10.0.0.5", "2001:db8::1"], BOTH, "10.0.0.5 2001:db8::1 (lan)", ""),
    ] {
        let (got, said) = request(addresses, families);
        assert_eq!(got, gets, "{addresses:?}");
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{addresses:?}: {said}");
    }
}

#[test]
fn a_request_for_one_family_brings_the_other_from_the_same_pool() {
    let cluster = |has: &[&str]| {
        Cluster::default()
            .pool("a", &["10.0.0.0/24", "2001:db8:a::/64"])
            .pool("b", &["10.1.0.0/24", "2001:db8:b::/64"])
            .service("web", BOTH)
            .asks(&["10.1.0.5"])
            .has(has, Some("a"))
            .gets("web")
    };
    assert_eq!(cluster(&[]), "10.1.0.5 2001:db8:b:: (b)");
    assert_eq!(cluster(&["10.0.0.1", "2001:db8:a::1"]), "10.1.0.5 2001:db8:b:: (b)");
}

#[test]
fn a_malformed_request_says_where_it_stands_and_how_to_write_it() {
    let mut cluster = Cluster::default().pool("lan", &["10.0.0.0/24"]).service("web", V4);
    cluster.last().request =
        Err(Failure::Malformed { place: "spec.loadBalancerIP", entry: "10.0.0".to_owned() });
    assert_eq!(cluster.gets("web"), "MalformedRequest");
    assert_eq!(
        cluster.says("web"),
        "spec.loadBalancerIP: `10.0.0` is not a valid IP address: write 192.0.2.10, or \
         192.0.2.10,2001:db8::10"
    );
}

#[test]
fn a_service_keeps_what_it_has_while_its_request_cannot_be_understood() {
    let web = |addresses: &[&str]| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24", "2001:db8::/64"])
            .pool("other", &["10.1.0.0/24", "2001:db8:1::/64"])
            .service("web", BOTH)
            .has(addresses, Some("lan"))
    };
    let both = &["10.0.0.9", "2001:db8::9"];
    let garbled = |mut cluster: Cluster, failure| {
        cluster.last().request = Err(failure);
        cluster
    };
    let malformed = || Failure::Malformed { place: "here", entry: "10.0.0".to_owned() };
    let two_requests = Failure::TwoRequests {
        field: "spec.loadBalancerIP",
        address: "10.1.0.5".parse().unwrap(),
        annotation: "leasehold.dev/addresses",
    };
    let contradicts = "10.0.0.9 2001:db8::9 (lan) ContradictoryRequest";
    for (cluster, gets) in [
        (garbled(web(both), malformed()), "10.0.0.9 2001:db8::9 (lan) MalformedRequest"),
        (garbled(web(both), two_requests), contradicts),
        (garbled(web(&["10.0.0.9"]), malformed()), "10.0.0.9 (lan) MalformedRequest"),
        (garbled(web(&[]), malformed()), "MalformedRequest"),
        (web(both).asks_pool("wan"), "10.0.0.9 2001:db8::9 (lan) UnknownPool"),
        (web(both).asks(&["10.1.0.5", "10.1.0.6"]), contradicts),
        (web(both).asks_pool("other").asks(&["10.0.0.5"]), contradicts),
        (web(both).asks(&["10.0.0.9", "2001:db8:1::5"]), contradicts),
        (web(both).asks(&["10.1.0.5", "2001:db8::5"]), contradicts),
        // What is understood and cannot be is given up for.
        (web(both).asks(&["172.16.0.1"]), "2001:db8::9 (lan) AddressNotInPool"),
    ] {
        assert_eq!(cluster.gets("web"), gets);
        assert!(cluster.decision("web").retained.is_empty());
        assert_eq!(cluster.written().gets("web"), gets);
    }
    // Others have it by a better right all the same, and it is nobody else's meanwhile.
    let shop = garbled(web(both), malformed()).service("shop", V4).asks(&["10.0.0.9"]);
    assert_eq!(shop.gets("shop"), "AddressInUse");
}

#[test]
fn dual_stack_services_get_both_prefer_both_or_fail() {
    let v4_only = || Cluster::default().pool("lan", &["10.0.0.0/30"]);
    assert_eq!(v4_only().service("web", BOTH).gets("web"), "NoPool");
    assert_eq!(v4_only().service("web", BOTH).any().gets("web"), "10.0.0.0 (lan) short:NoPool");
    let kept = v4_only().service("web", BOTH).has(&["10.0.0.2"], Some("lan"));
    assert_eq!(kept.gets("web"), "10.0.0.2 (lan) PoolExhausted");
    let apart = || v4_only().pool("six", &["2001:db8::/64"]);
    assert_eq!(apart().service("web", BOTH).gets("web"), "PoolExhausted");
    let topped_up = Cluster::default()
        .pool("lan", &["10.0.0.0/30", "2001:db8::/64"])
        .service("web", BOTH)
        .any()
        .has(&["10.0.0.2"], Some("lan"));
    assert_eq!(topped_up.gets("web"), "10.0.0.2 2001:db8:: (lan)");
    let shrunk = v4_only().service("web", V4).has(&["2001:db8::1", "10.0.0.2"], Some("lan"));
    assert_eq!(shrunk.gets("web"), "10.0.0.2 (lan)");
}

#[test]
fn an_exhausted_pool_says_so_and_recovers() {
    let cluster = Cluster::default().pool("lan", &["10.0.0.0/31"]).pool("six", &["2001:db8::/64"]);
    let mut cluster = cluster.service("a", V4).service("b", V4).service("c", V4);
    assert_eq!(cluster.gets("c"), "PoolExhausted");
    assert_eq!(cluster.says("c"), "no free IPv4 address in pool lan: add addresses to a pool");
    cluster.services.remove(&key("a"));
    assert_eq!(cluster.gets("c"), "10.0.0.1 (lan)");
}

#[test]
fn without_any_pool_the_message_says_to_create_one() {
    assert_eq!(Cluster::default().service("web", V4).gets("web"), "NoPool");
}

#[test]
fn addresses_of_nodes_and_under_valid_claims_of_others_are_passed_over() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30"])
        .node("10.0.0.0")
        .claim("10.0.0.1", "web.gone")
        .service("web", V4)
        .service("next", V4);
    assert_eq!(cluster.gets("web"), "10.0.0.2 (lan)");
    assert_eq!(cluster.gets("next"), "10.0.0.3 (lan)");
    let full = cluster.service("last", V4);
    assert_eq!(full.gets("last"), "AddressReleasing");
}

#[test]
fn addresses_of_services_of_others_are_never_given_out() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/31"])
        .foreign("10.0.0.0", "metal")
        .service("web", V4)
        .service("asks", V4)
        .asks(&["10.0.0.0"]);
    assert_eq!(cluster.gets("web"), "10.0.0.1 (lan)");
    assert_eq!(cluster.gets("asks"), "AddressInUse");
    assert_eq!(cluster.plan().pools["lan"].available_v4, 0);
}

#[test]
fn a_claim_does_not_keep_its_own_service_from_its_address() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30"])
        .claim("10.0.0.1", "web.web")
        .service("web", V4)
        .asks(&["10.0.0.1"]);
    assert_eq!(cluster.gets("web"), "10.0.0.1 (lan)");
}

#[test]
fn two_services_that_ask_for_each_others_address_swap_without_sharing_it() {
    let start = Cluster::default()
        .pool("lan", &["10.0.0.0/24"])
        .service("a", V4)
        .asks(&["10.0.0.2"])
        .has(&["10.0.0.1"], Some("lan"))
        .service("b", V4)
        .asks(&["10.0.0.1"])
        .has(&["10.0.0.2"], Some("lan"));
    assert_eq!(start.gets("a"), "AddressReleasing");
    assert_eq!(start.gets("b"), "AddressReleasing");
    let mut freed = start;
    for service in freed.services.values_mut() {
        service.present.clear();
    }
    assert_eq!(freed.gets("a"), "10.0.0.2 (lan)");
    assert_eq!(freed.gets("b"), "10.0.0.1 (lan)");
}

#[test]
fn usage_counts_what_services_hold_and_leaves_nodes_out() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30", "::/0"])
        .node("10.0.0.3")
        .service("a", BOTH)
        .service("b", V4)
        .has(&["172.16.0.1"], Some("gone"));
    let usage = cluster.plan().pools["lan"];
    assert_eq!((usage.assigned_v4, usage.available_v4), (1, 2));
    let reserved = 2 + (1 << 32) + (1 << 118) + (1 << 120);
    assert_eq!((usage.assigned_v6, usage.available_v6), (1, u128::MAX - reserved));
}

#[test]
fn an_address_that_no_host_can_have_is_given_to_nobody_and_kept_by_who_has_it() {
    let nodes = ["10.0.0.130/24", "2001:db8::a/64"];
    let cluster = || {
        Cluster::default().pool("lan", &["10.0.0.254-10.0.0.255", "2001:db8::/127"]).subnets(&nodes)
    };
    let both = cluster().service("web", BOTH);
    assert_eq!(both.gets("web"), "10.0.0.254 2001:db8::1 (lan)");
    let usage = both.plan().pools["lan"];
    assert_eq!((usage.available_v4, usage.available_v6), (0, 0));
    let second = both.clone().service("web2", V4);
    assert_eq!(second.gets("web2"), "PoolExhausted");

    let asks = cluster().service("web", V4).asks(&["10.0.0.255"]);
    assert_eq!(asks.gets("web"), "AddressUnusable");
    assert_eq!(
        asks.decision("web").failure.unwrap().to_string(),
        "no host can use the requested address 10.0.0.255: it is the broadcast address of the \
         nodes' subnet 10.0.0.0/24; request another one"
    );

    let has = cluster().service("web", V4).has(&["10.0.0.255"], Some("lan"));
    assert_eq!(has.gets("web"), "10.0.0.255 (lan)");
    assert_eq!(
        has.decision("web").retained[0].why.to_string(),
        "no host can use it: it is the broadcast address of the nodes' subnet 10.0.0.0/24"
    );
    // Beside it the other one is free.
    assert_eq!(has.plan().pools["lan"].available_v4, 1);
    let reserved = Cluster::default().pool("all", &["0.0.0.0/0"]).service("web", V4);
    assert_eq!(reserved.gets("web"), "1.0.0.0 (all)");
}
