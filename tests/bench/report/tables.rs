//! The tables of the README and of the book.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;

use super::{Results, kubernetes, matrix};
use crate::failover::Fault;
use crate::record::{Felt, Machine, Run, Spread};
use crate::service::{self, Trial};

/// By the names of their places.
pub(super) fn all(results: &Results) -> Result<BTreeMap<&'static str, String>> {
    let mut tables = BTreeMap::from([
        ("origin", origin(results)?),
        ("headline", headline(results)?),
        ("failover", failover(results)?),
        ("pieces-and-starts", apart(&results.apart)?),
        ("service", service(&results.service)?),
        ("matrix", matrix::table(&results.matrix)?),
        ("kubernetes", kubernetes::table(results)?),
        ("phases", phases(results)?),
        ("cost", cost(results)),
        ("hoard", hoard(results)?),
        ("data-path", data_path(results)?),
        ("allocation", allocation(results)?),
        ("scale", scale(results)),
        ("decisions", decisions(results)),
    ]);
    for (name, heading) in PRINTED {
        tables.insert(name, printed(results, name, heading)?);
    }
    Ok(tables)
}

/// The tables whose figures are copied from the output of a program, with their headings.
const PRINTED: [(&str, &[&str]); 7] = [
    ("single-runs", &["condition", "result"]),
    ("operator-runs", &["condition", "after"]),
    (
        "soak",
        &["condition", "for", "claims moved, sessions fenced, false suspicions, datagrams lost"],
    ),
    ("storms", &["condition", "load", "renewals that failed", "datagrams lost"]),
    ("outages-and-edits", &["condition", "result"]),
    ("memory", &["condition", "peak of the largest speaker, of the operator"]),
    ("core", &["test", "extent", "result", "command"]),
];

fn printed(results: &Results, name: &str, heading: &[&str]) -> Result<String> {
    let rows: Vec<_> = results.printed.iter().filter(|row| row.table == name).collect();
    ensure!(!rows.is_empty(), "printed.json has no row of the table {name}");
    let mut text = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(heading.len()));
    for row in &rows {
        let cells = row.cells.len();
        ensure!(cells == heading.len(), "a row of the table {name} has {cells} cells");
        writeln!(text, "| {} |", row.cells.join(" | "))?;
    }
    let mut commits: Vec<&str> = rows.iter().filter_map(|row| row.commit.as_deref()).collect();
    commits.sort_unstable();
    commits.dedup();
    if !commits.is_empty() {
        writeln!(text, "\nCommit {}.", commits.join(", "))?;
    }
    Ok(text)
}

fn origin(results: &Results) -> Result<String> {
    let (machine, commits, days) = results.origin()?;
    Ok(format!(
        "Commit {}, {}; {} cores of {}, Linux {}, Kubernetes {}, keepalived {}.",
        commits.join(" and "),
        days.join(" and "),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.kubernetes,
        machine.keepalived,
    ))
}

/// The runs of one fault on one system.
pub(super) struct Series<'a> {
    pub(super) fault: String,
    pub(super) system: String,
    pub(super) runs: Vec<&'a Run>,
}

impl Series<'_> {
    pub(super) fn spread(&self, value: fn(&Felt) -> f64) -> Result<Spread> {
        let spread = Spread::of(self.runs.iter().map(|run| value(&run.felt)));
        spread.with_context(|| format!("{} of {} has no runs", self.fault, self.system))
    }

    /// Datagrams of the address that lost most.
    fn lost(&self) -> Result<Spread> {
        self.spread(|felt| u32::try_from(felt.lost_most).map_or(f64::MAX, f64::from))
    }
}

/// Fault after fault, and of each system after system, as they were measured.
pub(super) fn series<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Series<'a>> {
    let runs: Vec<_> = runs.collect();
    let mut all: Vec<Series<'_>> = Vec::new();
    for fault in Fault::ALL.iter().map(|fault| fault.name()) {
        let first = all.len();
        for run in runs.iter().filter(|run| run.fault == fault) {
            let system = match run.profile.as_str() {
                "fast" => format!("{}, fast profile", run.system),
                _ => run.system.clone(),
            };
            let known = all.iter_mut().skip(first).find(|series| series.system == system);
            match known {
                Some(series) => series.runs.push(run),
                None => all.push(Series { fault: fault.clone(), system, runs: vec![run] }),
            }
        }
    }
    all
}

