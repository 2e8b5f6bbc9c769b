//! Reading and writing leases: one request, one answer, no retry.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use leasehold_crds::lease::{LeaseName, Record, Stored, new_lease};

use super::said;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Answer, Change, Event, Target, Write};

/// The page size of a list of Leases: a kilobyte each.
const PAGE: u32 = 500;

/// The leases of a cluster.
#[derive(Clone, Debug)]
pub struct Leases {
    sessions: Namespace,
    claims: Namespace,
    timeout: Duration,
}

#[derive(Clone, Debug)]
struct Namespace {
    name: String,
    api: Api<Lease>,
}

impl Namespace {
    fn new(client: &Client, name: &str) -> Self {
        Self { name: name.to_owned(), api: Api::namespaced(client.clone(), name) }
    }
}

/// Whether a lease in the namespace of the claims is one: their names have two parts, which no
/// other lease that is at home there has.
pub fn is_claim(lease: &Lease) -> bool {
    lease.metadata.name.as_deref().is_some_and(|name| name.contains('.'))
}

impl Leases {
    /// Leases of sessions and claims in these namespaces; a call takes `timeout` at most.
    pub fn new(client: &Client, sessions: &str, claims: &str, timeout: Duration) -> Self {
        let sessions = Namespace::new(client, sessions);
        Self { sessions, claims: Namespace::new(client, claims), timeout }
    }

    /// The sessions, to be watched.
    pub fn sessions(&self) -> Api<Lease> {
        self.sessions.api.clone()
    }

    /// The namespace of the claims, to be watched.
    pub fn claims(&self) -> Api<Lease> {
        self.claims.api.clone()
    }

    /// Carries out a compare-and-swap.
    pub async fn write(&self, write: Write) -> Answer {
        match write {
            Write::Session(change) => self.put(&self.sessions, change, Answer::Session).await,
            Write::Claim(change) => self.put(&self.claims, change, Answer::Claim).await,
        }
    }

    /// Reads from the store: a GET without a version is never served from a cache.
    pub async fn read(&self, target: Target) -> Answer {
        match target {
            Target::Session(name) => self.get(&self.sessions, &name, Answer::Session).await,
            Target::Claim(name) => self.get(&self.claims, &name, Answer::Claim).await,
        }
    }

    /// Lists all sessions and claims from the store, as the core asked for it at `asked`; nothing where
    /// either fails.
    pub async fn list(&self, asked: Instant) -> Option<Event> {
        let both = async {
            let sessions = all(&self.sessions.api, |_| true).await?;
            Ok::<_, kube::Error>((sessions, all(&self.claims.api, is_claim).await?))
        };
        match tokio::time::timeout(self.timeout, both).await {
            Ok(Ok((sessions, claims))) => Some(Event::Listed { asked, sessions, claims }),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn put<T: Record>(
        &self,
        namespace: &Namespace,
        change: Change<T>,
        found: fn(Arc<Stored<T>>) -> Answer,
    ) -> Answer {
        let params = PostParams::default();
        // For people to read; no decision rests on it.
        let wall = Timestamp::now();
        let name = change.name.as_str();
        let creates = change.base.is_none();
        let lease = match &change.base {
            Some(base) => base.replace_with(&change.record, &namespace.name, wall),
            None => new_lease(&change.name, &change.record, &namespace.name, wall),
        };
        let call = async {
            if creates {
                namespace.api.create(&params, &lease).await
            } else {
                namespace.api.replace(name, &params, &lease).await
            }
        };
        match self.answer(call).await {
            Ok(lease) => stored(&lease, found),
            // A lease that is to be created cannot be missing: its namespace is.
            Err(Answer::Absent) if creates => Answer::Refused(format!(
                "there is no namespace `{}`: apply the manifests of the installation",
                namespace.name
            )),
            Err(answer) => answer,
        }
    }

    async fn get<T: Record>(
        &self,
        namespace: &Namespace,
        name: &LeaseName,
        found: fn(Arc<Stored<T>>) -> Answer,
    ) -> Answer {
        match self.answer(namespace.api.get(name.as_str())).await {
            Ok(lease) => stored(&lease, found),
            Err(answer) => answer,
        }
    }

    async fn answer(
        &self,
        call: impl Future<Output = Result<Lease, kube::Error>>,
    ) -> Result<Lease, Answer> {
        let answer = tokio::time::timeout(self.timeout, call).await;
        Err(match answer {
            Ok(Ok(lease)) => return Ok(lease),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                404 => Answer::Absent,
                409 => Answer::Conflict,
                429 => Answer::Throttled,
                400..=499 => Answer::Refused(status.message.clone()),
                // An error of the server says nothing about what was stored.
                _ => Answer::Unknown(status.message.clone()),
            },
            Ok(Err(error)) => Answer::Unknown(said(&error)),
            Err(_) => Answer::Unknown(format!("no answer within {:?}", self.timeout)),
        })
    }
}

/// All leases of a namespace that are such, as they were at one moment. Ten thousand at once would take more memory
/// than all else.
async fn all<T: Record>(
    api: &Api<Lease>,
    is_one: fn(&Lease) -> bool,
) -> Result<Vec<Arc<Stored<T>>>, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        let such = page.items.iter().filter(|lease| is_one(lease));
        all.extend(such.filter_map(Stored::from_lease).map(Arc::new));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

fn stored<T: Record>(lease: &Lease, found: fn(Arc<Stored<T>>) -> Answer) -> Answer {
    // The API server never sends a lease without name, uid and version.
    Stored::from_lease(lease)
        .map(Arc::new)
        .map_or_else(|| Answer::Unknown("the answer has no uid or version".to_owned()), found)
}
