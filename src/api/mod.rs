//! The API server: connections, and leases by compare-and-swap.

pub mod client;
pub mod leases;

use std::path::PathBuf;

/// Why there is no client of the API server.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig `{path}`")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no configuration at all.
    #[error("found no API server: name a file with --kubeconfig, or run in a pod")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The client cannot be built.
    #[error("cannot set up the connection to the API server")]
    Client(#[source] Box<kube::Error>),
}

/// An error with all its causes, each named once.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
