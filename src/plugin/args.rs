//! Flags and subcommands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};

use crate::version;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, and all is well
  1  done, and the answer is bad: an address without an owner, no active operator, a check that failed,
     a move that did not happen
  2  the command cannot be understood, or names something that does not exist
  3  the API server cannot be reached, or refuses";

/// Shows who owns the addresses of Services, why, and what would happen; moves them.
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
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster, and where in it Leasehold is.
#[derive(Clone, Debug, Args)]
pub struct ClusterFlags {
    /// The kubeconfig file. Without it those of $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,

    /// The namespace of Services that are named without one: by default that of the context. `owners`
    /// shows all namespaces without it.
    #[arg(short, long, value_name = "NAME", global = true)]
    pub namespace: Option<String>,

    /// The namespace of the claim leases, of the operator and of the speakers.
    #[arg(long, value_name = "NAME", default_value = CLAIM_NAMESPACE, global = true)]
    pub system_namespace: String,

    /// The namespace of the session leases.
    #[arg(long, value_name = "NAME", default_value = SESSION_NAMESPACE, global = true)]
    pub session_namespace: String,

    /// How long one answer of the API server may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, global = true)]
    pub request_timeout: Duration,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// The cluster at a glance: operator, speakers, Services, pools. Exits with 1 while no operator is
    /// active, a Service has no address or nobody owns it
    Status(FormatArguments),
    /// Who owns which address, on which interface, since when and why
    Owners(OwnersArguments),
    /// Why a Service is pending, or where it is and not elsewhere: each node with its verdict. Exits
    /// with 1 unless a node owns it
    Explain(ExplainArguments),
    /// Who would take what if nodes died. Exits with 1 if nobody could take some of it
    Simulate(SimulateArguments),
    /// Moves the addresses of a Service to another node, make before break. Exits with 1 if they do not
    /// move
    Move(MoveArguments),
    /// Has a node give away all addresses, and take none until `undrain`. Exits with 1 if some stay
    Drain(DrainArguments),
    /// Ends a `drain`; what was given away does not come back by that
    Undrain(UndrainArguments),
    /// Changes of ownership as they happen, one a line
    Watch(WatchArguments),
    /// Looks for what keeps Leasehold from working well. Exits with 1 if a check fails
    Check(FormatArguments),
    /// Writes an archive for whoever looks into a problem: objects, leases, events, logs; no Secrets. Exits
    /// with 1 if some of it could not be read
    Sysdump(SysdumpArguments),
    /// Prints a completion script for `kubectl-leasehold`
    Completion(CompletionArguments),
    /// What kubectl asks for completions of `kubectl leasehold`
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(CompleteArguments),
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// How the owners are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OwnersFormat {
    /// For people.
    #[default]
    Table,
    /// The same with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// How changes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// For people.
    #[default]
    Table,
    /// One JSON object a line.
    Json,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormatArguments {
    /// How the answer is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
}

/// How the owners are written.
#[derive(Clone, Copy, Debug, Args)]
pub struct OwnersArguments {
    /// How the answer is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: OwnersFormat,
}

/// What is to be explained.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// The Service: `name`, `namespace/name`, or one of its addresses.
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArguments,
}

/// What is to be simulated.
#[derive(Clone, Debug, Args)]
pub struct SimulateArguments {
    /// Nodes that die in the same instant; can be given more than once.
    #[arg(long, value_name = "NODE", required = true, value_delimiter = ',')]
    pub node_down: Vec<String>,
    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArguments,
}

/// What is to be moved.
#[derive(Clone, Debug, Args)]
pub struct MoveArguments {
    /// The Service: `name`, `namespace/name`, or one of its addresses. All Services that share the
    /// address move together.
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// The node that is to own it.
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// How long to wait for the move.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// What is to be drained.
#[derive(Clone, Debug, Args)]
pub struct DrainArguments {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How long to wait until it owns nothing.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
}

/// What is to be drained no longer.
#[derive(Clone, Debug, Args)]
pub struct UndrainArguments {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// What is to be watched.
#[derive(Clone, Copy, Debug, Args)]
pub struct WatchArguments {
    /// How changes are written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: LineFormat,
    /// Ends after this many changes; without it by Ctrl-C.
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<usize>,
}

/// Where the archive goes.
#[derive(Clone, Debug, Args)]
pub struct SysdumpArguments {
    /// The archive to write, which must not exist; by default `leasehold-sysdump-<time>.tar.gz` in this
    /// folder.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How many lines of each log.
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

/// What was typed so far.
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
        .ok_or_else(|| format!("`{text}` is not a time: write 500ms, 10s or 2m"))
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
