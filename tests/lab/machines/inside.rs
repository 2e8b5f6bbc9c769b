//! The first process of a machine: it mounts what the machine sees, then reaps what is left to it.
//!
//! ```text
//! /etc, /var           overlays: what is written is gone with the machine's power
//! /run                 of its own, as each start of a machine has it
//! /var/lib/kubelet,    folders of the lab's: what containers are made of cannot be on an overlay, and stays from
//! /var/lib/containerd  one start to the next, as on a disk
//! /sys, /proc          of its network and its processes; its control groups
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use crate::cgroups::Hierarchy;
use crate::shell;

/// The argument by which a binary of the lab becomes the first process of a machine: the file with its [`Spec`]
/// follows.
pub(crate) const ARGUMENT: &str = "machine";
/// The file in the machine's folder that says that it has started.
pub(super) const STARTED: &str = "started";
/// Folders of the machine that stay from one start to the next.
const DISK: [&str; 2] = ["/var/lib/kubelet", "/var/lib/containerd"];
/// Kernel parameters that a kubelet sets, and that are the whole host's: it gets files in their place.
const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// What a machine is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) hierarchies: Vec<Hierarchy>,
    pub(super) files: BTreeMap<PathBuf, String>,
}

/// Becomes the first process of the machine that a file describes. It never returns but with an error.
pub(crate) fn run(spec: &Path) -> Result<()> {
    let spec: Spec = serde_json::from_slice(&fs::read(spec)?)?;
    spec.mount().context("mount what the machine sees")?;
    for (path, text) in &spec.files {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    fs::write("/proc/sys/kernel/hostname", &spec.name)?;
    fs::write(Path::new("/run/lab").join(STARTED), "")?;
    loop {
        // What it is left with by programs that have ended.
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

impl Spec {
    fn mount(&self) -> Result<()> {
        mount(&["--make-rprivate", "/"])?;
        mount(&["-t", "proc", "proc", "/proc"])?;
        mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
        // The lab's folder may be below what an overlay is about to cover.
        fs::create_dir_all("/run/lab")?;
        mount(&["--bind", &self.folder.to_string_lossy(), "/run/lab"])?;
        for folder in ["/etc", "/var"] {
            let upper = format!("/run/upper{folder}");
            let work = format!("/run/work{folder}");
            fs::create_dir_all(&upper)?;
            fs::create_dir_all(&work)?;
            let options = format!("lowerdir={folder},upperdir={upper},workdir={work}");
            mount(&["-t", "overlay", "-o", &options, "overlay", folder])?;
        }
        // What is bound there by the host would be written to in place.
        drop(fs::remove_file("/etc/machine-id"));
        for folder in DISK {
            let disk = format!("/run/lab/disk{folder}");
            fs::create_dir_all(&disk)?;
            fs::create_dir_all(folder)?;
            mount(&["--bind", &disk, folder])?;
        }
        mount(&["--make-rshared", "/var/lib/kubelet"])?;
        for folder in ["/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/lock"] {
            fs::create_dir_all(folder)?;
        }
        mount(&["-t", "sysfs", "sysfs", "/sys"])?;
        self.mount_cgroups()?;
        for (name, value) in TUNABLES {
            let file = format!("/run/tunables/{}", name.replace('/', "_"));
            fs::create_dir_all("/run/tunables")?;
            fs::write(&file, format!("{value}\n"))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
            mount(&["--bind", &file, &format!("/proc/sys/{name}")])?;
        }
        Ok(())
    }

    fn mount_cgroups(&self) -> Result<()> {
        if self.hierarchies.iter().all(|it| it.folder.is_empty()) {
            return mount(&["-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]);
        }
        mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup"])?;
        for Hierarchy { folder, options } in &self.hierarchies {
            let path = format!("/sys/fs/cgroup/{folder}");
            fs::create_dir(&path)?;
            mount(&["-t", "cgroup", "-o", options, "cgroup", &path])?;
        }
        Ok(())
    }
}

fn mount(arguments: &[&str]) -> Result<()> {
    shell::run(Command::new("mount").args(arguments))
}
