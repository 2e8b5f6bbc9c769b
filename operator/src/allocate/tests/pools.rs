//! Which pool serves whom.

use kube::core::Selector;
use leasehold_crds::pool::Sharing;

use super::*;

fn selector(key: &'static str, value: &'static str) -> Vec<Selector> {
    vec![Selector::from_iter([(key, value)])]
}

#[test]
fn pinned_pools_come_before_general_ones_then_priority_then_name() {
    let cluster = || {
        Cluster::default()
            .pool("a", &["10.1.0.0/24"])
            .pool("b", &["10.2.0.0/24"])
            .pool("c", &["10.3.0.0/32"])
            .rules("c", |rules| rules.scope.priority = 20)
            .pool("d", &["10.4.0.0/32"])
            .rules("d", |rules| rules.scope.priority = 10)
            .pool("pinned", &["10.5.0.0/32"])
            .pinned("pinned", "web")
    };
    let full = (0..5).fold(cluster(), |cluster, n| cluster.service(&n.to_string(), V4));
    let got: Vec<_> = (0..5).map(|n| full.gets(&n.to_string())).collect();
    assert_eq!(
        got,
        ["10.5.0.0 (pinned)", "10.4.0.0 (d)", "10.3.0.0 (c)", "10.1.0.0 (a)", "10.1.0.1 (a)",]
    );
    assert_eq!(cluster().service("other/web", V4).gets("other/web"), "10.4.0.0 (d)");
}

#[test]
fn a_pool_serves_only_those_that_its_selectors_admit_also_on_request() {
    let cluster = |namespace: &[(&str, &str)], service: &[(&str, &str)]| {
        let mut cluster = Cluster::default()
            .namespace("web", namespace)
            .pool("pinned", &["10.5.0.0/24"])
            .rules("pinned", |rules| {
                rules.scope.namespace_selectors = selector("team", "blue");
                rules.scope.service_selectors = selector("app", "shop");
            })
            .service("web", V4);
        cluster.last().labels = labels(service);
        cluster
    };
    let (blue, shop): (&[_], &[_]) = (&[("team", "blue")], &[("app", "shop")]);
    assert_eq!(cluster(blue, shop).gets("web"), "10.5.0.0 (pinned)");
    for (namespace, service) in [(&[][..], shop), (blue, &[][..]), (&[], &[])] {
        let refused = cluster(namespace, service);
        assert_eq!(refused.gets("web"), "NoPool");
        assert_eq!(
            refused.says("web"),
            "no IPAddressPool gives this Service an IPv4 address: pool pinned serves only Services \
             with labels app=shop in namespaces with labels team=blue: change one of these pools, or \
             add a pool"
        );
        let asks = [
            cluster(namespace, service).asks(&["10.5.0.7"]),
            cluster(namespace, service).asks_pool("pinned"),
        ];
        for asks in asks {
            assert_eq!(asks.gets("web"), "NotAdmitted");
            assert_eq!(
                asks.says("web"),
                "pool pinned serves only Services with labels app=shop in namespaces with labels \
                 team=blue: request an address of another pool, or change spec.serviceAllocation of \
                 the pool"
            );
        }
    }
}

#[test]
fn a_service_waits_for_the_labels_of_its_namespace_rather_than_take_another_pool() {
    let cluster = || {
        Cluster::default()
            .pool("general", &["10.0.0.0/24"])
            .pool("pinned", &["10.5.0.0/24"])
            .rules("pinned", |rules| rules.scope.namespace_selectors = selector("team", "blue"))
            .service("web", V4)
    };
    let unseen = cluster();
    assert_eq!(unseen.gets("web"), "NamespaceUnseen");
    assert!(unseen.decision("web").failure.is_some_and(|failure| failure.passes()));
    assert_eq!(cluster().asks(&["10.0.0.7"]).gets("web"), "10.0.0.7 (general)");
    assert_eq!(cluster().namespace("web", &[]).gets("web"), "10.0.0.0 (general)");
    assert_eq!(cluster().namespace("web", &[("team", "blue")]).gets("web"), "10.5.0.0 (pinned)");
}

#[test]
fn a_pool_with_a_selector_that_cannot_be_read_serves_nobody() {
    let cluster = || {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .rules("lan", |rules| rules.scope.closed = true)
            .service("web", V4)
    };
    assert_eq!(cluster().gets("web"), "NoPool");
    assert_eq!(cluster().asks(&["10.0.0.7"]).gets("web"), "NotAdmitted");
    assert!(cluster().says("web").contains("until the invalid selector in its serviceAllocation"));
}

#[test]
fn a_disabled_pool_gives_out_nothing_and_takes_nothing_away() {
    let cluster = || Cluster::default().pool("lan", &["10.0.0.0/24"]).disabled("lan");
    let silent = cluster().service("web", V4);
    assert_eq!(silent.gets("web"), "NoPool");
    assert!(silent.says("web").contains("pool lan is disabled"), "{}", silent.says("web"));
    for asks in [
        cluster().service("web", V4).asks(&["10.0.0.7"]),
        cluster().service("web", V4).asks_pool("lan"),
    ] {
        assert_eq!(asks.gets("web"), "PoolDisabled");
        assert!(asks.says("web").contains("set spec.disabled of the pool to false"));
    }
    let has = cluster().service("web", V4).has(&["10.0.0.7"], Some("lan"));
    assert_eq!(has.gets("web"), "10.0.0.7 (lan)");
    assert_eq!(has.decision("web").retained, []);
    let adopted = cluster().service("web", V4).has(&["10.0.0.7"], None);
    assert_eq!(adopted.gets("web"), "10.0.0.7 (lan)");
    let lacks = Cluster::default()
        .pool("lan", &["10.0.0.0/24", "2001:db8::/64"])
        .disabled("lan")
        .service("web", BOTH)
        .any()
        .has(&["10.0.0.7"], Some("lan"));
    assert_eq!(lacks.gets("web"), "10.0.0.7 (lan) short:PoolDisabled");
}

