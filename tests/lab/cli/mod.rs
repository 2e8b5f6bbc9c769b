//! The commands of `leasehold-lab`.

mod background;
mod control;
mod demo;
mod relay;
mod story;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use leasehold_lab::sandbox::{self, Side};

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
        Command::Up => background::up(),
        Command::Down => background::down(),
        Command::Exec { host, command } => background::exec(&host, &command),
        Command::Do { action, node } => background::request(action, &node),
        Command::Serve => match sandbox::enter_with(relay::start)? {
            Side::Outside(code) => Ok(code),
            Side::Inside(scratch) => background::serve(&scratch),
        },
    }
}
