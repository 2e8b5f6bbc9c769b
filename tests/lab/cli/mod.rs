//! The commands of `leasehold-lab`.

mod background;
mod cluster_demo;
mod control;
mod demo;
mod machines;
mod relay;
mod story;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use leasehold_lab::sandbox::{self, Side};

use self::background::Slot;
use self::control::Action;

/// A Kubernetes cluster with Leasehold in network namespaces of this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a cluster, lets nodes die, and reports what a client felt.
    Demo,
    /// Starts a cluster and leaves it running.
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
    /// A cluster of machines with kubelet, containerd and pods.
    Cluster {
        /// Its name: clusters of several names can run beside each other.
        #[arg(long, default_value = "leasehold", value_parser = machines::name)]
        name: String,
        #[command(subcommand)]
        command: machines::Command,
    },
    /// The process that `up` starts.
    #[command(hide = true)]
    Serve,
}

pub(crate) fn run() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Demo => match sandbox::enter()? {
            Side::Outside(code) => Ok(code),
            Side::Inside(scratch) => demo::run(&scratch),
        },
        Command::Up => background::up(&Slot::Lab),
        Command::Down => background::down(&Slot::Lab),
        Command::Exec { host, command } => background::exec(&Slot::Lab, &host, &command),
        Command::Do { action, node } => background::request(&Slot::Lab, &action, &node),
        Command::Cluster { name, command } => command.run(name),
        Command::Serve => {
            match sandbox::enter_with(|scratch, inside| relay::start(&Slot::Lab, scratch, inside))?
            {
                Side::Outside(code) => Ok(code),
                Side::Inside(scratch) => background::serve(&scratch),
            }
        }
    }
}