#[test]
fn a_service_that_asks_for_a_pool_gets_an_address_of_it_or_nothing() {
    let cluster = || {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .pool("kept", &["10.1.0.0/31"])
            .on_request_only("kept")
            .service("web", V4)
    };
    assert_eq!(cluster().asks_pool("kept").gets("web"), "10.1.0.0 (kept)");
    assert_eq!(cluster().asks_pool("kept").asks(&["10.1.0.1"]).gets("web"), "10.1.0.1 (kept)");
    let apart = cluster().asks_pool("kept").asks(&["10.0.0.7"]);
    assert_eq!(apart.gets("web"), "ContradictoryRequest");
    assert_eq!(
        apart.says("web"),
        "leasehold.dev/address-pool requests pool kept, but the requested address 10.0.0.7 is in \
         pool lan: request an address of pool kept, or remove one of the two requests"
    );
    let unknown = cluster().asks_pool("wan");
    assert_eq!(unknown.gets("web"), "UnknownPool");
    assert_eq!(
        unknown.says("web"),
        "leasehold.dev/address-pool requests pool wan, which does not exist: request one of kept, \
         lan, or create it"
    );
    let full = cluster().asks_pool("kept").service("b", V4).asks_pool("kept").service("c", V4);
    let full = full.asks_pool("kept");
    assert_eq!(full.gets("c"), "PoolExhausted");
    assert_eq!(full.says("c"), "pool kept has no free IPv4 address: add addresses to it");
}

#[test]
fn a_request_for_another_pool_moves_the_service() {
    let cluster = |pool: &str| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .pool("kept", &["10.1.0.0/32"])
            .service("old", V4)
            .asks_pool("kept")
            .has(&["10.1.0.0"], Some("kept"))
            .service("web", V4)
            .asks_pool(pool)
            .has(&["10.0.0.7"], Some("lan"))
            .gets("web")
    };
    assert_eq!(cluster("lan"), "10.0.0.7 (lan)");
    // As with a request for an address: what has become wrong is taken back, but not by a typing error.
    assert_eq!(cluster("kept"), "PoolExhausted");
    assert_eq!(cluster("wan"), "10.0.0.7 (lan) UnknownPool");
}

#[test]
fn addresses_that_old_equipment_drops_are_left_out() {
    let cluster = || {
        Cluster::default()
            .pool("lan", &["10.0.0.255-10.0.1.1", "2001:db8::/127"])
            .rules("lan", |rules| rules.avoid_buggy = true)
            .service("web", V4)
    };
    assert_eq!(cluster().gets("web"), "10.0.1.1 (lan)");
    let usage = cluster().plan().pools["lan"];
    assert_eq!((usage.assigned_v4, usage.available_v4, usage.available_v6), (1, 0, 2));
    let asks = cluster().asks(&["10.0.1.0"]);
    assert_eq!(asks.gets("web"), "AddressLeftOut");
    assert!(asks.says("web").contains("because it ends in .0 or .255 (avoidBuggyIPs)"));
    let six = cluster().service("six", V6);
    assert_eq!(six.gets("six"), "2001:db8:: (lan)");
    let kept = cluster().has(&["10.0.0.255"], Some("lan"));
    let usage = kept.plan().pools["lan"];
    assert_eq!((usage.assigned_v4, usage.available_v4), (1, 1));
}

#[test]
fn the_second_family_is_from_the_pool_of_the_first() {
    let cluster = |anchor: &str| {
        Cluster::default()
            .pool("a", &["10.0.0.0/24", "2001:db8:a::/64"])
            .pool("b", &["10.1.0.0/24", "2001:db8:b::/64"])
            .service("web", BOTH)
            .any()
            .has(&["10.9.0.1"], Some(anchor))
    };
    // The address is none of the pool's any more; the pool is.
    assert_eq!(cluster("b").gets("web"), "10.9.0.1 2001:db8:b:: (b)");
    let gone = cluster("gone");
    assert_eq!(gone.gets("web"), "10.9.0.1 (gone) short:NoPool");
    assert!(gone.says("web").contains("pool gone does not exist anymore"), "{}", gone.says("web"));
}

#[test]
fn many_pools_are_not_all_named() {
    let cluster = (0..10).fold(Cluster::default(), |cluster, n| {
        let name = format!("pool-{n}");
        cluster.pool(&name, &[&format!("10.{n}.0.0/24")]).disabled(&name)
    });
    let says = cluster.service("web", V4).says("web");
    assert!(says.contains("pool pool-7 is disabled; and 2 more: change"), "{says}");
}

#[test]
fn who_may_share_is_a_rule_of_the_pool() {
    let cluster = |sharing| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .rules("lan", |rules| rules.sharing = sharing)
            .service("one/a", V4)
            .shares(&[80])
            .service("two/b", V4)
            .shares(&[443])
            .asks(&["10.0.0.0"])
    };
    assert_eq!(cluster(Sharing::AnyNamespace).gets("two/b"), "10.0.0.0 (lan)");
    let refused = cluster(Sharing::SameNamespace);
    assert_eq!(refused.gets("two/b"), "AddressInUse");
    assert_eq!(
        refused.says("two/b"),
        "the requested address 10.0.0.0 belongs to Service one/a of another namespace: request \
         another one, or set spec.sharing of pool lan to AnyNamespace"
    );
}
