//! The condition `leasehold.dev/Announced`: its owner and its reasons.

use leasehold_crds::lease::Record as _;

use super::*;

/// A Service with an address, and the nodes of the cluster.
struct Scene {
    index: Index,
    shop: Value,
    version: u64,
}

fn after(milliseconds: u64) -> Instant {
    START + Duration::from_millis(milliseconds)
}

fn node(name: &str, version: u64, cordoned: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "spec": {"unschedulable": cordoned},
    })
}

impl Scene {
    fn new() -> Self {
        let nodes = ["node-1", "node-2", "node-3"].map(|name| node(name, 1, name == "node-3"));
        let pools = vec![pool("lan", &["10.0.0.1-10.0.0.3"])];
        let services = vec![service("shop", 7)];
        let mut index = World { services, pools, nodes: nodes.into(), ..World::default() }.index();
        let (_, patch, _) = service_jobs(&index).remove(0);
        let shop = patched(service("shop", 7), &patch, 8);
        index.apply(Change::Service(applied(shop.clone())), START);
        own(&mut index, "web.shop", "10.0.0.1", 9, START);
        Self { index, shop, version: 50 }
    }

    /// The session of this node lives, or ends.
    fn session(&mut self, name: &str, transitions: i32, lives: bool, now: Instant) {
        self.version += 1;
        let says = json!({
            "leasehold.dev/interfaces":
                r#"[{"name":"eth0","mac":"02:00:00:00:00:01","addresses":["10.0.0.9/24"]}]"#,
        });
        let lease = lease(name, self.version, lives.then_some(name), transitions, &says);
        self.index.apply(Change::Session(applied(lease)), now);
    }

    fn node(&mut self, name: &str, cordoned: bool, now: Instant) {
        self.version += 1;
        self.index.apply(Change::Node(applied(node(name, self.version, cordoned))), now);
    }

    /// Carries out the writes that are due at `now`; returns the condition and the events.
    fn told(&mut self, now: Instant) -> Option<(String, Vec<String>)> {
        self.index.forget(now);
        self.index.open_due(now);
        let jobs = service_jobs_at(&self.index, now);
        let (_, patch, _) = jobs.first()?;
        self.version += 1;
        self.shop = patched(self.shop.clone(), patch, self.version);
        self.index.apply(Change::Service(applied(self.shop.clone())), now);
        silence(&jobs)
    }
}

#[test]
fn who_announces_a_service_is_told_a_second_after_it_has_changed() {
    let mut scene = Scene::new();
    assert_eq!(scene.index.reported_at(START), Some(after(1000)));
    assert_eq!(scene.told(after(999)), None);
    let says = "Announced: node-1 announces 10.0.0.1";
    assert_eq!(scene.told(after(1000)), Some((says.to_owned(), vec![])));
    assert_eq!(scene.told(after(1001)), None);
    // Renewed, it is no news.
    scene.session("node-1", 3, true, after(5000));
    assert_eq!(scene.told(after(9000)), None);
}

