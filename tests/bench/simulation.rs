//! Large clusters, by simulation: the simulator measures, this keeps what it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use leasehold_sim::scale::Outcome;
use serde::{Deserialize, Serialize};

use crate::record::{Book, Machine};

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Path of the simulator. The one beside this program has every check enabled and takes hours.
    #[arg(long, default_value = "target/release/leasehold-sim", value_name = "PROGRAM")]
    simulator: PathBuf,
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500, 5000])]
    nodes: Vec<usize>,
    /// Number of Services.
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// Number of nodes that fail at the same time; at most a tenth of all nodes.
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

/// Runs them all, at the same time: on virtual time nobody disturbs the others.
pub(crate) fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "scale.json")?;
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let each = plan.nodes.iter().map(|nodes| scope.spawn(|| plan.simulate(*nodes)));
        let running: Vec<_> = each.collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended.map(|end| end.unwrap_or_else(|_| bail!("the simulator's thread ended"))).collect()
    });
    for outcome in outcomes {
        let (machine, date) = (Machine::here()?, Timestamp::now().to_string());
        let simulated = Simulated { outcome: outcome?, machine, date };
        println!("{}", serde_json::to_string(&simulated)?);
        book.append(&simulated)?;
    }
    Ok(true)
}

impl Plan {
    fn simulate(&self, nodes: usize) -> Result<Outcome> {
        let program = self.simulator.display();
        let ran = Command::new(&self.simulator)
            .arg("scale")
            .args(["--nodes", &nodes.to_string(), "--services", &self.services.to_string()])
            .args(["--rack", &self.rack.min(nodes / 10).max(1).to_string()])
            .output()
            .with_context(|| format!("run {program}: `make bench-simulator` builds it"))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{program} failed with {nodes} nodes: {said}");
        serde_json::from_slice(&ran.stdout)
            .with_context(|| format!("{program} said something else than an outcome"))
    }
}
