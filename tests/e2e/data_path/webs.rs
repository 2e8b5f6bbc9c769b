//! Services of all kinds with a pod on each of three nodes, and what is asked of them.

use std::net::IpAddr;

use anyhow::{Context, Result};
use leasehold_lab::client::ask;
use leasehold_lab::{Cluster, Node, Service};
use serde_json::json;

use crate::scene::PATIENCE;

/// The port of the Services.
pub(super) const TCP: u16 = 80;

/// A Service with its addresses.
pub(super) struct Web {
    pub(super) what: &'static str,
    pub(super) service: Service,
    pub(super) vips: Vec<IpAddr>,
}

/// Services of all kinds with a pod on each of the three nodes.
pub(super) async fn webs(cluster: &Cluster) -> Result<Vec<Web>> {
    let nodes = [cluster.node(0), cluster.node(1), cluster.node(2)];
    let all = cluster.service("all").vip(1).dual_stack().pods_on(&nodes).create().await?;
    let affine = cluster.service("affine").vip(2).pods_of(&all).create().await?;
    affine.patch(json!({ "spec": { "sessionAffinity": "ClientIP" } })).await?;
    let local = cluster.service("local").vip(3).local().pods_of(&all).create().await?;
    let mut webs = Vec::new();
    for (what, service) in [("Cluster", all), ("with affinity", affine), ("Local", local)] {
        cluster.ready(&service).await?;
        let vips = service.addresses().await?;
        webs.push(Web { what, service, vips });
    }
    let answers = async || {
        let mut vips = webs.iter().flat_map(|web| &web.vips);
        Ok(vips.all(|vip| (0..5).all(|_| ask_at(cluster, *vip).is_ok())))
    };
    cluster.eventually("all answer", PATIENCE, answers).await?;
    Ok(webs)
}

pub(super) fn is_on(webs: &[Web], pod: &str, node: &Node) -> bool {
    let mut pods = webs.iter().flat_map(|web| web.service.pods());
    pods.any(|it| it.name() == pod && it.node() == node.name())
}

pub(super) fn ask_at(cluster: &Cluster, vip: IpAddr) -> Result<String> {
    Ok(ask::by_tcp(cluster.client().namespace(), (vip, TCP).into())?.pod)
}

pub(super) fn metric(node: &Node, name: &str) -> Result<f64> {
    let text = node.speaker_http("/metrics")?;
    let line = format!("leasehold_speaker_{name} ");
    let value = text.lines().find_map(|text| text.strip_prefix(&line));
    Ok(value.with_context(|| format!("no metric {name}"))?.trim().parse()?)
}
