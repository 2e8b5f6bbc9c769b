//! Tenants: who may write the Services of one namespace does nothing to the address of another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service as ServiceObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_lab::node::CLUSTER_LABEL;
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use crate::scene::{Scene, annotation};

/// The tenant's namespace, and his Service.
const NAMESPACE: &str = "guest";
const NAME: &str = "x";
/// The label by which a policy has his Services announced by nobody.
const SILENT: &str = "tenant-is-silent";
/// From one edit to the next, and for how long.
const PAUSE: Duration = Duration::from_millis(200);
const LASTS: Duration = Duration::from_secs(12);
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What Leasehold reads of a Service beside its spec, its own and MetalLB's.
const READ: [&str; 13] = [
    "leasehold.dev/claim",
    "leasehold.dev/address-claims",
    "leasehold.dev/allocated-from",
    "leasehold.dev/addresses",
    "leasehold.dev/address-pool",
    "leasehold.dev/shared-address",
    "leasehold.dev/reassign",
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    "metallb.io/address-pool",
    "metallb.universe.tf/address-pool",
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];

/// The choices of a run, the same in each (xorshift, Marsaglia 2003).
struct Choices(u64);

impl Choices {
    fn of<'a, T>(&mut self, all: &'a [T]) -> Result<&'a T> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = self.0 % u64::try_from(all.len())?;
        all.get(usize::try_from(number)?).context("nothing to choose from")
    }
}

/// The tenant's Service with the address `vip`: of all nodes one has an endpoint of it.
fn objects(scene: &Scene, vip: &str, node: &str) -> [Value; 4] {
    let labels = json!({ CLUSTER_LABEL: scene.cluster.name() });
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": { "name": "silent-tenants" },
            "spec": {
                "priority": 1, "mode": "None",
                "serviceSelectors": [{ "matchLabels": { SILENT: "true" } }],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": NAME, "namespace": NAMESPACE, "labels": labels,
                "annotations": { "leasehold.dev/addresses": vip },
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": leasehold_lab::service::CLASS,
                "ports": [{ "name": "datagrams", "protocol": "UDP", "port": 5006 }],
            },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": NAME, "namespace": NAMESPACE,
                "labels": { "kubernetes.io/service-name": NAME },
            },
            "ports": [{ "name": "datagrams", "protocol": "UDP", "port": 5006 }],
            "endpoints": [{
                "addresses": ["198.51.100.7"], "nodeName": node, "conditions": { "ready": true },
            }],
        }),
    ]
}

/// What the tenant writes in one edit: some of the annotations, a label and a policy of his own traffic.
fn edit(choices: &mut Choices, values: &[String]) -> Result<Value> {
    let mut annotations = serde_json::Map::new();
    for name in READ {
        // A third is taken off.
        let value = match choices.of(&[0, 1, 2])? {
            0 => Value::Null,
            _ => json!(choices.of(values)?),
        };
        annotations.insert(name.to_owned(), value);
    }
    // What matters most stands there in every other edit.
    if *choices.of(&[true, false])? {
        let claim = values.first().context("no claim")?;
        annotations.insert("leasehold.dev/claim".to_owned(), json!(claim));
    }
    let silent = choices.of(&[Some("true"), None])?;
    Ok(json!({
        "metadata": { "annotations": annotations, "labels": { SILENT: silent } },
        "spec": { "externalTrafficPolicy": choices.of(&["Local", "Cluster"])? },
    }))
}

pub async fn what_a_tenant_writes_on_his_service_does_nothing_to_the_address_of_another()
-> Result<()> {
    let scene = Scene::alone("tenants").await?;
    let owner = scene.owner().await?.name();
    let another = scene.cluster.nodes().iter().find(|node| node.name() != owner);
    let another = another.context("one node only")?.name();
    let own = scene.cluster.addresses().vip(1).0.to_string();
    for object in objects(&scene, &own, another) {
        scene.lab().apply(object).await?;
    }
    // The victim would share its address, with its own namespace.
    let key = json!({ "leasehold.dev/shared-address": "key" });
    scene.service.patch(json!({ "metadata": { "annotations": key } })).await?;
    let services: Api<ServiceObject> = Api::namespaced(scene.lab().admin(), NAMESPACE);
    scene
        .until("the tenant's Service has its address", async || {
            let status = services.get(NAME).await?.status.and_then(|status| status.load_balancer);
            let ingress = status.and_then(|it| it.ingress).unwrap_or_default();
            Ok(ingress.iter().any(|it| it.ip.as_deref() == Some(&*own)))
        })
        .await?;
    let claim = scene.service.claim();
    scene
        .until("both claims are listed", async || {
            Ok(annotation(&scene.claim().await?, "leasehold.dev/addresses")
                == Some(&*scene.vip.to_string()))
        })
        .await?;

    let vip = scene.vip.to_string();
    let address_claim = format!("{}.address.leasehold", vip.replace('.', "-"));
    let values = [
        claim,
        address_claim,
        vip.clone(),
        own.clone(),
        format!("{vip},{own}"),
        scene.cluster.name().to_owned(),
        "key".to_owned(),
        "no-such-pool".to_owned(),
        "true".to_owned(),
        String::new(),
    ];
    let before = scene.claim().await?;
    let probe = scene.watch().await?;
    let (mut choices, begin, mut turn) = (Choices(SEED), Instant::now(), interval(PAUSE));
    let mut edits = 0_u32;
    while begin.elapsed() < LASTS {
        turn.tick().await;
        let patch = Patch::Merge(edit(&mut choices, &values)?);
        services.patch(NAME, &PatchParams::default(), &patch).await?;
        edits += 1;
    }
    // The claim of another, left there.
    let claim = json!({ "leasehold.dev/claim": scene.service.claim() });
    let patch = Patch::Merge(json!({
        "metadata": { "annotations": claim, "labels": { SILENT: "true" } },
    }));
    services.patch(NAME, &PatchParams::default(), &patch).await?;
    sleep(Duration::from_secs(1)).await;
    let what = format!("{edits} edits of a tenant, seed {SEED:#x}");
    scene.nothing_was_felt(&what, probe).await?;
    scene.not_moved(&before).await?;
    let now = scene.claim().await?;
    let listed = annotation(&now, "leasehold.dev/services").unwrap_or_default();
    let joined = listed.split(',').any(|service| service.starts_with(&format!("{NAMESPACE}/")));
    ensure!(!joined, "the claim is of {listed}");
    Ok(())
}
