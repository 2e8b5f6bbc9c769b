//! The cluster of the demo and of `up`, made from `examples/`, and how it tells what it does.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_lab::controlplane::documents;
use leasehold_lab::{Cluster, Lab, Service, repository, sandbox};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Tells a story to its end; where it cannot, the logs are kept.
pub(crate) fn run(scratch: &Path, story: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let told = runtime.block_on(story);
    if told.is_err() {
        sandbox::keep_logs(scratch);
    }
    told.map(|()| ExitCode::SUCCESS)
}

/// Says what comes next.
pub(crate) fn chapter(text: &str) {
    println!("\n== {text}");
}

/// Says what is going on.
pub(crate) fn say(text: &str) {
    println!("   {text}");
}

/// Starts the control plane, the operator and three nodes with speakers, and says so.
pub(crate) async fn cluster() -> Result<Cluster> {
    let begin = Instant::now();
    say("etcd, kube-apiserver, kube-controller-manager ...");
    let lab = Lab::start().await?;
    say(&format!("ready after {:.1} s; CRDs and RBAC applied", begin.elapsed().as_secs_f64()));
    lab.start_operator(&["--default-class"])?;
    say("3 nodes with kube-proxy and leasehold-speaker, 1 worker for the pods, 1 client ...");
    let cluster = lab.cluster("demo").plain_names().namespace("default").start().await?;
    say(&format!("up after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(cluster)
}

/// The times since the Service was applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// Until its owner's kernel had the address.
    pub(crate) held: Duration,
    /// Until a pod answered by it.
    pub(crate) answered: Duration,
}

/// Applies the pool and the Service of `examples/`.
pub(crate) async fn service(cluster: &Cluster) -> Result<(Service, Took)> {
    let lab = cluster.lab();
    show(lab, &["apply", "--server-side", "-f", "examples/pool.yaml"])?;
    let text = fs::read_to_string(repository().join("examples/web.yaml"))?;
    // Its Deployment needs kubelets; the pods are run by hand instead.
    let objects = documents(&text)?;
    let kind = |object: &&Value| object.get("kind") == Some(&"Service".into());
    let object = objects.iter().find(kind).context("no Service in examples/web.yaml")?;
    say("$ kubectl apply --server-side -f examples/web.yaml");
    let applied = Instant::now();
    lab.apply(object.clone()).await?;
    let pods = cluster.service("web").pods(2).back();
    let (service, took) = futures::try_join!(pods, held(cluster, applied))?;
    Ok((service, took))
}

/// Waits until the Service has an address, its owner's kernel too, and a pod answers by it; returns how long
/// that took.
async fn held(cluster: &Cluster, since: Instant) -> Result<Took> {
    let service = Service::named(cluster, "web");
    let mut took = Duration::ZERO;
    let what = "the Service has an address, and its owner's kernel too";
    let condition = async || {
        let Some(&vip) = service.addresses().await?.first() else { return Ok(false) };
        let Some(owner) = cluster.owner(&service).await? else { return Ok(false) };
        let held = cluster.node_named(&owner)?.has_address(vip)?.is_some();
        took = since.elapsed();
        Ok(held)
    };
    cluster.eventually(what, PATIENCE, condition).await?;
    let &vip = service.addresses().await?.first().context("it has no address any more")?;
    let mut answered = Duration::ZERO;
    let answers = async || {
        let answers = service.answers(cluster, vip)?;
        answered = since.elapsed();
        Ok(answers)
    };
    cluster.eventually("a pod answers by it", PATIENCE, answers).await?;
    Ok(Took { held: took, answered })
}

/// Runs kubectl, and shows the command and its output.
pub(crate) fn show(lab: &Arc<Lab>, arguments: &[&str]) -> Result<()> {
    say(&format!("$ kubectl {}", arguments.join(" ")));
    let root = repository();
    let absolute = |argument: &&str| {
        if argument.starts_with("examples/") {
            return root.join(argument).display().to_string();
        }
        (*argument).to_owned()
    };
    let real: Vec<String> = arguments.iter().map(absolute).collect();
    let real: Vec<&str> = real.iter().map(String::as_str).collect();
    for line in lab.plane().kubectl(&real)?.lines() {
        say(&format!("  {line}"));
    }
    Ok(())
}
