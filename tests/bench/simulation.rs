//! Large clusters, by simulation: the simulator measures, this keeps what it says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use leasehold_sim::scale::Outcome;
use serde::{Deserialize, Serialize};

use crate::record::{Book, Machine};

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// The simulator: not the one beside this program, which has every check and takes hours.
    #[arg(long, default_value = "target/release/leasehold-sim", value_name = "PROGRAM")]
    simulator: PathBuf,
    /// How many nodes there are.
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500, 5000])]
    nodes: Vec<usize>,
    /// How many Services.
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// How many nodes die at once.
    #[arg(long, default_value_t = 20)]
    rack: usize,
}

/// One cluster.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Simulated {
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

/// Runs it all.
pub(crate) fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "scale.json")?;
    let program = plan.simulator.display();
    for nodes in &plan.nodes {
        let ran = Command::new(&plan.simulator)
            .arg("scale")
            .args(["--nodes", &nodes.to_string(), "--services", &plan.services.to_string()])
            .args(["--rack", &plan.rack.to_string()])
            .output()
            .with_context(|| format!("run {program}: `make bench-simulator` builds it"))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{program} failed with {nodes} nodes: {said}");
        let outcome = serde_json::from_slice(&ran.stdout)
            .with_context(|| format!("{program} said something else than an outcome"))?;
        let simulated =
            Simulated { outcome, machine: Machine::here()?, date: Timestamp::now().to_string() };
        println!("{}", serde_json::to_string(&simulated)?);
        book.append(&simulated)?;
    }
    Ok(true)
}
