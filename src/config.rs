//! Flags, each with its environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::uri::Authority;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};
use leasehold_crds::names::NodeName;

use crate::lease::LEAST_LEASE;
use crate::net::mark::Mark;
use crate::version;

/// Owns Service addresses by Lease and announces them from this node by ARP and NDP.
///
/// In a pod no flag is needed beyond the node name. Needs `CAP_NET_ADMIN` and `CAP_NET_RAW` and the
/// network of the host.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-speaker", version = version::line())]
pub struct Config {
    /// The kubeconfig file. Without it $KUBECONFIG, ~/.kube/config or the pod's service account is
    /// used.
    #[arg(long, env = "LEASEHOLD_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// API servers to be reached directly, HOST:PORT each, with commas between them: tried in turn before the one
    /// that is configured, which in a pod is a Service that kube-proxy leads on, to one that died as well.
    /// They are to have certificates for that one, as all have.
    #[arg(long, env = "LEASEHOLD_API_SERVER", value_name = "HOST:PORT", value_delimiter = ',')]
    #[arg(value_parser = api_server)]
    pub api_server: Vec<Authority>,

    /// The name of the Node that this process runs on.
    #[arg(long, env = "LEASEHOLD_NODE_NAME", value_name = "NAME")]
    pub node_name: NodeName,

    /// The namespace of the claim leases.
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = CLAIM_NAMESPACE)]
    pub namespace: String,

    /// The namespace of the session leases.
    #[arg(long, env = "LEASEHOLD_SESSION_NAMESPACE", default_value = SESSION_NAMESPACE)]
    pub session_namespace: String,

    /// For how long a speaker may go without renewing its session before others take what it
    /// holds: whole seconds, 4s to 60s, the same for all speakers of a cluster. It is renewed three
    /// times as often.
    #[arg(
        long,
        env = "LEASEHOLD_LEASE_DURATION",
        default_value = "5s",
        value_name = "SECONDS",
        value_parser = lease_duration
    )]
    pub lease_duration: Duration,

    /// Also announce from Nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, as
    /// kubeadm and Talos put it on control planes: the same for all speakers of a cluster.
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

    /// The `DaemonSet` that runs this process, in the namespace of the claim leases. If it is gone, or being
    /// deleted, when the process is asked to end, Leasehold is being uninstalled: the addresses are given
    /// up at once, and `arp_ignore` and `arp_announce` are set back. Without it another process may follow.
    #[arg(long, env = "LEASEHOLD_DAEMON_SET", value_name = "NAME")]
    pub daemon_set: Option<String>,

    /// The pod of this process, in the same namespace. If it is being deleted and the `DaemonSet` stays when the
    /// process is asked to end, the addresses stay for 30 s, until its successor is there. In any other case
    /// the host may be shutting down: they stay for the lease duration.
    #[arg(long, env = "LEASEHOLD_POD_NAME", value_name = "NAME", requires = "daemon_set")]
    pub pod_name: Option<String>,

    /// The folder for the record that lets a restarted speaker keep its addresses. It must outlive
    /// the process and end with the boot, as /run does.
    #[arg(
        long,
        env = "LEASEHOLD_STATE_DIR",
        default_value = "/run/leasehold",
        value_name = "FOLDER"
    )]
    pub state_dir: PathBuf,

    /// By what addresses in the kernel are known as the speaker's: `protocol` is `IFA_PROTO`, which exists since
    /// Linux 5.18, `metric` is `IFA_RT_PRIORITY`, for older kernels; `auto` takes the first that the kernel keeps.
    /// Whichever is set, a speaker knows its addresses by both.
    #[arg(long, env = "LEASEHOLD_ADDRESS_MARK", default_value = "auto")]
    pub address_mark: AddressMark,

    /// Where /livez, /readyz and /metrics are served: address and port. `:9650` stands for all
    /// addresses; port 0 picks a free port and logs it.
    #[arg(
        long,
        env = "LEASEHOLD_METRICS_BIND_ADDRESS",
        default_value = ":9650",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: BindAddress,

    /// Where the node's kube-proxy answers health checks: address and port (its `healthzBindAddress`). A node
    /// whose kube-proxy answered there and does no longer takes only what no other node can.
    #[arg(
        long,
        env = "LEASEHOLD_KUBE_PROXY_HEALTH_ADDRESS",
        default_value = "127.0.0.1:10256",
        value_name = "ADDRESS"
    )]
    pub kube_proxy_health_address: SocketAddr,

    /// What is logged, as tracing filters: `info`, or `info,leasehold::lease=debug`.
    #[arg(long, env = "LEASEHOLD_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// How it is logged.
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// By what addresses in the kernel are known as the speaker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AddressMark {
    /// By the better one that the kernel keeps.
    Auto,
    /// By `IFA_PROTO`, on Linux 5.18 and later.
    Protocol,
    /// By `IFA_RT_PRIORITY`.
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

/// How logs are written.
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
            format!("`{text}` is not an address to listen on: write :9650 or 127.0.0.1:9650")
        })
    }
}

/// Reads `192.0.2.1:6443`.
fn api_server(text: &str) -> Result<Authority, String> {
    let server = text.parse::<Authority>().ok();
    let complete = |it: &Authority| it.port_u16().is_some() && !it.as_str().contains('@');
    server.filter(complete).ok_or_else(|| {
        format!("`{text}` is no API server: write host and port, such as 192.0.2.1:6443")
    })
}

/// Reads `5s`: whole seconds, because that is what a Lease can say.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
    match seconds {
        Some(seconds @ LEAST_LEASE..=60) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` is not a lease duration: write whole seconds from 4s to 60s")),
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
