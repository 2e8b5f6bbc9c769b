//! The API server: connections, and leases by compare-and-swap.

pub mod client;
pub mod installed;
pub mod leases;
pub mod pause;
pub mod watched;

use std::path::PathBuf;

use kube::runtime::{events, watcher};
use leasehold_crds::event::EventType;

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

/// The message of a failed call, without the layers around it.
pub fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(error) => causes(error.as_ref()),
        error => causes(error),
    }
}

/// The message of a failed watch, without the layers around it.
pub fn watch_trouble(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) if status.code == 404 => {
                "the API server does not know this kind: apply crds/generated".to_owned()
            }
            error => said(error),
        },
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => causes(error),
    }
}

/// The type of an event, as the API server names it.
pub const fn event_type(type_: EventType) -> events::EventType {
    match type_ {
        EventType::Normal => events::EventType::Normal,
        EventType::Warning => events::EventType::Warning,
    }
}
