//! Addresses that a service keeps although no pool would give them out any more.

use leasehold_crds::pool::Sharing;

use super::*;

/// Why a service keeps what.
fn kept(cluster: &Cluster, name: &str) -> Vec<String> {
    let kept = cluster.decision(name).retained;
    kept.iter().map(|kept| format!("{} although {}", kept.address, kept.why)).collect()
}

/// A service that has an address of pool `lan`.
fn has(cluster: Cluster) -> Cluster {
    cluster.service("web", V4).has(&["10.0.0.0"], Some("lan"))
}

fn lan() -> Cluster {
    Cluster::default().pool("lan", &["10.0.0.0/24"])
}

#[test]
fn an_address_is_kept_whatever_becomes_of_the_pools_and_the_reason_is_told() {
    for (cluster, gets, why) in [
        (has(lan()), "10.0.0.0 (lan)", None),
        (has(lan().on_request_only("lan")), "10.0.0.0 (lan)", None),
        (has(lan().disabled("lan")), "10.0.0.0 (lan)", None),
        (has(Cluster::default().pool("other", &["10.0.0.0/24"])), "10.0.0.0 (other)", None),
        (
            has(Cluster::default()),
            "10.0.0.0 (lan)",
            Some("10.0.0.0 although no IPAddressPool contains it anymore"),
        ),
        (
            has(Cluster::default().pool("lan", &["10.9.0.0/24"])),
            "10.0.0.0 (lan)",
            Some("10.0.0.0 although no IPAddressPool contains it anymore"),
        ),
        (
            has(lan().rules("lan", |rules| rules.avoid_buggy = true)),
            "10.0.0.0 (lan)",
            Some("10.0.0.0 although pool lan excludes addresses that end in .0 or .255"),
        ),
        (
            has(lan().pinned("lan", "blue")),
            "10.0.0.0 (lan)",
            Some("10.0.0.0 although pool lan serves only Services in namespace blue"),
        ),
        (
            has(Cluster::default().pool("other", &["10.0.0.0/24"]).pinned("other", "blue")),
            "10.0.0.0 (other)",
            Some("10.0.0.0 although pool other serves only Services in namespace blue"),
        ),
    ] {
        assert_eq!(cluster.gets("web"), gets, "{why:?}");
        assert_eq!(kept(&cluster, "web"), why.into_iter().collect::<Vec<_>>());
        assert_eq!(cluster.governs("web"), "web.web");
    }
}

#[test]
fn a_request_for_the_pool_holds_although_the_pool_has_lost_the_address() {
    let cluster = has(Cluster::default().pool("other", &["10.0.0.0/24"])).asks_pool("lan");
    assert_eq!(cluster.gets("web"), "10.0.0.0 (lan)");
    assert_eq!(kept(&cluster, "web"), ["10.0.0.0 although it now belongs to pool other"]);
    let named = has(Cluster::default()).asks_pool("lan").asks(&["10.0.0.0"]);
    assert_eq!(named.gets("web"), "10.0.0.0 (lan)");
    let split = Cluster::default()
        .pool("four", &["10.0.0.0/24"])
        .pool("six", &["2001:db8::/64"])
        .service("web", BOTH)
        .has(&["10.0.0.7", "2001:db8::7"], Some("lan"));
    assert_eq!(split.gets("web"), "10.0.0.7 2001:db8::7 (four)");
    let split = split.written();
    assert_eq!(split.gets("web"), "10.0.0.7 2001:db8::7 (four)");
    assert_eq!(kept(&split, "web"), Vec::<String>::new());
}

#[test]
fn a_service_that_changes_what_it_asks_for_gets_that() {
    let other = || has(Cluster::default().pool("other", &["10.1.0.0/24"]));
    assert_eq!(other().gets("web"), "10.0.0.0 (lan)");
    assert_eq!(other().asks_pool("other").gets("web"), "10.1.0.0 (other)");
    assert_eq!(other().asks(&["10.1.0.7"]).gets("web"), "10.1.0.7 (other)");
    assert_eq!(other().asks(&["10.0.0.0"]).gets("web"), "10.0.0.0 (lan)");
}

#[test]
fn an_address_that_we_never_assigned_is_adopted_only_from_a_pool_that_serves_the_service() {
    let with = |cluster: Cluster| {
        cluster
            .pool("spare", &["10.1.0.0/24"])
            .service("web", V4)
            .has(&["10.0.0.0"], None)
            .gets("web")
    };
    assert_eq!(with(lan()), "10.0.0.0 (lan)");
    assert_eq!(with(lan().on_request_only("lan")), "10.0.0.0 (lan)");
    assert_eq!(with(lan().pinned("lan", "blue")), "10.1.0.0 (spare)");
    assert_eq!(with(lan().rules("lan", |rules| rules.scope.closed = true)), "10.1.0.0 (spare)");
    assert_eq!(with(Cluster::default()), "10.1.0.0 (spare)");
}

