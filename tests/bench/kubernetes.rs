//! Kubernetes' own end-to-end tests of Services and load balancers, on machines with Leasehold.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use leasehold_lab::machines::{Machines, MachinesPlan};
use leasehold_lab::programs_of;
use serde::{Deserialize, Serialize};

use crate::record::{Book, Machine};

/// The specs of these groups concern load balancers, Services, and what is between them and pods.
const FOCUS: &str = r"\[sig-network\] (LoadBalancers|Services|Endpoint|Conntrack|HostPort|KubeProxy|Networking|NoSNAT|Connectivity|DNS|Proxy|\[Feature:IPv6DualStack\])";
/// Measurements, and the configuration of the cluster's own DNS.
const SKIP: &str = r"\[Feature:(Networking-)?Performance|DNS configMap";

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Regular expression of the specs to run.
    #[arg(long, default_value = FOCUS)]
    focus: String,
    /// Regular expression of the specs to leave out.
    #[arg(long, default_value = SKIP)]
    skip: String,
    /// Number of specs that run beside each other.
    #[arg(long, default_value_t = 8)]
    procs: u8,
}

/// One run of the tests.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Tested {
    pub(crate) specs: Vec<Spec>,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

/// A spec that was run, or that found that it cannot be.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Spec {
    /// What it is about, as `LoadBalancers`.
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// The message with which it failed or was skipped.
    pub(crate) message: String,
    pub(crate) seconds: u64,
}

/// The end of a spec.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Reasons for specs that cannot pass, by a part of their names.
pub(crate) fn reasons() -> Result<BTreeMap<String, String>> {
    let path = leasehold_lab::repository().join("tests/kubernetes/reasons.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

impl Spec {
    /// Why it cannot pass.
    pub(crate) fn reason<'a>(&self, reasons: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let full = format!("{} {}", self.group, self.name);
        let found = reasons.iter().find(|(part, _)| full.contains(part.as_str()));
        found.map(|(_, reason)| reason.as_str())
    }
}

pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "kubernetes.json")?;
    let machines = MachinesPlan::new("kubernetes").plain_names().images("kubernetes");
    let machines = machines.start().await?;
    machines.dns()?;
    machines.deployed("kube-system", "coredns").await?;
    machines.install().await?;
    machines.pool().await?;
    // Some specs tell clients from nodes by their networks.
    machines.client().route_sandbox()?;
    let specs = specs(&fs::read(ginkgo(plan, &machines, out)?)?)?;
    let reasons = reasons()?;
    let of = |outcome| specs.iter().filter(move |spec| spec.outcome == outcome);
    let unexplained: Vec<_> =
        of(Outcome::Failed).filter(|spec| spec.reason(&reasons).is_none()).collect();
    for spec in &unexplained {
        println!("failed: {} {}: {}", spec.group, spec.name, spec.message);
    }
    let count = |outcome| of(outcome).count();
    println!(
        "{} passed, {} failed, {} of them without a reason in tests/kubernetes/reasons.json, {} skipped themselves",
        count(Outcome::Passed),
        count(Outcome::Failed),
        unexplained.len(),
        count(Outcome::Skipped)
    );
    let clean = unexplained.is_empty();
    let (machine, date) = (Machine::here()?, Timestamp::now().to_string());
    book.append(&Tested { specs, machine, date })?;
    println!("every spec is in {}", book.path().display());
    Ok(clean)
}

/// Runs the specs and returns the file with ginkgo's report.
fn ginkgo(plan: &Plan, machines: &Machines, out: &Path) -> Result<PathBuf> {
    const REPORT: &str = "kubernetes-report.json";
    let programs = programs_of("kubernetes")?;
    let plane = machines.lab().plane();
    let report = out.join(REPORT);
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let status = Command::new(programs.join("ginkgo"))
        .args(["--no-color", "--timeout=5h", "--json-report", REPORT, "--output-dir"])
        .arg(env::current_dir()?.join(out))
        .arg(format!("--procs={}", plan.procs))
        .arg(format!("--focus={}", plan.focus))
        .arg(format!("--skip={}", plan.skip))
        .arg(programs.join("e2e.test"))
        .args(["--", "--provider=skeleton", "--dump-logs-on-failure=false"])
        .arg(format!("--num-nodes={}", machines.on().count()))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig("admin"))
        .arg("--kubectl-path")
        .arg(plane.program("kubectl"))
        .stdin(Stdio::null())
        .status()
        .context("run ginkgo")?;
    // It fails, too, if a spec does.
    ensure!(report.exists(), "ginkgo ended without a report: {status}");
    Ok(report)
}

