//! `kubectl leasehold`: shows and explains the ownership of addresses, checks the installation, and requests moves
//! and drains.
//!
//! ```text
//! args ──► connect ──► read ──► explain (pure) ──► a command's rows (pure) ──► table or JSON
//!                        ▲
//!                        └── move, drain: one annotation on a lease, then wait for the speakers
//! ```
//!
//! It needs the right to list the objects that it shows and, for `move` and `drain`, to get, watch and patch
//! Leases. The computations are those of the speaker's library ([`leasehold_core::explain`], [`leasehold_core::desired`]).
//!
//! | module | what |
//! |---|---|
//! | [`args`] | flags and subcommands |
//! | `connect` | kubeconfig, client, calls and their errors |
//! | `read` | from the API server to [`Objects`](leasehold_core::explain::Objects) |
//! | `claims` | the claims, watched |
//! | `target` | Services and nodes, found by the name on the command line |
//! | `outcome`, `table`, `output` | the exit code; columns, colours, JSON and YAML |
//! | `status`, `owners`, `explaining`, `simulating` | the commands that only read |
//! | `connections` | waits for the end of connections on a node that was drained |
//! | `moving`, `draining` | the commands that ask the speakers for something |
//! | `watching` | ownership changes as they happen |
//! | `check` | findings about the installation |
//! | `sysdump` | an archive for the analysis of a problem |
//! | `completion` | shell completion |

pub mod args;
mod check;
mod claims;
mod completion;
mod connect;
mod connections;
mod draining;
mod error;
mod explaining;
#[cfg(test)]
mod fake;
mod moving;
mod operator;
mod outcome;
mod output;
mod owners;
mod read;
#[cfg(test)]
mod requests;
mod simulating;
mod status;
mod sysdump;
mod table;
mod target;
mod watching;

use std::process::ExitCode;

use args::{Arguments, Command};
use connect::Cluster;
use error::PluginError;
use outcome::Outcome;

/// Runs the command and returns the exit code.
pub async fn run(arguments: &Arguments) -> ExitCode {
    match command(arguments).await {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        // The reader closed the pipe: `| head`.
        Err(PluginError::Output(source)) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

async fn command(arguments: &Arguments) -> Result<Outcome, PluginError> {
    let flags = &arguments.cluster;
    match &arguments.command {
        Command::Completion(shell) => completion::script(*shell),
        Command::Complete(words) => completion::answer(words).await,
        Command::Status(format) => status::run(&Cluster::connect(flags).await?, *format).await,
        Command::Owners(format) => {
            owners::run(&Cluster::connect(flags).await?, flags, *format).await
        }
        Command::Explain(asked) => explaining::run(&Cluster::connect(flags).await?, asked).await,
        Command::Simulate(asked) => simulating::run(&Cluster::connect(flags).await?, asked).await,
        Command::Move(asked) => moving::run(&Cluster::connect(flags).await?, asked).await,
        Command::Drain(asked) => draining::drain(&Cluster::connect(flags).await?, asked).await,
        Command::Undrain(asked) => draining::undrain(&Cluster::connect(flags).await?, asked).await,
        Command::Watch(asked) => watching::run(&Cluster::connect(flags).await?, asked).await,
        Command::Check(format) => check::run(&Cluster::connect(flags).await?, *format).await,
        Command::Sysdump(asked) => sysdump::run(&Cluster::connect(flags).await?, asked).await,
    }
}
