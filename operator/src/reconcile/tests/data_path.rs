//! The condition `leasehold.dev/DataPath`: the nodes that packets are spread over, and those that are left out.

use super::*;

/// A Service whose policy says `dataPath: Spread`, with an owner, and the nodes of the cluster.
struct Scene {
    index: Index,
    shop: Value,
    version: u64,
    /// The time of the next session.
    now: Instant,
}

fn after(milliseconds: u64) -> Instant {
    START + Duration::from_millis(milliseconds)
}

fn policy(data_path: &str, version: u64) -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
        "metadata": {"name": "p", "uid": "p", "resourceVersion": version.to_string()},
        "spec": {"dataPath": data_path},
    })
}

fn pods_on(nodes: &[&str], version: u64) -> Value {
    let mut slice = slice("shop", version, true);
    let endpoint = |node: &&str| json!({"addresses": ["10.1.0.1"], "nodeName": node});
    slice["endpoints"] = nodes.iter().map(endpoint).collect();
    slice
}

impl Scene {
    fn new() -> Self {
        let node = |name| {
            json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "resourceVersion": "1"}})
        };
        let nodes = ["node-1", "node-2", "node-3", "node-4"].map(node);
        let pools = vec![pool("lan", &["10.0.0.1-10.0.0.3"])];
        let mut local = service("shop", 7);
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        let services = vec![local.clone()];
        let mut index = World { services, pools, nodes: nodes.into(), ..World::default() }.index();
        index.apply(Change::Policy(applied(policy("Spread", 2))), START);
        let (_, patch, _) = service_jobs(&index).remove(0);
        let shop = patched(local, &patch, 8);
        index.apply(Change::Service(applied(shop.clone())), START);
        let mut scene = Self { index, shop, version: 50, now: START };
        for number in 1..=3 {
            scene.session(number, 1_500, &format!("10.0.0.{}/24", 10 + number), "");
        }
        scene.pods(&["node-1", "node-2", "node-3"], START);
        scene.members("node-1,node-2,node-3", START);
        scene
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn session(&mut self, number: u8, mtu: u32, address: &str, state: &str) {
        let name = format!("node-{number}");
        let interface = json!([{"name": "eth0", "mac": format!("02:00:00:00:00:0{number}"),
            "mtu": mtu, "addresses": [address]}]);
        let mut says = json!({"leasehold.dev/interfaces": interface.to_string()});
        if !state.is_empty() {
            says["leasehold.dev/data-path"] = json!(state);
        }
        let lease = lease(&name, self.next(), Some(&name), 3, &says);
        self.index.apply(Change::Session(applied(lease)), self.now);
    }

    fn pods(&mut self, nodes: &[&str], now: Instant) {
        let slice = pods_on(nodes, self.next());
        self.index.apply(Change::Slice(applied(slice)), now);
    }

    fn members(&mut self, members: &str, now: Instant) {
        let says = json!({
            "leasehold.dev/addresses": "10.0.0.1", "leasehold.dev/session": "uid of node-1/3",
            "leasehold.dev/interface": "eth0", "leasehold.dev/members": members,
        });
        let claim = lease("web.shop", self.next(), Some("node-1"), 1, &says);
        self.index.apply(Change::Claim(applied(claim)), now);
    }

    /// Carries out the writes that are due at `now`; returns the condition afterwards, and the events.
    fn told(&mut self, now: Instant) -> (Option<String>, Vec<String>) {
        self.index.forget(now);
        self.index.open_due(now);
        let mut events = Vec::new();
        for (_, patch, notices) in service_jobs_at(&self.index, now) {
            let version = self.next();
            self.shop = patched(self.shop.clone(), &patch, version);
            self.index.apply(Change::Service(applied(self.shop.clone())), now);
            events = notices;
        }
        let conditions = self.shop["status"]["conditions"].as_array().unwrap();
        let said = conditions.iter().find(|it| it["type"] == "leasehold.dev/DataPath");
        let text = |it: &Value| {
            let [status, reason, message] =
                ["status", "reason", "message"].map(|field| it[field].as_str().unwrap().to_owned());
            format!("{status} {reason}: {message}")
        };
        (said.map(text), events)
    }

    /// The condition reads so at `now`.
    fn says(&mut self, now: Instant, expected: &str) {
        let (said, _) = self.told(now);
        assert_eq!(said.as_deref(), Some(expected));
    }
}

const ALL: &str = "packets are spread over node-1 34 %, node-2 33 %, node-3 33 %";
const TWO: &str = "packets are spread over node-1 50 %, node-2 50 %";

