//! The faults that chaos is made of: that they break what they say, and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use leasehold_lab::{Cluster, Lab};

use crate::faults::{answers_arp, is_connected, reaches};

/// Whether the first node reaches the second on the clients' segment, asking for it anew.
fn nodes_meet(cluster: &Cluster) -> Result<bool> {
    let [second, _] = cluster.node(1).own_addresses();
    cluster.node(0).namespace().ip("neighbour flush dev eth0\n")?;
    reaches(cluster, 0, second)
}

async fn answer_arp(cluster: &Cluster) -> Result<[bool; 2]> {
    Ok([answers_arp(cluster, 0).await?, answers_arp(cluster, 1).await?])
}

pub async fn segments_are_parted_nodes_isolated_and_their_arp_filtered() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("parts").nodes(2).workers(0).without_speakers().start().await?;
    let api = lab.plane().socket().ip();
    for index in [0, 1] {
        is_connected(&cluster, index, &[api]).await?;
    }
    ensure!(nodes_meet(&cluster)?, "the nodes do not reach each other");

    cluster.part_segment(&[cluster.node(0)])?;
    ensure!(!nodes_meet(&cluster)?, "the halves reach each other");
    // The observer is on the half of the second node.
    ensure!(answer_arp(&cluster).await? == [false, true], "the halves are wrong");
    ensure!(reaches(&cluster, 0, api)?, "the other networks are parted too");
    cluster.join_segment()?;
    ensure!(nodes_meet(&cluster)? && answer_arp(&cluster).await? == [true, true], "still parted");

    cluster.isolate_nodes(true)?;
    ensure!(!nodes_meet(&cluster)?, "isolated nodes reach each other");
    ensure!(answer_arp(&cluster).await? == [true, true], "clients do not reach isolated nodes");
    cluster.isolate_nodes(false)?;
    ensure!(nodes_meet(&cluster)?, "still isolated");

    cluster.node(0).filter_arp_of(&[cluster.node(1)])?;
    ensure!(!nodes_meet(&cluster)?, "the filter lets ARP pass");
    ensure!(answer_arp(&cluster).await? == [true, true], "the filter drops the ARP of clients");
    cluster.node(0).filter_arp_of(&[])?;
    ensure!(nodes_meet(&cluster)?, "still filtered");

    cluster.die_together(&[cluster.node(0), cluster.node(1)])?;
    ensure!(answer_arp(&cluster).await? == [false, false], "the dead answer");
    Ok(())
}

pub async fn a_slow_api_server_answers_late_and_is_quick_again_afterwards() -> Result<()> {
    let lab = Lab::start().await?;
    let nodes: Api<NodeObject> = Api::all(lab.admin());
    let frozen = Duration::from_millis(300);
    let slow = lab.plane().slow_down(frozen, 2 * frozen);
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    while began.elapsed() < 6 * frozen {
        let asked = Instant::now();
        nodes.list_metadata(&kube::api::ListParams::default()).await?;
        slowest = slowest.max(asked.elapsed());
    }
    drop(slow);
    println!("    slowest request {} ms", slowest.as_millis());
    ensure!(slowest > frozen / 2, "the slowest request took {slowest:?} only");
    lab.eventually("a request is quick again", Duration::from_secs(10), async || {
        let asked = Instant::now();
        nodes.list_metadata(&kube::api::ListParams::default()).await?;
        Ok(asked.elapsed() < frozen / 4)
    })
    .await
}
