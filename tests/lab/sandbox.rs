//! Namespaces around the whole lab, so that nothing it does can touch or outlive itself.
//!
//! ```text
//! the binary, as called        outside: makes the scratch folder, waits, removes the folder
//!  └─ setpriv --pdeathsig KILL
//!      └─ unshare --net --mount --pid --fork --kill-child
//!          └─ the same binary   inside: process 1 of a new PID namespace
//! ```
//!
//! When the inside ends, however it ends, the kernel kills every process that it started and drops
//! its network namespaces with all links, addresses and rules. When the outside ends, the parent
//! death signal takes `unshare` along, and `--kill-child` the inside. Names and ports inside need
//! not be unique among labs.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::{cgroups, shell};

/// Names the scratch folder to the inside; that it is set says that this is the inside.
pub const SCRATCH: &str = "LEASEHOLD_LAB_SCRATCH";
/// A file in the scratch folder that says: keep the logs.
const KEEP: &str = "keep";

/// The exit code of a shell's command that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// On which side of the sandbox this process is.
#[derive(Debug)]
pub enum Side {
    /// The lab has run and ended; leave with this code.
    Outside(ExitCode),
    /// This is process 1 inside; files go to this folder.
    Inside(PathBuf),
}

/// Enters the sandbox: returns once on the inside, and on the outside when the inside has ended.
///
/// Call it first in `main`, before any thread exists.
pub fn enter() -> Result<Side> {
    enter_with(|_, _| Ok(()))
}

/// The same, and on the outside calls `started` once the inside exists: with the folder, and with
/// the process id that the inside has outside.
pub fn enter_with(started: impl FnOnce(&Path, u32) -> Result<()>) -> Result<Side> {
    if let Some(scratch) = env::var_os(SCRATCH) {
        let scratch = PathBuf::from(scratch);
        furnish()?;
        return Ok(Side::Inside(scratch));
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "the lab makes network namespaces: run it as root"
    );
    let scratch = tempfile::Builder::new()
        .prefix("leasehold-lab-")
        .tempdir_in(scratch_parent())
        .context("make the scratch folder")?;
    let status = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(contain(scratch.path(), started))?;
    let scratch_name = scratch.path().file_name().map(|name| name.to_string_lossy().into_owned());
    if scratch.path().join(KEEP).exists() {
        let folder = scratch.keep();
        prune(&folder)?;
        eprintln!("the logs are kept in {}", folder.display());
    }
    if let Some(name) = scratch_name {
        // Best effort: they are empty, and of a lab that has ended.
        drop(cgroups::sweep(&name));
    }
    let Some(status) = status else {
        eprintln!("the lab was interrupted");
        return Ok(Side::Outside(ExitCode::from(INTERRUPTED)));
    };
    if let Some(signal) = status.signal() {
        bail!("the lab was ended by signal {signal}");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Side::Outside(ExitCode::from(code)))
}

/// The folder for files of this run.
pub fn scratch() -> Result<PathBuf> {
    let scratch = env::var_os(SCRATCH).context("a lab runs inside its sandbox only")?;
    Ok(PathBuf::from(scratch))
}

/// Asks the outside to keep the logs of this run.
pub fn keep_logs(scratch: &Path) {
    // Without the marker the folder is merely removed.
    drop(fs::write(scratch.join(KEEP), ""));
}

/// The inside mounts a fresh `/run`, so the scratch folder must not be below it.
fn scratch_parent() -> PathBuf {
    let parent = env::temp_dir();
    if parent.starts_with("/run") || parent.starts_with("/var/run") {
        return PathBuf::from("/tmp");
    }
    parent
}

/// Runs the inside to its end; `None` when this process was asked to end before.
async fn contain(
    scratch: &Path,
    started: impl FnOnce(&Path, u32) -> Result<()>,
) -> Result<Option<ExitStatus>> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut inside = tokio::process::Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "unshare", "--net", "--mount", "--pid"])
        .args(["--fork", "--kill-child", "--mount-proc", "--"])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(SCRATCH, scratch)
        .spawn()
        .context("start unshare under setpriv (both are in util-linux)")?;
    let unshare = inside.id().context("unshare has ended")?;
    started(scratch, child_of(unshare).await?)?;
    tokio::select! {
        status = inside.wait() => return Ok(Some(status?)),
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    inside.start_kill()?;
    inside.wait().await?;
    Ok(None)
}

/// The only child of a process, as soon as it has one.
async fn child_of(parent: u32) -> Result<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    for _ in 0..1000 {
        let children = fs::read_to_string(&path).context("unshare has ended")?;
        if let Some(child) = children.split_whitespace().next() {
            return Ok(child.parse()?);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bail!("unshare has no child");
}

/// Prepares the inside: its own `/run`, and a loopback.
fn furnish() -> Result<()> {
    shell::run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    fs::create_dir_all("/run/netns")?;
    shell::run(Command::new("ip").args(["link", "set", "dev", "lo", "up"]))
}

/// Leaves nothing but logs in a folder that is kept. A link is removed, and not what it leads to: some lead
/// into the repository.
fn prune(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            prune(&path)?;
            // Fails, as it should, while logs are left inside.
            drop(fs::remove_dir(&path));
        } else if path.extension().is_none_or(|extension| extension != "log") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_link_leads_to_is_not_pruned() -> Result<()> {
        let (kept, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
        fs::write(other.path().join("policy.yaml"), "")?;
        fs::write(kept.path().join("speaker.log"), "")?;
        fs::write(kept.path().join("kubeconfig"), "")?;
        symlink(other.path(), kept.path().join("examples"))?;

        prune(kept.path())?;

        assert!(other.path().join("policy.yaml").exists());
        let left: Vec<_> = fs::read_dir(kept.path())?.collect::<Result<_, _>>()?;
        let names: Vec<_> = left.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, ["speaker.log"]);
        Ok(())
    }
}
