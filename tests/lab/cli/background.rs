//! A lab that is left running: `up`, `down`, `exec`, `do`.
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

use super::control::{self, Action};
use super::{relay, story};

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
    fn path() -> Result<PathBuf> {
        Ok(folder()?.join("state.json"))
    }

    /// Written by the outside when the lab is up.
    pub(crate) fn write(scratch: &Path, inside: u32, api: SocketAddr) -> Result<()> {
        let own = fs::read_to_string(scratch.join("lab-1/control-plane/admin.kubeconfig"))?;
        let server = own.lines().find(|line| line.trim_start().starts_with("server:"));
        let server = server.context("a kubeconfig without server")?.trim();
        let kubeconfig = folder()?.join("kubeconfig");
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
        let fresh = folder()?.join("state.json.new");
        fs::write(&fresh, serde_json::to_string_pretty(&state)?)?;
        fs::rename(fresh, Self::path()?)?;
        Ok(())
    }

    /// The lab that runs, if one does.
    fn read() -> Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(Self::path()?) else { return Ok(None) };
        let state: Self = serde_json::from_str(&text)?;
        let same = started(state.outside) == Some(state.outside_started);
        Ok(same.then_some(state))
    }

    fn running() -> Result<Self> {
        Self::read()?.context("no lab is running: `make lab` starts one")
    }

    fn instructions(&self) {
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

/// A folder of this user's own for the state.
fn folder() -> Result<PathBuf> {
    let folder = if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR") {
        PathBuf::from(runtime).join("leasehold-lab")
    } else {
        let user = rustix::process::geteuid().as_raw();
        env::temp_dir().join(format!("leasehold-lab-of-{user}"))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// When a process started, in ticks since boot: field 22 of proc(5) stat.
fn started(process: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything, also blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Starts a lab in the background and returns when it is up.
pub(crate) fn up() -> Result<ExitCode> {
    if let Some(state) = State::read()? {
        state.instructions();
        return Ok(ExitCode::SUCCESS);
    }
    let path = folder()?.join("serve.log");
    let log = File::create(&path)?;
    // Its own session: it outlives this terminal.
    let mut serve = Command::new("setsid")
        .arg(env::current_exe()?)
        .arg("serve")
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
        if let Some(state) = State::read()? {
            state.instructions();
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
        let control = control::serve(scratch, &cluster);
        fs::write(scratch.join(relay::READY), plane.socket().to_string())?;
        control.await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the lab that was left running.
pub(crate) fn down() -> Result<ExitCode> {
    let Some(state) = State::read()? else {
        println!("no lab is running");
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
    fs::remove_dir_all(folder()?)?;
    println!("the lab has ended");
    Ok(ExitCode::SUCCESS)
}

/// Becomes a command on a host of the running lab.
pub(crate) fn exec(host: &str, command: &[OsString]) -> Result<ExitCode> {
    let state = State::running()?;
    let mut enter = Command::new("nsenter");
    enter.arg("--target").arg(state.inside.to_string()).args(["--mount", "--pid", "--net", "--"]);
    if host != "control-plane" {
        enter.arg("nsenter").arg(format!("--net=/run/netns/{host}")).arg("--");
    }
    Err(enter.args(command).current_dir(repository()).exec()).context("start nsenter")
}

/// Does something to a node of the running lab.
pub(crate) fn request(action: Action, node: &str) -> Result<ExitCode> {
    let state = State::running()?;
    let answer = control::request(&state.scratch.join(control::SOCKET), action, node)?;
    println!("{answer}");
    Ok(if answer == "done" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
