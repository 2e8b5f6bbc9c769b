//! What the lab promises to the machine that it runs on.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_lab::process::Process;
use leasehold_lab::sandbox;

use crate::scene::Scene;

/// How many processes have a text in their command line.
fn processes_with(text: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc")? {
        // A process may end between the listing and the reading.
        let line = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(text));
    }
    Ok(count)
}

async fn wait_for(what: &str, condition: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition()? {
        if Instant::now() > deadline {
            bail!("not within a minute: {what}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Runs a whole test in a lab within this lab, and kills it from outside with SIGKILL.
pub async fn nothing_outlives_a_lab_that_is_killed() -> Result<()> {
    let folder = sandbox::scratch()?.join("victim");
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--exact", "data_path::bare::a_dead_node_is_silent_and_its_neighbours_are_not"])
        .env_remove(sandbox::SCRATCH)
        .env("TMPDIR", &folder);
    let victim = Process::spawn("a lab", &folder.join("victim.log"), &mut command)?;
    // Its API server and its nodes' proxies have files below its scratch folder as arguments.
    let mark = Path::new(&folder).join("leasehold-lab-").display().to_string();
    let up = || Ok(processes_with(&mark)? >= 4);
    wait_for("the other lab runs its control plane and kube-proxies", up).await?;
    victim.kill().await?;
    wait_for("all its processes have ended", || Ok(processes_with(&mark)? == 0)).await
}

/// A line of `/proc/PID/status` (proc(5)).
fn status(process: &Process, field: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":"));
    Ok(line.with_context(|| format!("no {field} in {text}"))?.trim().to_owned())
}

/// Capabilities, system calls and privileges are those of the manifests.
pub async fn speakers_and_operator_are_confined_as_their_manifests_say() -> Result<()> {
    let scene = Scene::open("confined").await?;
    let speaker = scene.owner().await?.speaker()?.process()?;
    let operator = scene.lab().operator()?;
    // CAP_NET_ADMIN is bit 12, CAP_NET_RAW bit 13 (capabilities(7)).
    for (process, capabilities) in [(&*speaker, 0x3000), (operator.process(), 0)] {
        for field in ["CapEff", "CapPrm", "CapBnd"] {
            let found = u64::from_str_radix(&status(process, field)?, 16)?;
            ensure!(found == capabilities, "{}: {field} {found:x}", process.name());
        }
        // A filter, and no way to more rights (seccomp(2), prctl(2)).
        for (field, expected) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
            let found = status(process, field)?;
            ensure!(found == expected, "{}: {field} {found}", process.name());
        }
    }
    Ok(())
}
