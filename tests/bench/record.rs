//! Results: one object for each repeat in a JSON file, and a table of medians and maxima.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_lab::controlplane::default_version;
use leasehold_lab::process::Process;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failover::Phases;

/// The effect of one fault on a client.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Felt {
    /// The longest time without a prompt answer, of the VIP that was away longest.
    pub(crate) outage_ms: f64,
    /// Datagrams that were never answered, of all VIPs.
    pub(crate) lost: usize,
    /// ... of the VIP that lost most.
    pub(crate) lost_most: usize,
    /// Datagrams that were sent.
    pub(crate) sent: usize,
    /// Whether the one connection that the client held was reset or never answered again.
    pub(crate) connection_broken: bool,
    /// The time during which two nodes answered ARP requests for a VIP.
    pub(crate) two_owners_ms: f64,
    /// The longest time without an answer to ARP: what somebody waits who comes anew.
    pub(crate) arp_unanswered_ms: f64,
    /// The number of VIPs that the victims owned.
    pub(crate) hit: usize,
    /// Whether all VIPs answered at the end.
    pub(crate) recovered: bool,
    /// Where the time went, where an address moved by silence and fence.
    pub(crate) phases: Option<Phases>,
    /// The shares of the nodes after a start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shares: Option<Shares>,
    /// From what it was drawn how a node ended piece by piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
}

/// The numbers of addresses of the nodes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Shares {
    pub(crate) fewest: usize,
    pub(crate) most: usize,
}

impl fmt::Display for Shares {
    /// `1 to 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.fewest, self.most)
    }
}

/// One repeat, as it is kept.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) fault: String,
    pub(crate) system: String,
    pub(crate) profile: String,
    pub(crate) repeat: usize,
    #[serde(flatten)]
    pub(crate) felt: Felt,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

/// The program and the machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) commit: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kubernetes: String,
    pub(crate) keepalived: String,
}

impl Machine {
    pub(crate) fn here() -> Result<Self> {
        let commit = git(&["describe", "--always"]);
        // What benchmarks write themselves is no change.
        let written = [
            ":!README.md",
            ":!docs/src/performance",
            ":!docs/src/installation/compatibility.md",
            ":!tests/bench/results",
        ];
        let changes = [&["status", "--porcelain", "--untracked-files=no", "--", "."][..], &written];
        let dirty = git(&changes.concat()).is_some_and(|changes| !changes.is_empty());
        Ok(Self {
            commit: match commit {
                Some(commit) if dirty => format!("{commit}-dirty"),
                Some(commit) => commit,
                None => "unknown".to_owned(),
            },
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: processor(&fs::read_to_string("/proc/cpuinfo")?),
            cores: std::thread::available_parallelism()?.get(),
            kubernetes: default_version()?,
            keepalived: keepalived().unwrap_or_else(|| "not installed".to_owned()),
        })
    }
}

/// The output of git in this checkout; `None` without git or a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(leasehold_lab::repository()).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

/// The version of keepalived, if it is installed: `Keepalived v2.2.7 (01/16,2022)`.
fn keepalived() -> Option<String> {
    let output = Command::new("keepalived").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stderr).ok()?;
    Some(text.split_whitespace().nth(1)?.trim_start_matches('v').to_owned())
}

