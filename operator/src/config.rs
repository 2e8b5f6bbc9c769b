//! Flags, each with its environment variable.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use leasehold::config::{BindAddress, LogFormat};
use leasehold::version;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};

/// Allocates addresses from `IPAddressPools` to Services of type LoadBalancer.
///
/// In a pod, no flag is required; the operator uses the service account of the pod.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-operator", version = version::line())]
pub struct Config {
    /// Subcommand to run instead of the operator.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Path of the kubeconfig file. Defaults to $KUBECONFIG, ~/.kube/config, or the service account
    /// of the pod.
    #[arg(long, env = "LEASEHOLD_KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the claim Leases and of the Lease that elects the active replica.
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = CLAIM_NAMESPACE)]
    pub namespace: String,

    /// Namespace of the session Leases.
    #[arg(long, env = "LEASEHOLD_SESSION_NAMESPACE", default_value = SESSION_NAMESPACE)]
    pub session_namespace: String,

    /// Name of the pod of this process. After a crash, the next process in the same pod becomes
    /// active immediately; another replica becomes active when the election Lease expires.
    #[arg(long, env = "LEASEHOLD_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// Also serve Services without a loadBalancerClass, in addition to those with the class
    /// leasehold.dev/lease.
    #[arg(
        long,
        env = "LEASEHOLD_DEFAULT_CLASS",
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true",
        require_equals = true,
        value_name = "true|false",
        action = clap::ArgAction::Set
    )]
    pub default_class: bool,

    /// Also deploy the speakers, for the Operator Lifecycle Manager, whose bundles cannot contain a
    /// `DaemonSet`. The operator must then run as the Deployment leasehold-operator in
    /// leasehold-system.
    #[arg(
        long,
        env = "LEASEHOLD_DEPLOY_SPEAKERS",
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true",
        require_equals = true,
        value_name = "true|false",
        action = clap::ArgAction::Set
    )]
    pub deploy_speakers: bool,

    /// Image of the deployed speakers. Defaults to the image of the operator's own version.
    #[arg(long, env = "RELATED_IMAGE_SPEAKER", value_name = "IMAGE")]
    pub speaker_image: Option<String>,

    /// Namespace of the pod. Defaults to the namespace of its service account.
    #[arg(long, env = "LEASEHOLD_POD_NAMESPACE", value_name = "NAME")]
    pub pod_namespace: Option<String>,

    /// Address and port of the endpoints /livez, /readyz, and /metrics. `:9651` listens on all
    /// addresses. With port 0, the operator selects a free port and logs it.
    #[arg(
        long,
        env = "LEASEHOLD_METRICS_BIND_ADDRESS",
        default_value = ":9651",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: BindAddress,

    /// Log filter in the syntax of tracing, such as `info` or `info,leasehold_operator=debug`. The
    /// default disables the log of the client library, because the operator logs failed requests
    /// itself.
    #[arg(
        long,
        env = "LEASEHOLD_LOG",
        default_value = "info,kube_client=off,kube_runtime=off",
        value_name = "FILTER"
    )]
    pub log: String,

    /// Log format.
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// Subcommands of `leasehold-operator`.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Converts the pools and L2 advertisements of MetalLB to objects of Leasehold, and prints them
    /// as YAML for `kubectl apply -f -`.
    ///
    /// Comments above each object, and standard error, report settings without an equivalent. The
    /// command does not write to the cluster.
    MigrateFromMetallb(MigrateArguments),
    /// Removes the addresses, conditions, and annotations of Leasehold from all Services after an
    /// uninstallation, and prints the Services.
    ///
    /// An uninstallation keeps them, so that a new installation continues with the same addresses.
    /// The command fails while an operator replica is active. It needs permission to list Services
    /// and to patch their status.
    FreeAddresses,
}

/// Input of the migration from MetalLB.
#[derive(Clone, Debug, Args)]
pub struct MigrateArguments {
    /// Read the objects of MetalLB, and the Services that keep their addresses, from this YAML file
    /// instead of the cluster; `-` is standard input. May be repeated.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_subcommand_it_is_the_operator_that_runs() {
        let read = |arguments: &[&str]| {
            Config::try_parse_from([&["leasehold-operator"], arguments].concat()).unwrap()
        };
        assert!(read(&["--default-class", "--namespace=lb"]).command.is_none());
        for arguments in [
            ["--kubeconfig=admin", "migrate-from-metallb", "--file=a", "-f", "-"],
            ["migrate-from-metallb", "-f", "a", "--file=-", "--kubeconfig=admin"],
        ] {
            let config = read(&arguments);
            let Some(Command::MigrateFromMetallb(given)) = config.command else { panic!() };
            assert_eq!(given.files, [PathBuf::from("a"), PathBuf::from("-")]);
            assert_eq!(config.kubeconfig, Some(PathBuf::from("admin")));
        }
    }

    #[test]
    fn switches_also_take_a_value() {
        let read = |flags: &[&str]| {
            let config = Config::try_parse_from([&["leasehold-operator"], flags].concat()).unwrap();
            (config.default_class, config.deploy_speakers)
        };
        assert_eq!(read(&[]), (false, false));
        assert_eq!(read(&["--default-class"]), (true, false));
        assert_eq!(read(&["--default-class=true", "--deploy-speakers=false"]), (true, false));
        assert_eq!(read(&["--default-class=false", "--deploy-speakers"]), (false, true));
    }
}
