//! The cost of Services, endpoints and nodes that Leasehold does not serve: the peak memory of a speaker and of the
//! operator that start in a cluster full of them, and their start times.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use leasehold_lab::process::Process;
use leasehold_lab::{Cluster, Lab, Node};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cost::Stage;
use crate::record::{mib, milliseconds, resident};

/// The number of objects that are created concurrently.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(300);
/// The pause before memory is read.
const REST: Duration = Duration::from_secs(10);
/// The number of nodes with a speaker.
const NODES: u8 = 3;
/// The namespace of what is not ours.
const NAMESPACE: &str = "default";

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Number of unrelated Services, with one EndpointSlice each.
    #[arg(long, default_value_t = 20_000)]
    services: usize,
    /// Number of endpoints of each slice.
    #[arg(long, default_value_t = 100)]
    endpoints: usize,
    /// Number of nodes.
    #[arg(long, default_value_t = 2_000)]
    nodes: usize,
    /// Number of images in the status of each node.
    #[arg(long, default_value_t = 50)]
    images: usize,
    /// Number of Services of type LoadBalancer.
    #[arg(long, default_value_t = 10)]
    ours: usize,
    /// Maximum memory of a speaker at any time, in MiB.
    #[arg(long, default_value_t = 40.0)]
    most_mib: f64,
}

/// Starts everything in such a cluster; returns whether the speakers stayed within their bound.
pub(crate) async fn run(plan: &Plan) -> Result<bool> {
    let stage = Stage::open(NODES).await?;
    ensure!(stage.lab.operator()?.terminate().await?.success(), "the operator failed");
    fill(&stage.lab, plan).await?;
    println!("{:<40} {:>9} {:>9} {:>9}", "", "peak MiB", "then MiB", "after ms");

    let node = stage.cluster.nodes().first().context("there are three")?;
    let took = started(&stage.cluster, node).await?;
    sleep(REST).await;
    let mut most = told("speaker, ready; nothing is ours", &*node.speaker()?.process()?, took)?;
    node.speaker()?.terminate().await?;

    stage.fleet.create_many("ours", 0..plan.ours, &json!({})).await?;
    let began = Instant::now();
    stage.lab.start_operator(&["--default-class"])?;
    let all = async || Ok(stage.fleet.served("ours").await? == plan.ours);
    stage.lab.eventually("all of ours have an address", PATIENCE, all).await?;
    let allocated = began.elapsed();
    let began = Instant::now();
    for node in stage.cluster.nodes() {
        node.start_speaker()?;
    }
    stage.all_owned(plan.ours, NODES.into()).await?;
    let announced = began.elapsed();
    sleep(REST).await;
    for node in stage.cluster.nodes() {
        let what = format!("speaker of {}, all of ours announced", node.name());
        most = most.max(told(&what, &*node.speaker()?.process()?, announced)?);
    }
    told("operator, all of ours have an address", stage.lab.operator()?.process(), allocated)?;

    // All lists have to be in before its session runs out.
    node.speaker()?.terminate().await?;
    let took = started(&stage.cluster, node).await?;
    sleep(REST).await;
    most = most.max(told("speaker, ready again", &*node.speaker()?.process()?, took)?);
    println!("\nthe largest speaker had {most:.1} MiB; {:.1} are allowed", plan.most_mib);
    Ok(most <= plan.most_mib)
}

/// Starts a node's speaker; returns how long it took to be ready.
async fn started(cluster: &Cluster, node: &Node) -> Result<Duration> {
    let began = Instant::now();
    node.start_speaker()?;
    let ready = async || Ok(node.speaker_http("/readyz").is_ok());
    cluster.eventually("the speaker is ready", PATIENCE, ready).await?;
    Ok(began.elapsed())
}

/// Says what a process has had, and returns it.
fn told(what: &str, process: &Process, took: Duration) -> Result<f64> {
    let (peak, now) = (mib(process.peak_kib()?)?, resident(process)?);
    println!("{what:<40} {peak:>9.1} {now:>9.1} {:>9.0}", milliseconds(took));
    Ok(peak)
}

