//! A machine: its power, its cable, and its daemons.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::images::Images;
use super::inside::{self, Spec};
use super::{ARGUMENT, config};
use crate::cgroups::{self, Memory, Subtree};
use crate::controlplane::ControlPlane;
use crate::host::{Host, HostPlan};
use crate::network::{Direction, Network};
use crate::node::ProxyMode;
use crate::process::{Process, Signal};
use crate::{management, metrics, sandbox, shell};

/// The timeout of a start, and of the end of a daemon.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time that a shutdown leaves its processes after SIGTERM.
const GRACE: Duration = Duration::from_secs(30);

/// The port of kube-proxy's health.
const HEALTH: u16 = 10256;

/// What all machines of a cluster have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) network: Arc<Network>,
    pub(super) folder: PathBuf,
    /// containerd's programs.
    pub(super) containerd: PathBuf,
    /// The files of elogind, where machines have it.
    pub(super) logind: Option<PathBuf>,
    pub(super) images: Images,
    pub(super) proxy: ProxyMode,
    /// For how many there are routes.
    pub(super) most: u8,
}

/// A machine, on or off.
#[derive(Debug)]
pub struct Machine {
    name: String,
    number: AtomicU8,
    pub(super) shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// What there is while it is on. It ends in this order.
#[derive(Debug)]
struct Running {
    daemons: Vec<Daemon>,
    /// `unshare`: its child is the first process, and dies with it.
    init: Process,
    host: Host,
    groups: Subtree,
}

/// A program that a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The container runtime.
    Containerd,
    /// Kubernetes' agent.
    Kubelet,
    /// What leads Services to their pods.
    KubeProxy,
    /// The bus on which logind and kubelet talk.
    Bus,
    /// What delays a shutdown for those who ask for it.
    Logind,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Bus => "dbus-daemon",
            Self::Logind => "elogind",
        }
    }
}

#[derive(Debug)]
struct Daemon {
    program: Program,
    process: Process,
}

impl Machine {
    pub(super) fn new(name: String, number: u8, shared: Arc<Shared>) -> Self {
        Self { name, number: AtomicU8::new(number), shared, running: Mutex::default() }
    }

    /// The name of its Node object, and of its network namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in the cluster, from 1: its addresses have it, and its MAC addresses.
    pub fn number(&self) -> u8 {
        self.number.load(Ordering::Relaxed)
    }

    /// Gives it another number (1 to 9, of no other machine that is on), while it is off.
    pub fn renumber(&self, number: u8) -> Result<()> {
        ensure!(!self.is_on(), "{} is on", self.name);
        ensure!((1..=self.shared.most).contains(&number), "there are no routes to {number}");
        self.number.store(number, Ordering::Relaxed);
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, function: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        function(self.running().as_mut().with_context(|| format!("{} is off", self.name))?)
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.shared.folder.join(&self.name)
    }

    // === power ===

    /// Turns it on, with the disk that it had before; returns when its kubelet runs.
    pub async fn power_on(&self) -> Result<()> {
        ensure!(self.running().is_none(), "{} is on", self.name);
        let plan = HostPlan {
            name: &self.name,
            number: self.number(),
            hosts: self.shared.most,
            folder: &self.shared.folder,
        };
        let host = Host::create(&plan, Arc::clone(&self.shared.network))?;
        self.route_back()?;
        let scratch = sandbox::scratch()?;
        let scratch = scratch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let groups = Subtree::create(&format!("{scratch}-{}", self.name))?;
        let init = self.boot(&host, &groups)?;
        *self.running() = Some(Running { daemons: Vec::new(), init, host, groups });
        let started = self.folder().join(inside::STARTED);
        self.until("its first process has started", || Ok(started.exists())).await?;
        self.start(Program::Containerd)?;
        let socket = self.path(config::SOCKET)?;
        self.until("containerd listens", || Ok(socket.exists())).await?;
        self.import().await?;
        if self.shared.logind.is_some() {
            self.start_logind().await?;
        }
        self.start(Program::Kubelet)?;
        self.start(Program::KubeProxy)
    }

    /// The API servers reach its kubelet and its pods.
    fn route_back(&self) -> Result<()> {
        let plan = self.shared.network.plan();
        let via = plan.management(self.number());
        let ((node, _), (pods, _)) = (plan.node(self.number()), plan.pod(self.number(), 0));
        management::route(&format!("{node}/32"), via)?;
        management::route(&format!("{pods}/24"), via)
    }

