//! A cold start: Services exist that nobody announces, and all speakers come up together.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use leasehold_lab::Track;
use tokio::time::sleep;

use super::field::Field;
use super::ground::Ground;
use super::trial::UDP;
use crate::chance;
use crate::record::{Felt, milliseconds};

/// Longer than the kernel keeps what a killed speaker left.
const LAPSED: Duration = Duration::from_secs(9);
/// The longest delay of the other speakers after the first one.
const TOGETHER: Duration = Duration::from_millis(100);
/// When it is looked who has what, after the first was started.
const SETTLED: Duration = Duration::from_secs(10);
/// The delay between two clusters: the machine is busy with five processes.
const STAGGER: Duration = Duration::from_millis(1500);

/// One repeat on each cluster.
pub(super) async fn run(field: &Field) -> Result<Vec<Felt>> {
    try_join_all(field.grounds.iter().map(goes_dark)).await?;
    let each = field.grounds.iter().zip(0..).map(async |(ground, number)| {
        sleep(STAGGER * number).await;
        measure(ground).await
    });
    try_join_all(each).await
}

/// Ends all speakers, and leaves nothing of them: neither addresses nor leases.
async fn goes_dark(ground: &Ground) -> Result<()> {
    for node in ground.cluster.nodes() {
        ground.kill(node).await?;
    }
    sleep(LAPSED).await;
    ensure!(ground.owned().await?.is_empty(), "dead speakers' addresses are still there");
    ground.forget_owners().await
}

async fn measure(ground: &Ground) -> Result<Felt> {
    let client = ground.cluster.client();
    client.namespace().ip("neighbour flush dev eth0\n")?;
    let sweep = client.sweep(ground.vips(), UDP, Duration::from_millis(5))?;
    let since = Instant::now();
    let mut late = 0;
    for node in ground.cluster.nodes() {
        ground.start(node)?;
        // In all they are not more than that apart.
        let pause = chance::below(usize::try_from(TOGETHER.as_millis())? - late)?;
        late += pause;
        sleep(Duration::from_millis(u64::try_from(pause)?)).await;
    }
    sleep(SETTLED.saturating_sub(since.elapsed())).await;
    let shares = ground.shares().await?;
    let lately = Instant::now().checked_sub(Duration::from_millis(250));
    let recovered = lately.is_some_and(|lately| sweep.all_answered_since(lately));
    let tracks = sweep.stop().await?;
    let outages = tracks.values().map(|track| track.longest_outage_since(since));
    let lost = || tracks.values().map(|track| track.lost_since(since));
    Ok(Felt {
        outage_ms: milliseconds(outages.max().unwrap_or_default()),
        lost: lost().sum(),
        lost_most: lost().max().unwrap_or_default(),
        sent: tracks.values().map(Track::count).sum(),
        hit: ground.vips().len(),
        recovered,
        shares: Some(shares),
        ..Felt::default()
    })
}
