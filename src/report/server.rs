//! `/livez`, `/readyz` and `/metrics` over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::health::Health;
use crate::config::BindAddress;

/// The content type of the `OpenMetrics` text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Opens the port.
pub async fn listen(address: BindAddress) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address.0).await?;
    tracing::info!(address = %listener.local_addr()?, "serving /livez, /readyz and /metrics");
    Ok(listener)
}

/// Serves until it is dropped. All decisions are made on the thread that answers: an answer to
/// `/livez` shows that it is not stuck.
pub async fn serve(listener: TcpListener, health: watch::Receiver<Health>, registry: Registry) {
    let registry = Arc::new(registry);
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&health)))
        .route("/metrics", get(async move || metrics(&registry)));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the server for health and metrics has ended");
    }
}

fn readiness(health: &watch::Receiver<Health>) -> (StatusCode, String) {
    let health = health.borrow();
    let code = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, health.to_string())
}

fn metrics(registry: &Registry) -> impl IntoResponse + use<> {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}