#[test]
fn shares_are_reported_once_the_owner_has_said_over_which_nodes_it_spreads() {
    let mut scene = Scene::new();
    assert_eq!(scene.told(after(999)).0, None);
    assert_eq!(scene.told(after(1_000)), (Some(format!("True Spread: {ALL}")), vec![]));
    assert!(service_jobs_at(&scene.index, after(1_001)).is_empty());
    scene.members("node-1=2,node-2", after(5_000));
    scene.pods(&["node-1", "node-2"], after(5_000));
    scene.says(after(6_000), "True Spread: packets are spread over node-1 67 %, node-2 33 %");
    // The policy says so no longer.
    let version = scene.next();
    scene.index.apply(Change::Policy(applied(policy("Owner", version))), after(7_000));
    assert_eq!(scene.told(after(7_000)).0, None);
}

#[test]
fn nodes_that_are_left_out_are_named_with_the_cause() {
    let mut scene = Scene::new();
    scene.members("node-1,node-2", START);
    let mut at = 0;
    let mut says = |scene: &mut Scene, why: &str| {
        at += 10_000;
        scene.now = after(at);
        scene.says(after(at), &format!("False NodesLeftOut: {TWO}; not over node-3: {why}"));
    };
    says(&mut scene, "the owner has not reached it yet");
    scene.session(3, 9_000, "10.0.0.13/24", "");
    says(&mut scene, "the MTU of its interface eth0 is 9000, and that of the owner's eth0 is 1500");
    scene.session(3, 1_500, "10.0.9.13/24", "");
    says(
        &mut scene,
        "no interface of the node is on the segment of the owner's eth0 (10.0.0.0/24)",
    );
    scene.session(3, 1_500, "10.0.0.13/24", "failing");
    says(
        &mut scene,
        "its kernel refuses the rules (see the log of its speaker and \
         leasehold_speaker_spread_failing)",
    );
    scene.session(3, 1_500, "10.0.0.13/24", "replaced");
    says(
        &mut scene,
        "a CNI has replaced kube-proxy, and handles packets before the rules do; use dataPath: \
         Owner with it",
    );
    scene.pods(&["node-1", "node-2", "node-4"], after(65_000));
    scene.says(
        after(70_000),
        &format!("False NodesLeftOut: {TWO}; not over node-4: its speaker does not run"),
    );
    // There is nothing left to leave out.
    scene.pods(&["node-1", "node-2"], after(75_000));
    scene.says(after(80_000), &format!("True Spread: {TWO}"));
}

#[test]
fn an_event_reports_once_that_nodes_are_left_out() {
    let mut scene = Scene::new();
    scene.told(after(1_000));
    scene.pods(&["node-1", "node-2", "node-3", "node-4"], after(2_000));
    let says = format!("{ALL}; not over node-4: its speaker does not run");
    let events = vec![format!("NotSpread: {says}")];
    let told = scene.told(after(3_000));
    assert_eq!(told, (Some(format!("False NodesLeftOut: {says}")), events));
    scene.members("node-1,node-2", after(4_000));
    let (_, events) = scene.told(after(5_000));
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn an_owner_that_spreads_nothing_or_slowly_says_so() {
    let mut scene = Scene::new();
    scene.session(1, 1_500, "10.0.0.11/24", "slow");
    scene.says(
        after(1_000),
        &format!(
            "True SlowPath: {ALL}; on node-1: packets take the slow path, because its kernel has no \
             netdev family in nf_tables, or no fwd"
        ),
    );
    scene.now = after(2_000);
    scene.session(1, 1_500, "10.0.0.11/24", "replaced");
    scene.members("node-1", after(2_000));
    scene.says(
        after(3_000),
        "False NotSpread: node-1 does not spread packets over other nodes: a CNI has replaced \
         kube-proxy, and handles packets before the rules do; use dataPath: Owner with it",
    );
}

#[test]
fn a_service_that_is_not_local_is_served_as_without_spreading() {
    let mut scene = Scene::new();
    scene.told(after(1_000));
    scene.shop["spec"]["externalTrafficPolicy"] = json!("Cluster");
    scene.shop["metadata"]["resourceVersion"] = json!("90");
    scene.version = 90;
    scene.index.apply(Change::Service(applied(scene.shop.clone())), after(2_000));
    let (said, _) = scene.told(after(3_000));
    let said = said.unwrap();
    assert!(said.starts_with("False NotLocal: the policy says dataPath: Spread, and"), "{said}");
}
