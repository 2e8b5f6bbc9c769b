//! The watches on what the cluster asks for.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event as Watched};
use kube::{Api, Client, Resource, ResourceExt};
use leasehold_crds::names::NodeName;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::around::{Around, Unread};
use super::leases::Claims;
use super::renewal::WATCH_SECONDS;
use crate::api::watched::watched;
use crate::clock;
use crate::report::gauges::Delivered;
use crate::report::health::{Health, Part};
use leasehold_core::desired::{
    Desired, News, NodeObject, ServiceFacts, Slice, SliceFacts, Slices, Snapshot, build,
};
use leasehold_core::election::Event;

/// Changes that come within this time lead to one result.
const GATHER: Duration = Duration::from_millis(3);
/// With many Services it takes long to tell what follows: while changes keep coming it rests for this many
/// times as long.
const REST: u32 = 9;

/// The event of a watch; objects that cannot be read are skipped.
#[expect(clippy::large_enum_variant, reason = "taken apart as soon as it is made")]
enum Change {
    Service(Watched<DeserializeGuard<Service>>),
    Slice(Watched<Slice>),
    Node(Watched<DeserializeGuard<Node>>),
    Policy(Watched<DeserializeGuard<AnnouncementPolicy>>),
    Pool(Watched<DeserializeGuard<IPAddressPool>>),
    Claims(Claims),
    Failed(Part, watcher::Error),
}

/// Keeps the snapshot and sends what the cluster asks for at each change, from when everything has
/// been listed; and tells where addresses lead while nodes are down.
pub(super) async fn desired(
    client: Client,
    lists: mpsc::Receiver<Claims>,
    events: mpsc::Sender<Event>,
    mut around: Around,
    health: watch::Sender<Health>,
    delivered: Arc<Delivered>,
    ignore_exclude_label: bool,
) {
    let delivered = &*delivered;
    // Of which slices the endpoints are kept depends on what the Services are.
    let (services_listed, listed) = watch::channel(false);
    let slices = observe(Api::all(client.clone()), Part::EndpointSlices, Change::Slice, delivered);
    let mut changes = stream::select_all([
        observe(Api::all(client.clone()), Part::Services, Change::Service, delivered),
        after(listed, slices),
        observe(Api::all(client.clone()), Part::Nodes, Change::Node, delivered),
        observe(Api::all(client.clone()), Part::Policies, Change::Policy, delivered),
        observe(Api::all(client.clone()), Part::Pools, Change::Pool, delivered),
        claims(lists),
    ]);
    let mut unread = Unread::new(client);
    let mut state = State { ignore_exclude_label, ..State::default() };
    let mut sent: Option<Arc<Desired>> = None;
    // What has to be told, and when: what belongs together arrives together.
    let (mut news, mut due) = (Merged::Nothing, None);
    let mut rested = Instant::now();
    loop {
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let change = tokio::select! {
            biased;
            () = around.changed() => {
                if state.is_complete() {
                    around.tell(&state.snapshot);
                }
                continue;
            }
            () = timer => None,
            Some((service, slices)) = unread.next(), if !unread.is_empty() => {
                let told = state.snapshot.complete(&service, &slices);
                Some(if told { Merged::Endpoints } else { Merged::Nothing })
            }
            Some(change) = changes.next() => Some(state.apply(change, &health)),
            else => return,
        };
        if let Some(merged) = change {
            let earliest = Instant::now() + GATHER;
            let at = if merged.is_computed() { rested.max(earliest) } else { earliest };
            if merged != Merged::Nothing {
                due = Some(due.map_or(at, |due: Instant| due.min(at)));
            }
            news = news.max(merged);
            services_listed.send_if_modified(|listed| !std::mem::replace(listed, state.services));
            continue;
        }
        due = None;
        if !state.is_complete() {
            continue;
        }
        let began = Instant::now();
        if news.is_computed() && began < rested {
            // Only endpoints were to be told so soon.
            due = Some(rested);
            around.tell(&state.snapshot);
            continue;
        }
        if std::mem::replace(&mut news, Merged::Nothing).is_computed() {
            let (desired, errors) = build(&state.snapshot, sent.as_deref());
            for error in errors {
                tracing::debug!(%error, "a policy cannot be followed");
            }
            if sent.as_deref() != Some(&desired) {
                let desired = Arc::new(desired);
                sent = Some(Arc::clone(&desired));
                if events.send(Event::Desired(desired)).await.is_err() {
                    return;
                }
            }
            unread.ask(&state.snapshot);
            let ended = Instant::now();
            rested = ended + (ended - began) * REST;
        }
        around.tell(&state.snapshot);
    }
}

