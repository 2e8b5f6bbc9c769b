//! Flags, each with its environment variable.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use leasehold::config::{BindAddress, LogFormat};
use leasehold::version;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};

/// Gives Services of type LoadBalancer addresses from `IPAddressPools`.
///
/// In a pod no flag is needed: the API server and the credentials are the pod's.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-operator", version = version::line())]
pub struct Config {
    /// What to do instead of running the operator.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The kubeconfig file. Without it $KUBECONFIG, ~/.kube/config or the pod's service account is
    /// used.
    #[arg(long, env = "LEASEHOLD_KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace of the claim leases and of the lease that elects the active replica.
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = CLAIM_NAMESPACE)]
    pub namespace: String,

    /// The namespace of the speakers' session leases.
    #[arg(long, env = "LEASEHOLD_SESSION_NAMESPACE", default_value = SESSION_NAMESPACE)]
    pub session_namespace: String,

    /// The name of the pod that this process is the only one of its kind in. A process that was killed
    /// is followed at once by the next one in its pod; by any other when its lease is over.
    #[arg(long, env = "LEASEHOLD_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// Also serve Services without a loadBalancerClass, not only those that name
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

    /// Also deploy the speakers: for the Operator Lifecycle Manager, whose bundles hold no `DaemonSet`. The
    /// operator then has to be a Deployment named leasehold-operator in leasehold-system.
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

    /// The image of the speakers that it deploys, by default the one of its own version.
    #[arg(long, env = "RELATED_IMAGE_SPEAKER", value_name = "IMAGE")]
    pub speaker_image: Option<String>,

    /// The namespace of the pod, by default that of its service account.
    #[arg(long, env = "LEASEHOLD_POD_NAMESPACE", value_name = "NAME")]
    pub pod_namespace: Option<String>,

    /// Where /livez, /readyz and /metrics are served: address and port. `:9651` stands for all
    /// addresses; port 0 picks a free port and logs it.
    #[arg(
        long,
        env = "LEASEHOLD_METRICS_BIND_ADDRESS",
        default_value = ":9651",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: BindAddress,

    /// What is logged, as tracing filters: `info`, or `info,leasehold_operator=debug`. By default the
    /// client library is silent: what it meets is logged by those who called it.
    #[arg(
        long,
        env = "LEASEHOLD_LOG",
        default_value = "info,kube_client=off,kube_runtime=off",
        value_name = "FILTER"
    )]
    pub log: String,

    /// How it is logged.
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// What `leasehold-operator` does besides running.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Prints what MetalLB's pools and L2 advertisements are as objects of Leasehold: YAML for
    /// `kubectl apply -f -`.
    ///
    /// What has no equivalent is said in comments above the object that it concerns, and on standard
    /// error. Nothing is written to the cluster.
    MigrateFromMetallb(MigrateArguments),
    /// Takes the addresses, conditions and annotations that Leasehold wrote from all Services, after it
    /// was uninstalled, and prints which.
    ///
    /// Uninstalling leaves them, so that a new installation has all addresses as they were. Refuses while
    /// an operator is active. Needs the right to list Services and to patch their status.
    FreeAddresses,
}

/// What is read for the move from MetalLB.
#[derive(Clone, Debug, Args)]
pub struct MigrateArguments {
    /// Read MetalLB's objects, and the Services whose addresses they are to keep, from this YAML file
    /// instead of the cluster; `-` is standard input. Can be given more than once.
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