/// The name of the first processor (proc(5)), where the kernel knows it.
fn processor(info: &str) -> String {
    let name = info.lines().find_map(|line| line.strip_prefix("model name"));
    name.and_then(|rest| rest.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// A JSON file with an array, to which objects are appended.
#[derive(Debug)]
pub(crate) struct Book(PathBuf);

impl Book {
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Self(folder.join(name)))
    }

    pub(crate) fn append(&self, entry: &impl Serialize) -> Result<()> {
        let mut all: Vec<Value> = self.read()?;
        all.push(serde_json::to_value(entry)?);
        self.write(&all)
    }

    /// What it has so far.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        match fs::read(&self.0) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a list of results", self.0.display())),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Replaces all that it has.
    pub(crate) fn write(&self, all: &[impl Serialize]) -> Result<()> {
        let all: Vec<Value> = all.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let lines = all.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
        let fresh = self.0.with_extension("fresh");
        fs::write(&fresh, format!("[\n{lines}\n]\n"))?;
        Ok(fs::rename(fresh, &self.0)?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Repeats of one fault on one system.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) fault: String,
    pub(crate) system: String,
    pub(crate) felt: Vec<Felt>,
    /// Repeats that could not be measured.
    pub(crate) failed: usize,
}

/// The table of medians, 95th percentiles and maxima.
pub(crate) fn table(all: &[Series]) -> String {
    let mut text = format!(
        "{:<24} {:<17} {:>3}  {:>21}  {:>13}  {:>13}  {:>13}  {:>6}\n{:<46}  {:>21}  {:>13}  {:>13}  {:>13}\n",
        "fault",
        "system",
        "n",
        "outage ms",
        "lost",
        "two owners ms",
        "no ARP answer",
        "reset",
        "",
        "median / p95 / max",
        "median / max",
        "median / max",
        "median / max",
    );
    for series in all {
        let spread = |value: fn(&Felt) -> f64| Spread::of(series.felt.iter().map(value));
        let cell = |value| match spread(value) {
            Some(Spread { median, most, .. }) => format!("{median:.0} / {most:.0}"),
            None => "-".to_owned(),
        };
        let outage = match spread(|felt| felt.outage_ms) {
            Some(Spread { median, p95, most }) => format!("{median:.0} / {p95:.0} / {most:.0}"),
            None => "-".to_owned(),
        };
        let count = |felt: &Felt| u32::try_from(felt.lost).map_or(f64::INFINITY, f64::from);
        let away = series.felt.iter().filter(|felt| !felt.recovered).count();
        let reset = series.felt.iter().filter(|felt| felt.connection_broken).count();
        let _infallible = write!(
            text,
            "{:<24} {:<17} {:>3}  {:>21}  {:>13}  {:>13}  {:>13}  {:>6}",
            series.fault,
            series.system,
            series.felt.len(),
            outage,
            cell(count),
            cell(|felt| felt.two_owners_ms),
            cell(|felt| felt.arp_unanswered_ms),
            reset,
        );
        if away > 0 {
            let _infallible = write!(text, "  ({away} did not come back)");
        }
        if series.failed > 0 {
            let _infallible = write!(text, "  ({} failed)", series.failed);
        }
        text.push('\n');
    }
    text
}

/// The distribution of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// See [`percentile`].
    pub(crate) p95: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let p95 = *percentile(&values, 95)?;
        Some(Self { median: median(&values)?, p95, most: *values.last()? })
    }
}

/// Of sorted values the smallest that so many of a hundred do not exceed (nearest rank).
pub(crate) fn percentile<T>(sorted: &[T], hundredth: usize) -> Option<&T> {
    sorted.get((sorted.len() * hundredth).div_ceil(100).checked_sub(1)?)
}

/// Of sorted values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let upper = values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = values.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(*lower, *upper))
}

/// Milliseconds with one digit behind the point.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

/// Resident memory of a process in MiB.
pub(crate) fn resident(process: &Process) -> Result<f64> {
    mib(process.resident_kib()?)
}

/// KiB in MiB.
pub(crate) fn mib(kib: u64) -> Result<f64> {
    Ok(f64::from(u32::try_from(kib)?) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
    }

    #[test]
    fn of_twenty_values_the_nineteenth_is_the_95th_percentile() {
        let spread = Spread::of((1..=20).rev().map(f64::from)).unwrap();
        assert_eq!(spread, Spread { median: 10.5, p95: 19.0, most: 20.0 });
        assert_eq!(Spread::of(std::iter::empty()), None);
    }

    #[test]
    fn results_are_added_to_those_of_before() {
        let folder = tempfile::tempdir().unwrap();
        for number in [1, 2] {
            let book = Book::open(folder.path(), "results.json").unwrap();
            book.append(&serde_json::json!({ "number": number })).unwrap();
        }
        let text = fs::read(folder.path().join("results.json")).unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(all, serde_json::json!([{ "number": 1 }, { "number": 2 }]));
    }

    #[test]
    fn the_table_says_what_did_not_come_back_and_what_was_not_measured() {
        let felt = |outage_ms| Felt { outage_ms, recovered: true, ..Felt::default() };
        let away = Felt { recovered: false, ..felt(900.0) };
        let series = Series {
            fault: "node-dead".to_owned(),
            system: "leasehold".to_owned(),
            felt: vec![felt(120.0), felt(100.0), away],
            failed: 2,
        };
        let text = table(&[series]);
        assert!(text.contains("120 / 900 / 900"), "{text}");
        assert!(text.contains("(1 did not come back)  (2 failed)"), "{text}");
    }
}
