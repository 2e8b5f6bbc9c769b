//! Addresses that were freed a moment ago.

use super::*;

#[test]
fn what_was_freed_of_late_is_given_out_last_the_earliest_first() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30"])
        .rests("10.0.0.0", 20, "gone")
        .rests("10.0.0.1", 10, "gone")
        .service("a", V4)
        .service("b", V4)
        .service("c", V4)
        .service("d", V4)
        .service("e", V4);
    assert_eq!(cluster.gets("a"), "10.0.0.2 (lan)");
    assert_eq!(cluster.gets("b"), "10.0.0.3 (lan)");
    assert_eq!(cluster.gets("c"), "10.0.0.1 (lan)");
    assert_eq!(cluster.gets("d"), "10.0.0.0 (lan)");
    assert_eq!(cluster.gets("e"), "PoolExhausted");
    assert_eq!(cluster.plan().pools["lan"].available_v4, 0);
}

#[test]
fn who_had_it_gets_it_back_at_once() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30"])
        .rests("10.0.0.2", 20, "again")
        .service("other", V4)
        .service("again", V4);
    assert_eq!(cluster.gets("again"), "10.0.0.2 (lan)");
    assert_eq!(cluster.gets("other"), "10.0.0.0 (lan)");
}

#[test]
fn a_request_does_not_wait_for_an_address_to_rest() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/30"])
        .rests("10.0.0.2", 20, "gone")
        .service("web", V4)
        .asks(&["10.0.0.2"]);
    assert_eq!(cluster.gets("web"), "10.0.0.2 (lan)");
}

#[test]
fn what_rests_in_vain_is_passed_over() {
    let cluster = Cluster::default()
        .pool("lan", &["10.0.0.0/29"])
        .rules("lan", |rules| rules.avoid_buggy = true)
        .node("10.0.0.1")
        .claim("10.0.0.2", "web.gone")
        .foreign("10.0.0.4", "metal");
    let cluster = (0..=4).fold(cluster, |it, n| it.rests(&format!("10.0.0.{n}"), 10 + n, "gone"));
    let cluster = cluster
        .service("holds", V4)
        .has(&["10.0.0.3"], Some("lan"))
        .service("a", V4)
        .service("b", V4)
        .service("c", V4)
        .service("d", V4);
    let got: Vec<_> = ["a", "b", "c", "d"].map(|name| cluster.gets(name)).into();
    assert_eq!(got, ["10.0.0.5 (lan)", "10.0.0.6 (lan)", "10.0.0.7 (lan)", "AddressReleasing"]);
}
