//! The logind of a machine: elogind, which is systemd's without systemd as the first process.
//!
//! A kubelet holds an inhibitor lock of it, learns from it that the machine is to be shut down, ends its pods, and
//! lets the lock go; then elogind runs poweroff(8).

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::machine::{Machine, Program};
use crate::shell;

/// The configuration of the bus.
pub(super) const BUS: &str = "/etc/dbus-1/lab.conf";
/// Where it listens, as its clients expect.
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// The bus name, path and interface of logind.
const MANAGER: [&str; 3] =
    ["org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
/// In the machine's folder: that it may be turned off.
const OFF: &str = "off";
/// With control groups of version 1 it wants a hierarchy of its own, which a machine cannot make: it sees version 2.
const ELOGIND: &str = r#"mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$0""#;
/// A poweroff(8) that turns nothing off itself: what it is called for is written down.
const POWER_OFF: &str = "set -eu
mkdir -p /run/dbus /run/sbin
printf '#!/bin/sh\\n: >/run/lab/off\\n' >/run/sbin/poweroff
chmod 755 /run/sbin/poweroff
mount -t overlay -o lowerdir=/run/sbin:/usr/sbin overlay /usr/sbin
";

/// A bus on which everybody on the machine, who is root, may do everything.
pub(super) fn bus() -> String {
    format!(
        "<busconfig>
  <type>system</type>
  <listen>unix:path={SOCKET}</listen>
  <auth>EXTERNAL</auth>
  <policy context=\"default\">
    <allow own=\"*\"/>
    <allow send_destination=\"*\" eavesdrop=\"true\"/>
    <allow receive_sender=\"*\"/>
  </policy>
</busconfig>
"
    )
}

/// It allows a longer delay than a kubelet needs, which could otherwise ask systemd alone to change that.
pub(super) fn configuration() -> String {
    "[Login]\nInhibitDelayMaxSec=60\n".to_owned()
}

impl Machine {
    /// Starts the bus and logind; returns when that answers.
    pub(super) async fn start_logind(&self) -> Result<()> {
        let mut prepare = self.command("sh")?;
        shell::run(prepare.args(["-c", POWER_OFF]))?;
        self.start(Program::Bus)?;
        let socket = self.path(SOCKET)?;
        self.until("the bus listens", || Ok(socket.exists())).await?;
        self.start(Program::Logind)?;
        self.until("logind answers", || {
            let mut ask = self.busctl()?;
            ask.arg("get-property").args(MANAGER).arg("InhibitDelayMaxUSec");
            Ok(shell::run(&mut ask).is_ok())
        })
        .await
    }

    pub(super) fn bus(&self) -> Result<Command> {
        let mut command = self.command("dbus-daemon")?;
        command.arg(format!("--config-file={BUS}")).args(["--nofork", "--nopidfile"]);
        Ok(command)
    }

    pub(super) fn logind(&self) -> Result<Command> {
        let mut command = self.command("unshare")?;
        command.args(["--mount", "sh", "-c", ELOGIND]).arg(self.file("lib/elogind/elogind")?);
        command.env("LD_LIBRARY_PATH", self.file("lib/elogind")?);
        Ok(command)
    }

    /// A file of elogind's package.
    fn file(&self, name: &str) -> Result<PathBuf> {
        let files = self.shared.logind.as_ref().context("machines without logind were planned")?;
        Ok(files.join(name))
    }

    /// Its tool that asks on the bus.
    fn busctl(&self) -> Result<Command> {
        let mut command = self.command(&self.file("usr/bin/busctl")?.to_string_lossy())?;
        command.env("LD_LIBRARY_PATH", self.file("lib/elogind")?);
        Ok(command)
    }

    /// Shuts it down by `PowerOff` of org.freedesktop.login1(5): its kubelet ends its pods first.
    pub async fn shut_down_by_logind(&self) -> Result<()> {
        let off = self.folder().join(OFF);
        ensure!(!off.exists(), "{} is off", self.name());
        let mut ask = self.busctl()?;
        shell::run(ask.arg("call").args(MANAGER).args(["PowerOff", "b", "false"]))?;
        self.until("it may be turned off", || Ok(off.exists())).await?;
        std::fs::remove_file(off)?;
        self.power_off()
    }
}
