//! Flags, each with its environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::uri::Authority;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};
use leasehold_crds::names::NodeName;

use crate::net::rtnl::mark::Mark;
use crate::version;
use leasehold_core::election::LEAST_LEASE;

/// Contends for Service addresses with Leases, and announces them from this node with ARP and NDP.
///
/// In a pod, only the node name is required. The process needs `CAP_NET_ADMIN`, `CAP_NET_RAW`, and
/// the network namespace of the host.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-speaker", version = version::line())]
pub struct Config {
    /// Path of the kubeconfig file. Defaults to $KUBECONFIG, ~/.kube/config, or the service account
    /// of the pod.
    #[arg(long, env = "LEASEHOLD_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// API servers to contact directly, as a comma-separated list of HOST:PORT. The speaker tries
    /// them in order before the configured API server. In a pod, the configured one is the Service
    /// `kubernetes`, for which kube-proxy may select an API server that has failed. The
    /// certificates of these API servers must be valid for the name of the configured API server.
    #[arg(long, env = "LEASEHOLD_API_SERVER", value_name = "HOST:PORT", value_delimiter = ',')]
    #[arg(value_parser = api_server)]
    pub api_server: Vec<Authority>,

    /// Name of the Node on which this process runs.
    #[arg(long, env = "LEASEHOLD_NODE_NAME", value_name = "NAME")]
    pub node_name: NodeName,

    /// Namespace of the claim Leases.
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = CLAIM_NAMESPACE)]
    pub namespace: String,

    /// Namespace of the session Leases.
    #[arg(long, env = "LEASEHOLD_SESSION_NAMESPACE", default_value = SESSION_NAMESPACE)]
    pub session_namespace: String,

    /// Duration of a node session without renewal, after which other speakers take its addresses:
    /// whole seconds, 4s to 60s, the same on all nodes. The speaker renews the session three times
    /// in this period.
    #[arg(
        long,
        env = "LEASEHOLD_LEASE_DURATION",
        default_value = "5s",
        value_name = "SECONDS",
        value_parser = lease_duration
    )]
    pub lease_duration: Duration,

    /// Also announce from Nodes with the label
    /// node.kubernetes.io/exclude-from-external-load-balancers, which kubeadm and Talos set on
    /// control planes. Use the same value on all nodes.
    #[arg(
        long,
        env = "LEASEHOLD_IGNORE_EXCLUDE_LABEL",
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true",
        require_equals = true,
        value_name = "true|false",
        action = clap::ArgAction::Set
    )]
    pub ignore_exclude_label: bool,

    /// Name of the `DaemonSet` of this process, in the namespace of the claim Leases. If the
    /// `DaemonSet` is missing or being deleted when the process terminates, the speaker treats this
    /// as an uninstallation: it removes its addresses immediately and restores `arp_ignore` and
    /// `arp_announce`. Without this flag, the speaker assumes that another process may follow.
    #[arg(long, env = "LEASEHOLD_DAEMON_SET", value_name = "NAME")]
    pub daemon_set: Option<String>,

    /// Name of the pod of this process, in the same namespace. If the pod is being deleted and the
    /// `DaemonSet` remains when the process terminates, the addresses stay for up to 30 s, until
    /// the successor has started. In all other cases, the host may be shutting down, and the
    /// addresses stay for the lease duration.
    #[arg(long, env = "LEASEHOLD_POD_NAME", value_name = "NAME", requires = "daemon_set")]
    pub pod_name: Option<String>,

    /// Directory for the record with which a restarted speaker keeps its addresses. It must persist
    /// across restarts of the process but not across reboots, such as a directory in /run.
    #[arg(
        long,
        env = "LEASEHOLD_STATE_DIR",
        default_value = "/run/leasehold",
        value_name = "FOLDER"
    )]
    pub state_dir: PathBuf,

    /// Mark of the speaker's addresses in the kernel: `protocol` uses `IFA_PROTO` (Linux 5.18
    /// and later), `metric` uses `IFA_RT_PRIORITY` (older kernels), and `auto` uses the first one
    /// that the kernel supports. The speaker recognizes both marks in every mode.
    #[arg(long, env = "LEASEHOLD_ADDRESS_MARK", default_value = "auto")]
    pub address_mark: AddressMark,

    /// Address and port of the endpoints /livez, /readyz, and /metrics. `:9650` listens on all
    /// addresses. With port 0, the speaker selects a free port and logs it.
    #[arg(
        long,
        env = "LEASEHOLD_METRICS_BIND_ADDRESS",
        default_value = ":9650",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: BindAddress,

    /// Address and port of the health check of the node's kube-proxy (its `healthzBindAddress`). A
    /// node whose kube-proxy has answered and stops answering takes only addresses that no other
    /// node can take.
    #[arg(
        long,
        env = "LEASEHOLD_KUBE_PROXY_HEALTH_ADDRESS",
        default_value = "127.0.0.1:10256",
        value_name = "ADDRESS"
    )]
    pub kube_proxy_health_address: SocketAddr,

    /// Log filter in the syntax of tracing, such as `info` or `info,leasehold::announce=debug`.
    #[arg(long, env = "LEASEHOLD_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// Log format.
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// The mark of the speaker's addresses in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AddressMark {
    /// The best mark that the kernel supports.
    Auto,
    /// `IFA_PROTO`, for Linux 5.18 and later.
    Protocol,
    /// `IFA_RT_PRIORITY`.
    Metric,
}

