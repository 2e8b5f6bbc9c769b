//! The client of the API server, and what its answers mean.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;

use crate::config::Config;
use crate::error::StartError;

/// The longest that one call may take, from sending to answer.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// For how long a watch lasts before it is renewed, which bounds how long a dead connection goes
/// unnoticed.
pub const WATCH_SECONDS: u32 = 30;

/// Builds the client. It does not connect yet.
pub async fn connect(config: &Config) -> Result<kube::Client, StartError> {
    let mut client = match &config.kubeconfig {
        Some(path) => {
            let error =
                |source| StartError::Kubeconfig { path: path.clone(), source: Box::new(source) };
            let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(error)?
        }
        None => kube::Config::infer().await.map_err(|error| StartError::Infer(Box::new(error)))?,
    };
    // Each caller retries by itself: a hidden retry makes the time of sending unknown.
    client.default_retry = false;
    client.connect_timeout = Some(CALL_TIMEOUT);
    kube::Client::try_from(client).map_err(|error| StartError::Client(Box::new(error)))
}

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The object has changed since it was read, or is another one: read again.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// The API server refused, so nothing was changed.
    #[error("refused by the API server: {0}")]
    Refused(String),
    /// No answer, or an error of the server: what was sent may be carried out, now or later.
    #[error("no answer from the API server: {0}")]
    Unknown(String),
}

/// Waits for `call`, at most [`CALL_TIMEOUT`].
pub async fn call<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    let answer = tokio::time::timeout(CALL_TIMEOUT, call).await;
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            404 => CallError::NotFound(status.message.clone()),
            409 => CallError::Conflict,
            400..=499 => CallError::Refused(status.message.clone()),
            _ => CallError::Unknown(status.message.clone()),
        }),
        Ok(Err(error)) => Err(CallError::Unknown(said(&error))),
        Err(_) => Err(CallError::Unknown(format!("timed out after {} s", CALL_TIMEOUT.as_secs()))),
    }
}

/// What a failed watch says, without the layers around it.
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

fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(error) => causes(error.as_ref()),
        error => causes(error),
    }
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
