//! What an address answers beside the ports of its Service, and what nodes say of a Service.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use leasehold_lab::Cluster;
use leasehold_lab::client::ask;

use super::reach::{Row, node_ports_of};
use crate::scene::{PATIENCE, UDP};

/// By the VIP neither node ports nor the health check are reached.
pub(super) async fn only_its_ports_are_open(cluster: &Cluster, row: &Row<'_>) -> Result<()> {
    let (tcp, udp) = node_ports_of(row).await?;
    let (tcp, udp) = ([[80].as_slice(), &tcp].concat(), [[UDP].as_slice(), &udp].concat());
    for &vip in &row.vips {
        let open = cluster.client().open_ports(vip, &tcp)?;
        ensure!(open == [80], "{}: by {vip} the client finds {open:?} of {tcp:?}", row.what);
        let answering = cluster.client().answering_ports(vip, &udp)?;
        ensure!(answering == [UDP], "{}: {answering:?} of {udp:?} answer", row.what);
    }
    Ok(())
}

/// Echo requests are answered by the owner and by nobody else.
pub(super) fn its_owner_answers_pings(cluster: &Cluster, row: &Row<'_>) -> Result<()> {
    for &vip in &row.vips {
        let macs = cluster.client().echoes(vip)?;
        let owner = row.owner.mac();
        let only = macs.len() == 1 && macs.iter().all(|mac| mac.to_string() == owner);
        ensure!(only, "{}: {macs:?} answer pings of {vip}, its owner has {owner}", row.what);
    }
    Ok(())
}

/// `healthCheckNodePort` of the addresses of nodes says which have an endpoint, as without us.
pub(super) async fn node_ports_say_where_endpoints_are(
    cluster: &Cluster,
    rows: &[Row<'_>],
) -> Result<()> {
    let pods = rows.first().context("no rows")?.service.pods();
    for row in rows.iter().filter(|row| row.local) {
        let spec = row.service.get().await?.spec.context("no spec")?;
        let port = u16::try_from(spec.health_check_node_port.context("no health check")?)?;
        for node in cluster.nodes().iter().chain(cluster.workers()) {
            let expected = if pods.iter().any(|pod| pod.node() == node.name()) { 200 } else { 503 };
            for own in node.own_addresses() {
                // kube-proxy checks the endpoints of the families that the Service has.
                if !row.vips.iter().any(|vip| vip.is_ipv4() == own.is_ipv4()) {
                    continue;
                }
                let check = SocketAddr::new(own, port);
                let what = format!("{}: {check} of {} says {expected}", row.what, node.name());
                let said = async || {
                    let client = cluster.client().namespace();
                    Ok(ask::status(client, check, "/healthz")? == expected)
                };
                cluster.eventually(&what, PATIENCE, said).await?;
            }
        }
    }
    Ok(())
}
