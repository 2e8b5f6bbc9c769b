//! `/livez`, `/readyz`, `/metrics` and the status page over HTTP.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::exposition::Exposition;
use crate::config::BindAddress;

/// The greatest number of connections: one more ends the oldest. Clients that open connections and leave them
/// therefore keep out no other, the kubelet least of all.
const CONNECTIONS: usize = 64;
/// Within which time the head of a request has come.
const HEAD: Duration = Duration::from_secs(5);
/// After which time connections are accepted again where that failed: there are too many open files.
const AGAIN: Duration = Duration::from_millis(250);

/// The port for health and metrics is not free, or not allowed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics: choose another --metrics-bind-address")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// The response of `/readyz` or `/livez`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// 200 if so, else 503.
    pub ready: bool,
    /// The body: what the process does, or why it is not ready, or not alive.
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

/// Serves until it is dropped. `liveness` is what `/livez` says: the error, with 503, has the process restarted.
pub async fn serve<L, R>(
    listener: TcpListener,
    liveness: L,
    readiness: R,
    registry: Registry,
    page: Router,
) where
    L: Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    R: Fn() -> Readiness + Clone + Send + Sync + 'static,
{
    let registry = Arc::new(registry);
    let router = page
        .route("/livez", get(async move || answer(alive(liveness()))))
        .route("/readyz", get(async move || answer(readiness())))
        .route("/metrics", get(async move |headers: HeaderMap| metrics(&registry, &headers)));
    accept(listener, router).await;
}

/// A connection that is not ended is served by a task; it ends with the future.
async fn accept(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    by_age.retain(|connection| !connection.is_finished());
                    if by_age.len() >= CONNECTIONS && let Some(oldest) = by_age.pop_front() {
                        oldest.abort();
                    }
                    by_age.push_back(connections.spawn(connection(stream, router.clone())));
                }
                Err(error) if is_of_one_connection(error.kind()) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept connections for health and metrics");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // Its error is that of a client that is gone, or that was too slow.
    let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

/// Whether a failure to accept a connection says nothing of the next one (accept(2)).
const fn is_of_one_connection(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

fn alive(liveness: Result<(), String>) -> Readiness {
    let ready = liveness.is_ok();
    Readiness { ready, text: liveness.err().unwrap_or_else(|| "ok\n".to_owned()) }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// Far longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn started(tasks: &mut JoinSet<()>, liveness: Result<(), String>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let ready = || Readiness { ready: true, text: "ok\n".to_owned() };
        let liveness = move || liveness.clone();
        tasks.spawn(serve(listener, liveness, ready, Registry::default(), Router::new()));
        at
    }

    /// The response on `connection` until its end.
    async fn rest(connection: &mut TcpStream) -> String {
        let mut answer = Vec::new();
        // A reset is an end as well.
        let _ = timeout(PATIENCE, connection.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn livez(at: SocketAddr) -> String {
        let mut connection = TcpStream::connect(at).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        connection.write_all(request).await.unwrap();
        rest(&mut connection).await
    }

    #[tokio::test]
    async fn livez_says_what_is_stuck() {
        let mut tasks = JoinSet::new();
        let well = started(&mut tasks, Ok(())).await;
        assert!(livez(well).await.starts_with("HTTP/1.1 200 OK"));
        let stuck = started(&mut tasks, Err("the thread `core` is stuck\n".to_owned())).await;
        let answer = livez(stuck).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthe thread `core` is stuck\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_thousand_connections_without_a_request_keep_nobody_out() {
        let mut tasks = JoinSet::new();
        let at = started(&mut tasks, Ok(())).await;
        let mut idle = VecDeque::new();
        for _ in 0..1000 {
            let mut connection = TcpStream::connect(at).await.unwrap();
            connection.write_all(b"GET /livez HTTP/1.1\r\nX-").await.unwrap();
            idle.push_back(connection);
        }
        assert!(livez(at).await.starts_with("HTTP/1.1 200 OK"));
        // The oldest was ended for the others, the youngest because its request does not come.
        assert_eq!(rest(&mut idle.pop_front().unwrap()).await, "");
        rest(&mut idle.pop_back().unwrap()).await;
    }
}
