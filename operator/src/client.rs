//! Calls to the API server, and what their answers mean.

use std::time::Duration;

use leasehold::api::said;

/// The longest that one call may take, from sending to answer. The API server is told, too: what it
/// has not done by then it does not do any more (its query parameter `timeout`).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// For how long a watch lasts before it is renewed, which bounds how long a dead one goes
/// unnoticed.
pub const WATCH_SECONDS: u32 = 30;

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
