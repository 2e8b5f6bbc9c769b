//! The durations of decisions: criterion measures them (`tests/bench/micro`), this reads its estimates.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{Book, Machine};

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Directory with the estimates of criterion.
    #[arg(long, default_value = "target/criterion", value_name = "FOLDER")]
    estimates: PathBuf,
}

/// One of them.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Decision {
    /// The part of the code, and the measured case.
    pub(crate) part: String,
    pub(crate) what: String,
    /// The median, and the bounds between which it is in 95 of 100 repetitions.
    pub(crate) median_ns: f64,
    pub(crate) low_ns: f64,
    pub(crate) high_ns: f64,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

/// Collects them all.
pub(crate) fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let mut found = Vec::new();
    estimates(&plan.estimates, &mut found).with_context(|| {
        format!("read {}: `make bench-micro` makes it", plan.estimates.display())
    })?;
    ensure!(!found.is_empty(), "{} has no estimates", plan.estimates.display());
    found.sort();
    let book = Book::open(out, "decisions.json")?;
    for folder in found {
        book.append(&decision(&folder).with_context(|| format!("read {}", folder.display()))?)?;
    }
    println!("every value is in {}", book.path().display());
    Ok(true)
}

/// The folders with the estimates of the last run.
fn estimates(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name() == Some(OsStr::new("new")) && path.join("estimates.json").exists() {
            found.push(path);
        } else if path.is_dir() {
            estimates(&path, found)?;
        }
    }
    Ok(())
}

fn decision(folder: &Path) -> Result<Decision> {
    let read = |name: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(folder.join(name))?)?)
    };
    let (name, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let text = |key: &str| name.get(key).and_then(Value::as_str).map(str::to_owned);
    let value = |path: &str| {
        let value = estimates.pointer(path).and_then(Value::as_f64);
        value.with_context(|| format!("no {path} in estimates.json"))
    };
    Ok(Decision {
        part: text("group_id").context("no group_id in benchmark.json")?,
        what: text("function_id").context("no function_id in benchmark.json")?,
        median_ns: value("/median/point_estimate")?,
        low_ns: value("/median/confidence_interval/lower_bound")?,
        high_ns: value("/median/confidence_interval/upper_bound")?,
        machine: Machine::here()?,
        date: Timestamp::now().to_string(),
    })
}