/// Creates all that is not ours.
async fn fill(lab: &Lab, plan: &Plan) -> Result<()> {
    let began = Instant::now();
    let post = PostParams::default();
    let nodes: Api<NodeObject> = Api::all(lab.admin());
    let create = async |number| {
        nodes.create(&post, &serde_json::from_value(node(number, plan.images))?).await?;
        anyhow::Ok(())
    };
    stream::iter(0..plan.nodes).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let services: Api<Service> = Api::namespaced(lab.admin(), NAMESPACE);
    let slices: Api<EndpointSlice> = Api::namespaced(lab.admin(), NAMESPACE);
    let create = async |number| {
        services.create(&post, &serde_json::from_value(service(number))?).await?;
        slices.create(&post, &serde_json::from_value(slice(number, plan))?).await?;
        anyhow::Ok(())
    };
    let all = stream::iter(0..plan.services).map(create).buffer_unordered(AT_ONCE);
    all.try_collect::<()>().await?;
    let Plan { services, endpoints, nodes, images, ours, .. } = plan;
    println!(
        "{services} ordinary Services with {endpoints} endpoints each, {nodes} nodes with {images} images each, \
         {ours} Services of ours; created in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn node_name(number: usize) -> String {
    format!("worker-{number:04}.rack-{:02}.cluster.example.com", number % 40)
}

/// A Node as a kubelet registers it and reports of it.
fn node(number: usize, images: usize) -> Value {
    let name = node_name(number);
    let image = |image: usize| {
        let repository = format!("registry.example.com/team-{}/application-{image}", image % 7);
        let digest = format!("{repository}@sha256:{:064x}", image * 7919 + 1);
        json!({ "names": [digest, format!("{repository}:v1.{image}.0")], "sizeBytes": 123_456_789 })
    };
    let condition = |type_: &str, status: &str| {
        json!({ "type": type_, "status": status, "reason": format!("Kubelet{type_}"),
            "message": format!("kubelet has said of {type_} what there is to say"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "metadata": { "name": name, "labels": {
            "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "bare-metal.large",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": format!("region-1-{}", number % 3),
            "example.com/rack": format!("rack-{:02}", number % 40), "example.com/pool": "general",
        } },
        "spec": { "podCIDR": format!("10.{}.{}.0/24", 128 + number / 256, number % 256) },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": format!("172.30.{}.{}", number / 256, number % 256) },
                { "type": "Hostname", "address": name },
            ],
            "capacity": { "cpu": "64", "memory": "263842132Ki", "pods": "250" },
            "allocatable": { "cpu": "63", "memory": "262793556Ki", "pods": "250" },
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "images": (0..images).map(image).collect::<Vec<_>>(),
        },
    })
}

fn service(number: usize) -> Value {
    let name = format!("application-{number}");
    json!({
        "metadata": { "name": name, "labels": {
            "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": "application-1.2.3",
        } },
        "spec": { "type": "ClusterIP", "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] },
    })
}

/// A slice as the endpoint slice controller writes it, with pods on nodes all over the cluster.
fn slice(number: usize, plan: &Plan) -> Value {
    let service = format!("application-{number}");
    let endpoint = |pod: usize| {
        let place = (number * 37 + pod * 19) % plan.nodes.max(1);
        let identity = number * plan.endpoints + pod;
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + place / 256, place % 256, 1 + identity % 250)],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": node_name(place),
            "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": format!("{service}-7d9c5b8f6d-{pod:05}"),
                "uid": format!("{identity:08x}-0000-4000-8000-{identity:012x}") },
            "zone": format!("region-1-{}", place % 3),
        })
    };
    json!({
        "metadata": { "name": format!("{service}-x7k2p"), "labels": {
            "kubernetes.io/service-name": service, "app.kubernetes.io/name": service,
            "endpointslice.kubernetes.io/managed-by": "leasehold-bench",
        } },
        "addressType": "IPv4",
        "endpoints": (0..plan.endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    })
}
