//! What a container runtime makes of the security contexts.

use std::fs;

use anyhow::{Context, Result, ensure};
use leasehold_lab::machines::Ground;

/// `CAP_NET_ADMIN` and `CAP_NET_RAW` (capabilities(7)).
const NETWORK: &str = "0000000000003000";
const NONE: &str = "0000000000000000";

pub async fn containers_have_the_rights_of_their_manifests_and_no_others() -> Result<()> {
    let ground = Ground::start("rights").await?;
    let mut operators = 0;
    for machine in ground.machines.on() {
        let speaker = machine.process("leasehold-speaker")?.context("no speaker")?;
        has_rights(&speaker, "0", NETWORK)?;
        is_confined(&speaker)?;
        let host = fs::read_link(machine.path("/proc/1/ns/net")?)?;
        ensure!(fs::read_link(speaker.join("ns/net"))? == host, "not in the network of its node");
        if let Some(operator) = machine.process("leasehold-operator")? {
            has_rights(&operator, "65532", NONE)?;
            is_confined(&operator)?;
            ensure!(fs::read_link(operator.join("ns/net"))? != host, "in its node's network");
            operators += 1;
        }
    }
    ensure!(operators == 2, "{operators} operators on different nodes");
    Ok(())
}

/// A field of a line `Name:\tvalue` of proc(5).
fn field<'a>(status: &'a str, name: &str) -> Result<&'a str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let line = lines.find(|(field, _)| *field == name);
    line.map(|(_, value)| value.trim()).with_context(|| format!("no {name} in {status}"))
}

fn has_rights(process: &std::path::Path, user: &str, capabilities: &str) -> Result<()> {
    let status = fs::read_to_string(process.join("status"))?;
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        ensure!(field(&status, set)? == capabilities, "{set}: {status}");
    }
    ensure!(field(&status, "CapInh")? == NONE && field(&status, "CapAmb")? == NONE, "{status}");
    let users: Vec<_> = field(&status, "Uid")?.split_whitespace().collect();
    ensure!(users == [user; 4], "{status}");
    ensure!(field(&status, "NoNewPrivs")? == "1", "{status}");
    ensure!(field(&status, "Seccomp")? == "2", "no filter of system calls: {status}");
    Ok(())
}

/// Its root cannot be written to, and kernel parameters cannot be changed.
fn is_confined(process: &std::path::Path) -> Result<()> {
    let mounts = fs::read_to_string(process.join("mounts"))?;
    for point in ["/", "/sys", "/proc/sys"] {
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|fields| fields.get(1) == Some(&point));
        let mount = mount.with_context(|| format!("nothing is mounted at {point}"))?;
        let options = mount.get(3).copied().unwrap_or_default();
        ensure!(options.split(',').any(|option| option == "ro"), "{point}: {options}");
    }
    Ok(())
}
