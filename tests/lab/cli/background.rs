//! A lab that is left running: `up`, `down`, `exec`, `do`. Each has a slot, by which the commands find it.
//!
//! ```text
//! up ─► serve (its own session, log in the state folder)
//!         outside: relay to the API server, state.json and kubeconfig once the lab is up
//!         inside:  control plane, nodes, client; the control socket
//! ```

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lab::repository;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};

use super::control::{self, Act, Action};
use super::{relay, story};

/// Which lab is meant: several of different slots can run.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// Nodes that are played.
    Lab,
    /// A cluster of machines, with its name.
    Cluster(String),
}

impl Slot {
    /// Its folder's name.
    fn name(&self) -> String {
        match self {
            Self::Lab => "leasehold-lab".to_owned(),
            Self::Cluster(name) => format!("leasehold-cluster-{name}"),
        }
    }

    /// The arguments by which this program serves it.
    fn serve(&self) -> Vec<&str> {
        match self {
            Self::Lab => vec!["serve"],
            Self::Cluster(name) => vec!["cluster", "--name", name, "serve"],
        }
    }

    /// A folder of this user's own for the state.
    fn folder(&self) -> Result<PathBuf> {
        let folder = if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR") {
            PathBuf::from(runtime).join(self.name())
        } else {
            let user = rustix::process::geteuid().as_raw();
            env::temp_dir().join(format!("{}-of-{user}", self.name()))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    }
}

/// The folder, in the scratch folder, with a file for each machine that is on: its first process.
pub(crate) const FIRST_PROCESSES: &str = "machines";
/// The file, in the scratch folder, with the folder of the programs of machines.
pub(crate) const PROGRAMS: &str = "programs";

/// The timeout of the lab's start and end.
const PATIENCE: Duration = Duration::from_secs(180);

/// The state of a running lab, for the other commands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// The process outside of the sandbox, and when it started, in ticks since boot: an id may be
    /// another process's by now, both are not.
    outside: i32,
    outside_started: u64,
    /// Process 1 of the sandbox, as seen from the host.
    inside: u32,
    /// Where the inside has its files.
    scratch: PathBuf,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl State {
    fn path(slot: &Slot) -> Result<PathBuf> {
        Ok(slot.folder()?.join("state.json"))
    }

    /// Written by the outside when the lab is up.
    pub(crate) fn write(slot: &Slot, scratch: &Path, inside: u32, api: SocketAddr) -> Result<()> {
        let own = fs::read_to_string(scratch.join("lab-1/control-plane/admin.kubeconfig"))?;
        let server = own.lines().find(|line| line.trim_start().starts_with("server:"));
        let server = server.context("a kubeconfig without server")?.trim();
        let kubeconfig = slot.folder()?.join("kubeconfig");
        fs::write(&kubeconfig, own.replace(server, &format!("server: https://{api}")))?;
        let outside = rustix::process::getpid().as_raw_nonzero().get();
        let state = Self {
            outside,
            outside_started: started(outside).context("this process has no start")?,
            inside,
            scratch: scratch.to_owned(),
            kubeconfig,
            kubectl: fs::read_to_string(scratch.join("kubectl"))?.into(),
        };
        // Readers see all of it or nothing.
        let fresh = slot.folder()?.join("state.json.new");
        fs::write(&fresh, serde_json::to_string_pretty(&state)?)?;
        fs::rename(fresh, Self::path(slot)?)?;
        Ok(())
    }

    /// The lab that runs, if one does.
    fn read(slot: &Slot) -> Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(Self::path(slot)?) else { return Ok(None) };
        let state: Self = serde_json::from_str(&text)?;
        let same = started(state.outside) == Some(state.outside_started);
        Ok(same.then_some(state))
    }

    fn running(slot: &Slot) -> Result<Self> {
        let hint = match slot {
            Slot::Lab => "no lab is running: `make lab` starts one",
            Slot::Cluster(_) => "no cluster of this name is running: `make cluster` starts one",
        };
        Self::read(slot)?.context(hint)
    }

    fn instructions(&self, slot: &Slot) {
        match slot {
            Slot::Lab => self.of_lab(),
            Slot::Cluster(name) => self.of_cluster(name),
        }
    }

    fn of_cluster(&self, name: &str) {
        let lab = env::current_exe().map(|exe| exe.display().to_string()).unwrap_or_default();
        println!(
            "
The cluster is up: node-1, node-2, node-3 with kubelet, containerd and pods; Leasehold; a client.

  export KUBECONFIG={}
  alias kubectl={}
  alias cluster='{lab} cluster --name {name}'

  kubectl get pods -A -o wide
  kubectl get service web
  kubectl describe lease -n leasehold-system default.web
  cluster exec client curl -s http://192.168.1.100/hostname   (exec works for nodes too)
  cluster exec node-1 ctr -n k8s.io containers list
  cluster do power-off node-1                       (power-on, pull-cable, freeze, ...: cluster do --help)
  make cluster-down

Logs are in {}",
            self.kubeconfig.display(),
            self.kubectl.display(),
            self.scratch.display(),
        );
    }

    fn of_lab(&self) {
        let lab = env::current_exe().map(|exe| exe.display().to_string()).unwrap_or_default();
        println!(
            "
The lab is up: node-1, node-2, node-3 with speakers, worker-1 with pods, a client.

  export KUBECONFIG={}
  alias kubectl={}
  alias lab={lab}

  kubectl get service web
  kubectl get leases -A
  kubectl describe lease -n leasehold-system default.web
  lab exec client curl -s http://192.168.1.100/     (exec works for nodes too)
  lab exec node-1 ip address show eth0
  lab do die node-1                                 (heal, unplug, kill-speaker, ...: lab do --help)
  make lab-down

Logs are in {}",
            self.kubeconfig.display(),
            self.kubectl.display(),
            self.scratch.display(),
        );
    }
}

