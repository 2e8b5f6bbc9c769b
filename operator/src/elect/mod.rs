//! Which replica is the active one: decided by one Lease, with the rules of the speakers' leases.
//!
//! ```text
//!  Lease `leasehold-operator` ──read──► contest (pure) ──► create / take / renew by PUT
//!            │ watch: wakes                  │
//!            └───────────────────────────────┴──► Tenure: active until …, or standby
//! ```

mod contest;

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use leasehold::api::pause::Pause;
use leasehold::report::log::Log;
use leasehold_crds::lease::annotation;
use tokio::sync::watch;

use crate::client::{CALL_TIMEOUT, CallError, WATCH_SECONDS, call};
use crate::clock::{self, Instant};
use crate::report::health::{HealthBoard, Role};
pub use contest::Identity;
use contest::{Contest, Record, Step};

/// The name of the lease. It has no dot, so it is the name of no claim.
pub const LEASE: &str = "leasehold-operator";

/// For how long after its sending a renewal holds: so long nothing is allocated after a replica was
/// killed.
pub const DURATION: Duration = Duration::from_secs(2);
/// The interval of renewals.
const RENEWAL: Duration = Duration::from_millis(500);
/// The time before the end of the tenure in which a replica sends no write: earlier ones are done or refused by then.
const MARGIN: Duration = CALL_TIMEOUT;
/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(250);

/// One acquisition of the lease, however often it was renewed since: the uid of the lease, and its transitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquisition(String, i32);

/// The rights of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// Nothing but wait.
    Standby,
    /// Write, as long as the clock shows less than `until`.
    Active {
        /// Differs for each time that this replica became the active one.
        term: u64,
        /// The same as in the last tenure if no other replica was the active one in between.
        acquisition: Acquisition,
        /// The end of the right to write; moves on with each renewal.
        until: Instant,
        /// When another replica may be the active one.
        ends: Instant,
    },
}

impl Tenure {
    /// Whether a write that belongs to `term` may be sent at `now`.
    pub fn permits(&self, term: u64, now: Instant) -> bool {
        matches!(self, Self::Active { term: present, until, .. } if *present == term && now < *until)
    }

    /// Whether no other replica can be the active one at `now`. A tenure that was not renewed ends before
    /// anybody says so: the call that finds that out may hang.
    pub fn lasts(&self, now: Instant) -> bool {
        matches!(self, Self::Active { ends, .. } if now < *ends)
    }
}

/// Contends for the lease in the name of this process.
pub struct Elector {
    api: Api<Lease>,
    namespace: String,
    contest: Contest,
    /// The cached Lease may be outdated: it has to be read.
    stale: bool,
    tenure: watch::Sender<Tenure>,
    health: HealthBoard,
    log: Log,
}

