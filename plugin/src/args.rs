//! Flags and subcommands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold::version;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the command ran and found a problem: an address without an owner, no active operator replica,
     a failed check, a move that did not happen
  2  invalid command or kubeconfig, or an object that does not exist
  3  the API server is unavailable or refused the request, or the output cannot be written";

/// Shows which nodes own the addresses of Services, explains and simulates ownership, and moves addresses.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-leasehold",
    bin_name = "kubectl leasehold",
    version = version::line(),
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster, and where in it Leasehold is.
#[derive(Clone, Debug, Args)]
pub struct ClusterFlags {
    /// Path of the kubeconfig file. Defaults to $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,

    /// Namespace of Services that are given without one. Defaults to the namespace of the context;
    /// `owners` shows all namespaces by default.
    #[arg(short, long, value_name = "NAME", global = true)]
    pub namespace: Option<String>,

    /// Namespace of the claim Leases, the operator, and the speakers.
    #[arg(long, value_name = "NAME", default_value = CLAIM_NAMESPACE, global = true)]
    pub system_namespace: String,

    /// Namespace of the session Leases.
    #[arg(long, value_name = "NAME", default_value = SESSION_NAMESPACE, global = true)]
    pub session_namespace: String,

    /// Timeout of a single request to the API server.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, global = true)]
    pub request_timeout: Duration,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show an overview of operator, speakers, Services, and pools. Exits with 1 if no operator replica
    /// is active, or if a Service has no address or no owner
    Status(FormatArguments),
    /// List the owner of each address, with its interface, time, and cause
    Owners(OwnersArguments),
    /// Explain why a Service is pending, or why its owner and no other node owns it, with a verdict for
    /// each node. Exits with 1 unless a node owns it
    Explain(ExplainArguments),
    /// Show which nodes would take the addresses of failed nodes. Exits with 1 if no node could take an
    /// address
    Simulate(SimulateArguments),
    /// Move the addresses of a Service to another node, make before break. Exits with 1 if they do not
    /// move
    Move(MoveArguments),
    /// Move all addresses away from a node, and let it take none until `undrain`. Exits with 1 if an
    /// address stays
    Drain(DrainArguments),
    /// End a `drain`. The addresses that moved away do not return
    Undrain(UndrainArguments),
    /// Print changes of ownership as they happen, one per line
    Watch(WatchArguments),
    /// Check the cluster for problems. Exits with 1 if a check fails
    Check(FormatArguments),
    /// Write an archive with objects, Leases, events, and logs, without Secrets, for the diagnosis of
    /// problems. Exits with 1 if a part could not be read
    Sysdump(SysdumpArguments),
    /// Print a completion script for `kubectl-leasehold`
    Completion(CompletionArguments),
    /// Answer kubectl, which asks for completions of `kubectl leasehold`
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(CompleteArguments),
}

/// The output format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// The output format of owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OwnersFormat {
    /// Table.
    #[default]
    Table,
    /// Table with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// The output format of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Table.
    #[default]
    Table,
    /// One JSON object per line.
    Json,
}

/// The arguments of commands with an output format.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormatArguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
}

/// The arguments of `owners`.
#[derive(Clone, Copy, Debug, Args)]
pub struct OwnersArguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: OwnersFormat,
}

/// The arguments of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// Service, as `name`, `namespace/name`, or one of its addresses.
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// Output format.
    #[command(flatten)]
    pub format: FormatArguments,
}

/// The arguments of `simulate`.
#[derive(Clone, Debug, Args)]
pub struct SimulateArguments {
    /// Nodes that fail at the same time. May be repeated.
    #[arg(long, value_name = "NODE", required = true, value_delimiter = ',')]
    pub node_down: Vec<String>,
    /// Output format.
    #[command(flatten)]
    pub format: FormatArguments,
}

/// The arguments of `move`.
#[derive(Clone, Debug, Args)]
pub struct MoveArguments {
    /// Service, as `name`, `namespace/name`, or one of its addresses. Services that share an address
    /// move together.
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// New owner.
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// Timeout of the move.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// The arguments of `drain`.
#[derive(Clone, Debug, Args)]
pub struct DrainArguments {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Timeout until the node owns nothing.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Then wait, at most for this time, until no connection through the addresses is open on the
    /// node. Exits with 1 if connections are left
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait_connections: Option<Duration>,
}

/// The arguments of `undrain`.
#[derive(Clone, Debug, Args)]
pub struct UndrainArguments {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// The arguments of `watch`.
#[derive(Clone, Copy, Debug, Args)]
pub struct WatchArguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: LineFormat,
    /// Stop after this number of changes. Without it, the command runs until Ctrl-C.
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<usize>,
}

/// Where the archive goes.
#[derive(Clone, Debug, Args)]
pub struct SysdumpArguments {
    /// Path of the archive, which must not exist. Defaults to `leasehold-sysdump-<time>.tar.gz` in the
    /// current directory.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Maximum number of lines per log.
    #[arg(long, value_name = "LINES", default_value_t = 5000)]
    pub log_lines: i64,
}

/// For which shell.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionArguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The words of an unfinished command line.
#[derive(Clone, Debug, Args)]
pub struct CompleteArguments {
    /// The words after `kubectl leasehold`, the last one perhaps unfinished.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Reads `500ms`, `10s` or `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
    let read = units.into_iter().find_map(|(unit, millis)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_millis(number.checked_mul(millis)?))
    });
    read.filter(|time| !time.is_zero())
        .ok_or_else(|| format!("`{text}` is not a valid duration: write 500ms, 10s, or 2m"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_read_as_kubectl_reads_them_before_and_behind_the_command() {
        Arguments::command().debug_assert();
        for words in [
            &["--context", "lab", "-n", "web", "explain", "shop", "-o", "json"][..],
            &["explain", "shop", "-ojson", "--namespace=web", "--context=lab"],
        ] {
            let words = std::iter::once("kubectl-leasehold").chain(words.iter().copied());
            let read = Arguments::try_parse_from(words).unwrap();
            assert_eq!(read.cluster.context.as_deref(), Some("lab"));
            assert_eq!(read.cluster.namespace.as_deref(), Some("web"));
            let Command::Explain(asked) = read.command else { panic!("{:?}", read.command) };
            assert_eq!((asked.service.as_str(), asked.format.output), ("shop", Format::Json));
        }
    }

    #[test]
    fn nodes_that_die_are_given_one_by_one_or_together() {
        let words = ["kubectl-leasehold", "simulate", "--node-down=a,b", "--node-down", "c"];
        let Command::Simulate(asked) = Arguments::try_parse_from(words).unwrap().command else {
            panic!()
        };
        assert_eq!(asked.node_down, ["a", "b", "c"]);
    }

    #[test]
    fn times_have_a_unit() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("2m", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        }
        for bad in ["10", "0s", "s", "-1s", "1.5s", "99999999999999999999s", ""] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
