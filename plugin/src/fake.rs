//! An API server for tests: it says what it is told to, and what it was asked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::connect::Cluster;

/// A request to the API server: method, path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
}

impl Asked {
    fn of(request: &Request<Body>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let decoded = |text: &str| text.replace("%3D", "=").replace("%2C", ",");
        Self {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: pairs.map(|(key, value)| (decoded(key), decoded(value))).collect(),
        }
    }

    pub(super) fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    /// The plural of what is asked for, or a name.
    pub(super) fn last(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// All that was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub(super) fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of such requests.
    pub(super) fn count(&self, which: impl Fn(&Asked) -> bool) -> usize {
        self.all().iter().filter(|asked| which(asked)).count()
    }
}

/// An answer of the API server: its lines, after a while.
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) lines: Vec<Value>,
    pub(super) after: Duration,
}

impl Answer {
    pub(super) fn now(object: Value) -> Self {
        Self { code: 200, lines: vec![object], after: Duration::ZERO }
    }

    /// The answer for an object that does not exist.
    pub(super) fn missing() -> Self {
        Self::refused(404, "not found")
    }

    pub(super) fn refused(code: u16, message: &str) -> Self {
        let reason = if code == 404 { "NotFound" } else { "Forbidden" };
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason,
            "message": message, "code": code,
        });
        Self { code, ..Self::now(status) }
    }

    /// A list.
    pub(super) fn list(items: &[Value]) -> Self {
        Self::page(items, None)
    }

    /// A page of a list, and how the next one is asked for.
    pub(super) fn page(items: &[Value], next: Option<&str>) -> Self {
        let metadata = json!({ "resourceVersion": "1", "continue": next });
        Self::now(
            json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items }),
        )
    }

    /// The events of a watch after a while, when it ends.
    pub(super) fn events(lines: Vec<Value>, after: Duration) -> Self {
        Self { code: 200, lines, after }
    }
}

impl Cluster {
    /// A cluster whose API server says this.
    pub(super) fn that_says(answer: impl Fn(&Asked) -> Answer + Send + 'static) -> (Self, Log) {
        let log = Log::default();
        let kept = log.clone();
        let service = tower::service_fn(
            move |request: Request<Body>| -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
                let asked = Asked::of(&request);
                let Answer { code, lines, after } = answer(&asked);
                kept.0.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
                async move {
                    tokio::time::sleep(after).await;
                    let lines = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]);
                    let text: String = lines.collect();
                    let mut response = Response::new(Body::from(text.into_bytes()));
                    *response.status_mut() = code.try_into().unwrap();
                    Ok(response)
                }
                .boxed()
            },
        );
        (Self::of(Client::new(service, "default")), log)
    }
}
