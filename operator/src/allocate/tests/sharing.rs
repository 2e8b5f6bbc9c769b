//! Services that have one address together.

use super::*;

fn lan() -> Cluster {
    Cluster::default().pool("lan", &["10.0.0.0/24", "2001:db8::/64"])
}

fn local(cluster: Cluster, app: &str) -> Cluster {
    let mut cluster = cluster;
    let terms = cluster.last().sharing.as_mut().unwrap();
    terms.traffic = Traffic::Local(labels(&[("app", app)]));
    cluster
}

fn other_key(cluster: Cluster) -> Cluster {
    let mut cluster = cluster;
    "l".clone_into(&mut cluster.last().sharing.as_mut().unwrap().key.what);
    cluster
}

fn udp(cluster: Cluster) -> Cluster {
    let mut cluster = cluster;
    let terms = cluster.last().sharing.as_mut().unwrap();
    let ports = terms.ports.iter();
    terms.ports = ports.map(|port| Port { protocol: Protocol::Udp, ..*port }).collect();
    cluster
}

#[test]
fn services_of_one_key_join_where_their_ports_fit_under_one_claim() {
    let cluster = lan()
        .service("a", V4)
        .shares(&[80])
        .service("b", V4)
        .shares(&[443])
        .service("c", V4)
        .shares(&[80, 8080])
        .service("d", V4)
        .shares(&[8080]);
    let got = |cluster: &Cluster| {
        ["a", "b", "c", "d"].map(|name| format!("{} {}", cluster.gets(name), cluster.governs(name)))
    };
    let expected = [
        "10.0.0.0 (lan) web.a",
        "10.0.0.0 (lan) web.a",
        "10.0.0.1 (lan) web.c",
        "10.0.0.0 (lan) web.a",
    ];
    assert_eq!(got(&cluster), expected);
    assert_eq!(cluster.plan().pools["lan"].assigned_v4, 2);
    let cluster = cluster.written();
    assert_eq!(got(&cluster), expected);
}

#[test]
fn a_request_for_the_address_of_another_is_met_or_says_why_not() {
    let a = || lan().service("a", V4).shares(&[80]).service("b", V4);
    let belongs = "the requested address 10.0.0.0 belongs to Service web/a";
    for (cluster, gets, says) in [
        (a().shares(&[443]), "10.0.0.0 (lan)", String::new()),
        (udp(a().shares(&[80])), "10.0.0.0 (lan)", String::new()),
        (
            a(),
            "AddressInUse",
            format!(
                "{belongs}: request another one, or set the annotation leasehold.dev/shared-address \
                 of both to the same key"
            ),
        ),
        (
            other_key(a().shares(&[443])),
            "AddressInUse",
            format!(
                "{belongs}, which shares it with the key `k`, not `l`: request another one, or use \
                 the same key"
            ),
        ),
        (
            a().shares(&[443, 80]),
            "AddressInUse",
            format!(
                "{belongs}, which also uses port 80/TCP: request another one, or use different ports"
            ),
        ),
        (
            local(a().shares(&[443]), "web"),
            "AddressInUse",
            format!(
                "{belongs}; Services that share an address must all have externalTrafficPolicy \
                 Cluster, or all Local with the same selector in one namespace: request another one, \
                 or change these fields"
            ),
        ),
    ] {
        let cluster = cluster.asks(&["10.0.0.0"]);
        assert_eq!(cluster.gets("b"), gets);
        assert_eq!(cluster.says("b"), says);
    }
}

#[test]
fn local_services_share_only_with_the_same_selector_in_one_namespace() {
    let cluster = |second: &str, app: &str| {
        let cluster = lan().rules("lan", |rules| {
            rules.sharing = leasehold_crds::pool::Sharing::AnyNamespace;
        });
        let cluster = local(cluster.service("a", V4).shares(&[80]), "web");
        local(cluster.service(second, V4).shares(&[443]), app).gets(second)
    };
    assert_eq!(cluster("b", "web"), "10.0.0.0 (lan)");
    assert_eq!(cluster("b", "api"), "10.0.0.1 (lan)");
    assert_eq!(cluster("other/b", "web"), "10.0.0.1 (lan)");
}

