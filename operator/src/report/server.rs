//! `/livez`, `/readyz` and `/metrics` over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::health::HealthBoard;
use crate::config::BindAddress;
use crate::error::StartError;

/// The content type of the `OpenMetrics` text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Opens the port.
pub async fn listen(address: BindAddress) -> Result<TcpListener, StartError> {
    let error = |source| StartError::Listen { address: address.0, source };
    let listener = TcpListener::bind(address.0).await.map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    tracing::info!(%address, "serving /livez, /readyz and /metrics");
    Ok(listener)
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, health: HealthBoard, registry: Registry) {
    let registry = Arc::new(registry);
    let router = Router::new()
        // All work is done on the thread that answers this: an answer shows that it is not stuck.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&health)))
        .route("/metrics", get(async move || metrics(&registry)));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the server for health and metrics has ended");
    }
}

fn readiness(health: &HealthBoard) -> (StatusCode, String) {
    let health = health.read();
    let code = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{health}\n"))
}

fn metrics(registry: &Registry) -> impl IntoResponse + use<> {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            format!("{error}\n"),
        ),
    }
}
