//! The results of `make bench`, as they were written.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::allocation::Measured;
use crate::cost::{Cost, Hoard};
use crate::data_path::Turn;
use crate::decisions::Decision;
use crate::failover::{APART, FAILOVER, OTHERS};
use crate::kubernetes::Tested;
use crate::matrix::{Cell, MATRIX};
use crate::record::{Machine, Run};
use crate::service::Trial;
use crate::simulation::Simulated;

/// All of them.
pub(crate) struct Results {
    pub(crate) failover: Vec<Run>,
    /// Of systems that are measured by themselves.
    pub(crate) others: Vec<Run>,
    /// Measured by themselves, maybe on another machine.
    pub(crate) apart: Vec<Run>,
    /// Of Services with pods on all nodes; measured by themselves, too.
    pub(crate) service: Vec<Trial>,
    /// Of versions of Kubernetes; on another day, too.
    pub(crate) matrix: Vec<Cell>,
    /// Of `make test-kubernetes`.
    pub(crate) kubernetes: Vec<Tested>,
    pub(crate) cost: Vec<Cost>,
    pub(crate) hoard: Vec<Hoard>,
    pub(crate) data_path: Vec<Turn>,
    pub(crate) allocation: Vec<Measured>,
    pub(crate) scale: Vec<Simulated>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) printed: Vec<Printed>,
}

/// A row of a table whose figures a program prints and does not write: copied from its output.
#[derive(Debug, Deserialize)]
pub(crate) struct Printed {
    /// The name of the table.
    pub(crate) table: String,
    pub(crate) cells: Vec<String>,
    /// The commit of the program, where it was noted.
    pub(crate) commit: Option<String>,
}

impl Results {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let results = Self {
            failover: read(folder, FAILOVER)?,
            others: read(folder, OTHERS)?,
            apart: read(folder, APART)?,
            service: read(folder, "service.json")?,
            matrix: read(folder, MATRIX)?,
            kubernetes: read(folder, "kubernetes.json")?,
            cost: read(folder, "cost.json")?,
            hoard: read(folder, "hoard.json")?,
            data_path: read(folder, "data-path.json")?,
            allocation: read(folder, "allocation.json")?,
            scale: read(folder, "scale.json")?,
            decisions: read(folder, "decisions.json")?,
            printed: read(folder, "printed.json")?,
        };
        results.origin()?;
        Ok(results)
    }

    /// Of all systems.
    pub(crate) fn failovers(&self) -> impl Iterator<Item = &Run> {
        self.failover.iter().chain(&self.others)
    }

    /// On what all of it was measured, of which commits, and on which days. The machine is the same.
    pub(crate) fn origin(&self) -> Result<(&Machine, Vec<&str>, Vec<&str>)> {
        let all = self.failover.iter().map(|it| (&it.machine, &it.date));
        let all = all.chain(self.cost.iter().map(|it| (&it.machine, &it.date)));
        let all = all.chain(self.hoard.iter().map(|it| (&it.machine, &it.date)));
        let all = all.chain(self.data_path.iter().map(|it| (&it.machine, &it.date)));
        let all = all.chain(self.allocation.iter().map(|it| (&it.machine, &it.date)));
        let all = all.chain(self.scale.iter().map(|it| (&it.machine, &it.date)));
        let all = all.chain(self.decisions.iter().map(|it| (&it.machine, &it.date)));
        let mut days: Vec<&str> = Vec::new();
        let mut commits: Vec<&str> = Vec::new();
        let mut machine: Option<&Machine> = None;
        for (this, date) in all {
            let first = *machine.get_or_insert(this);
            ensure!(
                Machine { commit: this.commit.clone(), ..first.clone() } == *this,
                "results of {first:?} and of {this:?} are mixed: run `make bench` again"
            );
            days.extend(date.split('T').next());
            if !commits.contains(&this.commit.as_str()) {
                commits.push(&this.commit);
            }
        }
        days.sort_unstable();
        days.dedup();
        Ok((machine.context("there are no results: run `make bench`")?, commits, days))
    }
}

fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Vec<T>> {
    let path = folder.join(name);
    let text = fs::read(&path).with_context(|| {
        format!("read {}: `make bench` and `make matrix` write them", path.display())
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{} has other results", path.display()))
}
