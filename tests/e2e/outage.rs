//! The API server is away: owners hold.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::scene::Scene;

const AWAY: Duration = Duration::from_secs(15);
/// Longer than a lease: what would be fenced after the return is fenced by then.
const AFTERWARDS: Duration = Duration::from_secs(8);

pub async fn an_api_server_that_is_away_for_long_moves_nothing_and_nor_does_its_return()
-> Result<()> {
    let scene = Scene::alone("away").await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    scene.lab().plane().kill_api_server().await?;
    sleep(AWAY).await;
    scene.lab().plane().start_api_server().await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("API server away for 15 s", probe).await?;
    scene.not_moved(&claim).await?;

    // A speaker that crashes meanwhile knows from its record what to keep.
    let probe = scene.watch().await?;
    let owner = scene.owner().await?;
    scene.lab().plane().kill_api_server().await?;
    owner.speaker()?.kill().await?;
    sleep(Duration::from_secs(1)).await;
    owner.start_speaker()?;
    sleep(AWAY).await;
    scene.lab().plane().start_api_server().await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("... and the owner's speaker restarted meanwhile", probe).await?;
    scene.not_moved(&claim).await
}
