//! A node's speaker: the real binary, with the rights that its manifest gives it and no others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::controlplane::ControlPlane;
use crate::namespace::Namespace;
use crate::network::Plan;
use crate::process::{Process, Signal};
use crate::{binaries, confinement};

/// The port of its metrics, in the namespace of its node.
pub(super) const METRICS: u16 = 9650;
/// The timeout of a speaker's end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);

/// Empties `/etc`, as the speaker's image has it, but for what the previous version has mounted there; then
/// becomes the speaker with the given capabilities.
const WRAPPER: &str = r#"set -eu
mount -t tmpfs tmpfs /etc
[ -z "$1" ] || echo "$1" > /etc/machine-id
caps=$2
shift 2
exec setpriv --no-new-privs --bounding-set="$caps" --inh-caps="$caps" -- "$@"
"#;

/// The options of a speaker's start.
#[derive(Clone, Debug)]
pub struct SpeakerOptions {
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// Whether it has `CAP_NET_ADMIN` and `CAP_NET_RAW`; without, it has no capability at all.
    pub capabilities: bool,
    /// Another `--node-name` than the node's.
    pub node_name: Option<String>,
    /// Another kubeconfig than that of the speakers' service account.
    pub kubeconfig: Option<PathBuf>,
    /// The binary of another version.
    pub binary: Option<PathBuf>,
    /// Its niceness, 0 to 19: how little of a busy machine it gets.
    pub niceness: u8,
}

impl Default for SpeakerOptions {
    fn default() -> Self {
        Self {
            arguments: Vec::new(),
            environment: Vec::new(),
            capabilities: true,
            node_name: None,
            kubeconfig: None,
            binary: None,
            niceness: 0,
        }
    }
}

/// The speaker of a node; between its processes it is stopped.
#[derive(Debug)]
pub struct Speaker {
    node: String,
    folder: PathBuf,
    machine_id: String,
    options: Mutex<SpeakerOptions>,
    process: Mutex<Option<Arc<Process>>>,
}

impl Speaker {
    pub(crate) fn new(
        node: &str,
        folder: &Path,
        plan: Plan,
        number: u8,
        options: SpeakerOptions,
    ) -> Result<Self> {
        // As machine-id(5) says: 32 hexadecimal digits. The address is unique in the sandbox.
        let id = u32::from(plan.management(number));
        let machine_id = format!("1ea5e401d{id:023x}");
        fs::create_dir_all(folder.join("state"))?;
        Ok(Self {
            node: node.to_owned(),
            folder: folder.to_owned(),
            machine_id,
            options: Mutex::new(options),
            process: Mutex::default(),
        })
    }

    /// Changes how it is started the next time.
    pub fn reconfigure(&self, change: impl FnOnce(&mut SpeakerOptions)) {
        change(&mut self.options.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn start(&self, namespace: &Namespace, plane: &ControlPlane) -> Result<()> {
        let process = self.spawn(namespace, plane, "speaker.log", METRICS)?;
        *self.slot() = Some(Arc::new(process));
        Ok(())
    }

    /// Starts a process as this speaker is started.
    pub(crate) fn spawn(
        &self,
        namespace: &Namespace,
        plane: &ControlPlane,
        log: &str,
        metrics: u16,
    ) -> Result<Process> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kubeconfig = match options.kubeconfig {
            Some(path) => path,
            None => plane.kubeconfig(crate::SPEAKER_ACCOUNT),
        };
        let machine_id = options.binary.as_ref().map_or("", |_| &self.machine_id);
        let binary = options.binary.clone().map_or_else(binaries::speaker, Ok)?;
        let capabilities = if options.capabilities { "-all,+net_admin,+net_raw" } else { "-all" };
        let mut command = namespace.command("nice");
        command
            .arg(format!("--adjustment={}", options.niceness))
            .args(["unshare", "--mount", "--", "sh", "-c", WRAPPER, "speaker"])
            .arg(machine_id)
            .arg(capabilities)
            .arg(env::current_exe()?)
            .arg(confinement::ARGUMENT)
            .arg(binary)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--node-name", options.node_name.as_deref().unwrap_or(&self.node)])
            .args(["--namespace", crate::SYSTEM_NAMESPACE])
            .args(["--metrics-bind-address", &format!(":{metrics}")])
            .arg("--state-dir")
            .arg(self.folder.join("state"))
            .args(&options.arguments)
            .envs(options.environment.iter().map(|(name, value)| (name, value)));
        let name = format!("speaker of {}", self.node);
        Process::spawn(&name, &self.folder.join(log), &mut command)
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that was started last, running or not.
    pub fn process(&self) -> Result<Arc<Process>> {
        self.slot().clone().with_context(|| format!("the speaker of {} never ran", self.node))
    }

    /// SIGTERM, and waits for the end.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.process()?.terminate(PATIENCE).await
    }

    /// SIGKILL.
    pub async fn kill(&self) -> Result<()> {
        self.process()?.kill().await
    }

    /// SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.process()?.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn thaw(&self) -> Result<()> {
        self.process()?.signal(Signal::CONT)
    }

    /// Whether it runs.
    pub fn alive(&self) -> bool {
        self.process().is_ok_and(|process| process.alive())
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        self.process()?.resident_kib()
    }

    /// Waits until its log has a text.
    pub async fn logged(&self, text: &str, patience: Duration) -> Result<()> {
        let process = self.process()?;
        let deadline = Instant::now() + patience;
        while !process.output().contains(text) {
            if Instant::now() > deadline {
                bail!("no `{text}` in the log after {patience:?}\n{}", process.tail(30));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Everything that its processes logged.
    pub fn log(&self) -> String {
        self.process().map(|process| process.output()).unwrap_or_default()
    }

    /// The last lines of its log.
    pub fn tail(&self, lines: usize) -> String {
        self.process().map(|process| process.tail(lines)).unwrap_or_default()
    }
}
