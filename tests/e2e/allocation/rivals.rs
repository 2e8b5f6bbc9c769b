//! Another controller that writes the status of the same Service.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{Turn, addresses, condition};

/// For how long the other controller is at it.
const FIGHT: Duration = Duration::from_secs(6);
/// How many writes of the operator there are within that at most: those that are free, those after pauses
/// of one and two seconds, and one that tells who announces the address.
const WRITES: u64 = 13;
/// The operator's longest pause.
const BOUND: Duration = Duration::from_secs(30);
const NODES: [&str; 2] = ["172.31.255.11", "172.31.255.12"];

/// Puts addresses of nodes into the status of `name` whenever it has others, as `ServiceLB` of k3s does;
/// returns how often it did.
async fn insist(services: Api<Service>, name: &str) -> Result<u64> {
    let status = json!({"loadBalancer": {"ingress": [{"ip": NODES[0]}, {"ip": NODES[1]}]}});
    let patch = Patch::Merge(json!({ "status": status }));
    let manager = Some("k3s".to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut rounds = 0;
    let fight = async {
        let mut events = services.watch(&only, "0").await?.boxed();
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(service) | WatchEvent::Modified(service)) = event else {
                continue;
            };
            if addresses(&service) != NODES {
                services.patch_status(name, &params, &patch).await?;
                rounds += 1;
            }
        }
        anyhow::Ok(())
    };
    let ended = timeout(FIGHT, fight).await;
    if let Ok(ended) = ended {
        ended?;
        bail!("the watch ended");
    }
    Ok(rounds)
}

/// What a metric of the operator says, summed over its labels.
fn metric(turn: &Turn, name: &str, labels: &str) -> Result<u64> {
    let text = turn.lab.operator()?.http("/metrics")?;
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(labels));
    let mut sum = 0;
    for line in lines {
        let (_, value) = line.rsplit_once(' ').context("a sample has a value")?;
        sum += value.parse::<u64>()?;
    }
    Ok(sum)
}

pub async fn a_controller_that_rewrites_a_status_is_named_once_and_answered_ever_more_slowly()
-> Result<()> {
    let turn = Turn::take("rival").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.plain("web").await?;
    turn.has("web", &["192.0.2.0"]).await?;
    turn.until("the claim lists the address", async || {
        Ok(turn.lease("rival.web").await?.is_some())
    })
    .await?;
    let lease = turn.lease("rival.web").await?.and_then(|lease| lease.resource_version());
    let writes = || metric(&turn, "leasehold_operator_writes_total", "kind=\"Service\"");

    let before = writes()?;
    let rounds = insist(turn.services(), "web").await?;
    let after = writes()? - before;
    println!("    {rounds} rounds of the other, {after} writes of the operator in {FIGHT:?}");
    ensure!(rounds > 3, "{rounds} rounds");
    ensure!(after <= WRITES, "{after} writes of the operator");
    ensure!(metric(&turn, "leasehold_operator_contested_services", "")? == 1);

    let waits = async || Ok(turn.addresses("web").await? == ["192.0.2.0"]);
    turn.lab.eventually("the status is right again", BOUND, waits).await?;
    turn.says("web", "True", "OtherWriter", "field manager k3s (subresource status)").await?;
    turn.says("web", "True", "OtherWriter", "--disable servicelb").await?;
    let told = turn.events("web", "Warning", "OtherWriter", "k3s").await?;
    ensure!(told == 1, "{told} events of it");
    for reason in ["AddressReleased", "AddressAssigned"] {
        let told = turn.events("web", "Normal", reason, "instead of").await?;
        ensure!(told == 0, "{told} events {reason}");
    }
    let now = turn.lease("rival.web").await?.and_then(|lease| lease.resource_version());
    ensure!(now == lease, "the claim was written");

    // A name and ports beside the address are nobody's rivalry.
    turn.plain("named").await?;
    turn.has("named", &["192.0.2.1"]).await?;
    let name = json!([{"ip": "192.0.2.1", "hostname": "web.example.com", "ports": [
        {"port": 80, "protocol": "TCP"},
    ]}]);
    turn.forge_ingress("named", name).await?;
    let hostname = async || -> Result<Value> {
        let service = turn.get("named").await?;
        Ok(json!(service.status)["loadBalancer"]["ingress"][0]["hostname"].clone())
    };
    let settled = turn.get("named").await?.resource_version();
    sleep(Duration::from_millis(500)).await;
    ensure!(hostname().await? == "web.example.com");
    ensure!(turn.get("named").await?.resource_version() == settled, "it was written to");
    turn.annotate("named", super::CLAIM, Value::Null).await?;
    turn.until("the claim is on record again", async || {
        Ok(turn.claim("named").await?.as_deref() == Some("rival.named"))
    })
    .await?;
    ensure!(hostname().await? == "web.example.com", "the name went with the next write");
    ensure!(condition(&turn.get("named").await?)["reason"] == "AddressAssigned");
    Ok(())
}
