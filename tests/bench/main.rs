//! `leasehold-bench`: what a client feels when something breaks, repeated; false alarms when nothing
//! does; what it costs, in labs and in simulated clusters; and the tables of all that.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures with a clock")]

mod allocation;
mod chance;
mod cost;
mod data_path;
mod decisions;
mod failover;
mod kubernetes;
mod logs;
mod matrix;
mod memory;
mod others;
mod outages;
mod record;
mod report;
mod service;
mod simulation;
mod soak;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use leasehold_lab::sandbox::{self, Side};

#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Directory for the results.
    #[arg(long, default_value = "target/bench", value_name = "FOLDER")]
    out: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cause faults, and measure how long clients get no answer.
    Failover(failover::Plan),
    /// Measure the operator with thousands of Services.
    Allocation(allocation::Plan),
    /// Count requests, memory, CPU time, and frames as the number of Services grows.
    Cost(cost::Plan),
    /// Compare requests to an address with requests to a node port.
    DataPath(data_path::Plan),
    /// Collect the estimates of the micro benchmarks.
    Decisions(decisions::Plan),
    /// Run Kubernetes' own end-to-end tests of Services and load balancers.
    Kubernetes(kubernetes::Plan),
    /// Try what users expect with each version of Kubernetes and each mode of kube-proxy.
    Matrix(matrix::Plan),
    /// Measure the memory of speakers and the operator in a cluster full of unrelated Services and
    /// nodes.
    Memory(memory::Plan),
    /// Stop the API server half of the time while links, speakers, and nodes fail, and measure
    /// unanswered addresses.
    Outages(outages::Plan),
    /// Simulate large clusters, and report their cost and recovery times.
    Scale(simulation::Plan),
    /// Write the tables and pictures of the README, of the performance pages and of the compatibility page from the
    /// results in `tests/bench/results`.
    Report,
    /// Cause faults of nodes that run pods of a Service, and count the connections that fail.
    Service(service::Plan),
    /// Run speakers under conditions that must not alarm them, and count false alarms.
    Soak(soak::Plan),
}

fn main() -> ExitCode {
    match leasehold_lab::serve_if_pod().and_then(|()| run()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match sandbox::enter()? {
        Side::Outside(code) => Ok(code),
        Side::Inside(scratch) => inside(&arguments, &scratch),
    }
}

fn inside(arguments: &Arguments, scratch: &Path) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ran = runtime.block_on(async {
        match &arguments.command {
            Command::Failover(plan) => failover::run(plan, &arguments.out).await,
            Command::Allocation(plan) => allocation::run(plan, &arguments.out).await,
            Command::Cost(plan) => cost::run(plan, &arguments.out).await,
            Command::DataPath(plan) => data_path::run(plan, &arguments.out).await,
            Command::Decisions(plan) => decisions::run(plan, &arguments.out),
            Command::Kubernetes(plan) => kubernetes::run(plan, &arguments.out).await,
            Command::Matrix(plan) => matrix::run(plan, &arguments.out).await,
            Command::Memory(plan) => memory::run(plan).await,
            Command::Outages(plan) => outages::run(plan, &arguments.out).await,
            Command::Service(plan) => service::run(plan, &arguments.out).await,
            Command::Scale(plan) => simulation::run(plan, &arguments.out),
            Command::Soak(plan) => soak::run(plan, &arguments.out).await,
            Command::Report => {
                report::write(&leasehold_lab::repository().join("tests/bench/results"))
            }
        }
    });
    if !matches!(ran, Ok(true)) {
        sandbox::keep_logs(scratch);
    }
    ran.map(|clean| if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
