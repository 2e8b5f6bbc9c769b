//! Chance, so that no fault is in step with what it hits.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use anyhow::Result;

/// Any number.
pub(crate) fn number() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A number below `bound`, or zero if that is zero.
pub(crate) fn below(bound: usize) -> Result<usize> {
    let number = number()?.checked_rem(u64::try_from(bound)?).unwrap_or(0);
    Ok(usize::try_from(number)?)
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