#[test]
fn the_claim_stays_as_long_as_anybody_has_the_address_under_it() {
    let shared = lan().service("a", V4).shares(&[80]).service("b", V4).shares(&[443]).written();
    let mut left = shared;
    left.services.remove(&key("a"));
    assert_eq!(left.governs("b"), "web.a");
    // The name is in use: the service that bears it takes another, also when it joins nobody.
    let back = left.service("a", V4);
    assert_eq!(back.gets("a"), "10.0.0.1 (lan)");
    assert_eq!(back.governs("a"), "10-0-0-1.address.leasehold");
    let back = back.written();
    assert_eq!((back.governs("a"), back.governs("b")), {
        ("10-0-0-1.address.leasehold".to_owned(), "web.a".to_owned())
    });
    let joined = back.service("c", V4).shares(&[80]).asks(&["10.0.0.0"]);
    assert_eq!(joined.governs("c"), "web.a");
}

#[test]
fn a_key_on_a_lone_service_changes_nothing() {
    let lone = lan().service("a", V4).has(&["10.0.0.7"], Some("lan"));
    let before = lone.decision("a");
    assert_eq!(lone.shares(&[80]).decision("a"), before);
}

#[test]
fn of_those_that_cannot_share_any_more_the_younger_gets_another() {
    let shared = lan().service("a", V4).shares(&[80]).service("b", V4).shares(&[443]).written();
    assert_eq!(shared.gets("b"), "10.0.0.0 (lan)");
    let clash = |change: fn(Cluster) -> Cluster| {
        let cluster = change(
            lan()
                .service("a", V4)
                .shares(&[80])
                .has(&["10.0.0.0"], Some("lan"))
                .service("b", V4)
                .shares(&[443])
                .has(&["10.0.0.0"], Some("lan"))
                .under("web.a"),
        );
        assert_eq!(cluster.gets("a"), "10.0.0.0 (lan)");
        assert_eq!(cluster.governs("a"), "web.a");
        (cluster.gets("b"), cluster.governs("b"))
    };
    let another = ("10.0.0.1 (lan)".to_owned(), "web.b".to_owned());
    assert_eq!(clash(|it| it.shares(&[80])), another);
    assert_eq!(clash(other_key), another);
    assert_eq!(clash(|it| local(it, "web")), another);
    assert_eq!(
        clash(|mut it| {
            it.last().sharing = None;
            it
        }),
        another
    );
}

/// Why `name` does not share the address of the others of its key.
fn apart(cluster: &Cluster, name: &str) -> String {
    cluster.decision(name).apart.map(|apart| apart.to_string()).unwrap_or_default()
}

#[test]
fn who_does_not_share_the_address_of_the_elder_says_why_for_as_long_as_that_is_so() {
    let a = || lan().service("a", V4).shares(&[80]).service("b", V4);
    assert_eq!(apart(&a().shares(&[443]), "b"), "");
    let port = a().shares(&[443, 80]).written();
    assert_eq!(port.gets("b"), "10.0.0.1 (lan)");
    assert_eq!(
        apart(&port, "b"),
        "10.0.0.0 is not shared with Service web/a: both use port 80/TCP"
    );
    assert_eq!(apart(&port, "a"), "", "the elder has nothing to explain");
    let policy = "10.0.0.0 is not shared with Service web/a: Services that share an address must all \
                  have externalTrafficPolicy Cluster, or all Local with the same selector in one \
                  namespace";
    assert_eq!(apart(&local(a().shares(&[443]), "web"), "b"), policy);
    // Another key or none, and another namespace, are what they asked for.
    assert_eq!(apart(&other_key(a().shares(&[80])), "b"), "");
    assert_eq!(apart(&a(), "b"), "");
    let far = lan().service("a", V4).shares(&[80]).service("other/b", V4).shares(&[80]);
    assert_eq!(apart(&far, "other/b"), "");
    // It could share it, and has another of its own: a key alone moves nothing.
    let own = a().shares(&[443]).has(&["10.0.0.9"], Some("lan"));
    assert_eq!(apart(&own, "b"), "");
}

