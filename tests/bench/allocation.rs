//! The operator with thousands of Services: what it takes, and how soon it allocates again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use leasehold_lab::Lab;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::record::{Book, Machine, median, milliseconds};

/// How many Services are created at a time.
const AT_ONCE: usize = 16;
/// How many wait for a pool.
const WAITING: usize = 1000;
/// For how long the API server is away.
const AWAY: Duration = Duration::from_secs(5);
/// How often a Service is looked at that is to get an address.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nothing happens before one Service more is created.
const QUIET: Duration = Duration::from_secs(2);
/// How long nothing happens before memory is read.
const REST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// How many Services there are.
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// How often each time is measured.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// One thing that was measured.
#[derive(Debug, Serialize)]
struct Measured {
    what: &'static str,
    services: usize,
    unit: &'static str,
    /// In order.
    values: Vec<f64>,
    #[serde(flatten)]
    machine: Machine,
    date: String,
}

struct Bench {
    lab: Arc<Lab>,
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    number: usize,
}

impl Bench {
    async fn create(&self, name: String, annotations: Value) -> Result<()> {
        let service = serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": annotations },
            // There are fewer node ports than Services.
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }],
                "allocateLoadBalancerNodePorts": false },
        }))?;
        self.services.create(&PostParams::default(), &service).await?;
        Ok(())
    }

    /// One endpoint, as the endpoint slice controller writes it for a Service with a pod.
    async fn give_endpoint(&self, service: &str) -> Result<()> {
        let slice = serde_json::from_value(json!({
            "metadata": { "name": format!("{service}-1"),
                "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.255.0.1"], "conditions": { "ready": true } }],
            "ports": [{ "port": 80 }],
        }))?;
        self.slices.create(&PostParams::default(), &slice).await?;
        Ok(())
    }

    async fn create_many(&self, prefix: &str, count: usize, annotations: &Value) -> Result<()> {
        let create = async |number| {
            let name = format!("{prefix}-{number}");
            self.give_endpoint(&name).await?;
            self.create(name, annotations.clone()).await
        };
        stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    /// How many Services of this prefix have an address.
    async fn served(&self, prefix: &str) -> Result<usize> {
        let all = self.services.list(&ListParams::default()).await?;
        let such = all.iter().filter(|service| service.name_any().starts_with(prefix));
        Ok(such.filter(|service| has_address(service)).count())
    }

    async fn all_served(&self, prefix: &str, count: usize) -> Result<()> {
        self.lab
            .eventually("all have an address", PATIENCE * 5, async || {
                sleep(Duration::from_millis(200)).await;
                Ok(self.served(prefix).await? == count)
            })
            .await
    }

    /// Creates a Service; returns its name.
    async fn ask(&mut self) -> Result<String> {
        self.number += 1;
        let name = format!("one-{}", self.number);
        self.create(name.clone(), json!({})).await?;
        Ok(name)
    }

    async fn answered(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        while !has_address(&self.services.get(name).await?) {
            ensure!(begin.elapsed() < PATIENCE, "{name} gets no address");
            sleep(LOOK).await;
        }
        self.services.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn start_operator(&self) -> Result<()> {
        // As the container of a pod, which is started again in its pod.
        self.lab.start_operator(&["--default-class", "--pod-name", "operator"])
    }

    async fn pool(&self, name: &str, addresses: &str) -> Result<()> {
        self.lab
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
                "metadata": { "name": name }, "spec": { "addresses": [addresses] },
            }))
            .await
    }

    // === what is measured ===

    /// From the request for one Service more to its address.
    async fn one_more(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let name = self.ask().await?;
        self.answered(&name).await?;
        Ok(begin.elapsed())
    }

    /// From the start of a process to the address of a Service that waits.
    async fn after_a_restart(&mut self, killed: bool) -> Result<Duration> {
        let operator = self.lab.operator()?;
        if killed {
            operator.process().kill().await?;
        } else {
            ensure!(operator.terminate().await?.success(), "the operator failed");
        }
        let name = self.ask().await?;
        let begin = Instant::now();
        self.start_operator()?;
        self.answered(&name).await?;
        Ok(begin.elapsed())
    }

    /// From the return of the API server to the address of a Service that is created then.
    async fn after_an_outage(&mut self) -> Result<Duration> {
        self.lab.plane().stop_api_server().await?;
        sleep(AWAY).await;
        self.lab.plane().start_api_server().await?;
        self.one_more().await
    }

    /// From the creation of a pool to the address of the last of those that wait for it.
    async fn waiting(&mut self, repeat: usize) -> Result<Duration> {
        let (prefix, pool) = (format!("wait-{repeat}"), format!("late-{repeat}"));
        let wish = json!({ "leasehold.dev/address-pool": pool });
        self.create_many(&prefix, WAITING, &wish).await?;
        sleep(REST).await;
        let begin = Instant::now();
        self.pool(&pool, &format!("10.{}.0.0/20", 100 + repeat)).await?;
        self.all_served(&prefix, WAITING).await?;
        let took = begin.elapsed();
        for number in 0..WAITING {
            let name = format!("{prefix}-{number}");
            self.services.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(took)
    }
}