/// The parts of ginkgo's report that are read (`types.Report`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Vec<Report>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// Nanoseconds.
    run_time: u64,
    failure: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: Option<String>,
}

/// The specs of a report that were selected, in the order of their groups and names.
fn specs(report: &[u8]) -> Result<Vec<Spec>> {
    let suites: Vec<Suite> = serde_json::from_slice(report).context("ginkgo's report")?;
    let mut specs = Vec::new();
    for report in suites.into_iter().flat_map(|suite| suite.spec_reports) {
        let message = report.failure.and_then(|failure| failure.message).unwrap_or_default();
        let outcome = match report.state.as_str() {
            "passed" => Outcome::Passed,
            // One that was not selected says nothing.
            "skipped" if message.is_empty() => continue,
            "skipped" => Outcome::Skipped,
            "pending" => continue,
            _ => Outcome::Failed,
        };
        if report.leaf_node_type != "It" {
            let (node, state) = (report.leaf_node_type, report.state);
            ensure!(outcome == Outcome::Passed, "{node}: {state}: {message}");
            continue;
        }
        let mut texts = report.container_hierarchy_texts.unwrap_or_default().into_iter();
        let group = group(&texts.next().context("a spec without a group")?);
        let texts = texts.chain([report.leaf_node_text]).map(|text| name(&text));
        let name = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        let seconds = report.run_time / 1_000_000_000;
        specs.push(Spec { group, name, outcome, message, seconds });
    }
    specs.sort_by(|one, other| (&one.group, &one.name).cmp(&(&other.group, &other.name)));
    ensure!(!specs.is_empty(), "no spec was selected");
    Ok(specs)
}

/// The group of a spec by the text of its outermost container: `[sig-network] Services [Slow]` is about Services. What
/// has only labels is named by them.
fn group(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| *word != "[sig-network]");
    let named: Vec<&str> = words.clone().filter(|word| !label(word)).collect();
    if named.is_empty() {
        return words.map(|word| word.trim_matches(['[', ']'])).collect::<Vec<_>>().join(" ");
    }
    named.join(" ")
}

/// A text without the labels that select specs. Some specs differ by a feature alone.
fn name(text: &str) -> String {
    let words = text.split_whitespace();
    let words = words.filter(|word| !label(word) || word.starts_with("[Feature:"));
    words.collect::<Vec<_>>().join(" ")
}

fn label(word: &str) -> bool {
    word.starts_with('[') && word.ends_with(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_which_specs_passed_failed_and_skipped_themselves() {
        let spec = |texts: &[&str], text: &str, state: &str, message: Option<&str>| {
            serde_json::json!({
                "ContainerHierarchyTexts": texts, "LeafNodeType": "It", "LeafNodeText": text,
                "State": state, "RunTime": 1_900_000_000_u64,
                "Failure": { "Message": message },
            })
        };
        let group = "[sig-network] Services";
        let report = serde_json::json!([{ "SpecReports": [
            spec(&[group], "should work [Conformance]", "passed", None),
            spec(&[group, "[Slow] with X"], "should work [Feature:Y]", "timedout", Some("late")),
            spec(&["[sig-network] [Feature:IPv6DualStack]"], "should skip", "skipped", Some("no cloud")),
            spec(&[group], "should not be selected", "skipped", None),
        ] }]);
        let specs = specs(report.to_string().as_bytes()).unwrap();
        let found: Vec<_> = specs
            .iter()
            .map(|it| (&*it.group, &*it.name, it.outcome, &*it.message, it.seconds))
            .collect();
        assert_eq!(
            found,
            [
                ("Feature:IPv6DualStack", "should skip", Outcome::Skipped, "no cloud", 1),
                ("Services", "should work", Outcome::Passed, "", 1),
                ("Services", "with X should work [Feature:Y]", Outcome::Failed, "late", 1),
            ]
        );
    }

    #[test]
    fn a_suite_that_did_not_begin_is_an_error() {
        let report =
            br#"[{ "SpecReports": [{ "LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "",
            "State": "failed", "RunTime": 1, "Failure": { "Message": "no nodes" } }] }]"#;
        assert!(specs(report).unwrap_err().to_string().contains("no nodes"));
    }
}
