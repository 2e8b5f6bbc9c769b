//! `kubectl leasehold`, as the admin of the control plane.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Lab;
use crate::binaries;
use crate::process::Process;

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub text: String,
    /// Its standard error.
    pub notes: String,
}

impl Answer {
    /// The answer of a command that was to end with this code.
    pub fn with_code(self, code: i32) -> Result<Self> {
        ensure!(self.code == code, "exit code {} instead of {code}: {self:?}", self.code);
        Ok(self)
    }

    /// The answer as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("no JSON: {self:?}"))
    }
}

fn command(kubeconfig: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(binaries::plugin()?);
    command.arg("--kubeconfig").arg(kubeconfig).args(arguments).stdin(Stdio::null());
    Ok(command)
}

impl Lab {
    /// Runs a command of the plugin to its end.
    pub fn plugin(&self, arguments: &[&str]) -> Result<Answer> {
        self.plugin_with(&self.plane().kubeconfig("admin"), arguments)
    }

    /// The same with another kubeconfig.
    pub fn plugin_with(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Answer> {
        let output = command(kubeconfig, arguments)?.output()?;
        Ok(Answer {
            code: output.status.code().context("ended by a signal")?,
            text: String::from_utf8(output.stdout)?,
            notes: String::from_utf8(output.stderr)?,
        })
    }

    /// Starts a command of the plugin that goes on; what it prints is its log.
    pub fn start_plugin(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        let log = self.folder().join(format!("{name}.log"));
        let mut command = command(&self.plane().kubeconfig("admin"), arguments)?;
        Process::spawn(name, &log, &mut command)
    }
}
