//! A network namespace of the lab.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::shell;

/// A named network namespace; it goes away with this value.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace, with its loopback up and without duplicate address detection, which
    /// would keep the lab's own IPv6 addresses from use for a second.
    pub fn create(name: &str) -> Result<Self> {
        shell::run(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Self { name: name.to_owned() };
        namespace.ip("link set dev lo up")?;
        namespace.sysctl(&[
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_ra", "0"),
        ])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that it is mounted on.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// A command that runs in this namespace; the process that starts it becomes the program.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program);
        command
    }

    /// Runs commands of `ip`, one per line.
    pub fn ip(&self, commands: &str) -> Result<()> {
        shell::feed(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), commands)
    }

    /// Sets kernel parameters of this namespace.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.within(|| {
            for (name, value) in settings {
                let path = format!("/proc/sys/{}", name.replace('.', "/"));
                fs::write(&path, value).with_context(|| format!("write {value} to {path}"))?;
            }
            Ok(())
        })?
    }

    /// Runs a function on a thread that is in this namespace. Sockets that it makes stay there.
    pub fn within<T: Send>(&self, function: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter()?;
                    Ok(function())
                })
                .join()
                .map_err(|_| anyhow!("a thread in the namespace {} panicked", self.name))?
        })
    }

    /// Moves the calling thread into this namespace, for good.
    pub fn enter(&self) -> Result<()> {
        let file = File::open(self.path()).with_context(|| format!("open {}", self.name))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("enter the namespace {}", self.name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What is left goes with the sandbox.
        drop(shell::run(Command::new("ip").args(["netns", "delete", &self.name])));
    }
}
