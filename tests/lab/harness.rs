//! Async tests with the usual arguments of a Rust test binary, inside the sandbox.

use std::future::Future;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use crate::sandbox::{self, Side};

/// The number of concurrent tests unless `--test-threads` says otherwise: they measure milliseconds, on
/// machines with few cores, and wait for two thirds of the time.
const THREADS: usize = 3;

/// A test: its function's name is the sentence that it proves.
#[macro_export]
macro_rules! trials {
    ($($path:path),* $(,)?) => {
        vec![$($crate::harness::trial(stringify!($path), $path)),*]
    };
}

/// Makes a test of an async function.
pub fn trial<F>(name: &str, function: fn() -> F) -> Trial
where
    F: Future<Output = Result<()>> + 'static,
{
    let name = name.replace(' ', "");
    Trial::test(name.clone(), move || {
        let begun = Instant::now();
        let done = runtime()?.block_on(function());
        let mut took = TOOK.lock().unwrap_or_else(PoisonError::into_inner);
        took.push((begun.elapsed(), name.clone()));
        drop(took);
        done.map_err(|error| {
            if let Ok(scratch) = sandbox::scratch() {
                sandbox::keep_logs(&scratch);
            }
            let why = format!("{error:#}");
            let first = why.lines().next().unwrap_or_default();
            let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(format!("{name}: {first}"));
            Failed::from(why)
        })
    })
}

/// Which tests failed, and the first line of why: their errors show whole clusters.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The duration of each test.
static TOOK: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The number of slowest tests that are named at the end.
const SLOWEST: usize = 10;

/// The runtime of all tests: clients that are shared belong to it.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Runs the tests that the arguments select; the `main` of a test binary.
pub fn main(trials: Vec<Trial>) -> ExitCode {
    main_with_threads(THREADS, trials)
}

/// The same with another number of concurrent tests.
pub fn main_with_threads(threads: usize, trials: Vec<Trial>) -> ExitCode {
    run(threads, trials).unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

fn run(threads: usize, trials: Vec<Trial>) -> Result<ExitCode> {
    crate::serve_if_pod()?;
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    if arguments.list {
        return Ok(libtest_mimic::run(&arguments, trials).exit_code());
    }
    match sandbox::enter()? {
        Side::Outside(code) => Ok(code),
        Side::Inside(_) => {
            let code = libtest_mimic::run(&arguments, trials).exit_code();
            let mut took = TOOK.lock().unwrap_or_else(PoisonError::into_inner);
            took.sort_unstable_by(|one, other| other.cmp(one));
            for (time, name) in took.iter().take(SLOWEST) {
                println!("slowest: {:>3} s {name}", time.as_secs());
            }
            drop(took);
            for failure in FAILURES.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                eprintln!("failed: {failure}");
            }
            Ok(code)
        }
    }
}
