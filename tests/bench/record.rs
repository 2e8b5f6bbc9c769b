//! Results: one object for each repeat in a JSON file, and a table of medians and maxima.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

/// What a client felt of one fault.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Felt {
    /// The longest time without a prompt answer, of the VIP that was away longest.
    pub(crate) outage_ms: f64,
    /// Datagrams that were never answered, of all VIPs.
    pub(crate) lost: usize,
    /// Datagrams that were sent.
    pub(crate) sent: usize,
    /// How long ARP requests for a VIP were answered by two nodes.
    pub(crate) two_owners_ms: f64,
    /// The longest time without an answer to ARP: what somebody waits who comes anew.
    pub(crate) arp_unanswered_ms: f64,
    /// How many VIPs the victims owned.
    pub(crate) hit: usize,
    /// Whether all VIPs answered at the end.
    pub(crate) recovered: bool,
}

/// One repeat, as it is kept.
#[derive(Debug, Serialize)]
pub(crate) struct Run<'a> {
    pub(crate) fault: String,
    pub(crate) system: &'a str,
    pub(crate) profile: &'a str,
    pub(crate) repeat: usize,
    #[serde(flatten)]
    pub(crate) felt: Felt,
    #[serde(flatten)]
    pub(crate) machine: &'a Machine,
    pub(crate) date: String,
}

/// What was measured, and on what.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) commit: String,
    pub(crate) kernel: String,
    pub(crate) cores: usize,
}

impl Machine {
    pub(crate) fn here() -> Result<Self> {
        let git = Command::new("git")
            .arg("-C")
            .arg(leasehold_lab::repository())
            .args(["describe", "--always", "--dirty"])
            .output();
        let commit = git.ok().filter(|output| output.status.success());
        let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok());
        Ok(Self {
            commit: commit.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cores: std::thread::available_parallelism()?.get(),
        })
    }
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
        let mut all: Vec<Value> = match fs::read(&self.0) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a list of results", self.0.display()))?,
            Err(_) => Vec::new(),
        };
        all.push(serde_json::to_value(entry)?);
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

/// The table of medians and maxima.
pub(crate) fn table(all: &[Series]) -> String {
    let mut text = format!(
        "{:<20} {:<17} {:>3}  {:>17}  {:>15}  {:>15}  {:>15}\n{:<42}  {:>17}  {:>15}  {:>15}  {:>15}\n",
        "fault",
        "system",
        "n",
        "outage ms",
        "lost",
        "two owners ms",
        "no ARP answer",
        "",
        "median / max",
        "median / max",
        "median / max",
        "median / max ms",
    );
    for series in all {
        let cell = |value: fn(&Felt) -> f64| {
            let mut values: Vec<f64> = series.felt.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            match (median(&values), values.last()) {
                (Some(median), Some(most)) => format!("{median:.0} / {most:.0}"),
                _ => "-".to_owned(),
            }
        };
        let count = |felt: &Felt| u32::try_from(felt.lost).map_or(f64::INFINITY, f64::from);
        let away = series.felt.iter().filter(|felt| !felt.recovered).count();
        let _infallible = write!(
            text,
            "{:<20} {:<17} {:>3}  {:>17}  {:>15}  {:>15}  {:>15}",
            series.fault,
            series.system,
            series.felt.len(),
            cell(|felt| felt.outage_ms),
            cell(count),
            cell(|felt| felt.two_owners_ms),
            cell(|felt| felt.arp_unanswered_ms),
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
        assert!(text.contains("120 / 900"), "{text}");
        assert!(text.contains("(1 did not come back)  (2 failed)"), "{text}");
    }
}
