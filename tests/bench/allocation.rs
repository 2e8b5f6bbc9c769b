//! The operator with thousands of Services: what it takes, and how soon it allocates again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use leasehold_lab::Lab;
use leasehold_lab::fleet::Fleet;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use crate::record::{Book, Machine, median, milliseconds, resident};

/// The number of Services that wait for a pool.
const WAITING: usize = 1000;
/// For how long the API server is away.
const AWAY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause before one more Service is created.
const QUIET: Duration = Duration::from_secs(2);
/// The pause before memory is read.
const REST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Number of Services.
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// Number of repetitions of each measurement.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// One thing that was measured.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) what: String,
    pub(crate) services: usize,
    pub(crate) unit: String,
    /// In order.
    pub(crate) values: Vec<f64>,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

struct Bench {
    lab: Arc<Lab>,
    fleet: Fleet,
    number: usize,
}

impl Bench {
    async fn all_served(&self, prefix: &str, count: usize) -> Result<()> {
        self.lab
            .eventually("all have an address", PATIENCE * 5, async || {
                sleep(Duration::from_millis(200)).await;
                Ok(self.fleet.served(prefix).await? == count)
            })
            .await
    }

    /// Creates a Service; returns its name.
    async fn ask(&mut self) -> Result<String> {
        self.number += 1;
        let name = format!("one-{}", self.number);
        self.fleet.create(&name, &json!({})).await?;
        Ok(name)
    }

    async fn answered(&self, name: &str) -> Result<()> {
        self.fleet.answered(name).await?;
        self.fleet.delete(name).await
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
        self.fleet.create_many(&prefix, 0..WAITING, &wish).await?;
        sleep(REST).await;
        let begin = Instant::now();
        self.pool(&pool, &format!("10.{}.0.0/20", 100 + repeat)).await?;
        self.all_served(&prefix, WAITING).await?;
        let took = begin.elapsed();
        for number in 0..WAITING {
            let name = format!("{prefix}-{number}");
            self.fleet.delete(&name).await?;
        }
        Ok(took)
    }
}

/// Measures one after another.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "allocation.json")?;
    let lab = Lab::start().await?;
    let fleet = Fleet::of(&lab);
    let mut bench = Bench { lab, fleet, number: 0 };
    bench.pool("lan", "10.0.0.0/16").await?;
    bench.start_operator()?;
    bench.fleet.create_many("web", 0..plan.services, &json!({})).await?;
    bench.all_served("web", plan.services).await?;
    sleep(REST).await;
    let note = |what: &str, unit: &str, mut values: Vec<f64>| -> Result<()> {
        values.sort_by(f64::total_cmp);
        let middle = median(&values).context("nothing was measured")?;
        let most = values.last().copied().unwrap_or(middle);
        println!("{what:<60} {middle:>9.1} {most:>9.1} {unit}");
        let (machine, date) = (Machine::here()?, k8s_openapi::jiff::Timestamp::now().to_string());
        let (what, unit) = (what.to_owned(), unit.to_owned());
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
    let resident = resident(bench.lab.operator()?.process())?;
    note("memory of the operator, resident", "MiB", vec![resident])?;
    println!("\nevery value is in {}", book.path().display());
    Ok(true)
}