#[test]
fn who_asked_for_an_address_that_it_cannot_share_any_more_waits_and_the_elder_keeps_it() {
    let changed = |change: fn(Cluster) -> Cluster| {
        let cluster = lan()
            .service("a", V4)
            .shares(&[80])
            .has(&["10.0.0.7"], Some("lan"))
            .service("b", V4)
            .shares(&[443])
            .asks(&["10.0.0.7"])
            .has(&["10.0.0.7"], Some("lan"))
            .under("web.a");
        change(cluster)
    };
    assert_eq!(changed(|it| it).gets("b"), "10.0.0.7 (lan)");
    for clash in
        [changed(|it| it.shares(&[80])), changed(|it| local(it, "web")), changed(other_key)]
    {
        assert_eq!((clash.gets("a"), clash.gets("b")), {
            ("10.0.0.7 (lan)".to_owned(), "AddressInUse".to_owned())
        });
        assert!(
            clash.says("b").starts_with("the requested address 10.0.0.7 belongs to Service web/a")
        );
        assert_eq!(clash.decision("b").lost.len(), 1, "it is told that it lost it, and to whom");
        // Nor does that change anything for the elder, or come back by itself.
        let written = clash.written();
        assert_eq!((written.gets("a"), written.gets("b")), {
            ("10.0.0.7 (lan)".to_owned(), "AddressInUse".to_owned())
        });
    }
}

#[test]
fn when_the_elder_changes_the_others_go_on_together() {
    let shared = || {
        let mut cluster = lan();
        for (name, ports) in [("a", [80]), ("b", [443]), ("c", [8080])] {
            cluster = cluster.service(name, V4).shares(&ports).has(&["10.0.0.0"], Some("lan"));
            if name != "a" {
                cluster = cluster.under("web.a");
            }
        }
        cluster
    };
    let mut moved = shared();
    let terms = moved.services.get_mut(&key("a")).unwrap().sharing.as_mut().unwrap();
    terms.traffic = Traffic::Local(labels(&[("app", "web")]));
    let got = |cluster: &Cluster| ["a", "b", "c"].map(|name| cluster.gets(name));
    let expected = ["10.0.0.0 (lan)", "10.0.0.1 (lan)", "10.0.0.1 (lan)"];
    assert_eq!(got(&moved), expected);
    assert_eq!((moved.governs("b"), moved.governs("c")), {
        ("web.b".to_owned(), "web.b".to_owned())
    });
    assert_eq!(got(&moved.written()), expected);
}

#[test]
fn both_families_are_joined_or_drawn_under_one_claim() {
    let cluster = lan()
        .service("a", BOTH)
        .shares(&[80])
        .service("b", BOTH)
        .shares(&[443])
        .service("four", V4)
        .shares(&[8080])
        .service("six", V6)
        .shares(&[8080]);
    assert_eq!(cluster.gets("b"), "10.0.0.0 2001:db8:: (lan)");
    assert_eq!(cluster.gets("six"), "2001:db8:: (lan)");
    for name in ["a", "b", "four", "six"] {
        assert_eq!(cluster.governs(name), "web.a");
    }
    let widens = lan().service("a", V4).shares(&[80]).service("b", BOTH).shares(&[443]);
    assert_eq!(widens.gets("b"), "10.0.0.0 2001:db8:: (lan)");
    assert_eq!(widens.governs("b"), "web.a");
}

#[test]
fn addresses_under_two_claims_are_not_for_one_service() {
    let cluster = lan()
        .service("a", V4)
        .shares(&[80])
        .asks(&["10.0.0.1"])
        .service("b", V6)
        .shares(&[80])
        .asks(&["2001:db8::1"])
        .service("c", BOTH)
        .shares(&[443]);
    let both = cluster.asks(&["10.0.0.1", "2001:db8::1"]);
    assert_eq!(both.gets("c"), "ContradictoryRequest");
    assert_eq!(
        both.says("c"),
        "the addresses of a Service belong to one claim, but 10.0.0.1 belongs to claim web.a and \
         2001:db8::1 to claim web.b: request addresses of the same Service"
    );
    let one = both.asks(&["2001:db8::1"]);
    assert_eq!(one.gets("c"), "10.0.0.0 2001:db8::1 (lan)");
    assert_eq!(one.governs("c"), "web.b");
}

