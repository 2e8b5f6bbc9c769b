//! The metrics, read from what is scraped.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::markdown::{cell, code, codes, sentence, table};

pub fn page() -> Result<String> {
    let mut page = "# Metrics\n\n\
        This page lists all metrics, with the names under which Prometheus stores them. For the metrics to \
        watch, see [Monitoring](../operations/monitoring.md).\n\n\
        A histogram has the series `_bucket`, `_sum`, and `_count`. Labels with a fixed set of values are \
        listed with these values.\n\n"
        .to_owned();
    for (title, place, registry) in [
        ("Speaker", "port 9650 of each node", leasehold::report::metrics::Metrics::samples()),
        (
            "Operator",
            "port 9651 of each replica",
            leasehold_operator::report::metrics::Metrics::samples(),
        ),
    ] {
        page.extend(["## ", title, "\n\nServed at `/metrics` on ", place, ".\n\n"]);
        page.push_str(&component(&registry)?);
    }
    Ok(page)
}

#[derive(Default)]
struct Metric<'a> {
    help: &'a str,
    kind: &'a str,
    unit: &'a str,
    samples: usize,
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn component(registry: &Registry) -> Result<String> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    let metrics = read(&text);
    let mut rows = Vec::new();
    for (name, metric) in &metrics {
        if metric.samples == 0 {
            bail!("{name} has no sample: add one to `Metrics::samples`");
        }
        let suffix = if metric.kind == "counter" { "_total" } else { "" };
        let labels = metric.labels.iter().map(|(label, values)| match values.len() {
            0 | 1 => code(label),
            _ => format!("{}: {}", code(label), codes(values.iter().map(String::as_str))),
        });
        rows.push([
            code(&format!("{name}{suffix}")),
            metric.kind.to_owned(),
            metric.unit.to_owned(),
            labels.collect::<Vec<_>>().join("<br>"),
            cell(&sentence(metric.help)),
        ]);
    }
    Ok(table(["Name", "Type", "Unit", "Labels", "Help"], rows))
}

/// The metrics of a text in the format of `OpenMetrics`, by their names without suffixes.
fn read(text: &str) -> BTreeMap<&str, Metric<'_>> {
    let mut metrics: BTreeMap<&str, Metric<'_>> = BTreeMap::new();
    let mut current = "";
    for line in text.lines() {
        let described = ["HELP", "TYPE", "UNIT"].into_iter().find_map(|what| {
            let line = line.strip_prefix("# ")?.strip_prefix(what)?.strip_prefix(' ')?;
            let (name, rest) = line.split_once(' ')?;
            Some((what, name, rest))
        });
        if let Some((what, name, rest)) = described {
            current = name;
            let metric = metrics.entry(name).or_default();
            match what {
                "HELP" => metric.help = rest,
                "TYPE" => metric.kind = rest,
                _ => metric.unit = rest,
            }
        } else if !line.starts_with('#')
            && let Some(metric) = metrics.get_mut(current)
        {
            metric.samples += 1;
            for (label, value) in labels(line) {
                metric.labels.entry(label.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }
    metrics
}

/// The labels of a sample, but for the bounds of buckets.
fn labels(sample: &str) -> impl Iterator<Item = (&str, &str)> {
    let set = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let pairs = set.map_or("", |(set, _)| set).split("\",").filter_map(|it| it.split_once("=\""));
    pairs
        .map(|(label, value)| (label, value.trim_end_matches('"')))
        .filter(|(label, _)| *label != "le")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_samples() {
        let text = "# HELP age Age.\n# TYPE age histogram\n# UNIT age seconds\n\
            age_sum{of=\"a\"} 0\nage_bucket{le=\"1.0\",of=\"a\"} 0\nage_bucket{le=\"1.0\",of=\"b\"} 0\n# EOF\n";
        let metrics = read(text);
        let age = metrics.get("age").unwrap();
        assert_eq!(
            (age.kind, age.unit, age.help, age.samples),
            ("histogram", "seconds", "Age.", 3)
        );
        let labels: Vec<_> =
            age.labels.iter().map(|(name, of)| (name.as_str(), of.len())).collect();
        assert_eq!(labels, [("of", 2)]);
    }
}