    fn boot(&self, host: &Host, groups: &Subtree) -> Result<Process> {
        let folder = self.folder();
        let started = folder.join(inside::STARTED);
        if started.exists() {
            fs::remove_file(started)?;
        }
        let files = config::Machine {
            name: &self.name,
            number: self.number(),
            plan: self.shared.network.plan(),
            plane: &self.shared.plane,
            proxy: self.shared.proxy,
            graceful: self.shared.logind.is_some(),
        };
        let spec = Spec {
            name: self.name.clone(),
            folder: folder.clone(),
            hierarchies: groups.hierarchies(),
            files: files.files()?,
        };
        let path = folder.join("machine.json");
        fs::write(&path, serde_json::to_vec_pretty(&spec)?)?;
        let mut command = groups.command();
        command
            .arg("nsenter")
            .arg(format!("--net={}", host.namespace().path().display()))
            .args(["--", "unshare", "--mount", "--uts", "--ipc", "--pid", "--cgroup"])
            .args(["--fork", "--kill-child", "--"])
            .arg(std::env::current_exe()?)
            .arg(ARGUMENT)
            .arg(&path);
        let log = folder.join("machine.log");
        Process::spawn(&format!("machine {}", self.name), &log, &mut command)
    }

    /// Images, once in the life of its disk.
    async fn import(&self) -> Result<()> {
        let done = self.folder().join("disk/imported");
        if done.exists() {
            return Ok(());
        }
        for archive in self.shared.images.archives() {
            let mut command = self.command("ctr")?;
            command.args(["--namespace", "k8s.io", "images", "import"]).arg(archive);
            let what = format!("import {} on {}", archive.display(), self.name);
            let imported = tokio::task::spawn_blocking(move || shell::run(&mut command)).await?;
            imported.context(what)?;
        }
        Ok(fs::write(done, "")?)
    }

    /// Cuts its power: nothing is sent any more, and all of its processes end at once. Its disk stays.
    pub fn power_off(&self) -> Result<()> {
        let running = self.running().take().with_context(|| format!("{} is off", self.name))?;
        let ports = running.host.ports();
        let both = [Direction::FromHost, Direction::ToHost];
        self.shared.network.cut(&ports, &both)?;
        running.init.signal(Signal::KILL)?;
        // What is frozen dies when it is let go.
        running.groups.freeze(false)?;
        ports.into_iter().try_for_each(|port| self.shared.network.unplug(port))
    }

    /// Shuts it down: SIGTERM to its daemons and to all of its processes, then the power.
    pub async fn shut_down(&self) -> Result<()> {
        for program in [Program::Kubelet, Program::KubeProxy] {
            self.stop(program).await?;
        }
        // Of all but the first process and this one (kill(1)).
        let mut others = self.command("sh")?;
        others.args(["-c", "kill -TERM -1"]);
        shell::run(&mut others)?;
        let begin = Instant::now();
        while self.processes()? > 1 && begin.elapsed() < GRACE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.power_off()
    }