/// When a process started, in ticks since boot: field 22 of proc(5) stat.
fn started(process: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything, also blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Starts a lab in the background and returns when it is up.
pub(crate) fn up(slot: &Slot) -> Result<ExitCode> {
    if let Some(state) = State::read(slot)? {
        state.instructions(slot);
        return Ok(ExitCode::SUCCESS);
    }
    let path = slot.folder()?.join("serve.log");
    let log = File::create(&path)?;
    // Its own session: it outlives this terminal.
    let mut serve = Command::new("setsid")
        .arg(env::current_exe()?)
        .args(slot.serve())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start setsid")?;
    let deadline = Instant::now() + PATIENCE;
    let mut shown = 0;
    loop {
        let text = fs::read_to_string(&path)?;
        print!("{}", text.get(shown..).unwrap_or_default());
        shown = text.len();
        if let Some(state) = State::read(slot)? {
            state.instructions(slot);
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(status) = serve.try_wait()? {
            bail!("the lab did not start ({status}): see {}", path.display());
        }
        if Instant::now() > deadline {
            serve.kill()?;
            bail!("the lab is not up after {PATIENCE:?}: see {}", path.display());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The inside of a lab that is left running.
pub(crate) fn serve(scratch: &Path) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = story::cluster().await?;
        let (service, _) = story::service(&cluster).await?;
        cluster.ready(&service).await?;
        let plane = cluster.lab().plane();
        fs::write(scratch.join("kubectl"), plane.programs().path("kubectl").display().to_string())?;
        let control = control::serve::<Action>(scratch, &cluster);
        fs::write(scratch.join(relay::READY), plane.socket().to_string())?;
        control.await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the lab that was left running.
pub(crate) fn down(slot: &Slot) -> Result<ExitCode> {
    let Some(state) = State::read(slot)? else {
        println!("none is running");
        return Ok(ExitCode::SUCCESS);
    };
    let outside = Pid::from_raw(state.outside).context("a state without process")?;
    kill_process(outside, Signal::TERM)?;
    let deadline = Instant::now() + PATIENCE;
    while test_kill_process(outside).is_ok()
        && started(state.outside) == Some(state.outside_started)
    {
        if Instant::now() > deadline {
            bail!("process {} does not end", state.outside);
        }
        thread::sleep(Duration::from_millis(50));
    }
    fs::remove_dir_all(slot.folder()?)?;
    println!("it has ended");
    Ok(ExitCode::SUCCESS)
}

/// Becomes a command on a host of the running lab.
pub(crate) fn exec(slot: &Slot, host: &str, command: &[OsString]) -> Result<ExitCode> {
    let state = State::running(slot)?;
    let mut enter = Command::new("nsenter");
    enter.arg("--target").arg(state.inside.to_string()).args(["--mount", "--pid", "--net", "--"]);
    if let Ok(first) = fs::read_to_string(state.scratch.join(FIRST_PROCESSES).join(host)) {
        enter.arg("nsenter").arg("--target").arg(first);
        enter.args(["--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup", "--"]);
    } else if host != "control-plane" {
        enter.arg("nsenter").arg(format!("--net=/run/netns/{host}")).arg("--");
    }
    let programs = fs::read_to_string(state.scratch.join(PROGRAMS)).unwrap_or_default();
    let path = env::var("PATH").unwrap_or_default();
    enter.env("PATH", format!("{path}:{programs}"));
    Err(enter.args(command).current_dir(repository()).exec()).context("start nsenter")
}

/// Does something to a node of the running lab.
pub(crate) fn request<A: Act>(slot: &Slot, action: &A, node: &str) -> Result<ExitCode> {
    let state = State::running(slot)?;
    let answer = control::request(&state.scratch.join(control::SOCKET), action, node)?;
    println!("{answer}");
    Ok(if answer == "done" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