/// What most users ask for first.
const HEADLINE: [Fault; 6] = [
    Fault::NodeDead,
    Fault::ClientsLinkCut,
    Fault::Drain,
    Fault::RollingUpgrade,
    Fault::ApiDown,
    Fault::ApiDownOwnerDies,
];

fn headline(results: &Results) -> Result<String> {
    let systems = ["leasehold", "metallb", "kube-vip 15 s", "keepalived 0.1 s", "keepalived 1 s"];
    let mut text = format!(
        "| no answer to datagrams, or to ARP requests, in ms: median, longest | {} |\n",
        systems.join(" | ")
    );
    writeln!(text, "|---|{}", "---|".repeat(systems.len()))?;
    let all = series(results.failovers());
    for fault in HEADLINE {
        write!(text, "| {} |", fault.title())?;
        for system in systems {
            let measured = all.iter().find(|it| it.fault == fault.name() && it.system == system);
            let Some(series) = measured else {
                write!(text, " not measured |")?;
                continue;
            };
            let away = series.spread(|felt| felt.outage_ms.max(felt.arp_unanswered_ms))?;
            write!(text, " {:.0}, {:.0} |", away.median, away.most)?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

fn failover(results: &Results) -> Result<String> {
    let mut text =
        "| fault | system | n | outage in ms: median, p95, longest | datagrams lost: median, \
                    most | no answer to ARP requests in ms: median, longest | two owners in ms: median, longest | \
                    connections broken |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    let mut above = String::new();
    for series in series(results.failovers()) {
        let title = if series.fault == above { "…" } else { title(&series.fault) };
        let outage = series.spread(|felt| felt.outage_ms)?;
        let lost = series.lost()?;
        let silent = series.spread(|felt| felt.arp_unanswered_ms)?;
        let two = series.spread(|felt| felt.two_owners_ms)?;
        let broken = series.runs.iter().filter(|run| run.felt.connection_broken).count();
        let away = series.runs.iter().filter(|run| !run.felt.recovered).count();
        let away = if away > 0 { format!("; {away} did not come back") } else { String::new() };
        writeln!(
            text,
            "| {title} | {} | {} | {:.0}, {:.0}, {:.0}{away} | {:.0}, {:.0} | {:.0}, {:.0} | {:.0}, {:.0} | {broken} |",
            series.system,
            series.runs.len(),
            outage.median,
            outage.p95,
            outage.most,
            lost.median,
            lost.most,
            silent.median,
            silent.most,
            two.median,
            two.most,
        )?;
        above.clone_from(&series.fault);
    }
    text.push_str("\nMetalLB and kube-vip: ");
    text.push_str(origins(results.others.iter().map(|run| &run.machine)).trim_start());
    Ok(text)
}

/// Faults that are measured by themselves, and of which commits; of cold starts also how evenly what nobody had was
/// given out.
fn apart(runs: &[Run]) -> Result<String> {
    let mut text = "| fault | n | outage in ms: median, p95, longest | datagrams lost: median, most | addresses \
                    of a node ten seconds later: fewest, most |\n|---|---|---|---|---|\n"
        .to_owned();
    for series in series(runs.iter()) {
        let outage = series.spread(|felt| felt.outage_ms)?;
        let lost = series.lost()?;
        let shares = series.runs.iter().filter_map(|run| run.felt.shares);
        let fewest = shares.clone().map(|shares| shares.fewest).min();
        let most = shares.map(|shares| shares.most).max();
        let (lost, shares) = match fewest.zip(most) {
            Some((fewest, most)) => (String::new(), format!("{fewest}, {most}")),
            None => (format!("{:.0}, {:.0}", lost.median, lost.most), String::new()),
        };
        let title = title(&series.fault);
        writeln!(
            text,
            "| {title} | {} | {:.0}, {:.0}, {:.0} | {lost} | {shares} |",
            series.runs.len(),
            outage.median,
            outage.p95,
            outage.most,
        )?;
    }
    text.push_str(&origins(runs.iter().map(|run| &run.machine)));
    Ok(text)
}

/// The commits and kernels of results that were measured by themselves.
pub(super) fn origins<'a>(machines: impl Iterator<Item = &'a Machine>) -> String {
    let mut origins: Vec<String> =
        machines.map(|it| format!("{} on Linux {}", it.commit, it.kernel)).collect();
    origins.sort_unstable();
    origins.dedup();
    format!("\nCommit {}.\n", origins.join(", "))
}

/// Medians of the trials of each fault on each system.
fn service(trials: &[Trial]) -> Result<String> {
    let mut text =
        "| fault | system | n | new connections without an answer in 0.9 s, of | in 3.5 s | \
                    seconds until the first answer | seconds until the last failure | \
                    lasting connections lost, of | those to pods on other nodes |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for (fault, system) in service::pairs(trials) {
        let these = || trials.iter().filter(move |it| (&*it.fault, &*it.system) == (fault, system));
        let median = |value: fn(&Trial) -> f64| {
            let spread = Spread::of(these().map(value)).context("no trials")?;
            anyhow::Ok(spread.median)
        };
        let given_up = Spread::of(these().filter_map(|it| it.given_up).map(number));
        let given_up = given_up.map_or("not counted".to_owned(), |it| format!("{:.0}", it.median));
        let elsewhere = Spread::of(these().filter_map(|it| it.lost_elsewhere).map(number));
        let elsewhere =
            elsewhere.map_or("not counted".to_owned(), |it| format!("{:.0}", it.median));
        writeln!(
            text,
            "| {} | {} | {} | {:.0}, {:.0} | {given_up} | {:.2} | {:.2} | {:.0}, {:.0} | {elsewhere} |",
            service::fault_title(fault),
            service::system_title(system),
            these().count(),
            median(|it| number(it.failed))?,
            median(|it| number(it.made))?,
            median(|it| it.first_answer_ms.unwrap_or(f64::INFINITY) / 1000.0)?,
            median(|it| it.last_failure_ms / 1000.0)?,
            median(|it| number(it.lasting_lost))?,
            median(|it| number(it.lasting))?,
        )?;
    }
    text.push_str(&origins(trials.iter().map(|it| &it.machine)));
    Ok(text)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// A fault as people say it.
pub(super) fn title(name: &str) -> &'static str {
    let fault = Fault::from_str(name, true);
    fault.map_or("unknown", Fault::title)
}

/// The steps of a failover, as they are named, and their values.
pub(super) fn steps(results: &Results) -> Vec<(&'static str, Vec<f64>)> {
    let dead = results
        .failover
        .iter()
        .filter(|run| run.fault == Fault::NodeDead.name() && run.profile != "fast");
    let phases: Vec<_> = dead.filter_map(|run| run.felt.phases).collect();
    vec![
        ("until a poll is not answered", phases.iter().map(|it| it.notice).collect()),
        (
            "silence: that many polls, and others answer",
            phases.iter().map(|it| it.confirm).collect(),
        ),
        ("fence written", phases.iter().map(|it| it.fence).collect()),
        ("claim written", phases.iter().map(|it| it.claim).collect()),
        ("address in the kernel", phases.iter().map(|it| it.address).collect()),
        ("announced", phases.iter().map(|it| it.announce).collect()),
        ("client answered", phases.iter().map(|it| it.client).collect()),
    ]
}

fn phases(results: &Results) -> Result<String> {
    let mut text = "| step | ms: median, p95, longest |\n|---|---|\n".to_owned();
    for (step, values) in steps(results) {
        let spread = Spread::of(values.into_iter()).context("no failover has phases")?;
        writeln!(text, "| {step} | {:.1}, {:.1}, {:.1} |", spread.median, spread.p95, spread.most)?;
    }
    Ok(text)
}

fn cost(results: &Results) -> String {
    let mut text = "| nodes | Services | lease writes/s | all requests/s | watch events/s | KiB/s | frames/s | \
                    speaker: MiB, % of a core | operator: MiB, % of a core | a node dies: claims, \
                    requests, first and last announced after ms |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for cost in &results.cost {
        let writes = cost.lease_writes();
        let all: f64 = cost.requests.values().sum();
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"));
        let _infallible = writeln!(
            text,
            "| {} | {} | {writes:.1} | {all:.1} | {:.1} | {:.1} | {:.0} | {:.1}, {:.1} | {:.1}, {:.1} | {}, \
             {:.0}, {}, {} |",
            cost.nodes,
            cost.services,
            cost.watch_events,
            cost.bytes.values().sum::<f64>() / 1024.0,
            cost.frames,
            cost.speaker_mib,
            cost.speaker_cpu * 100.0,
            cost.operator_mib,
            cost.operator_cpu * 100.0,
            cost.moved,
            cost.failover_requests,
            ms(cost.first_ms),
            ms(cost.last_ms),
        );
    }
    text
}

