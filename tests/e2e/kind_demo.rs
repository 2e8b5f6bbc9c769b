//! What of the demo on kind runs without Docker: its client.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::repository;
use tokio::time::sleep;

use crate::scene::Scene;

/// What the client says after so many seconds: requests, lost ones, the longest outage in milliseconds.
fn felt(output: &std::process::Output) -> Result<[u64; 3]> {
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    numbers.try_into().ok().with_context(|| format!("{output:?}"))
}

pub async fn the_client_of_the_demo_on_kind_tells_what_it_felt() -> Result<()> {
    let scene = Scene::open("kind").await?;
    let client = |seconds: &str| {
        let mut command = scene.cluster.client().namespace().command("bash");
        command.arg(repository().join("kind/client.sh")).arg(scene.vip.to_string()).arg(seconds);
        command
    };
    let [sent, lost, longest] = felt(&client("3").output()?)?;
    ensure!(sent > 20 && lost == 0 && longest == 0, "{sent} sent, {lost} lost, {longest} ms");

    let mut command = client("8");
    let asking = thread::spawn(move || command.output());
    sleep(Duration::from_secs(2)).await;
    let owner = scene.owner().await?;
    owner.dies()?;
    owner.speaker()?.kill().await?;
    let output = asking.join().ok().context("the client's thread panicked")??;
    let [sent, lost, longest] = felt(&output)?;
    println!("    the owner died: {sent} requests, {lost} lost, longest outage {longest} ms");
    ensure!(lost > 0 && longest > 0, "{lost} lost, {longest} ms");
    Ok(())
}
