//! Records that somebody takes off Services.

use proptest::prelude::*;

use super::*;

/// The lease of a claim that is held under a live session and lists this.
fn listing(name: &str, services: &[&str], addresses: &str, version: u64) -> Value {
    let named: Vec<_> = services.iter().map(|name| format!("web/{name}")).collect();
    let uids: Vec<_> = services.iter().map(|name| format!("uid of {name}")).collect();
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
            "annotations": {
                "leasehold.dev/services": named.join(","), "leasehold.dev/service-uids": uids.join(","),
                "leasehold.dev/addresses": addresses, "leasehold.dev/allocated-from": "lan",
                "leasehold.dev/session": "s/1",
            },
        },
        "spec": {"holderIdentity": "n", "leaseTransitions": 1},
    })
}

fn session() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "n", "uid": "s", "resourceVersion": "3"},
        "spec": {"holderIdentity": "n", "leaseTransitions": 1, "leaseDurationSeconds": 5},
    })
}

/// The address, pool and claim that the patches give to each Service.
fn given(index: &Index) -> Vec<String> {
    let text = |patch: &Value, path: &str| {
        patch.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned()
    };
    let jobs = service_jobs(index).into_iter();
    jobs.map(|(name, patch, _)| {
        let address = text(&patch, "/status/loadBalancer/ingress/0/ip");
        let pool = text(&patch, "/metadata/annotations/leasehold.dev~1allocated-from");
        let claim = text(&patch, "/metadata/annotations/leasehold.dev~1claim");
        format!("{name}: {address} from {pool} under {claim}")
    })
    .collect()
}

/// The writes to claims: their lists, and the withdrawn addresses.
fn lists(index: &Index) -> Vec<String> {
    let list = |job| match job {
        Job::List(name, write) => {
            let text =
                |it: &AddressSet| it.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let record = &write.record;
            let (listed, withdrawn) = (text(&record.addresses), text(&record.withdrawn));
            Some(format!("{name}: {listed} - {withdrawn}"))
        }
        _ => None,
    };
    all_jobs(index).into_iter().filter_map(list).collect()
}

/// A Service that has 10.0.0.2 of a pool, or of none that is still there.
fn recorded(pools: Vec<Value>) -> (Index, Value) {
    let claims = vec![listing("web.shop", &["shop"], "10.0.0.2", 9)];
    let sessions = vec![session()];
    let shop = whole(7);
    let index = World { services: vec![shop.clone()], pools, claims, sessions, ..World::default() };
    (index.index(), shop)
}

fn whole(version: u64) -> Value {
    let patch = json!({
        "metadata": {"annotations": {
            "leasehold.dev/allocated-from": "lan", "leasehold.dev/claim": "web.shop",
        }},
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2", "ipMode": "VIP"}]}},
    });
    patched(service("shop", version), &patch, version)
}

type Damage = fn(&mut Value);