/// Measures one after another.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "allocation.json")?;
    let lab = Lab::start().await?;
    let services = Api::namespaced(lab.admin(), "default");
    let slices = Api::namespaced(lab.admin(), "default");
    let mut bench = Bench { lab, services, slices, number: 0 };
    bench.pool("lan", "10.0.0.0/16").await?;
    bench.start_operator()?;
    bench.create_many("web", plan.services, &json!({})).await?;
    bench.all_served("web", plan.services).await?;
    sleep(REST).await;
    let note = |what, unit, mut values: Vec<f64>| -> Result<()> {
        values.sort_by(f64::total_cmp);
        let middle = median(&values).context("nothing was measured")?;
        let most = values.last().copied().unwrap_or(middle);
        println!("{what:<60} {middle:>9.1} {most:>9.1} {unit}");
        let (machine, date) = (Machine::here()?, k8s_openapi::jiff::Timestamp::now().to_string());
        book.append(&Measured { what, services: plan.services, unit, values, machine, date })
    };
    println!("{} Services{:>51} {:>9}", plan.services, "median", "most");
    let mut times = Vec::new();
    for _ in 0..plan.repeat * 4 {
        // A plan that follows another one waits a little.
        sleep(QUIET).await;
        times.push(milliseconds(bench.one_more().await?));
    }
    note("one Service more: until it has an address", "ms", times)?;
    let mut times = Vec::new();
    for _ in 0..plan.repeat {
        times.push(milliseconds(bench.after_a_restart(false).await?));
    }
    note("SIGTERM and a new process: until it has allocated", "ms", times)?;
    let mut times = Vec::new();
    for _ in 0..plan.repeat {
        times.push(milliseconds(bench.after_a_restart(true).await?));
    }
    note("SIGKILL and a new process: until it has allocated", "ms", times)?;
    let mut times = Vec::new();
    for _ in 0..plan.repeat {
        times.push(milliseconds(bench.after_an_outage().await?));
    }
    note("API server back after 5 s: until it has allocated", "ms", times)?;
    let mut times = Vec::new();
    for repeat in 0..plan.repeat {
        times.push(milliseconds(bench.waiting(repeat).await?));
    }
    note("a pool for 1,000 that wait: until all have an address", "ms", times)?;
    sleep(REST).await;
    let resident = bench.lab.operator()?.process().resident_kib()?;
    let resident = u32::try_from(resident).map_or(f64::INFINITY, f64::from) / 1024.0;
    note("memory of the operator, resident", "MiB", vec![resident])?;
    println!("\nevery value is in {}", book.path().display());
    Ok(true)
}

fn has_address(service: &Service) -> bool {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