#[test]
fn an_owner_that_does_not_answer_its_clients_says_what_to_do() {
    let mut scene = Scene::new();
    scene.told(after(1000));
    let says = |more: &str| {
        json!({ "leasehold.dev/interfaces": format!(
            r#"[{{"name":"eth0","mac":"02:00:00:00:00:01","addresses":["10.0.0.9/24"]{more}}}]"#
        ) })
    };
    let say = |scene: &mut Scene, more: &str, now| {
        scene.version += 1;
        let lease = lease("node-1", scene.version, Some("node-1"), 3, &says(more));
        scene.index.apply(Change::Session(applied(lease)), now);
    };
    let on = json!({ "leasehold.dev/addresses": "10.0.0.1", "leasehold.dev/interface": "eth0",
        "leasehold.dev/session": "uid of node-1/3" });
    let claim = lease("web.shop", 40, Some("node-1"), 1, &on);
    scene.index.apply(Change::Claim(applied(claim)), after(1000));
    say(&mut scene, r#","bypassed":["10.0.0.0/24"]"#, after(1000));
    let says_on = "Announced: node-1 announces 10.0.0.1 on eth0".to_owned();
    // It answers by another interface.
    assert_eq!(scene.told(after(4000)), Some((says_on.clone(), vec![])));
    let unanswered = r#","bypassed":["10.0.0.0/24"],"unanswered":["10.0.0.0/24"]"#;
    say(&mut scene, unanswered, after(5000));
    let says = "node-1 announces 10.0.0.1 on eth0, and the node does not answer hosts of 10.0.0.0/24 on \
                eth0: its route to them uses another interface, and rp_filter is 1; set returnPath: \
                Symmetric in the policy, change the route to use eth0, or set \
                net.ipv4.conf.eth0.rp_filter=2 on the node";
    let events = vec![format!("NotAnnounced: {says}")];
    assert_eq!(scene.told(after(6000)), Some((format!("ClientsNotAnswered: {says}"), events)));
    say(&mut scene, "", after(7000));
    assert_eq!(scene.told(after(8000)), Some((says_on, vec![])));
}

#[test]
fn that_nobody_owns_an_address_is_told_also_while_nodes_change_all_the_time() {
    let mut scene = Scene::new();
    scene.told(after(1000));
    scene.session("node-1", 4, false, after(3000));
    let mut told = None;
    for second in 4..=8 {
        scene.node("node-2", second % 2 == 0, after(second * 1000));
        told = told.or(scene.told(after(second * 1000 + 1)));
        let next = scene.index.reported_at(after(second * 1000 + 1));
        assert!(told.is_some() || next.is_some_and(|at| at <= after(8000)), "{second}: {next:?}");
    }
    let (says, _) = told.unwrap();
    assert!(says.starts_with("NoOwner: no node announces 10.0.0.1: "), "{says}");
}

#[test]
fn where_nobody_owns_an_address_each_node_says_why_not() {
    let mut scene = Scene::new();
    scene.told(after(1000));
    scene.session("node-1", 4, false, after(3000));
    assert_eq!(scene.told(after(4999)), None, "somebody may take it");
    let says = "no node announces 10.0.0.1: node-1: no live session: the session ended; node-2: no \
                session: no speaker has run on the node; node-3: cordoned: takes no addresses";
    let told = scene.told(after(5000));
    let events = vec![format!("NotAnnounced: {says}")];
    assert_eq!(told, Some((format!("NoOwner: {says}"), events)));
    assert_eq!(scene.told(after(9000)), None);

    // For another reason now, which is no event.
    scene.node("node-2", true, after(10_000));
    let says = "NoOwner: no node announces 10.0.0.1: node-1: no live session: the session ended; \
                node-2, node-3: cordoned: takes no addresses";
    assert_eq!(scene.told(after(12_000)), Some((says.to_owned(), vec![])));

    // One can, and does not.
    scene.node("node-2", false, after(20_000));
    scene.session("node-2", 1, true, after(20_000));
    assert_eq!(scene.told(after(21_999)), None);
    let says = "NoOwner: no node announces 10.0.0.1: node-2 could take them but did not: check the \
                speaker logs there";
    assert_eq!(scene.told(after(22_000)), Some((says.to_owned(), vec![])));

    scene.session("node-1", 3, true, after(30_000));
    let says = "Announced: node-1 announces 10.0.0.1";
    assert_eq!(scene.told(after(31_000)), Some((says.to_owned(), vec![])));
}

#[test]
fn a_new_service_whose_policy_comes_late_is_not_said_to_have_none() {
    let policy = |name: &str, version: u64, app: &str| {
        json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"serviceSelectors": [{"matchLabels": {"app": app}}]},
        })
    };
    let none = "NoPolicy: no node announces the addresses: AnnouncementPolicies exist, but none matches \
                this Service: change or add one";
    for late in [true, false] {
        let pools = vec![pool("lan", &["10.0.0.1-10.0.0.3"])];
        let mut index =
            World { services: vec![service("shop", 7)], pools, ..World::default() }.index();
        index.apply(Change::Policy(applied(policy("other", 8, "other"))), START);
        let (_, patch, notices) = service_jobs(&index).remove(0);
        assert_eq!(notices, ["AddressAssigned: 10.0.0.1 from pool lan"]);
        let mut shop = patched(service("shop", 7), &patch, 9);
        shop["metadata"]["labels"] = json!({"app": "shop"});
        index.apply(Change::Service(applied(shop.clone())), START);
        assert!(service_jobs_at(&index, after(100)).is_empty(), "it has no claim yet");
        let says = json!({ "leasehold.dev/addresses": "10.0.0.1" });
        index.apply(Change::Claim(applied(lease("web.shop", 10, None, 1, &says))), after(200));
        assert!(service_jobs_at(&index, after(2199)).is_empty(), "it is new");
        if late {
            index.apply(Change::Policy(applied(policy("shop", 11, "shop"))), after(2199));
            index.open_due(after(2200));
            let told = silence(&service_jobs_at(&index, after(2200)));
            assert!(told.is_none_or(|(says, _)| says.starts_with("NoOwner")));
            continue;
        }
        index.open_due(after(2200));
        let (says, events) = silence(&service_jobs_at(&index, after(2200))).unwrap();
        assert_eq!((says.as_str(), events.len()), (none, 1));
        // It is said of a Service that had a policy at once.
        let condition = json!({"type": "leasehold.dev/Announced", "status": "True", "reason": "Announced",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        shop["status"]["conditions"].as_array_mut().unwrap().push(condition);
        shop["metadata"]["resourceVersion"] = json!("12");
        index.apply(Change::Service(applied(shop)), after(2200));
        index.apply(
            Change::Claim(applied(lease(
                "web.shop",
                13,
                None,
                2,
                &json!({ "leasehold.dev/addresses": "10.0.0.1,10.0.0.2" }),
            ))),
            after(2200),
        );
        assert_eq!(silence(&service_jobs_at(&index, after(2201))).unwrap().0, none);
    }
}

#[test]
fn what_is_settled_and_unowned_is_looked_at_again_when_nodes_or_sessions_change() {
    let mut scene = Scene::new();
    let settle = |scene: &mut Scene, now| {
        let plan = scene.index.plan();
        let jobs = jobs(&scene.index, &plan, now, Timestamp::UNIX_EPOCH);
        let busy = jobs.iter().map(Job::target).collect();
        scene.index.settle(&plan, &busy, now);
        scene.index.settled()
    };
    // The claim has to list what it governs, and for whom.
    for job in jobs_at(&scene.index, after(1000)) {
        if let Job::List(name, write) = job {
            assert_eq!(write.record.services, ["web/shop"]);
            let mut says = json!(write.record.annotations());
            says["leasehold.dev/session"] = json!("uid of node-1/3");
            let lease = lease(name.as_str(), 30, Some("node-1"), 1, &says);
            scene.index.apply(Change::Claim(applied(lease)), after(1000));
        }
    }
    assert_eq!(settle(&mut scene, after(1000)), 0, "it is not told yet");
    scene.told(after(1000));
    assert_eq!(settle(&mut scene, after(1000)), 1);
    scene.session("node-1", 4, false, after(2000));
    assert_eq!(scene.index.settled(), 0);
    scene.told(after(4000));
    assert_eq!(settle(&mut scene, after(4000)), 1);
    scene.session("node-2", 1, true, after(5000));
    assert_eq!(
        (scene.index.settled(), scene.index.reported_at(after(5000))),
        (1, Some(after(6000)))
    );
    scene.told(after(7000));
    assert_eq!(settle(&mut scene, after(7000)), 1);
    scene.node("node-2", true, after(8000));
    scene.index.open_due(after(9999));
    assert_eq!(scene.index.settled(), 1);
    scene.index.open_due(after(10_000));
    assert_eq!(scene.index.settled(), 0);
}

#[test]
fn a_service_without_an_address_is_announced_by_nobody() {
    let pools = vec![pool("lan", &["10.0.0.0/32"])];
    let services = vec![service("a", 7), service("b", 8)];
    let index = World { services, pools, ..World::default() }.index();
    let jobs = service_jobs(&index);
    let (_, patch, notices) = &jobs[1];
    let condition = &patch["status"]["conditions"][1];
    let failure = "no free IPv4 address in pool lan: add addresses to a pool";
    assert_eq!(condition["type"], "leasehold.dev/Announced");
    assert_eq!(
        (&condition["reason"], condition["message"].as_str().unwrap()),
        (
            &patch["status"]["conditions"][0]["reason"],
            &*format!("the Service has no address: {failure}")
        )
    );
    assert_eq!(*notices, [format!("AllocationFailed: no address for web/b: {failure}")]);
}