impl AddressMark {
    /// The mark that is asked for, if one is.
    pub fn wanted(self) -> Option<Mark> {
        match self {
            Self::Auto => None,
            Self::Protocol => Some(Mark::Protocol),
            Self::Metric => Some(Mark::Metric),
        }
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}

/// An address and port to listen on; `:9650` listens on all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(pub SocketAddr);

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `[::]` also accepts IPv4 on Linux unless net.ipv6.bindv6only is set.
        let full = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
        full.parse().map(Self).map_err(|_| {
            format!("`{text}` is not a valid listen address: write :9650 or 127.0.0.1:9650")
        })
    }
}

/// Reads `192.0.2.1:6443`.
fn api_server(text: &str) -> Result<Authority, String> {
    let server = text.parse::<Authority>().ok();
    let complete = |it: &Authority| it.port_u16().is_some() && !it.as_str().contains('@');
    server.filter(complete).ok_or_else(|| {
        format!("`{text}` is not a valid API server: write host and port, such as 192.0.2.1:6443")
    })
}

/// Reads `5s`: whole seconds, because that is what a Lease can say.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
    match seconds {
        Some(seconds @ LEAST_LEASE..=60) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "`{text}` is not a valid lease duration: write whole seconds from 4s to 60s"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_has_an_environment_variable() {
        Config::command().debug_assert();
        for flag in Config::command().get_arguments() {
            let variable = flag.get_env().and_then(|name| name.to_str());
            let expected = flag
                .get_long()
                .map(|long| format!("LEASEHOLD_{}", long.replace('-', "_").to_uppercase()));
            assert_eq!(variable, expected.as_deref(), "{}", flag.get_id());
        }
    }

    #[test]
    fn a_lease_duration_is_whole_seconds_within_bounds() {
        assert_eq!(lease_duration("5s"), Ok(Duration::from_secs(5)));
        for bad in ["5", "0s", "3s", "61s", "1500ms", "5.5s", ""] {
            assert!(lease_duration(bad).unwrap_err().contains("4s to 60s"), "{bad}");
        }
    }

    #[test]
    fn an_api_server_has_a_port() {
        for good in ["192.0.2.1:6443", "[2001:db8::1]:6443", "api.example:443"] {
            assert_eq!(api_server(good).unwrap().as_str(), good);
        }
        for bad in ["192.0.2.1", "https://192.0.2.1:6443", "2001:db8::1", "a b:1", "u@h:1", ""] {
            assert!(api_server(bad).unwrap_err().contains("192.0.2.1:6443"), "{bad}");
        }
    }

    #[test]
    fn addresses_to_listen_on_are_read_with_and_without_host() {
        for (text, read) in [
            (":9651", Some("[::]:9651")),
            (":0", Some("[::]:0")),
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("9651", None),
            ("localhost:80", None),
        ] {
            let address = text.parse::<BindAddress>().ok().map(|address| address.0.to_string());
            assert_eq!(address.as_deref(), read, "{text}");
        }
    }
}