fn hoard(results: &Results) -> Result<String> {
    let of = |value: fn(&crate::cost::Hoard) -> f64| {
        Spread::of(results.hoard.iter().map(value)).context("no node with many addresses")
    };
    let mut text = format!(
        "| of a node with {} addresses, n = {} | ms: median, longest |\n|---|---|\n",
        results.hoard.first().map_or(0, |it| it.addresses),
        results.hoard.len(),
    );
    for (what, spread) in [
        ("its speaker restarts: ready, with all of them adopted", of(|it| it.adopted_ms)?),
        ("it dies: the first is announced by another", of(|it| it.first_ms)?),
        ("... the last", of(|it| it.last_ms)?),
        ("for comparison: `ip -batch` adds them", of(|it| it.kernel_add_ms)?),
        ("... and removes them", of(|it| it.kernel_remove_ms)?),
    ] {
        writeln!(text, "| {what} | {:.0}, {:.0} |", spread.median, spread.most)?;
    }
    Ok(text)
}

fn data_path(results: &Results) -> Result<String> {
    let mut text =
        "| | by | requests/s: median | latency in µs: median, p99 |\n|---|---|---|---|\n"
            .to_owned();
    for (new, what) in [
        (false, "one connection after the other's answer"),
        (true, "a connection for each request"),
    ] {
        for way in ["VIP", "node port"] {
            let turns = || {
                let turns = results.data_path.iter();
                turns.filter(move |turn| turn.way == way && turn.new_connections == new)
            };
            let of = |value: fn(&crate::data_path::Turn) -> f64| {
                Spread::of(turns().map(value)).context("the data path was not measured")
            };
            let (rate, median, p99) =
                (of(|it| it.requests_per_second)?, of(|it| it.median_us)?, of(|it| it.p99_us)?);
            writeln!(
                text,
                "| {what} | {way} | {:.0} | {:.0}, {:.0} |",
                rate.median, median.median, p99.median
            )?;
        }
    }
    Ok(text)
}

