//! Helm, with the chart in `deploy/helm`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process::Process;
use crate::{Lab, programs, repository, shell};

/// The release that the tests make of the chart.
pub const RELEASE: &str = "leasehold";

/// The folder of the chart.
pub fn chart() -> PathBuf {
    repository().join("deploy/helm/leasehold")
}

/// The definitions of the Prometheus Operator that the chart can have objects of: `CustomResourceDefinition`s
/// as YAML files.
pub fn monitoring_definitions() -> Result<PathBuf> {
    Ok(programs::of("helm")?.join("definitions"))
}

/// Helm, as the admin of a lab.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    /// Finds it, and builds it if this user has not got it yet (`tests/helm/build`).
    pub fn of(lab: &Lab) -> Result<Self> {
        let folder = lab.folder().join("helm");
        fs::create_dir_all(&folder)?;
        Ok(Self {
            program: programs::of("helm")?.join("helm"),
            folder,
            kubeconfig: lab.plane().kubeconfig("admin"),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        self.apart(&mut command);
        command
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Of the user's own Helm nothing is read or written.
    pub fn apart(&self, command: &mut Command) {
        for (variable, folder) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(variable, self.folder.join(folder));
        }
    }

    /// Runs a command and returns what it prints; its failure carries what it says.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        shell::output(&mut self.command(arguments))
    }

    /// Runs a command that has a chart as its last argument.
    pub fn with_chart(&self, arguments: &[&str], chart: &Path) -> Result<String> {
        shell::output(self.command(arguments).arg(chart))
    }

    /// Starts a command that waits for something; what it prints is its log.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        let log = self.folder.join(format!("{name}.log"));
        Process::spawn(name, &log, &mut self.command(arguments))
    }

    /// The output of the chart with these further arguments (`--set`, `--namespace`), as YAML.
    pub fn template(&self, arguments: &[&str]) -> Result<String> {
        self.with_chart(&[&["template", RELEASE], arguments].concat(), &chart())
    }
}