/// A stream that begins when this is so.
fn after(mut ready: watch::Receiver<bool>, stream: BoxStream<'_, Change>) -> BoxStream<'_, Change> {
    let begin = async move {
        // The sender lives as long as the stream.
        let _ = ready.wait_for(|ready| *ready).await;
        stream
    };
    stream::once(begin).flatten().boxed()
}

/// The lists of claims, as a stream of changes.
fn claims<'a>(lists: mpsc::Receiver<Claims>) -> BoxStream<'a, Change> {
    let next = |mut lists: mpsc::Receiver<Claims>| async {
        let claims = lists.recv().await?;
        Some((Change::Claims(claims), lists))
    };
    stream::unfold(lists, next).boxed()
}

fn observe<K>(
    api: Api<K>,
    part: Part,
    wrap: fn(Watched<K>) -> Change,
    delivered: &Delivered,
) -> BoxStream<'_, Change>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watched(api, WATCH_SECONDS)
        .map(move |event| match event {
            Ok(event) => {
                delivered.note(clock::now(), part);
                wrap(event)
            }
            Err(error) => Change::Failed(part, error),
        })
        .boxed()
}

/// The snapshot, and the parts of it that are being listed anew.
#[expect(clippy::struct_excessive_bools, reason = "a setting, and which of the six lists are in")]
#[derive(Default)]
struct State {
    snapshot: Snapshot,
    listing: Snapshot,
    ignore_exclude_label: bool,
    services: bool,
    slices: bool,
    nodes: bool,
    policies: bool,
    pools: bool,
    claims: bool,
}

impl State {
    const fn is_complete(&self) -> bool {
        let objects = self.services && self.slices && self.nodes && self.policies && self.pools;
        objects && self.claims
    }

    /// The parts that may be something else then.
    fn apply(&mut self, change: Change, health: &watch::Sender<Health>) -> Merged {
        let (snapshot, listing) = (&mut self.snapshot, &mut self.listing);
        let (merged, listed, part) = match change {
            Change::Service(event) => {
                let merged =
                    merge(event, &mut snapshot.services, &mut listing.services, ServiceFacts::of);
                if merged != Merged::Nothing {
                    let services = &snapshot.services;
                    snapshot.lists.forget(|name| services.contains_key(name));
                }
                (merged, &mut self.services, Part::Services)
            }
            Change::Slice(event) => (
                merge_slices(event, snapshot, &mut listing.slices),
                &mut self.slices,
                Part::EndpointSlices,
            ),
            Change::Node(event) => {
                let ignore = self.ignore_exclude_label;
                let merged = merge_nodes(event, &mut snapshot.nodes, &mut listing.nodes, ignore);
                snapshot.note_nodes();
                (merged, &mut self.nodes, Part::Nodes)
            }
            Change::Policy(event) => {
                let facts = |policy: &AnnouncementPolicy| Some((key(policy), policy.clone()));
                let merged = merge(event, &mut snapshot.policies, &mut listing.policies, facts);
                (merged, &mut self.policies, Part::Policies)
            }
            Change::Pool(event) => {
                let labels = |pool: &IPAddressPool| Some((key(pool), pool.labels().clone()));
                let merged = merge(event, &mut snapshot.pools, &mut listing.pools, labels);
                (merged, &mut self.pools, Part::Pools)
            }
            Change::Claims(claims) => {
                let (lists, services) = (&mut snapshot.lists, &snapshot.services);
                let changed = match claims {
                    Claims::All(all) => {
                        lists.replace(all.iter().map(|stored| (&stored.name, &stored.record)));
                        self.claims = true;
                        true
                    }
                    Claims::One(stored) => lists.note(&stored.name, &stored.record),
                    Claims::Gone(name) => lists.gone(&name, |name| services.contains_key(name)),
                };
                return if changed { Merged::Changed } else { Merged::Nothing };
            }
            Change::Failed(part, error) => {
                Health::failed(health, part, &error);
                return Merged::Nothing;
            }
        };
        if merged == Merged::Listed {
            Health::listed(health, part);
            *listed = true;
        }
        merged
    }
}

/// The effect of an event on the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Merged {
    /// It says what was known.
    Nothing,
    /// Endpoints are reached elsewhere, on the same nodes.
    Endpoints,
    /// It may say something else.
    Changed,
    /// A list has become complete with it.
    Listed,
}

impl Merged {
    /// Whether what the cluster asks for may be something else.
    fn is_computed(self) -> bool {
        self > Self::Endpoints
    }
}

