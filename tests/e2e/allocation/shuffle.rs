//! The rows in another order in each run.

use std::env;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;

use super::Row;

/// Names the seed of a run that is to be repeated.
const SEED: &str = "LEASEHOLD_SHUFFLE";

/// The places of `count` rows in a random order (`SplitMix64`, Fisher-Yates).
fn order(count: usize, mut seed: u64) -> Result<Vec<usize>> {
    let mut next = || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = seed;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = usize::try_from(next() % u64::try_from(last + 1)?)?;
        order.swap(last, other);
    }
    Ok(order)
}

/// Runs `rows` one after another in a random order, which the environment variable
/// `LEASEHOLD_SHUFFLE` repeats.
pub async fn run(rows: &[Row]) -> Result<()> {
    let seed = match env::var(SEED) {
        Ok(seed) => seed.parse().with_context(|| format!("{SEED}={seed} is not a number"))?,
        Err(_) => u64::try_from(Timestamp::now().as_microsecond())? % 1_000_000,
    };
    println!("    the order of the rows: {SEED}={seed} repeats it");
    let mut before = "none";
    for index in order(rows.len(), seed)? {
        let row = &rows[index];
        (row.run)()
            .await
            .with_context(|| format!("{SEED}={seed}: {}, after {before}", row.name))?;
        before = row.name;
    }
    Ok(())
}
