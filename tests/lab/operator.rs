//! The operator: the real binary, with its own service account, beside the control plane.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::metrics;
use crate::process::Process;
use crate::{binaries, confinement};

/// The timeout of its end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);

/// The options of an operator's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorOptions<'a> {
    /// Further arguments.
    pub arguments: &'a [&'a str],
    /// Further environment variables.
    pub environment: &'a [(&'a str, &'a str)],
    /// The binary of another version.
    pub binary: Option<&'a Path>,
}

/// A process of the operator.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    metrics: SocketAddr,
}

impl Operator {
    /// Starts one; several may run beside each other.
    pub fn start(
        folder: &Path,
        name: &str,
        kubeconfig: &Path,
        options: OperatorOptions<'_>,
    ) -> Result<Self> {
        // Loopback is the sandbox's own; the ports are counted among its operators.
        static PORT: AtomicU16 = AtomicU16::new(9651);
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Like a container: nothing but what it needs, which is no capability at all.
        let mut command = Command::new("setpriv");
        command
            .args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--"])
            .arg(env::current_exe()?)
            .arg(confinement::ARGUMENT)
            .arg(options.binary.map_or_else(binaries::operator, |binary| Ok(binary.to_owned()))?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", crate::SYSTEM_NAMESPACE])
            .args(["--metrics-bind-address", &metrics.to_string()])
            .args(options.arguments)
            .envs(options.environment.iter().copied());
        let process = Process::spawn(name, &folder.join(format!("{name}.log")), &mut command)?;
        Ok(Self { process, metrics })
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// SIGTERM, and waits for the end.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.process.terminate(PATIENCE).await
    }

    /// Where its HTTP server is, in the sandbox.
    pub fn socket(&self) -> SocketAddr {
        self.metrics
    }

    /// Where one of its HTTP paths is, for a browser in the sandbox.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.metrics)
    }

    /// The head of the answer to a GET of one of its HTTP paths.
    pub fn head(&self, path: &str) -> Result<String> {
        Ok(metrics::exchange(self.metrics, path)?.0)
    }

    /// The answer to a GET of one of its HTTP paths.
    pub fn http(&self, path: &str) -> Result<String> {
        metrics::get_here(self.metrics, path)
    }
}
