//! `leasehold-lab cluster`: a cluster of machines that is left running, and its demo.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Subcommand, ValueEnum};
use leasehold_lab::machines::{Machine, Machines, MachinesPlan, Program};
use leasehold_lab::repository;
use leasehold_lab::sandbox::{self, Side};

use super::background::{self, FIRST_PROCESSES, PROGRAMS, Slot};
use super::control::{self, Act};
use super::story::say;
use super::{cluster_demo, relay};

/// The commands of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts a cluster with Leasehold and a Service, lets nodes fail, and reports what a client felt.
    Demo,
    /// Starts the same cluster and leaves it running.
    Up,
    /// Ends the cluster that `up` left running.
    Down,
    /// Runs a command on a host of that cluster.
    Exec {
        /// `client`, `router`, `observer`, a node, or `control-plane`.
        host: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Does something to a node of that cluster.
    Do {
        /// The action.
        action: Action,
        /// The node.
        node: String,
    },
    /// The process that `up` starts.
    #[command(hide = true)]
    Serve,
}

impl Command {
    /// Runs it for the cluster of this name.
    pub(crate) fn run(self, name: String) -> Result<ExitCode> {
        let slot = Slot::Cluster(name);
        match self {
            Self::Demo => match sandbox::enter()? {
                Side::Outside(code) => Ok(code),
                Side::Inside(scratch) => cluster_demo::run(&scratch),
            },
            Self::Up => background::up(&slot),
            Self::Down => background::down(&slot),
            Self::Exec { host, command } => background::exec(&slot, &host, &command),
            Self::Do { action, node } => background::request(&slot, &action, &node),
            Self::Serve => {
                let started = |scratch: &Path, inside| relay::start(&slot, scratch, inside);
                match sandbox::enter_with(started)? {
                    Side::Outside(code) => Ok(code),
                    Side::Inside(scratch) => serve(&scratch),
                }
            }
        }
    }
}

/// A name of which that of a folder is made.
pub(crate) fn name(text: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || !text.chars().all(plain) {
        bail!("a name has lower case letters, digits and hyphens");
    }
    Ok(text.to_owned())
}

/// An action on a machine.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    /// Cuts its power.
    PowerOff,
    /// Turns it on; one that was never on joins the cluster.
    PowerOn,
    /// SIGTERM to all of its processes, and then no power.
    ShutDown,
    /// Pulls its cables.
    PullCable,
    /// Puts them in again.
    PlugCable,
    /// Stops all of its processes where they are; its kernel goes on.
    Freeze,
    /// Lets them go on.
    Thaw,
    /// Restarts its kubelet.
    RestartKubelet,
    /// Restarts its containerd.
    RestartContainerd,
}

impl Act for Action {
    type Lab = Running;

    async fn apply(self, lab: &Running, node: &str) -> Result<()> {
        let machine = lab.machines.named(node)?;
        match self {
            Self::PowerOff => machine.power_off(),
            Self::PowerOn => machine.power_on().await,
            Self::ShutDown => machine.shut_down().await,
            Self::PullCable => machine.cable(false),
            Self::PlugCable => machine.cable(true),
            Self::Freeze => machine.freeze(),
            Self::Thaw => machine.thaw(),
            Self::RestartKubelet => machine.restart(Program::Kubelet).await,
            Self::RestartContainerd => machine.restart(Program::Containerd).await,
        }?;
        lab.note(machine)
    }
}

/// A cluster that is left running.
#[derive(Debug)]
pub(crate) struct Running {
    machines: Machines,
    folder: PathBuf,
}

impl Running {
    /// Writes down the first process of a machine, for `exec`.
    fn note(&self, machine: &Machine) -> Result<()> {
        let file = self.folder.join(machine.name());
        if machine.is_on() {
            return Ok(fs::write(file, machine.first_process()?.to_string())?);
        }
        // It may never have been on.
        drop(fs::remove_file(file));
        Ok(())
    }
}

/// Starts the cluster, installs Leasehold and applies the pool and the Service of `examples`, and says so.
pub(crate) async fn start() -> Result<Machines> {
    let begin = Instant::now();
    let passed = || format!("{:.1} s", begin.elapsed().as_secs_f64());
    say("etcd, kube-apiserver, kube-controller-manager, kube-scheduler; 3 machines ...");
    let machines = MachinesPlan::new("cluster").plain_names().start().await?;
    say(&format!("all Nodes are ready after {}", passed()));
    machines.dns()?;
    let installed = Instant::now();
    show(&machines, &["apply", "-k", "deploy"])?;
    machines.installed().await?;
    let took = installed.elapsed().as_secs_f64();
    say(&format!("all pods of Leasehold are ready {took:.1} s later"));
    show(&machines, &["apply", "--server-side", "-f", "examples/pool.yaml"])?;
    show(&machines, &["apply", "--server-side", "-f", "examples/web.yaml"])?;
    machines.deployed("default", "web").await?;
    let (vip, owner) = machines.served("default", "web").await?;
    say(&format!("{} owns {vip}, and a pod answers, {} after the start", owner.name(), passed()));
    Ok(machines)
}

/// Runs kubectl, and shows the command and the last lines of its output.
pub(crate) fn show(machines: &Machines, arguments: &[&str]) -> Result<()> {
    say(&format!("$ kubectl {}", arguments.join(" ")));
    let root = repository();
    let absolute = |argument: &&str| {
        let path = root.join(argument);
        let file = argument.contains('/') || *argument == "deploy";
        if file && path.exists() { path.display().to_string() } else { (*argument).to_owned() }
    };
    let real: Vec<String> = arguments.iter().map(absolute).collect();
    let real: Vec<&str> = real.iter().map(String::as_str).collect();
    for line in machines.kubectl(&real)?.lines() {
        say(&format!("  {line}"));
    }
    Ok(())
}

fn serve(scratch: &Path) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = scratch.join(FIRST_PROCESSES);
        fs::create_dir_all(&folder)?;
        let running = Running { machines: start().await?, folder };
        running.machines.on().try_for_each(|machine| running.note(machine))?;
        let plane = running.machines.lab().plane();
        fs::write(scratch.join("kubectl"), plane.program("kubectl").display().to_string())?;
        fs::write(scratch.join(PROGRAMS), running.machines.programs())?;
        let control = control::serve::<Action>(scratch, &running);
        fs::write(scratch.join(relay::READY), plane.socket().to_string())?;
        control.await
    })?;
    Ok(ExitCode::SUCCESS)
}