#[test]
fn who_has_an_address_of_its_own_does_not_leave_it_for_others() {
    let cluster = lan()
        .service("a", V4)
        .shares(&[80])
        .has(&["10.0.0.7"], Some("lan"))
        .service("b", V4)
        .shares(&[443])
        .has(&["10.0.0.8"], Some("lan"));
    assert_eq!(cluster.gets("b"), "10.0.0.8 (lan)");
    let moved = cluster.asks(&["10.0.0.7"]);
    assert_eq!((moved.gets("b"), moved.governs("b")), {
        ("10.0.0.7 (lan)".to_owned(), "web.a".to_owned())
    });
}

#[test]
fn nobody_joins_where_the_pool_would_give_nothing() {
    let b = |cluster: Cluster| {
        let cluster = cluster
            .pool("spare", &["10.1.0.0/24"])
            .service("a", V4)
            .shares(&[80])
            .has(&["10.0.0.0"], Some("lan"));
        cluster.service("b", V4).shares(&[443]).gets("b")
    };
    assert_eq!(b(lan()), "10.0.0.0 (lan)");
    assert_eq!(b(lan().on_request_only("lan")), "10.0.0.0 (lan)");
    for closed in [
        lan().disabled("lan"),
        lan().pinned("lan", "blue"),
        lan().rules("lan", |rules| rules.avoid_buggy = true).on_request_only("lan"),
        Cluster::default(),
    ] {
        assert_eq!(b(closed), "10.1.0.0 (spare)");
    }
}

#[test]
fn a_port_is_free_for_others_only_when_who_gives_it_up_has_done_so() {
    let cluster = || {
        lan()
            .service("a", V4)
            .shares(&[80])
            .has(&["10.0.0.0"], Some("lan"))
            .service("moves", V4)
            .shares(&[443])
            .has(&["10.0.0.0"], Some("lan"))
            .under("web.a")
            .asks(&["10.0.0.9"])
    };
    let waits = cluster().service("b", V4).shares(&[443]).asks(&["10.0.0.0"]);
    assert_eq!(waits.gets("moves"), "10.0.0.9 (lan)");
    assert_eq!(waits.gets("b"), "AddressReleasing");
    assert_eq!(waits.written().gets("b"), "10.0.0.0 (lan)");
    let fits = cluster().service("b", V4).shares(&[8443]).asks(&["10.0.0.0"]);
    assert_eq!(fits.gets("b"), "10.0.0.0 (lan)");
}

#[test]
fn a_record_that_somebody_edited_does_not_change_the_claim() {
    let b = |recorded: &str| {
        lan()
            .service("a", V4)
            .has(&["10.0.0.0"], Some("lan"))
            .claim("10.0.0.0", "web.a")
            .service("b", V4)
            .has(&["10.0.0.1"], Some("lan"))
            .under(recorded)
            .claim("10.0.0.1", "web.b")
    };
    assert_eq!(b("web.b").governs("b"), "web.b");
    assert_eq!(b("web.a").governs("b"), "web.b");
    let mut stripped = b("web.b");
    stripped.last().claim = None;
    assert_eq!(stripped.governs("b"), "web.b");
    // A copy of a Service brings along a record that is not its own.
    let copied = b("web.b").service("copy", V4).under("web.a");
    assert_eq!(copied.governs("copy"), "web.copy");
}

#[test]
fn services_that_come_along_with_one_address_get_one_claim() {
    let cluster = lan()
        .service("a", BOTH)
        .shares(&[80])
        .has(&["10.0.0.7", "2001:db8::7"], None)
        .service("b", BOTH)
        .shares(&[443])
        .has(&["10.0.0.7", "2001:db8::7"], None);
    assert_eq!(cluster.gets("b"), "10.0.0.7 2001:db8::7 (lan)");
    assert_eq!((cluster.governs("a"), cluster.governs("b")), {
        ("web.a".to_owned(), "web.a".to_owned())
    });
}