const DAMAGES: [(&str, Damage); 6] = [
    ("a replaced manifest", |it| {
        it["metadata"]["annotations"] = json!({});
    }),
    ("one annotation", |it| {
        let annotations = it["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove("leasehold.dev/claim");
    }),
    ("the other annotation", |it| {
        let annotations = it["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove("leasehold.dev/allocated-from");
    }),
    ("an emptied status", |it| {
        it["status"] = json!({});
        it["metadata"]["managedFields"] = json!([]);
    }),
    ("everything", |it| {
        it["status"] = json!({});
        it["metadata"]["annotations"] = json!({});
        it["metadata"]["managedFields"] = json!([]);
    }),
    ("the addresses of nodes in the status", |it| {
        let nodes = json!([{"ip": "172.16.0.1"}, {"ip": "172.16.0.2"}]);
        it["status"] = json!({"loadBalancer": {"ingress": nodes}});
        it["metadata"]["managedFields"] = json!([]);
    }),
];

#[test]
fn what_a_service_has_lost_is_written_again_as_the_claim_lists_it() {
    for (pool_of_it, pools) in [
        ("in a pool", vec![pool("lan", &["10.0.0.0/30"])]),
        ("kept, its pool is gone", Vec::new()),
        ("kept, another pool is there", vec![pool("wan", &["10.9.0.0/30"])]),
    ] {
        for (what, damage) in DAMAGES {
            for restarted in [false, true] {
                let (mut index, mut shop) = recorded(pools.clone());
                damage(&mut shop);
                shop["metadata"]["resourceVersion"] = json!("8");
                if restarted {
                    let world = World {
                        services: vec![shop],
                        pools: pools.clone(),
                        claims: vec![listing("web.shop", &["shop"], "10.0.0.2", 9)],
                        sessions: vec![session()],
                        ..World::default()
                    };
                    index = world.index();
                } else {
                    index.apply(Change::Service(applied(shop)), START);
                }
                let expected = ["shop: 10.0.0.2 from lan under web.shop"];
                assert_eq!(given(&index), expected, "{what}, {pool_of_it}, {restarted}");
                assert!(lists(&index).is_empty(), "{what}, {pool_of_it}: {:?}", lists(&index));
            }
        }
    }
}

#[test]
fn what_a_service_and_its_claim_have_both_lost_is_written_again_as_it_was_last_seen() {
    for (what, damage) in DAMAGES {
        for key in ["addresses", "services", "all"] {
            let (mut index, mut shop) = recorded(vec![pool("lan", &["10.0.0.0/30"])]);
            let mut lease = listing("web.shop", &["shop"], "10.0.0.2", 12);
            let annotations = lease["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.retain(|name, _| key != "all" && !name.ends_with(key));
            index.apply(Change::Claim(applied(lease.clone())), START);
            damage(&mut shop);
            shop["metadata"]["resourceVersion"] = json!("13");
            index.apply(Change::Service(applied(shop)), START);
            let expected = ["shop: 10.0.0.2 from lan under web.shop"];
            assert_eq!(given(&index), expected, "{what}, {key}");
            let (_, patch, notices) = service_jobs(&index).remove(0);
            assert!(notices.is_empty(), "{what}, {key}: {notices:?}");
            let shop = patched(service("shop", 14), &patch, 14);
            index.apply(Change::Service(applied(shop)), START);
            assert_eq!(lists(&index), ["web.shop: 10.0.0.2 - "], "{what}, {key}");
        }
    }
}

/// While this replica was not the active one for a moment, and no other was.
#[test]
fn what_both_have_lost_between_two_tenures_is_written_again_as_it_was_in_the_first() {
    let (_, everything) = DAMAGES[4];
    for (uid, expected) in [
        ("uid of shop", &["shop: 10.0.0.2 from lan under web.shop"][..]),
        // Another one of its name.
        ("uid of another", &["shop: - from - under -"]),
    ] {
        let (index, mut shop) = recorded(vec![no_auto_assign()]);
        let mut lease = listing("web.shop", &["shop"], "10.0.0.2", 12);
        lease["metadata"]["annotations"] = json!({});
        everything(&mut shop);
        shop["metadata"]["resourceVersion"] = json!("13");
        shop["metadata"]["uid"] = json!(uid);
        let world = World {
            services: vec![shop],
            pools: vec![no_auto_assign()],
            claims: vec![lease],
            sessions: vec![session()],
            ..World::default()
        };
        let index = world.index_after(index.into_recollection());
        assert_eq!(given(&index), expected, "{uid}");
    }
}

#[test]
fn another_service_of_the_same_name_has_nothing_of_what_the_claim_lists() {
    let (mut index, shop) = recorded(Vec::new());
    index.apply(Change::Service(deleted(shop)), START);
    let mut other = service("shop", 20);
    other["metadata"]["uid"] = json!("another");
    index.apply(Change::Service(applied(other)), START);
    assert_eq!(given(&index), ["shop: - from - under -"]);
}

#[test]
fn what_is_taken_from_a_service_that_lives_on_is_withdrawn_on_the_valid_claim() {
    let (mut index, mut shop) = recorded(vec![pool("lan", &["10.0.0.0/30"])]);
    shop["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.0.0.1");
    shop["metadata"]["resourceVersion"] = json!("8");
    index.apply(Change::Service(applied(shop)), START);
    assert_eq!(given(&index), ["shop: 10.0.0.1 from lan under web.shop"]);
    assert!(lists(&index).is_empty(), "first the Service, then the claim");
    let (_, patch, _) = service_jobs(&index).remove(0);
    let mut wish = patched(service("shop", 9), &patch, 9);
    wish["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.0.0.1");
    index.apply(Change::Service(applied(wish.clone())), START);
    assert_eq!(lists(&index), ["web.shop: 10.0.0.1 10.0.0.2 - 10.0.0.2"]);

    // A status that is lost meanwhile changes nothing about it.
    wish["status"] = json!({});
    wish["metadata"]["resourceVersion"] = json!("10");
    wish["metadata"]["managedFields"] = json!([]);
    index.apply(Change::Service(applied(wish.clone())), START);
    assert_eq!(given(&index), ["shop: 10.0.0.1 from lan under web.shop"]);

    // It asks for the former again.
    let mut listed = listing("web.shop", &["shop"], "10.0.0.1,10.0.0.2", 12);
    listed["metadata"]["annotations"]["leasehold.dev/withdrawn-addresses"] = json!("10.0.0.2");
    index.apply(Change::Claim(applied(listed)), START);
    wish["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.0.0.2");
    wish["metadata"]["resourceVersion"] = json!("13");
    index.apply(Change::Service(applied(wish.clone())), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    let mut again = patched(service("shop", 14), &patch, 14);
    again["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.0.0.2");
    index.apply(Change::Service(applied(again)), START);
    assert_eq!(lists(&index), ["web.shop: 10.0.0.1 10.0.0.2 - 10.0.0.1"]);
}

#[test]
fn nothing_is_withdrawn_from_a_service_that_is_gone_or_of_another_type() {
    let (mut index, shop) = recorded(vec![pool("lan", &["10.0.0.0/30"])]);
    index.apply(Change::Service(deleted(shop)), START);
    assert!(lists(&index).is_empty());

    let (mut index, mut shop) = recorded(vec![pool("lan", &["10.0.0.0/30"])]);
    shop["spec"]["type"] = json!("ClusterIP");
    shop["status"] = json!({});
    shop["metadata"]["resourceVersion"] = json!("8");
    index.apply(Change::Service(applied(shop)), START);
    assert!(lists(&index).is_empty());
}

#[test]
fn a_claim_that_has_lost_what_it_says_of_its_services_is_told_again() {
    for key in ["services", "service-uids", "allocated-from", "addresses"] {
        let (mut index, _) = recorded(vec![pool("lan", &["10.0.0.0/30"])]);
        let mut lease = listing("web.shop", &["shop"], "10.0.0.2", 12);
        lease["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(&format!("leasehold.dev/{key}"));
        index.apply(Change::Claim(applied(lease)), START);
        let writes: Vec<_> = all_jobs(&index)
            .into_iter()
            .filter_map(|job| match job {
                Job::List(_, write) => Some(write.record),
                _ => None,
            })
            .collect();
        let [record] = &writes[..] else { panic!("{key}: {writes:?}") };
        assert_eq!(record.services, ["web/shop"], "{key}");
        assert_eq!(record.uids, ["uid of shop"], "{key}");
        assert_eq!(record.pool.as_deref(), Some("lan"), "{key}");
        assert_eq!(record.addresses, ["10.0.0.2".parse().unwrap()].into(), "{key}");
    }
}

/// A Service and its claim under random edits, with writes of the operator that succeed, get a conflict or have no
/// answer.
struct Edited {
    index: Index,
    shop: Value,
    lease: Value,
    version: u64,
    /// The patch of the Service that is under way.
    sent: Option<Value>,
}

impl Edited {
    fn apply(&mut self, part: &str) {
        self.version += 1;
        let version = json!(self.version.to_string());
        if part == "service" {
            self.shop["metadata"]["resourceVersion"] = version;
            self.index.apply(Change::Service(applied(self.shop.clone())), START);
            self.index.resolve(&key("shop"));
        } else {
            self.lease["metadata"]["resourceVersion"] = version;
            self.index.apply(Change::Claim(applied(self.lease.clone())), START);
        }
    }

    fn damage_claim(&mut self, without: &str) {
        let annotations = self.lease["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|name, _| without != "all" && !name.ends_with(without));
        self.apply("claim");
    }

    /// Sends what is to be written now; what it would do to the Service has to be nothing.
    fn send(&mut self, story: &[String]) {
        for job in all_jobs(&self.index) {
            match job {
                Job::Service { write, .. } => {
                    let given = write.addresses.iter().map(ToString::to_string);
                    assert_eq!(given.collect::<Vec<_>>(), ["10.0.0.2"], "{story:#?}");
                    let notices: Vec<_> = write.notices.iter().map(|it| it.reason).collect();
                    assert!(notices.is_empty(), "{notices:?} after {story:#?}");
                    let pending = Pending {
                        version: self.index.tables().services().version(&key("shop")).unwrap(),
                        addresses: write.addresses.clone(),
                        allocated_from: write.allocated_from.clone(),
                        claims: write.claims.clone(),
                    };
                    self.index.sent(&key("shop"), pending);
                    self.sent = Some(body(&write));
                }
                Job::List(name, write) => {
                    let withdrawn = &write.record.withdrawn;
                    assert!(withdrawn.iter().next().is_none(), "{withdrawn:?} after {story:#?}");
                    let version = self.index.tables().claims().version(&name);
                    let addresses = write.record.addresses;
                    let listing = Listing { version, addresses, unanswered: false };
                    self.index.list_sent(&name, listing);
                }
                _ => {}
            }
        }
    }

    /// Ends the write under way: it succeeds without a conflict, or is lost.
    fn end(&mut self, is_lost: bool) {
        if let Some(patch) = self.sent.take() {
            let pending = self.index.pending().get(&key("shop")).map(|it| it.version);
            if pending.is_some()
                && pending == self.index.tables().services().version(&key("shop"))
                && !is_lost
            {
                self.shop = patched(self.shop.clone(), &patch, 0);
                self.apply("service");
            } else {
                self.index.failed(&key("shop"));
            }
        }
        let name = "web.shop".parse().unwrap();
        let listed = self.index.listings().get(&name).map(|listing| listing.version);
        if let Some(version) = listed {
            if version == self.index.tables().claims().version(&name) && !is_lost {
                self.lease = listing("web.shop", &["shop"], "10.0.0.2", 0);
                self.apply("claim");
            } else {
                self.index.list_failed(&name);
            }
        }
    }
}

impl Edited {
    /// Another tenure of the same process begins: what was under way has ended, and all is listed anew.
    fn begin_again(mut self) -> Self {
        self.end(false);
        let recollection = std::mem::take(&mut self.index).into_recollection();
        let lan = no_auto_assign();
        let (services, claims) = (vec![self.shop.clone()], vec![self.lease.clone()]);
        let sessions = vec![session()];
        let world = World { services, pools: vec![lan], claims, sessions, ..World::default() };
        Self { index: world.index_after(recollection), ..self }
    }
}

/// A pool of which a Service that has lost its address gets none again.
fn no_auto_assign() -> Value {
    let mut lan = pool("lan", &["10.0.0.0/30"]);
    lan["spec"]["autoAssign"] = json!(false);
    lan
}

/// Carries out the step with this number; `which` selects the damage of an edit.
fn step(mut edited: Edited, story: &mut Vec<String>, kind: u8, which: usize) -> Edited {
    match kind {
        0 => {
            let (what, damage) = DAMAGES[which];
            story.push(format!("the Service loses {what}"));
            damage(&mut edited.shop);
            edited.apply("service");
        }
        1 => {
            let without = ["addresses", "services", "service-uids", "session", "all"][which % 5];
            story.push(format!("the claim loses {without}"));
            edited.damage_claim(without);
        }
        2 => {
            story.push("what is to be written is sent".to_owned());
            edited.send(story);
        }
        3 => {
            story.push("what was sent is carried out".to_owned());
            edited.end(false);
        }
        4 => {
            story.push("what was sent is lost".to_owned());
            edited.end(true);
        }
        _ => {
            let (what, damage) = DAMAGES[which];
            story.push(format!("between two tenures the Service loses {what}"));
            damage(&mut edited.shop);
            edited.version += 1;
            edited.shop["metadata"]["resourceVersion"] = json!(edited.version.to_string());
            return edited.begin_again();
        }
    }
    edited
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_of_a_service_and_its_claim_take_nothing_from_it(
        steps in prop::collection::vec((0..6_u8, 0..DAMAGES.len()), 12),
    ) {
        let (index, shop) = recorded(vec![no_auto_assign()]);
        let lease = listing("web.shop", &["shop"], "10.0.0.2", 9);
        let mut edited = Edited { index, shop, lease, version: 20, sent: None };
        let mut story = Vec::new();
        for (kind, which) in steps {
            edited = step(edited, &mut story, kind, which);
        }
    }
}
