//! Control groups of machines: each machine has a subtree of its own.
//!
//! Version 1 has a hierarchy per controller, version 2 has one for all (cgroups(7)); the one that is mounted is used.
//! A machine enters a cgroup namespace in its subtree, and finds that as the root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Where the hierarchies are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// The timeout of the removal of groups whose processes have just been killed, and of a freeze.
const PATIENCE: Duration = Duration::from_secs(20);
/// Moves a process into the groups whose folders are named before `--`; then it becomes the command that follows.
const JOIN: &str = r#"set -eu
while [ "$1" != -- ]; do
    echo $$ >"$1/cgroup.procs"
    shift
done
shift
exec "$@"
"#;

/// How a hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hierarchy {
    /// The name of its folder; empty for version 2, which has no folder of its own.
    pub(crate) folder: String,
    /// The options of its mount (version 1): its controllers or its name.
    pub(crate) options: String,
}

/// The groups of a machine.
#[derive(Debug)]
pub(crate) struct Subtree {
    groups: Vec<(Hierarchy, PathBuf)>,
}

/// The hierarchies of this machine, each with the group that this process is in.
fn hierarchies() -> Result<Vec<(Hierarchy, PathBuf)>> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    if Path::new(MOUNT).join("cgroup.controllers").exists() {
        let whole = Hierarchy { folder: String::new(), options: String::new() };
        return Ok(vec![(whole, PathBuf::from(MOUNT))]);
    }
    Ok(version_1(&own))
}

/// Reads the lines of `/proc/self/cgroup` that are of version 1.
fn version_1(own: &str) -> Vec<(Hierarchy, PathBuf)> {
    let lines = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let folder = controllers.strip_prefix("name=").unwrap_or(controllers).to_owned();
        // Without controllers it is the line of version 2.
        let options = match (controllers.is_empty(), folder == controllers) {
            (true, _) => return None,
            (false, true) => controllers.to_owned(),
            (false, false) => format!("none,{controllers}"),
        };
        let path = Path::new(MOUNT).join(&folder).join(group.trim_start_matches('/'));
        Some((Hierarchy { folder, options }, path))
    });
    lines.collect()
}

impl Subtree {
    /// Makes a group of this name in each hierarchy.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let mut groups = Vec::new();
        for (hierarchy, parent) in hierarchies()? {
            if hierarchy.folder.is_empty() {
                delegate(&parent)?;
            }
            let group = parent.join(name);
            fs::create_dir_all(&group).with_context(|| format!("make {}", group.display()))?;
            if hierarchy.folder.split(',').any(|controller| controller == "cpuset") {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(group.join(file), fs::read(parent.join(file))?)?;
                }
            }
            groups.push((hierarchy, group));
        }
        ensure!(!groups.is_empty(), "no control groups are mounted at {MOUNT}");
        Ok(Self { groups })
    }

    /// How the hierarchies are to be mounted within.
    pub(crate) fn hierarchies(&self) -> Vec<Hierarchy> {
        self.groups.iter().map(|(hierarchy, _)| hierarchy.clone()).collect()
    }

    /// A command whose process joins the groups, and then becomes the program of the arguments to be added.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN, "join"]);
        command.args(self.groups.iter().map(|(_, group)| group)).arg("--");
        command
    }

    /// Stops all processes of the machine where they are, or lets them go on.
    pub(crate) fn freeze(&self, on: bool) -> Result<()> {
        for (hierarchy, group) in &self.groups {
            let (file, value, state, expected) = match (hierarchy.folder.as_str(), on) {
                ("freezer", true) => ("freezer.state", "FROZEN", "freezer.state", "FROZEN"),
                ("freezer", false) => ("freezer.state", "THAWED", "freezer.state", "THAWED"),
                ("", true) => ("cgroup.freeze", "1", "cgroup.events", "frozen 1"),
                ("", false) => ("cgroup.freeze", "0", "cgroup.events", "frozen 0"),
                _ => continue,
            };
            fs::write(group.join(file), value)?;
            let begin = Instant::now();
            while !fs::read_to_string(group.join(state))?.lines().any(|line| line == expected) {
                ensure!(begin.elapsed() < PATIENCE, "{} does not get {expected}", group.display());
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        for (_, group) in &self.groups {
            // The processes in it were killed, and have to be gone.
            while remove(group).is_err() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// What the memory of a group has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most that it had at any time, in bytes: of its processes, of the kernel for them, and of files.
    pub peak: u64,
    /// The number of its processes that the kernel killed because the limit was reached.
    pub killed: u64,
}

/// The memory of the group of the process with this folder in proc(5).
pub(crate) fn memory(process: &Path) -> Result<Memory> {
    let own = fs::read_to_string(process.join("cgroup"))?;
    let second = Path::new(MOUNT).join("cgroup.controllers").exists();
    let (group, peak, events) = if second {
        let group = own.lines().find_map(|line| line.strip_prefix("0::/"));
        (group.map(|group| Path::new(MOUNT).join(group)), "memory.peak", "memory.events")
    } else {
        let group = version_1(&own).into_iter().find(|(it, _)| it.folder == "memory");
        (group.map(|(_, group)| group), "memory.max_usage_in_bytes", "memory.oom_control")
    };
    let group = group.with_context(|| format!("no group in {own}"))?;
    let peak = fs::read_to_string(group.join(peak))?.trim().parse()?;
    let events = fs::read_to_string(group.join(events))?;
    let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    let killed = killed.with_context(|| format!("no oom_kill in {events}"))?.trim().parse()?;
    Ok(Memory { peak, killed })
}

/// Removes a group and all below it.
fn remove(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(fs::remove_dir(group)?)
}

/// Removes the groups whose names begin so, which a lab left behind that was killed.
pub(crate) fn sweep(prefix: &str) -> Result<()> {
    for (_, parent) in hierarchies()? {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let deadline = Instant::now() + PATIENCE;
                while remove(&entry.path()).is_err() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
    Ok(())
}

/// Version 2: has all controllers in the children of a group, which may then have no processes of its own
/// (cgroups(7), "no internal processes"), unless it is the root.
fn delegate(parent: &Path) -> Result<()> {
    let controllers = fs::read_to_string(parent.join("cgroup.controllers"))?;
    let all: Vec<_> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
    let all = all.join(" ");
    let control = parent.join("cgroup.subtree_control");
    if fs::write(&control, &all).is_ok() {
        return Ok(());
    }
    let leaf = parent.join("leasehold-lab-init");
    fs::create_dir_all(&leaf)?;
    for process in fs::read_to_string(parent.join("cgroup.procs"))?.lines() {
        // Those that have just ended cannot be moved, nor need they.
        drop(fs::write(leaf.join("cgroup.procs"), process));
    }
    fs::write(&control, &all).context("give the controllers to control groups of machines")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_1_have_the_options_of_their_mounts() {
        let own = "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n";
        let found = version_1(own);
        let options: Vec<_> = found.iter().map(|(it, _)| it.options.as_str()).collect();
        assert_eq!(options, ["none,name=systemd", "memory", "cpu,cpuacct"]);
        assert_eq!(found[1].1, Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(found[0].1, Path::new("/sys/fs/cgroup/systemd/"));
    }
}