    /// The number of its processes.
    fn processes(&self) -> Result<usize> {
        let folder = self.path("/proc")?;
        let names = fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter(|name| name.to_string_lossy().parse::<u32>().is_ok()).count())
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.running().is_some()
    }

    // === cable ===

    /// Pulls its cables, or puts them in again: its links have no carrier. The clients' is pulled last: what
    /// notices that cannot tell the API server any more.
    pub fn cable(&self, plugged: bool) -> Result<()> {
        self.with(|running| {
            let mut ports = running.host.ports().into_iter().rev();
            ports.try_for_each(|port| self.shared.network.carrier(port, plugged))?;
            // Its network configuration sets them anew.
            if plugged { running.host.restore() } else { Ok(()) }
        })
    }

    // === processes ===

    /// Stops all of its processes where they are; its kernel goes on.
    pub fn freeze(&self) -> Result<()> {
        self.with(|running| running.groups.freeze(true))
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<()> {
        self.with(|running| running.groups.freeze(false))
    }

    /// A command on the machine, with its name for the process to become.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.with(|running| {
            let mut command = running.groups.command();
            command
                .arg("nsenter")
                .args(["--target", &running.init.only_child()?.to_string()])
                .args(["--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup", "--"])
                .arg(program)
                .env("PATH", self.programs());
            Ok(command)
        })
    }

    /// Where its programs are found.
    fn programs(&self) -> String {
        let containerd = self.shared.containerd.display();
        format!("{containerd}:/usr/sbin:/usr/bin:/sbin:/bin")
    }

    /// Its first process, in the sandbox.
    pub fn first_process(&self) -> Result<i32> {
        self.with(|running| running.init.only_child())
    }

    /// The path by which a file of the machine is seen from outside.
    pub fn path(&self, file: &str) -> Result<PathBuf> {
        let init = self.first_process()?;
        Ok(PathBuf::from(format!("/proc/{init}/root{file}")))
    }

    /// The folder in proc(5) of its process with this name, as seen from outside.
    pub fn process(&self, name: &str) -> Result<Option<PathBuf>> {
        // The kernel keeps 15 characters of a name.
        let kept = name.get(..15).unwrap_or(name);
        for entry in fs::read_dir(self.path("/proc")?)? {
            let folder = entry?.path();
            // Others end meanwhile.
            if fs::read_to_string(folder.join("comm")).unwrap_or_default().trim() == kept {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    /// What the memory of the container with a process of this name has been, if it has one.
    pub fn memory(&self, name: &str) -> Result<Option<Memory>> {
        self.process(name)?.as_deref().map(cgroups::memory).transpose()
    }

    /// Starts a daemon.
    pub fn start(&self, program: Program) -> Result<()> {
        let mut command = match program {
            Program::Containerd => {
                let mut command = self.command("containerd")?;
                command.args(["--config", config::CONTAINERD]);
                command
            }
            Program::Kubelet => {
                let (v4, v6) = self.shared.network.plan().node(self.number());
                let mut command = self.kubernetes("kubelet")?;
                command
                    .arg(format!("--config={}/kubelet.yaml", config::FOLDER))
                    .arg(format!("--kubeconfig={}/kubelet.kubeconfig", config::FOLDER))
                    .arg(format!("--hostname-override={}", self.name))
                    .arg(format!("--node-ip={v4},{v6}"))
                    .arg("--v=2");
                command
            }
            Program::KubeProxy => {
                let mut command = self.kubernetes("kube-proxy")?;
                command.arg(format!("--config={}/kube-proxy.yaml", config::FOLDER));
                command
            }
            Program::Bus => self.bus()?,
            Program::Logind => self.logind()?,
        };
        let name = format!("{} of {}", program.name(), self.name);
        let log = self.log(program);
        self.with(|running| {
            running.daemons.retain(|daemon| daemon.process.alive());
            let runs = running.daemons.iter().any(|daemon| daemon.program == program);
            ensure!(!runs, "{name} runs");
            let process = Process::spawn(&name, &log, &mut command)?;
            running.daemons.push(Daemon { program, process });
            Ok(())
        })
    }

    fn kubernetes(&self, program: &str) -> Result<Command> {
        self.command(&self.shared.plane.program(program).display().to_string())
    }

    /// Ends a daemon by SIGTERM.
    pub async fn stop(&self, program: Program) -> Result<()> {
        let daemon = self.with(|running| {
            let at = running.daemons.iter().position(|daemon| daemon.program == program);
            let at = at.with_context(|| format!("{} does not run", program.name()))?;
            Ok(running.daemons.remove(at))
        })?;
        daemon.process.signal_only_child(Signal::TERM)?;
        daemon.process.wait(PATIENCE).await.map(|_| ())
    }

    /// Ends a daemon and starts it again: its containers run on.
    pub async fn restart(&self, program: Program) -> Result<()> {
        self.stop(program).await?;
        self.start(program)
    }

    /// Waits until its kube-proxy has said that it is healthy; an error has the last thing that one said that has
    /// ended.
    pub async fn proxies(&self) -> Result<()> {
        self.until("kube-proxy is healthy", || {
            self.with(|running| {
                let of = |daemon: &&Daemon| daemon.program == Program::KubeProxy;
                let proxy = running.daemons.iter().find(of).context("no kube-proxy runs")?;
                if !proxy.process.alive() {
                    let output = proxy.process.output();
                    let last = output.lines().last().unwrap_or_default();
                    // Behind the time, the process and the place.
                    bail!("kube-proxy: {}", last.split_once("] ").map_or(last, |(_, text)| text));
                }
                Ok(metrics::get(running.host.namespace(), HEALTH, "/healthz").is_ok())
            })
        })
        .await
    }

    /// The log of a daemon.
    pub fn log(&self, program: Program) -> PathBuf {
        self.folder().join(format!("{}.log", program.name()))
    }

    // === what its kernel has ===

    /// Whether its kernel has an address; one that is off has none.
    pub fn has_address(&self, vip: IpAddr) -> Result<bool> {
        match &*self.running() {
            Some(running) => Ok(running.host.has_address(vip)?.is_some()),
            None => Ok(false),
        }
    }

    /// The MAC address of its link to the clients' segment.
    pub fn mac(&self) -> String {
        self.shared.network.node_mac(self.number())
    }

    /// The state of this machine, for a failed test.
    pub(super) fn dump(&self) -> String {
        let mut text = format!("=== machine {}\n", self.name);
        let running = self.running();
        let Some(running) = &*running else { return text + "off\n" };
        let mut command = running.host.namespace().command("ip");
        text.push_str(
            &shell::output(command.args(["-brief", "address", "show"])).unwrap_or_default(),
        );
        for daemon in &running.daemons {
            text.push_str(&daemon.process.tail(5));
        }
        text
    }

    pub(super) async fn until(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !condition()? {
            self.with(|running| {
                let mut all = running.daemons.iter().map(|daemon| &daemon.process);
                let ended = all.find(|it| !it.alive());
                let ended = ended.or_else(|| (!running.init.alive()).then_some(&running.init));
                if let Some(ended) = ended {
                    bail!("{} has ended\n{}", ended.name(), ended.tail(30));
                }
                ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
                Ok(())
            })
            .with_context(|| self.name.clone())?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
