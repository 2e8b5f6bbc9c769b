//! The plans without settled Services equal those with all Services.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index as Pick, select};

use leasehold_crds::lease::{Claim, Record as _};

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const ADDRESSES: [&str; 4] = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.9.0.0"];
const CLAIMS: [&str; 4] = ["web.a", "web.b", "web.c", "10-0-0-1.address.leasehold"];
/// After pools that are gone are told of.
const LATER: Instant = Duration::from_secs(1003);

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A user writes a Service: which, with these annotations, and whether it is for us.
    Service(&'static str, Value, bool),
    /// A user writes an address and a claim into a Service that has or lacks a status of the operator.
    Forge(&'static str, &'static str, &'static str, bool),
    DeleteService(&'static str),
    /// A pool with these entries that serves only namespaces of this team, or is gone.
    Pool(&'static str, Option<(&'static str, bool)>),
    Team(&'static str),
    /// A policy for these Services, or none.
    Policy(Option<&'static str>),
    /// The pods of a Service serve, or not.
    Pods(&'static str, bool),
    /// A claim lists this, and is held or not; or it is gone.
    Claim(&'static str, Option<(&'static str, bool)>),
    /// The session of the node that holds claims lives, or has ended.
    Session(bool),
    /// One of the jobs is done.
    Done(Pick),
    /// All that is to be done is done.
    AllDone,
    /// A job is under way.
    Sent(Pick),
    /// The job under way failed.
    Failed,
}

fn any_step() -> impl Strategy<Value = Step> {
    let annotations = prop_oneof![
        6 => Just(json!({})),
        2 => Just(json!({"leasehold.dev/shared-address": "k"})),
        2 => select(&ADDRESSES[..]).prop_map(|ip| json!({"leasehold.dev/addresses": ip})),
        1 => Just(json!({"leasehold.dev/address-pool": "two"})),
        1 => Just(json!({"leasehold.dev/reassign": "true"})),
    ];
    let name = || select(&NAMES[..]);
    let address = || select(&ADDRESSES[..]);
    let ranges = select(&["10.0.0.0/31", "10.0.0.1-10.0.0.2", "10.0.0.0/29"][..]);
    let pool = prop::option::weighted(0.8, (ranges, prop::bool::weighted(0.3)));
    let listed = prop::option::weighted(0.8, (address(), any::<bool>()));
    prop_oneof![
        6 => (name(), annotations, prop::bool::weighted(0.9))
            .prop_map(|(name, annotations, ours)| Step::Service(name, annotations, ours)),
        2 => (name(), address(), select(&CLAIMS[..]), any::<bool>())
            .prop_map(|(name, ip, claim, ours)| Step::Forge(name, ip, claim, ours)),
        2 => name().prop_map(Step::DeleteService),
        3 => (select(&["one", "two"][..]), pool).prop_map(|(name, it)| Step::Pool(name, it)),
        1 => select(&["blue", "red"][..]).prop_map(Step::Team),
        1 => prop::option::of(select(&["a", "b"][..])).prop_map(Step::Policy),
        2 => (name(), any::<bool>()).prop_map(|(name, serve)| Step::Pods(name, serve)),
        2 => (select(&CLAIMS[..]), listed).prop_map(|(claim, it)| Step::Claim(claim, it)),
        1 => any::<bool>().prop_map(Step::Session),
        6 => any::<Pick>().prop_map(Step::Done),
        4 => Just(Step::AllDone),
        2 => any::<Pick>().prop_map(Step::Sent),
        1 => Just(Step::Failed),
    ]
}

/// The API server, an index that leaves out what is settled, and one that never does.
struct Twins {
    version: u64,
    services: BTreeMap<String, Value>,
    pools: BTreeMap<String, Value>,
    policies: BTreeMap<String, Value>,
    settling: Index,
    whole: Index,
}

impl Twins {
    fn new() -> Self {
        let (settling, whole) = (World::default().index(), World::default().index());
        let (services, pools, policies) = Default::default();
        Self { version: 100, services, pools, policies, settling, whole }
    }

    fn both(&mut self, change: impl Fn() -> Change) {
        self.settling.apply(change(), START);
        self.whole.apply(change(), START);
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn service(&mut self, name: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.next_version().to_string());
        self.services.insert(name.to_owned(), object.clone());
        self.both(|| Change::Service(applied(object.clone())));
    }

    fn claim(&mut self, name: &str, addresses: &str, services: &str, held: bool) {
        let says = json!({
            "leasehold.dev/addresses": addresses, "leasehold.dev/services": services,
        });
        self.claim_says(name, says, held);
    }

    fn claim_says(&mut self, name: &str, mut says: Value, held: bool) {
        if held {
            says["leasehold.dev/session"] = json!("uid of node-1/3");
        }
        let version = self.next_version();
        let lease = lease(name, version, held.then_some("node-1"), 1, &says);
        self.both(|| Change::Claim(applied(lease.clone())));
    }

    fn delete_claim(&mut self, name: &str) {
        let gone = lease(name, self.version, None, 1, &json!({}));
        self.both(|| Change::Claim(deleted(gone.clone())));
    }

    fn carry_out(&mut self, job: Job) {
        match job {
            Job::Service { key, write, .. } => {
                let Some(mut object) = self.services.get(&key.name).cloned() else { return };
                let user: Vec<_> = object["metadata"]["annotations"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| {
                        !name.ends_with("allocated-from") && !name.ends_with("claim")
                    })
                    .map(|(name, text)| (name.clone(), text.clone()))
                    .collect();
                object = patched(object, &body(&write), 0);
                object["metadata"]["annotations"].as_object_mut().unwrap().extend(user);
                self.service(&key.name, object);
            }
            Job::List(name, write) => {
                let held = write.record.holder.is_some() && write.over.is_none();
                let says = Claim { session: None, ..write.record }.annotations();
                self.claim_says(name.as_str(), json!(says), held);
            }
            Job::DeleteClaim(name, _) => self.delete_claim(name.as_str()),
            Job::Pool(name, write) => {
                let Some(object) = self.pools.get_mut(&name) else { return };
                object["status"] = write.patch["status"].clone();
                let object = object.clone();
                self.both(|| Change::Pool(applied(object.clone())));
            }
            Job::Policy(name, patch) => {
                let Some(object) = self.policies.get_mut(&name) else { return };
                object["status"] = patch["status"].clone();
                let object = object.clone();
                self.both(|| Change::Policy(applied(object.clone())));
            }
            Job::DeleteSession(..) => {}
        }
    }

    fn send(&mut self, job: &Job) {
        for index in [&mut self.settling, &mut self.whole] {
            match job {
                Job::Service { key, version, write } => {
                    let pending = Pending {
                        version: *version,
                        addresses: write.addresses.clone(),
                        allocated_from: write.allocated_from.clone(),
                        claims: write.claims.clone(),
                    };
                    index.sent(key, pending);
                }
                Job::List(name, write) => {
                    let base = write.base.as_ref();
                    let version = base.map(|base| base.resource_version.parse().unwrap());
                    let addresses = write.record.addresses.clone();
                    index.list_sent(name, Listing { version, addresses, unanswered: false });
                }
                _ => {}
            }
        }
    }

    fn fail_all(&mut self) {
        for index in [&mut self.settling, &mut self.whole] {
            for key in index.pending().keys().cloned().collect::<Vec<_>>() {
                index.failed(&key);
            }
            for name in index.listings().keys().cloned().collect::<Vec<_>>() {
                index.list_failed(&name);
            }
        }
    }

    /// The jobs of both indexes, which are equal.
    fn jobs(&mut self) -> Vec<Job> {
        for index in [&mut self.settling, &mut self.whole] {
            for key in index.pending().keys().cloned().collect::<Vec<_>>() {
                index.resolve(&key);
            }
        }
        self.settling.open_due(LATER);
        let (part, whole) = (self.settling.plan(), self.whole.plan());
        assert_eq!(part.pools, whole.pools);
        assert_eq!(self.settling.governed(&part), self.whole.governed(&whole));
        assert_eq!(self.settling.settled() + part.services.len(), whole.services.len());
        let jobs_of = |index, plan| jobs(index, plan, LATER, Timestamp::UNIX_EPOCH);
        let (found, expected) = (jobs_of(&self.settling, &part), jobs_of(&self.whole, &whole));
        assert_eq!(found, expected);
        let busy = found.iter().map(Job::target).collect();
        self.settling.settle(&part, &busy, LATER);
        found
    }

    /// A user writes a Service; what we wrote stays.
    fn user(&mut self, name: &str, annotations: &Value, ours: bool) {
        let mut object = service(name, 0);
        if let Some(known) = self.services.get(name) {
            object["status"] = known["status"].clone();
            object["metadata"]["managedFields"] = known["metadata"]["managedFields"].clone();
            object["metadata"]["annotations"] = json!({});
            for ours in ["leasehold.dev/allocated-from", "leasehold.dev/claim"] {
                let text = &known["metadata"]["annotations"][ours];
                if !text.is_null() {
                    object["metadata"]["annotations"][ours] = text.clone();
                }
            }
        } else {
            object["metadata"]["annotations"] = json!({});
        }
        let user = annotations.as_object().unwrap().clone();
        object["metadata"]["annotations"].as_object_mut().unwrap().extend(user);
        object["metadata"]["labels"] = json!({"name": name});
        object["spec"]["ports"] = json!([{"port": 80 + u32::from(name.as_bytes()[0])}]);
        if !ours {
            object["spec"]["loadBalancerClass"] = json!("example.com/other");
        }
        self.service(name, object);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Service(name, annotations, ours) => self.user(name, &annotations, ours),
            Step::Forge(name, ip, claim, ours) => {
                let Some(mut object) = self.services.get(name).cloned() else { return };
                object["status"]["loadBalancer"] =
                    json!({"ingress": [{"ip": ip, "ipMode": "VIP"}]});
                object["metadata"]["annotations"]["leasehold.dev/claim"] = json!(claim);
                if !ours {
                    object["metadata"]["managedFields"] = json!([]);
                }
                self.service(name, object);
            }
            Step::DeleteService(name) => {
                if let Some(object) = self.services.remove(name) {
                    self.both(|| Change::Service(deleted(object.clone())));
                }
            }
            Step::Pool(name, Some((entry, scoped))) => {
                let mut object = pool(name, &[entry]);
                if scoped {
                    object["spec"]["serviceAllocation"] =
                        json!({"namespaceSelectors": [{"matchLabels": {"team": "blue"}}]});
                }
                self.pools.insert(name.to_owned(), object.clone());
                self.both(|| Change::Pool(applied(object.clone())));
            }
            Step::Pool(name, None) => {
                if let Some(object) = self.pools.remove(name) {
                    self.both(|| Change::Pool(deleted(object.clone())));
                }
            }
            Step::Team(team) => {
                let version = self.next_version().to_string();
                let object = json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": "web", "resourceVersion": version, "labels": {"team": team}},
                });
                self.both(|| Change::Namespace(applied(object.clone())));
            }
            Step::Policy(Some(name)) => {
                let version = self.next_version().to_string();
                let object = json!({
                    "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
                    "metadata": {"name": "p", "uid": "p", "resourceVersion": version, "generation": 1},
                    "spec": {"serviceSelectors": [{"matchLabels": {"name": name}}]},
                });
                self.policies.insert("p".to_owned(), object.clone());
                self.both(|| Change::Policy(applied(object.clone())));
            }
            Step::Policy(None) => {
                if let Some(object) = self.policies.remove("p") {
                    self.both(|| Change::Policy(deleted(object.clone())));
                }
            }
            Step::Pods(name, serve) => {
                let version = self.next_version();
                self.both(|| Change::Slice(applied(slice(name, version, serve))));
            }
            Step::Claim(name, Some((ip, held))) => {
                let service = name.strip_prefix("web.").map(|name| format!("web/{name}"));
                self.claim(name, ip, &service.unwrap_or_default(), held);
            }
            Step::Claim(name, None) => self.delete_claim(name),
            Step::Session(lives) => {
                let version = self.next_version();
                let lease = lease("node-1", version, lives.then_some("node-1"), 3, &json!({}));
                self.both(|| Change::Session(applied(lease.clone())));
            }
            Step::Done(pick) => {
                let mut jobs = self.jobs();
                if !jobs.is_empty() {
                    self.carry_out(jobs.swap_remove(pick.index(jobs.len())));
                }
            }
            Step::AllDone => {
                for _ in 0..6 {
                    for job in self.jobs() {
                        self.carry_out(job);
                    }
                }
            }
            Step::Sent(pick) => {
                let jobs = self.jobs();
                if !jobs.is_empty() {
                    self.send(pick.get(&jobs));
                }
            }
            Step::Failed => self.fail_all(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_is_settled_changes_nothing(steps in prop::collection::vec(any_step(), 0..60)) {
        let mut twins = Twins::new();
        for step in steps {
            twins.step(step);
            twins.jobs();
        }
    }
}

#[test]
fn of_many_services_those_are_looked_at_about_which_something_is_open() {
    let mut twins = Twins::new();
    twins.step(Step::Pool("one", Some(("10.0.0.0/29", false))));
    for name in ["a", "b", "c"] {
        twins.step(Step::Service(name, json!({}), true));
    }
    assert_eq!(twins.settling.plan().services.len(), 3);
    twins.step(Step::AllDone);
    assert_eq!((twins.settling.settled(), twins.settling.plan().services.len()), (3, 0));
    // One more, which nobody else has to be asked about.
    twins.step(Step::Service("d", json!({}), true));
    let plan = twins.settling.plan();
    let (key, decision) = plan.services.iter().next().unwrap();
    assert_eq!((plan.services.len(), key.name.as_str()), (1, "d"));
    assert_eq!(decision.addresses, ["10.0.0.3".parse::<std::net::IpAddr>().unwrap()]);
    // Whoever asks for what another has is refused, by the other's name.
    twins.step(Step::Service("e", json!({"leasehold.dev/addresses": "10.0.0.1"}), true));
    let refused = twins.jobs().into_iter().find_map(|job| match job {
        Job::Service { key, write, .. } if key.name == "e" => write.message,
        _ => None,
    });
    let why = "the requested address 10.0.0.1 belongs to Service web/b: request another one, or set \
               the annotation leasehold.dev/shared-address of both to the same key";
    assert_eq!(
        refused,
        Some(format!("no address for web/e: {why}; the Service has no address: {why}"))
    );
}