fn allocation(results: &Results) -> Result<String> {
    let mut text = "| | n | median, longest |\n|---|---|---|\n".to_owned();
    for measured in &results.allocation {
        let spread = Spread::of(measured.values.iter().copied()).context("nothing was measured")?;
        writeln!(
            text,
            "| {} ({} Services) | {} | {:.0} {unit}, {:.0} {unit} |",
            measured.what,
            measured.services,
            measured.values.len(),
            spread.median,
            spread.most,
            unit = measured.unit,
        )?;
    }
    Ok(text)
}

fn scale(results: &Results) -> String {
    let mut text = "| nodes, Services | L | lease writes/s: sessions, claims | watch events/s | polls/s on the \
                    wire | a rack dies: nodes, addresses | back after ms: first, median, last | writes, \
                    conflicts | real speakers |\n|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for it in results.scale.iter().map(|it| &it.outcome) {
        let _infallible = writeln!(
            text,
            "| {}, {} | {} s | {:.1}, {:.1} | {:.0} | {:.0} | {}, {} | {:.0}, {:.0}, {:.0} | {}, {} | {} |",
            it.nodes,
            it.services,
            it.lease_seconds,
            it.session_writes,
            it.claim_writes,
            it.watch_events,
            it.wire_polls,
            it.rack,
            it.moved,
            it.first_ms,
            it.median_ms,
            it.last_ms,
            it.recovery_writes,
            it.recovery_conflicts,
            it.real,
        );
    }
    text
}

fn decisions(results: &Results) -> String {
    let mut text = "| | | median |\n|---|---|---|\n".to_owned();
    for it in &results.decisions {
        let _infallible =
            writeln!(text, "| {} | {} | {} |", it.part, it.what, duration(it.median_ns));
    }
    text
}

/// Nanoseconds in the unit that suits them, with three digits.
fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns => (ns / 1e6, "ms"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_their_unit() {
        for (ns, text) in [
            (4.0, "4.00 ns"),
            (812.4, "812 ns"),
            (1_234.0, "1.23 µs"),
            (45_678.0, "45.7 µs"),
            (8_800_000.0, "8.80 ms"),
            (145_000_000.0, "145 ms"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
