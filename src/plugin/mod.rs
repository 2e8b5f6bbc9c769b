//! `kubectl leasehold`: what people ask of a cluster, and the two things that they tell it.
//!
//! ```text
//! args ──► connect ──► read ──► explain (pure) ──► a command's rows (pure) ──► table or JSON ──► people
//!                        ▲
//!                        └── move, drain: one annotation on a lease, then wait for what the speakers do
//! ```
//!
//! It needs no more rights than to list what it shows, and for `move` and `drain` to get, watch and patch
//! leases.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | flags and subcommands |
//! | `connect` | kubeconfig, client, calls and their errors |
//! | `read` | from the API server to [`Objects`](crate::explain::Objects) |
//! | `claims` | the claims as they change |
//! | `target` | the Services and nodes that people name |
//! | `table`, `output` | columns, colours, JSON and YAML |
//! | `status`, `owners`, `explaining`, `simulating` | what is, and what would be |
//! | `moving`, `draining` | what people ask of the speakers |
//! | `watching` | moves as they happen |
//! | `check` | what stands in the way of a working cluster |
//! | `sysdump` | everything that somebody needs who looks into a problem |
//! | `completion` | words for shells |

pub mod args;
mod check;
mod claims;
mod completion;
mod connect;
mod draining;
mod error;
mod explaining;
#[cfg(test)]
mod fake;
mod moving;
mod operator;
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

/// How a command ended that did what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Well.
    Well,
    /// The answer is bad: somebody should look. Exit code 1.
    Negative,
}

impl From<bool> for Outcome {
    fn from(well: bool) -> Self {
        if well { Self::Well } else { Self::Negative }
    }
}

/// Does what is asked, and says with which code to exit.
pub async fn run(arguments: &Arguments) -> ExitCode {
    match command(arguments).await {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        // Whoever read the output has enough of it: `| head`.
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