#[test]
fn reassign_replaces_what_is_kept_and_nothing_else() {
    let spare = |cluster: Cluster| has(cluster.pool("spare", &["10.1.0.0/24"])).reassign();
    for cluster in [
        spare(Cluster::default()),
        spare(lan().rules("lan", |rules| rules.avoid_buggy = true).disabled("lan")),
        spare(lan().pinned("lan", "blue")),
        spare(lan().disabled("lan")),
    ] {
        assert_eq!(cluster.gets("web"), "10.1.0.0 (spare)");
        assert_eq!(kept(&cluster, "web"), Vec::<String>::new());
        assert_eq!(cluster.governs("web"), "web.web");
        let cluster = cluster.written();
        assert_eq!(cluster.gets("web"), "10.1.0.0 (spare)");
    }
    let buggy = has(lan().rules("lan", |rules| rules.avoid_buggy = true)).reassign();
    assert_eq!(buggy.gets("web"), "10.0.0.1 (lan)");
    assert_eq!(spare(lan()).gets("web"), "10.0.0.0 (lan)");
}

#[test]
fn what_is_kept_is_given_up_only_for_another() {
    let alone = has(Cluster::default()).reassign();
    assert_eq!(alone.gets("web"), "10.0.0.0 (lan)");
    let stuck = alone.decision("web").stuck.map(|failure| failure.reason());
    assert_eq!(stuck, Some("NoPool"));

    let named = has(Cluster::default().pool("spare", &["10.1.0.0/24"])).asks(&["10.0.0.0"]);
    let named = named.reassign();
    assert_eq!(named.gets("web"), "10.0.0.0 (lan)");
    let stuck = named.decision("web").stuck.unwrap().to_string();
    assert!(stuck.contains("requests 10.0.0.0 explicitly"), "{stuck}");

    let both = Cluster::default()
        .pool("spare", &["10.1.0.0/24"])
        .service("web", BOTH)
        .any()
        .has(&["10.0.0.7", "2001:db8::7"], Some("lan"))
        .reassign();
    assert_eq!(both.gets("web"), "10.0.0.7 2001:db8::7 (lan)");
    assert_eq!(both.decision("web").stuck.map(|failure| failure.reason()), Some("NoPool"));
    assert_eq!(both.pool("wide", &["10.2.0.0/24", "2001:db8:2::/64"]).gets("web"), {
        "10.2.0.0 2001:db8:2:: (wide)"
    });
}

#[test]
fn only_the_family_that_no_pool_offers_is_replaced() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/24", "2001:db8::/64"])
        .rules("lan", |rules| rules.avoid_buggy = true)
        .service("web", BOTH)
        .has(&["10.0.0.0", "2001:db8::7"], Some("lan"))
        .reassign();
    assert_eq!(cluster.gets("web"), "10.0.0.1 2001:db8::7 (lan)");
}

#[test]
fn those_that_share_go_on_sharing_when_the_pool_stops_to_allow_it() {
    let cluster = |sharing| {
        Cluster::default()
            .pool("lan", &["10.0.0.0/24"])
            .rules("lan", |rules| rules.sharing = sharing)
            .service("one/a", V4)
            .shares(&[80])
            .has(&["10.0.0.0"], Some("lan"))
            .service("two/b", V4)
            .shares(&[443])
            .has(&["10.0.0.0"], Some("lan"))
            .under("one.a")
    };
    assert_eq!(kept(&cluster(Sharing::AnyNamespace), "two/b"), Vec::<String>::new());
    let stopped = cluster(Sharing::SameNamespace);
    assert_eq!(stopped.gets("one/a"), "10.0.0.0 (lan)");
    assert_eq!(stopped.gets("two/b"), "10.0.0.0 (lan)");
    assert_eq!(kept(&stopped, "one/a"), Vec::<String>::new());
    assert_eq!(
        kept(&stopped, "two/b"),
        ["10.0.0.0 although pool lan allows sharing only within one namespace"]
    );
    assert_eq!(stopped.reassign().gets("two/b"), "10.0.0.1 (lan)");
    // Never ours to share: the younger loses it.
    let forged = cluster(Sharing::SameNamespace).under("two.b");
    assert_eq!(forged.gets("two/b"), "10.0.0.1 (lan)");
}
