//! Connections that notice quickly when they are dead.
//!
//! kube's own client speaks HTTP/1.1, waits 30 s for a connection, notices a dead watch after
//! minutes and retries calls by itself. A lease wants the opposite: one HTTP/2 connection for all
//! calls and watches, which is probed each second, and no retry that hides when a request was sent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::select_ok;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri};
use hyper_rustls::{
    DefaultServerNameResolver, HttpsConnector, HttpsConnectorBuilder, ResolveServerName,
};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneSyncServiceLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};

use super::ApiError;

/// Within which time a TCP connection must be made.
const CONNECT: Duration = Duration::from_millis(500);
/// Within which time TLS must be spoken as well. All calls wait for the one that connects: a server, or
/// a balancer before it, that accepts and then says nothing would hold them all up.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// The interval of keep-alive probes on a connection, and the timeout of their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// After which time without an acknowledgement the kernel gives a connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay after which the next API server is tried beside the one before it.
const NEXT: Duration = Duration::from_millis(250);

/// The access to the API server: endpoint, credentials, and further addresses.
#[derive(Clone, Debug)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    /// As it was found first.
    pub config: Config,
    /// API servers that are reached directly, and which of them answered last.
    servers: Arc<[Authority]>,
    last: Arc<AtomicUsize>,
}

/// The way to the API server from `kubeconfig`, or from where kubectl and pods find it.
pub async fn access(kubeconfig: Option<&Path>) -> Result<Access, ApiError> {
    let config = configuration(kubeconfig).await?;
    let kubeconfig = kubeconfig.map(Path::to_owned);
    Ok(Access { kubeconfig, config, servers: Arc::default(), last: Arc::default() })
}

impl Access {
    /// The same, where these API servers are reached directly, before what is configured.
    #[must_use]
    pub fn directly(self, servers: &[Authority]) -> Self {
        Self { servers: servers.into(), ..self }
    }

    /// Where to connect to instead of `to`, in this order.
    fn places(&self, to: &Uri) -> Vec<(usize, Uri)> {
        let at = |server: &Authority| {
            let mut parts = to.clone().into_parts();
            parts.authority = Some(server.clone());
            Uri::from_parts(parts).ok()
        };
        let direct = self.servers.iter().filter_map(at).chain([to.clone()]);
        let mut places: Vec<_> = direct.enumerate().collect();
        let last = self.last.load(Ordering::Relaxed);
        places.sort_by_key(|(number, _)| *number != last);
        places
    }

    /// The same, read anew: authorities and certificates change while a process lives. What cannot be read is as
    /// it was.
    async fn again(&self) -> Config {
        configuration(self.kubeconfig.as_deref()).await.unwrap_or_else(|error| {
            tracing::warn!(error = super::causes(&error), "connecting as configured at the start");
            self.config.clone()
        })
    }
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ApiError> {
    let Some(path) = kubeconfig else {
        return Config::infer().await.map_err(|error| ApiError::Infer(Box::new(error)));
    };
    let error = |source| ApiError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(error)
}

/// Makes connections as `config` says. Whatever server they lead to, it is to have a certificate for the one that
/// is configured.
fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>, kube::Error> {
    let name = config.tls_server_name.as_ref().and_then(|name| name.parse().ok());
    let name: Uri = name.unwrap_or_else(|| config.cluster_url.clone());
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    http.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .with_server_name_resolver(move |_: &Uri| {
            DefaultServerNameResolver::default().resolve(&name)
        })
        .enable_http2()
        .wrap_connector(http);
    Ok(https)
}

/// A client with a connection of its own. It does not connect before the first call. Where there is a
/// `deadline`, the API server does nothing more about a write that is older.
pub fn connect(access: &Access, deadline: Option<Duration>) -> Result<Client, ApiError> {
    let error = |error| ApiError::Client(Box::new(error));
    let config = &access.config;
    // What is wrong now is said now.
    connector(config).map_err(error)?;
    let access = access.clone();
    let connections = service_fn(move |to: Uri| {
        let access = access.clone();
        async move {
            let connector = connector(&access.again().await)?;
            let tries =
                access.places(&to).into_iter().zip(0_u32..).map(|((number, to), before)| {
                    let connector = connector.clone();
                    Box::pin(async move {
                        tokio::time::sleep(NEXT * before).await;
                        connector.oneshot(to).await.map(|connection| (number, connection))
                    })
                });
            let ((number, connection), _) = select_ok(tries).await?;
            access.last.store(number, Ordering::Relaxed);
            Ok::<_, BoxError>(connection)
        }
    });
    let connector = ServiceBuilder::new()
        .layer(BoxCloneSyncServiceLayer::new(TimeoutLayer::new(HANDSHAKE)))
        .service(connections);
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
        .http2_keep_alive_while_idle(true)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .retry_canceled_requests(false)
        .build(connector);
    let service = ServiceBuilder::new()
        .map_request(move |request| match deadline {
            Some(deadline) => with_deadline(request, deadline),
            None => request,
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(error)?)
        .layer(config.extra_headers_layer().map_err(error)?)
        .map_err(Into::<BoxError>::into)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// A write with the query parameter `timeout`, by which the API server limits the time for a request
/// (k8s.io/apiserver, `WithRequestDeadline`); reads as they are.
fn with_deadline<B>(mut request: Request<B>, deadline: Duration) -> Request<B> {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let sign = if target.contains('?') { '&' } else { '?' };
    let target = format!("{target}{sign}timeout={}ms", deadline.as_millis());
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = target.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts)
        && !request.method().is_safe()
    {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::net::TcpListener;

    use super::*;

    /// Long enough for a machine that does much else.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "current_thread")]
    async fn a_server_that_accepts_and_says_nothing_holds_no_call_up_for_good() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let path = std::env::temp_dir().join(format!("leasehold-client-{}", std::process::id()));
        let kubeconfig = serde_json::json!({
            "clusters": [{
                "name": "x",
                "cluster": { "server": format!("https://{address}"), "insecure-skip-tls-verify": true },
            }],
            "contexts": [{ "name": "x", "context": { "cluster": "x" } }],
            "current-context": "x",
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let access = access(Some(&path)).await.unwrap();
        let leases: Api<Lease> = Api::default_namespaced(connect(&access, None).unwrap());
        let call =
            tokio::time::timeout(PATIENCE, async { leases.list(&ListParams::default()).await });
        // The connection is kept until the call has ended.
        let (connection, answer) = tokio::join!(server.accept(), call);
        connection.unwrap();
        let answer = answer.unwrap();
        assert!(answer.is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn writes_have_a_deadline_and_reads_have_none() {
        let target = |method: &str, target: &str| {
            let request = Request::builder().method(method).uri(target).body(()).unwrap();
            with_deadline(request, Duration::from_secs(1)).uri().to_string()
        };
        assert_eq!(target("PUT", "/api/v1/a"), "/api/v1/a?timeout=1000ms");
        assert_eq!(target("PATCH", "/a?force=true"), "/a?force=true&timeout=1000ms");
        assert_eq!(target("GET", "/a?watch=true"), "/a?watch=true");
    }
}
