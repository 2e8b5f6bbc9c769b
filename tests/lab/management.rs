//! The network between the API servers and the nodes: a bridge in the sandbox's own namespace.
//!
//! API servers have 172.31.0.N, node N of cluster C has 172.31.C.N.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

use crate::shell;

/// The bridge.
pub(crate) const BRIDGE: &str = "management";
/// Its MAC address. A bridge that is given none takes the lowest of its ports': with each cluster that
/// comes or goes it may change, and the API servers are out of reach until all have asked anew.
const MAC: &str = "02:1e:a5:00:02:01";

fn bridge() -> Result<()> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let commands = format!(
            "link add name {BRIDGE} address {MAC} type bridge\n\
             link set dev {BRIDGE} up\n"
        );
        shell::feed(Command::new("ip").args(["-batch", "-"]), &commands)
            .map_err(|error| error.to_string())
    });
    built.clone().map_err(|error| anyhow!(error))
}

/// Gives the sandbox an address for an API server.
pub(crate) fn add_address(address: Ipv4Addr) -> Result<()> {
    bridge()?;
    let prefix = format!("{address}/16");
    shell::run(Command::new("ip").args(["address", "add", &prefix, "dev", BRIDGE]))
}

/// Plugs a link of this namespace into the bridge.
pub(crate) fn plug(link: &str) -> Result<()> {
    bridge()?;
    shell::run(Command::new("ip").args(["link", "set", "dev", link, "master", BRIDGE, "up"]))
}

/// Has the API servers reach a network by a node's address on this one.
pub(crate) fn route(network: &str, via: Ipv4Addr) -> Result<()> {
    shell::run(Command::new("ip").args(["route", "replace", network, "via", &via.to_string()]))
}
