//! `/livez`, `/readyz`, `/metrics` and the status page over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::exposition::Exposition;
use crate::config::BindAddress;

/// The port for health and metrics is not free, or not allowed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics: choose another --metrics-bind-address")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// What `/readyz` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// 200 if so, else 503.
    pub ready: bool,
    /// The body: what the process does, or why it is not ready.
    pub text: String,
}

/// Opens the port.
pub async fn listen(address: BindAddress) -> Result<TcpListener, ListenError> {
    let error = |source| ListenError { address: address.0, source };
    let listener = TcpListener::bind(address.0).await.map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    tracing::info!(%address, "serving the status page, /livez, /readyz and /metrics");
    Ok(listener)
}

/// Serves until it is dropped. All decisions are made on the thread that answers: an answer to
/// `/livez` shows that it is not stuck.
pub async fn serve<F>(listener: TcpListener, readiness: F, registry: Registry, page: Router)
where
    F: Fn() -> Readiness + Clone + Send + Sync + 'static,
{
    let registry = Arc::new(registry);
    let router = page
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || answer(readiness())))
        .route("/metrics", get(async move |headers: HeaderMap| metrics(&registry, &headers)));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the server for health and metrics has ended");
    }
}

fn answer(readiness: Readiness) -> (StatusCode, String) {
    let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, readiness.text)
}

fn metrics(registry: &Registry, headers: &HeaderMap) -> impl IntoResponse + use<> {
    let exposition = Exposition::accepted(headers);
    match exposition.encode(registry) {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, exposition.content_type())], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}
