//! The simulator's command line.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use leasehold_sim::{
    Kind, Seeds, campaign, directed, fingerprint, on_threads, one, quietly, replay, scale,
};

/// Speakers, an API server and a network on virtual time, to break the protocol in.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs many seeds.
    Run {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// What kind of run each is; what the seed draws if not given.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        /// On how many threads; by default on all cores.
        #[arg(long)]
        jobs: Option<NonZeroUsize>,
        /// After how many broken seeds to stop.
        #[arg(long, default_value_t = 10)]
        most: usize,
    },
    /// Runs one seed and tells what happens.
    Replay {
        /// The seed.
        seed: u64,
        /// What kind of run it is; what the seed draws if not given.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
    },
    /// What large clusters cost, and how fast they recover from the loss of a rack; one JSON object each.
    Scale {
        /// How many nodes.
        #[arg(long, value_delimiter = ',', default_values_t = [50])]
        nodes: Vec<usize>,
        /// How many services, one address each.
        #[arg(long, default_value_t = 10_000)]
        services: usize,
        /// How many nodes die at once.
        #[arg(long, default_value_t = 5)]
        rack: usize,
        /// How many speakers may be real, at most; each takes some 12 MiB with 10,000 services.
        #[arg(long, default_value_t = 500)]
        real: usize,
    },
    /// Runs the directed runs whose names contain a text, or all.
    Directed {
        /// The text.
        #[arg(default_value = "")]
        name: String,
        /// Tells what happens.
        #[arg(long)]
        tell: bool,
    },
    /// Writes the sequence diagrams of the book from recorded runs.
    Diagrams,
    /// Prints a number for all that is decided in each directed run and in each of many seeds: before and after a
    /// change that is to change no behavior, they are the same.
    Fingerprint {
        /// How many seeds, from 1.
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
    },
}

fn main() -> ExitCode {
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> anyhow::Result<()> {
    let command = Arguments::parse().command;
    if !matches!(command, Command::Scale { .. }) {
        // A broken law is reported with its seed, by whoever ran it.
        std::panic::set_hook(Box::new(|_| {}));
    }
    match command {
        Command::Run { seeds, first, kind, jobs, most } => {
            let jobs = jobs.map_or_else(cores, NonZeroUsize::get);
            run(Seeds { first, count: seeds, kind, jobs, most })
        }
        Command::Replay { seed, kind } => match replay(seed, kind) {
            Ok(seconds) => {
                println!("seed {seed}: no law is broken in {seconds} s of virtual time");
                Ok(())
            }
            Err(why) => bail!("seed {seed}: {why}"),
        },
        Command::Scale { nodes, services, rack, real } => {
            for nodes in nodes {
                let outcome = scale::run(scale::Plan { nodes, services, rack, real })?;
                println!("{}", serde_json::to_string(&outcome)?);
            }
            Ok(())
        }
        Command::Directed { name, tell } => {
            if tell {
                leasehold_sim::tell();
            }
            run_directed(&name, if tell { 1 } else { cores() })
        }
        Command::Diagrams => leasehold_sim::diagrams::write(),
        Command::Fingerprint { seeds } => {
            print_fingerprints(seeds);
            Ok(())
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the speed of the simulator itself")]
fn run(seeds: Seeds) -> anyhow::Result<()> {
    let (jobs, kind) = (seeds.jobs, seeds.kind.and_then(|kind| kind.to_possible_value()));
    let kind = kind.map(|kind| format!(" --kind {}", kind.get_name())).unwrap_or_default();
    let began = std::time::Instant::now();
    let tally = campaign(seeds, |broken| {
        println!("{}", broken.why);
        println!("  cargo run --profile sim -p leasehold-sim -- replay {}{kind}", broken.seed);
    });
    let took = began.elapsed().max(Duration::from_millis(1));
    let hours = tally.seconds / 3600;
    let speed = Duration::from_secs(tally.runs).as_secs_f64() / took.as_secs_f64();
    println!(
        "{} runs on {jobs} threads in {:.1} s: {speed:.0} runs/s, {hours} h of virtual time, {} broken",
        tally.runs,
        took.as_secs_f64(),
        tally.broken.len()
    );
    if !tally.broken.is_empty() {
        bail!("a law was broken");
    }
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn print_fingerprints(seeds: u64) {
    let lines = Mutex::new(BTreeSet::new());
    let keep = |line| lines.lock().unwrap_or_else(PoisonError::into_inner).insert(line);
    on_threads(cores(), directed(), |run| {
        let (_, number) = fingerprint(|| quietly(run.run));
        keep(format!("directed {} {number:016x}", run.name));
    });
    on_threads(cores(), 1..=seeds, |seed| {
        let (_, number) = fingerprint(|| one(seed, None));
        keep(format!("seed {seed:06} {number:016x}"));
    });
    for line in lines.into_inner().unwrap_or_else(PoisonError::into_inner) {
        println!("{line}");
    }
}

/// On all cores, if what happens is not told; they are said as they end.
fn run_directed(name: &str, jobs: usize) -> anyhow::Result<()> {
    let failed = AtomicUsize::new(0);
    let named = directed().filter(|run| run.name.contains(name));
    on_threads(jobs, named, |run| match quietly(run.run) {
        Ok(()) => println!("ok      {}", run.name),
        Err(why) => {
            println!("FAILED  {}: {why}", run.name);
            failed.fetch_add(1, Ordering::Relaxed);
        }
    });
    let failed = failed.into_inner();
    if failed > 0 {
        bail!("{failed} directed runs failed");
    }
    Ok(())
}
