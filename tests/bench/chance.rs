//! Chance, so that no fault is in step with what it hits.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use anyhow::Result;

/// A number below `bound`, or zero if that is zero.
pub(crate) fn below(bound: usize) -> Result<usize> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let number = usize::from_ne_bytes(bytes);
    Ok(number.checked_rem(bound).unwrap_or(0))
}

/// A time below `bound`, in whole milliseconds.
pub(crate) fn moment(bound: Duration) -> Result<Duration> {
    let bound = usize::try_from(bound.as_millis())?;
    Ok(Duration::from_millis(u64::try_from(below(bound)?)?))
}

/// Some of these, each as likely as another.
pub(crate) fn pick<T>(mut from: Vec<T>, count: usize) -> Result<Vec<T>> {
    let mut picked = Vec::new();
    while picked.len() < count && !from.is_empty() {
        picked.push(from.swap_remove(below(from.len())?));
    }
    Ok(picked)
}