impl Elector {
    /// Contends under the name of `identity`, and logs what the lease asks for.
    pub fn new(
        client: Client,
        namespace: &str,
        identity: Identity,
        health: HealthBoard,
        log: Log,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            contest: Contest::new(identity, DURATION, RENEWAL, MARGIN),
            stale: true,
            tenure: watch::Sender::new(Tenure::Standby),
            health,
            log,
        }
    }

    /// The rights of this replica, as a channel with their changes.
    pub fn tenure(&self) -> watch::Receiver<Tenure> {
        self.tenure.subscribe()
    }

    /// Takes and renews the lease, for ever.
    pub async fn contend(&mut self) {
        let only_ours = watcher::Config::default()
            .fields(&format!("metadata.name={LEASE}"))
            .timeout(WATCH_SECONDS);
        let mut changes = pin!(watcher(self.api.clone(), only_ours).backoff(Pause::default()));
        loop {
            let wake = match self.step().await {
                Ok(wake) => {
                    if self.health.trouble(LEASE, None) {
                        tracing::info!("the API server answers");
                    }
                    wake
                }
                Err(error) => {
                    let trouble = format!("cannot use Lease {}/{LEASE}: {error}", self.namespace);
                    if self.health.trouble(LEASE, Some(trouble)) {
                        tracing::warn!(%error, namespace = self.namespace, "cannot use the election lease; retrying");
                    }
                    clock::now() + PAUSE
                }
            };
            self.publish();
            // The watch only wakes early; what counts is what a read brings.
            let news = async {
                loop {
                    match changes.next().await {
                        Some(Ok(
                            watcher::Event::Apply(lease) | watcher::Event::InitApply(lease),
                        )) => {
                            if !self.contest.knows(lease.metadata.resource_version.as_deref()) {
                                break;
                            }
                        }
                        Some(Ok(watcher::Event::Delete(_))) => break,
                        Some(Ok(_) | Err(_)) => {}
                        None => std::future::pending().await,
                    }
                }
            };
            let news = tokio::time::timeout(wake.saturating_sub(clock::now()), news).await;
            self.stale |= news.is_ok();
        }
    }

    /// Gives the lease up, so that another replica takes over at once. Only for a replica that has
    /// stopped writing and knows the outcome of each of its writes.
    pub async fn release(&mut self) {
        let Some(record) = self.contest.own().cloned() else {
            return;
        };
        let lease = self.lease(Some(&record), None, record.transitions.saturating_add(1));
        match call(self.api.replace(LEASE, &PostParams::default(), &lease)).await {
            Ok(_) => tracing::info!("released the election lease"),
            Err(error) => tracing::warn!(%error, "cannot release the election lease"),
        }
    }

    /// Does what is due; returns when to look again. Before a renewal the lease is not read: what this
    /// replica wrote last is there, unless the watch has told of something else.
    async fn step(&mut self) -> Result<Instant, CallError> {
        if self.stale || !matches!(self.contest.next(clock::now()), Step::Renew(_)) {
            self.look().await?;
        }
        let me = self.contest.identity().to_owned();
        let lease = match self.contest.next(clock::now()) {
            Step::Wait(until) => return Ok(until),
            Step::Create => self.lease(None, Some(me), 1),
            Step::Take(record) => {
                self.lease(Some(&record), Some(me), record.transitions.saturating_add(1))
            }
            Step::Renew(record) => self.lease(Some(&record), Some(me), record.transitions),
        };
        // Until it is known what became of it.
        self.stale = true;
        let sent = clock::now();
        let create = lease.metadata.resource_version.is_none();
        let written = if create {
            call(self.api.create(&PostParams::default(), &lease)).await
        } else {
            call(self.api.replace(LEASE, &PostParams::default(), &lease)).await
        };
        match written {
            Ok(lease) => {
                self.contest.wrote(sent, read(&lease));
                self.stale = false;
            }
            // Somebody else was quicker: a normal result.
            Err(CallError::Conflict) => return Ok(clock::now()),
            Err(error) => return Err(error),
        }
        match self.contest.next(clock::now()) {
            Step::Wait(until) => Ok(until),
            _ => Ok(clock::now()),
        }
    }

    /// Reads the lease.
    async fn look(&mut self) -> Result<(), CallError> {
        let lease = call(self.api.get_opt(LEASE)).await?;
        let annotations = lease.as_ref().and_then(|lease| lease.metadata.annotations.as_ref());
        self.log.follow(annotations.and_then(|it| it.get(annotation::LOG)).map(String::as_str));
        self.contest.observed(clock::now(), lease.as_ref().and_then(read));
        self.stale = false;
        Ok(())
    }

    fn lease(&self, old: Option<&Record>, holder: Option<String>, transitions: i32) -> Lease {
        let now = MicroTime(clock::time_of_day());
        let same_tenure = old.is_some_and(|old| old.transitions == transitions);
        let acquired = old.and_then(|old| old.acquired.clone()).filter(|_| same_tenure);
        Lease {
            metadata: ObjectMeta {
                name: Some(LEASE.to_owned()),
                namespace: Some(self.namespace.clone()),
                // With the uid, a lease that was deleted is not created again by a late write.
                uid: old.map(|old| old.uid.clone()),
                resource_version: old.map(|old| old.resource_version.clone()),
                annotations: old.and_then(|old| old.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: holder.as_ref().map(|_| acquired.unwrap_or_else(|| now.clone())),
                holder_identity: holder,
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: Some(transitions),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    fn publish(&self) {
        let tenure = match (self.contest.tenure(), self.contest.own()) {
            (Some((term, until)), Some(record)) if clock::now() < until + MARGIN => {
                let acquisition = Acquisition(record.uid.clone(), record.transitions);
                Tenure::Active { term, acquisition, until, ends: until + MARGIN }
            }
            _ => Tenure::Standby,
        };
        if tenure == Tenure::Standby && !self.health.read().troubles.contains_key(LEASE) {
            let active = self.contest.holder().map(str::to_owned);
            self.health.role(Role::Standby { active });
        }
        self.tenure
            .send_if_modified(|present| std::mem::replace(present, tenure.clone()) != tenure);
    }
}

fn read(lease: &Lease) -> Option<Record> {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(Record {
        uid: lease.metadata.uid.clone()?,
        resource_version: lease.metadata.resource_version.clone()?,
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or(0),
        duration: Duration::from_secs(seconds.unwrap_or(0)),
        acquired: spec.acquire_time,
        annotations: lease.metadata.annotations.clone(),
    })
}
