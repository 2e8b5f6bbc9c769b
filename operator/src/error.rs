//! Why the operator could not start.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the operator could not start. Everything else is retried.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kubeconfig file cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither a kubeconfig nor a pod's service account was found.
    #[error("no kubeconfig and no service account of a pod found: name one with --kubeconfig")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The credentials or certificates cannot be used.
    #[error("cannot build a client for the API server")]
    Client(#[source] Box<kube::Error>),
    /// The port for health and metrics is not free, or not allowed.
    #[error(
        "cannot listen on {address} for health and metrics: choose another --metrics-bind-address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The log filter cannot be read.
    #[error("cannot read the log filter `{filter}`: write one such as `info` or `info,kube=debug`")]
    LogFilter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The kernel refused a handler for signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}
