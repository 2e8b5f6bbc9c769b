//! The page about Kubernetes' own tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::Results;
use crate::kubernetes::{Outcome, Spec, Tested, reasons};
use crate::record::Machine;

/// The counts of each group, and all specs by how they ended, at last. Each failed spec has a reason, and no passed one
/// has.
pub(super) fn table(results: &Results) -> Result<String> {
    let specs = last(&results.kubernetes);
    let versions = results.kubernetes.iter().map(|run| {
        let Machine { kubernetes, kernel, commit, .. } = &run.machine;
        let day = run.date.split('T').next().unwrap_or_default();
        format!(
            "Kubernetes {kubernetes}, kube-proxy in nftables mode, Linux {kernel}; commit {commit}, {day}.\n"
        )
    });
    let versions: BTreeSet<String> = versions.collect();
    ensure!(!versions.is_empty(), "Kubernetes' tests were not run");
    let mut text = String::from_iter(versions) + "\n";
    text.push_str(&counts(&specs));
    let reasons = reasons()?;
    text.push_str("\n### Failed\n\n| spec | reason |\n|---|---|\n");
    for spec in of(&specs, Outcome::Failed) {
        let reason = spec.reason(&reasons).with_context(|| {
            format!("{} {}: tests/kubernetes/reasons.json has no reason", spec.group, spec.name)
        })?;
        writeln!(text, "| {}: {} | {reason} |", spec.group, cell(&spec.name))?;
    }
    text.push_str("\n### Skipped\n\n| spec | its message |\n|---|---|\n");
    for spec in of(&specs, Outcome::Skipped) {
        let message = cell(&spec.message);
        writeln!(text, "| {}: {} | {message} |", spec.group, cell(&spec.name))?;
    }
    text.push_str("\n### Passed\n\n| spec | seconds |\n|---|---|\n");
    for spec in of(&specs, Outcome::Passed) {
        let stale = spec.reason(&reasons);
        ensure!(stale.is_none(), "{} {} passed and has a reason", spec.group, spec.name);
        writeln!(text, "| {}: {} | {} |", spec.group, cell(&spec.name), spec.seconds)?;
    }
    Ok(text)
}

/// Each spec as it ended when it was run last, in the order of groups and names.
fn last(runs: &[Tested]) -> Vec<&Spec> {
    let all = runs.iter().flat_map(|run| &run.specs);
    let all: BTreeMap<_, _> = all.map(|spec| ((&spec.group, &spec.name), spec)).collect();
    all.into_values().collect()
}

fn of<'a>(specs: &[&'a Spec], outcome: Outcome) -> impl Iterator<Item = &'a Spec> {
    specs.iter().copied().filter(move |spec| spec.outcome == outcome)
}

fn counts(specs: &[&Spec]) -> String {
    let mut groups: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut all = [0_usize; 3];
    for spec in specs {
        let group = groups.entry(&spec.group).or_default();
        for [passed, failed, skipped] in [group, &mut all] {
            match spec.outcome {
                Outcome::Passed => *passed += 1,
                Outcome::Failed => *failed += 1,
                Outcome::Skipped => *skipped += 1,
            }
        }
    }
    let mut text = "| group | passed | failed | skipped |\n|---|---|---|---|\n".to_owned();
    for (group, [passed, failed, skipped]) in groups.into_iter().chain([("all", all)]) {
        let _infallible = writeln!(text, "| {group} | {passed} | {failed} | {skipped} |");
    }
    text
}

/// A text of others in one cell of a table: one line, of which nothing is Markdown or HTML.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().fold(String::new(), |mut cell, character| {
        if "|<>[]*_`\\".contains(character) {
            cell.push('\\');
        }
        cell.push(character);
        cell
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_counted() {
        let spec = |group: &str, outcome| Spec {
            group: group.to_owned(),
            name: String::new(),
            outcome,
            message: String::new(),
            seconds: 1,
        };
        let specs = [
            spec("Services", Outcome::Passed),
            spec("DNS", Outcome::Skipped),
            spec("Services", Outcome::Failed),
            spec("Services", Outcome::Passed),
        ];
        let table = counts(&specs.iter().collect::<Vec<_>>());
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            ["| DNS | 0 | 0 | 1 |", "| Services | 2 | 1 | 0 |", "| all | 2 | 1 | 1 |"]
        );
    }

    #[test]
    fn a_text_of_others_is_no_markdown() {
        assert_eq!(cell("a |b\n<c> [d]"), "a \\|b \\<c\\> \\[d\\]");
    }
}
