//! Every directed run, a smoke run of seeds, small clusters that lose a node, and the diagrams of the book.

use leasehold_sim::{Seeds, scale};
use libtest_mimic::{Arguments, Failed, Trial};

/// How many seeds the smoke run takes.
const SMOKE: u64 = 200;

/// Questions per second to a node that has been dead for a minute: of three speakers that poll it, ten each, and as
/// many of all others together, one in three of which may have rounded.
const DEAD_ASKED: f64 = 80.0;

fn main() {
    // Directed runs are trials of their own; their names say what they show.
    let mut trials: Vec<Trial> = leasehold_sim::directed()
        .map(|run| {
            Trial::test(run.name, move || leasehold_sim::quietly(run.run).map_err(Failed::from))
        })
        .collect();
    trials.push(Trial::test("no_seed_of_the_smoke_run_breaks_a_law", smoke));
    trials.push(Trial::test("clusters_of_any_size_recover_from_the_loss_of_a_node", lose_a_node));
    trials.push(Trial::test("the_diagrams_of_the_book_are_those_of_the_runs", diagrams));
    trials.push(Trial::test("clusters_that_cannot_be_simulated_are_refused", refuse));
    std::panic::set_hook(Box::new(|_| {}));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The writes do not grow with the services, nor beyond 3N/L and one refresh per speaker and turn, and the
/// questions to a dead node not with the nodes.
fn lose_a_node() -> Result<(), Failed> {
    for (nodes, services) in [(3, 30), (3, 120), (12, 120), (24, 48)] {
        let plan = scale::Plan { nodes, services, rack: 1, real: nodes };
        let it = scale::run(plan).map_err(|error| error.to_string())?;
        let speakers = u32::try_from(nodes)?;
        let (sessions, claims) = (f64::from(speakers) * 3.0 / 5.0, f64::from(speakers) / 1.5);
        let writes = it.session_writes <= sessions * 1.05 && it.claim_writes <= claims * 1.05;
        let recovered = it.moved == services / nodes && it.last_ms < 1000.0;
        if !writes || !recovered || it.dead_asked > DEAD_ASKED {
            return Err(format!("{it:?}").into());
        }
    }
    Ok(())
}

fn diagrams() -> Result<(), Failed> {
    let stale = leasehold_sim::diagrams::stale().map_err(|error| error.to_string())?;
    match stale.first() {
        None => Ok(()),
        Some(path) => Err(format!("{} is stale: run `make diagrams`", path.display()).into()),
    }
}

fn refuse() -> Result<(), Failed> {
    for (nodes, services, rack, option) in [
        (0, 10, 1, "--rack"),
        (5, 10, 0, "--rack"),
        (5, 10, 5, "--rack"),
        (5, 0, 1, "--services"),
        (5, usize::MAX, 1, "--services"),
        (usize::MAX, 10, 1, "--nodes"),
        (20, 20, 3, "--real"),
    ] {
        let why = scale::run(scale::Plan { nodes, services, rack, real: 5 });
        let why = why.err().map(|error| error.to_string()).unwrap_or_default();
        if !why.contains(option) {
            return Err(format!("{nodes}, {services}, {rack}: {option} is not in `{why}`").into());
        }
    }
    Ok(())
}

fn smoke() -> Result<(), Failed> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let seeds = Seeds { first: 1, count: SMOKE, kind: None, jobs: cores, most: 3 };
    let tally = leasehold_sim::campaign(seeds, |_| {});
    if tally.broken.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = tally
        .broken
        .iter()
        .map(|broken| {
            let seed = broken.seed;
            format!("{}\n  cargo run --profile sim -p leasehold-sim -- replay {seed}", broken.why)
        })
        .collect();
    Err(told.join("\n").into())
}
