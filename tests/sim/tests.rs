//! Every directed run, and a smoke run of seeds.

use libtest_mimic::{Arguments, Failed, Trial};

/// How many seeds the smoke run takes.
const SMOKE: u64 = 200;

fn main() {
    // Directed runs are trials of their own; their names say what they show.
    let mut trials: Vec<Trial> = leasehold_sim::directed()
        .map(|run| {
            Trial::test(run.name, move || leasehold_sim::quietly(run.run).map_err(Failed::from))
        })
        .collect();
    trials.push(Trial::test("no_seed_of_the_smoke_run_breaks_a_law", smoke));
    std::panic::set_hook(Box::new(|_| {}));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn smoke() -> Result<(), Failed> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let tally = leasehold_sim::campaign(1, SMOKE, cores, 3, |_| {});
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
