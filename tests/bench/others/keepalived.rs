//! keepalived: one VRRP instance with one address.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use leasehold_lab::{Cluster, Node, Service};
use serde_json::json;

use super::Ground;

/// Whether it is installed.
pub(crate) fn installed() -> bool {
    let mut command = Command::new("keepalived");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A Service that knows the address: kube-proxy forwards these exactly as it forwards a load balancer's.
pub(super) async fn serve(cluster: &Cluster, vip: IpAddr) -> Result<Service> {
    let service = cluster.service("web").create().await?;
    service.patch(json!({ "spec": { "externalIPs": [vip] } })).await?;
    Ok(service)
}

/// With `interval` seconds between advertisements.
pub(super) fn command(ground: &Ground, node: &Node, interval: &str) -> Result<Command> {
    // Version 3 is the one with intervals below a second (RFC 5798). Nobody preempts: a
    // node that is back takes nothing away, as a Leasehold node does not.
    let config = format!(
        "global_defs {{\n  router_id {name}\n  vrrp_version 3\n}}\n\
         vrrp_instance web {{\n  state BACKUP\n  nopreempt\n  interface eth0\n  \
         virtual_router_id 51\n  priority {priority}\n  advert_int {interval}\n  \
         virtual_ipaddress {{\n    {vip}/32\n  }}\n}}\n",
        name = node.name(),
        priority = 100 + node.number(),
        vip = ground.vip,
    );
    fs::write(ground.file(node, "conf"), config)?;
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    for kind in ["pid", "vrrp-pid"] {
        // One that was killed leaves its own, and the next would think it still runs.
        drop(fs::remove_file(ground.file(node, kind)));
    }
    let mut command = node.namespace().command("keepalived");
    command
        .args(["--dont-fork", "--log-console", "--vrrp"])
        .arg(option("use-file", &ground.file(node, "conf")))
        .arg(option("pid", &ground.file(node, "pid")))
        .arg(option("vrrp_pid", &ground.file(node, "vrrp-pid")));
    Ok(command)
}
