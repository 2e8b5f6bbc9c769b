//! Many seeds, on all cores.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::chaos::{self, Kind};

/// A seed that broke a law.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// The seed.
    pub seed: u64,
    /// Which law, when and how.
    pub why: String,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many were run.
    pub runs: u64,
    /// For how many seconds of virtual time.
    pub seconds: u64,
    /// Those that broke a law.
    pub broken: Vec<Broken>,
}

/// Which seeds are run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What kind of run each is; what it draws by itself if not given.
    pub kind: Option<Kind>,
    /// On how many threads.
    pub jobs: usize,
    /// After how many that break a law to stop.
    pub most: usize,
}

/// Runs these seeds. Each that breaks a law is told to `tell` at once.
pub fn campaign(seeds: Seeds, tell: impl Fn(&Broken) + Sync) -> Tally {
    let Seeds { first, count, kind, jobs, most } = seeds;
    let tally = Mutex::new(Tally::default());
    let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
    let all = (first..first.saturating_add(count)).take_while(|_| lock().broken.len() < most);
    on_threads(jobs, all, |seed| {
        let run = one(seed, kind);
        let mut tally = lock();
        tally.runs += 1;
        match run {
            Ok(seconds) => tally.seconds += seconds,
            Err(why) => {
                let broken = Broken { seed, why };
                tell(&broken);
                tally.broken.push(broken);
            }
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.broken.sort();
    tally
}

/// Does each of `all` on `jobs` threads; they end in any order.
pub fn on_threads<T: Send>(
    jobs: usize,
    all: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
) {
    let left = Mutex::new(all);
    // A function of its own: the lock is not held while the work goes on.
    let next = || left.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(one) = next() {
                    work(one);
                }
            });
        }
    });
}

/// Runs one seed: for how many seconds of virtual time, or the law that it breaks.
pub fn one(seed: u64, kind: Option<Kind>) -> Result<u64, String> {
    quietly(|| chaos::run(seed, kind))
}

/// Runs one seed and tells what happens, up to the law that it breaks.
pub fn replay(seed: u64, kind: Option<Kind>) -> Result<u64, String> {
    crate::world::words::tell();
    one(seed, kind)
}

/// Runs something that panics where a law is broken; the law, without a word on standard error if
/// the hook is [`std::panic::set_hook`] to none.
pub fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| said(payload.as_ref()))
}

fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
