//! A number for everything that the cores of a run decide: equal before and after a change that is to change no
//! behavior.
//!
//! It is that of the actions as `Debug` prints them, with the host and the time of each. A renamed type changes
//! it; so does another version of the compiler's hash function.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};

use leasehold_core::clock::Instant;
use leasehold_core::election::Action;

thread_local! {
    /// Of the run of this thread, while it is wanted.
    static TAKEN: RefCell<Option<Fingerprint>> = const { RefCell::new(None) };
}

/// What was printed so far.
#[derive(Debug, Default)]
struct Fingerprint(DefaultHasher);

impl fmt::Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The fingerprint of what the worlds of `run` decide, on this thread.
pub fn fingerprint<T>(run: impl FnOnce() -> T) -> (T, u64) {
    TAKEN.set(Some(Fingerprint::default()));
    let done = run();
    let taken = TAKEN.take().unwrap_or_default();
    (done, taken.0.finish())
}

/// A core has decided this.
pub(crate) fn note(host: usize, now: Instant, action: &Action) {
    TAKEN.with_borrow_mut(|taken| {
        if let Some(taken) = taken {
            let _infallible = writeln!(taken, "{host} {now:?} {action:?}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos;

    #[test]
    fn one_seed_has_one_fingerprint_and_another_seed_another() {
        let of = |seed| fingerprint(|| chaos::run(seed, None)).1;
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