fn key(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

type Facts<F> = BTreeMap<String, F>;

/// Applies a change to `kept`. Of an object that cannot be read, as after a newer definition, what was read
/// last is kept: nobody has deleted it.
fn merge<K, F>(
    event: Watched<DeserializeGuard<K>>,
    kept: &mut Facts<F>,
    listing: &mut Facts<F>,
    facts: impl Fn(&K) -> Option<(String, F)>,
) -> Merged
where
    K: Resource,
    F: Clone + PartialEq,
    DeserializeGuard<K>: ResourceExt,
{
    let read = |object: &DeserializeGuard<K>, kept: &Facts<F>| match &object.0 {
        Ok(object) => facts(object),
        Err(error) => {
            let object = key(object);
            let known =
                kept.get_key_value(&object).map(|(key, facts)| (key.clone(), facts.clone()));
            let known_before = known.is_some();
            tracing::warn!(object, known_before, %error, "an object cannot be read");
            known
        }
    };
    let changed = match event {
        Watched::Init => {
            listing.clear();
            false
        }
        Watched::InitApply(object) => {
            listing.extend(read(&object, kept));
            false
        }
        Watched::InitDone => {
            *kept = std::mem::take(listing);
            return Merged::Listed;
        }
        Watched::Apply(object) => match read(&object, kept) {
            Some((key, facts)) if kept.get(&key) == Some(&facts) => false,
            Some((key, facts)) => {
                kept.insert(key, facts);
                true
            }
            None => kept.remove(&key(&object)).is_some(),
        },
        Watched::Delete(object) => kept.remove(&key(&object)).is_some(),
    };
    if changed { Merged::Changed } else { Merged::Nothing }
}

/// As [`merge`], for slices, of which it matters what they said before.
fn merge_slices(event: Watched<Slice>, snapshot: &mut Snapshot, listing: &mut Slices) -> Merged {
    let news = match event {
        Watched::Init => {
            listing.clear();
            News::None
        }
        Watched::InitApply(object) => {
            snapshot.list_slice(listing, &object);
            News::None
        }
        Watched::InitDone => {
            snapshot.slices = std::mem::take(listing);
            return Merged::Listed;
        }
        Watched::Apply(object) => {
            let facts = SliceFacts::of(&object).map(|(_, facts)| facts);
            snapshot.set_slice(&key(&object), facts.as_ref())
        }
        Watched::Delete(object) => snapshot.set_slice(&key(&object), None),
    };
    match news {
        News::None => Merged::Nothing,
        News::Endpoints => Merged::Endpoints,
        News::Nodes => Merged::Changed,
    }
}

/// As [`merge`], for what is kept under a parsed name.
fn merge_nodes(
    event: Watched<DeserializeGuard<Node>>,
    kept: &mut BTreeMap<NodeName, NodeObject>,
    listing: &mut BTreeMap<NodeName, NodeObject>,
    ignore_exclude_label: bool,
) -> Merged {
    let read = |object: &DeserializeGuard<Node>, kept: &BTreeMap<NodeName, NodeObject>| {
        let Ok(object) = &object.0 else {
            let name = object.name_any().parse().ok()?;
            let node = kept.get(&name)?.clone();
            return Some((name, node));
        };
        let (name, node) = NodeObject::of(object)?;
        Some((name, if ignore_exclude_label { node.ignoring_label() } else { node }))
    };
    match event {
        Watched::Init => {
            listing.clear();
            return Merged::Nothing;
        }
        Watched::InitApply(object) => {
            listing.extend(read(&object, kept));
            return Merged::Nothing;
        }
        Watched::InitDone => {
            *kept = std::mem::take(listing);
            return Merged::Listed;
        }
        Watched::Apply(object) => {
            // A kubelet says every few minutes what is known.
            let Some((name, facts)) = read(&object, kept) else { return Merged::Nothing };
            if kept.get(&name) == Some(&facts) {
                return Merged::Nothing;
            }
            kept.insert(name, facts);
        }
        Watched::Delete(object) => {
            let name: Option<NodeName> = object.name_any().parse().ok();
            if name.and_then(|name| kept.remove(&name)).is_none() {
                return Merged::Nothing;
            }
        }
    }
    Merged::Changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A policy with this `mode`, as a watch brings it.
    fn policy(name: &str, mode: &str) -> DeserializeGuard<AnnouncementPolicy> {
        let policy = json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": { "name": name }, "spec": { "mode": mode },
        });
        serde_json::from_value(policy).unwrap()
    }

    /// The names and modes of the policies after these events.
    fn kept(events: Vec<Watched<DeserializeGuard<AnnouncementPolicy>>>) -> Vec<String> {
        let (mut kept, mut listing) = (Facts::new(), Facts::new());
        for event in events {
            merge(event, &mut kept, &mut listing, |policy| {
                Some((key(policy), format!("{:?}", policy.spec.mode)))
            });
        }
        kept.into_iter().map(|(name, mode)| format!("{name} {mode}")).collect()
    }

    #[test]
    fn an_object_that_cannot_be_read_any_more_is_kept_as_it_was_also_when_all_are_listed_anew() {
        use Watched::{Apply, Delete, Init, InitApply, InitDone};
        let listed = || vec![Init, InitApply(policy("a", "None")), InitDone];
        let after = |events| kept(listed().into_iter().chain(events).collect());
        assert_eq!(after(vec![]), ["a None"]);
        assert_eq!(after(vec![Apply(policy("a", "Quantum"))]), ["a None"]);
        let anew = || vec![Init, InitApply(policy("a", "Quantum")), InitDone];
        assert_eq!(after(anew()), ["a None"]);
        assert_eq!(after([anew(), vec![Apply(policy("a", "Layer2"))]].concat()), ["a Layer2"]);
        assert_eq!(after([anew(), vec![Delete(policy("a", "Quantum"))]].concat()), [""; 0]);
        assert_eq!(after(vec![Init, InitDone]), [""; 0]);
        // What was never read is not known.
        assert_eq!(after(vec![Apply(policy("b", "Quantum"))]), ["a None"]);
    }

    fn of<T: DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// A node with these labels and taints, whose kubelet was heard then.
    fn node(labels: &serde_json::Value, taints: &serde_json::Value, heard: &str) -> Change {
        Change::Node(Watched::Apply(of(json!({
            "metadata": { "name": "n1", "labels": labels, "resourceVersion": heard,
                "annotations": { "heard": heard } },
            "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": "True",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "message": heard }] },
        }))))
    }

    /// A slice of this Service with an endpoint at this address on this node.
    fn slice(service: &str, address: &str, node: &str, version: &str) -> Change {
        Change::Slice(Watched::Apply(of(json!({
            "addressType": "IPv4",
            "metadata": { "namespace": "web", "name": format!("{service}-1"),
                "resourceVersion": version,
                "labels": { "kubernetes.io/service-name": service } },
            "endpoints": [{ "addresses": [address], "nodeName": node }],
        }))))
    }

    fn service(version: &str, port: u16) -> Change {
        Change::Service(Watched::Apply(of(json!({
            "metadata": { "namespace": "web", "name": "shop", "resourceVersion": version,
                "annotations": { "leasehold.dev/claim": "web.shop", "seen": version } },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease",
                "ports": [{ "port": port }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
        }))))
    }

    #[test]
    fn what_says_what_is_known_has_nothing_computed() {
        let (health, _) = watch::channel(Health::default());
        let mut state = State::default();
        let (none, some) = (json!({}), json!({ "a": "b" }));
        let taint = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" }]);
        let no_taint = json!([]);
        let rows = vec![
            ("a new Service", service("1", 80), Merged::Changed),
            ("a write that does not matter", service("2", 80), Merged::Nothing),
            ("another port", service("3", 81), Merged::Changed),
            ("a new node", node(&none, &no_taint, "1"), Merged::Changed),
            ("the status of a node", node(&none, &no_taint, "2"), Merged::Nothing),
            ("its labels", node(&some, &no_taint, "3"), Merged::Changed),
            ("its taints", node(&some, &taint, "4"), Merged::Changed),
            ("its status again", node(&some, &taint, "5"), Merged::Nothing),
            ("a new slice", slice("shop", "10.0.0.1", "n1", "1"), Merged::Changed),
            ("the same slice", slice("shop", "10.0.0.1", "n1", "1"), Merged::Nothing),
            ("another pod on the node", slice("shop", "10.0.0.2", "n1", "2"), Merged::Endpoints),
            ("a pod on another node", slice("shop", "10.0.0.2", "n2", "3"), Merged::Changed),
            ("a slice of nobody's", slice("other", "10.0.0.3", "n1", "1"), Merged::Nothing),
            (
                "an unknown node is gone",
                Change::Node(Watched::Delete(of(json!({ "metadata": { "name": "n9" } })))),
                Merged::Nothing,
            ),
            (
                "a known one is",
                Change::Node(Watched::Delete(of(json!({ "metadata": { "name": "n1" } })))),
                Merged::Changed,
            ),
        ];
        for (what, change, expected) in rows {
            assert_eq!(state.apply(change, &health), expected, "{what}");
        }
    }
}
