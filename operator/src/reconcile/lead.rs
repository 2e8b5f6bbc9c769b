//! The loop of the active replica.
//!
//! One task owns the index. Calls run beside it, at most 16 at a time and at most one per
//! target; their answers come back to the loop before anything else is decided about that
//! target.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use leasehold::api::watch_trouble;
use leasehold::report::ask::Questions;
use leasehold_core::election::UNSTEADY;
use leasehold_crds::event::Reason;
use leasehold_crds::lease::LeaseName;
use tokio::sync::{Mutex, watch};

use super::index::outstanding::{Listing, Pending};
use super::index::{Index, Recollection};
use super::job::{Job, Target};
use super::jobs::jobs;
use super::service::write::ServiceWrite;
use super::watch::{Change, Kind, changes};
use super::write::{Done, Writer};
use crate::allocate::{ServiceKey, Usage};
use crate::client::CallError;
use crate::clock::{self, Instant, sleep_until};
use crate::elect::Tenure;
use crate::report::events::{EventSink, Notice};
use crate::report::health::{HealthBoard, Role};
use crate::report::metrics::{Metrics, ReasonLabel, WriteLabels};
use crate::report::quota::Quota;
use crate::report::status::{ClusterStatus, Moves};

/// Calls at a time.
const MAX_IN_FLIGHT: usize = 16;
/// The number of these that may change nothing but the condition about announcement.
const MAX_REPORTING: usize = 4;
/// Events that wait to be published; more are dropped, the conditions say the same.
const MAX_NOTICES: usize = 512;
/// The least time from a change to the plan that takes it into account.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// The longest time between two plans.
const RESYNC: Duration = Duration::from_secs(10);
/// A watch without news that has not failed for this long works: each try fails or connects, and the
/// pauses between tries end, within less.
const QUIET: Duration = Duration::from_secs(6);
/// The pause between two writes to the status of one pool, or one policy.
const STATUS_PAUSE: Duration = Duration::from_millis(300);
/// The pause after a session was deleted or found to be needed.
const SESSION_PAUSE: Duration = Duration::from_secs(30);

/// The environment of the loop.
#[derive(Clone)]
pub struct Context {
    /// Where to write, and what to watch.
    pub writer: Writer,
    /// Whether Services without a class are ours.
    pub default_class: bool,
    /// Where events go.
    pub events: EventSink,
    /// The metrics.
    pub metrics: Metrics,
    /// The health.
    pub health: HealthBoard,
    /// The questions of the page; the active replica answers.
    pub questions: Arc<Mutex<Questions<ClusterStatus>>>,
}

/// The progress of the work on one target.
#[derive(Debug, Default)]
struct Progress {
    in_flight: bool,
    /// The write to a Service that is under way.
    sent: Option<Box<ServiceWrite>>,
    /// Whether a plan wanted another write meanwhile.
    superseded: bool,
    failures: u32,
    not_before: Instant,
}

struct Leader<'a> {
    context: &'a Context,
    term: u64,
    tenure: &'a watch::Receiver<Tenure>,
    index: Index,
    progress: BTreeMap<Target, Progress>,
    queue: VecDeque<Job>,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The number of them that change nothing but the condition about announcement.
    reporting: usize,
    notices: FuturesUnordered<BoxFuture<'static, ()>>,
    /// The watches that fail, with the time of the last failure.
    troubles: BTreeMap<Kind, Instant>,
    /// The time of the next plan.
    plan_at: Instant,
    /// Whether the queue was planned before a change.
    stale: bool,
    /// The time at which the last plan was complete, and its cost.
    planned_at: Instant,
    plan_cost: Duration,
    /// The usage of each pool in the last plan.
    usage: BTreeMap<String, Usage>,
    moves: Moves,
    /// The limit on events about Services that no node announces.
    silent: Quota,
}

/// The end of a tenure.
#[derive(Debug)]
pub struct Ended {
    /// Whether the outcome of each write is known.
    pub clean: bool,
    /// The states of Services.
    pub recollection: Recollection,
}

/// Does the work of the active replica until `end`, and then waits for the calls under way. `recollection` is from the
/// last tenure of this process if no other replica was the active one since.
pub async fn lead(
    context: &Context,
    term: u64,
    recollection: Recollection,
    tenure: &watch::Receiver<Tenure>,
    end: impl Future<Output = ()>,
) -> Ended {
    let mut end = pin!(end);
    let services_listed = watch::Sender::new(false);
    let writer = &context.writer;
    let mut renewed = tenure.clone();
    let mut changes = changes(&writer.client, &writer.claims, &writer.sessions, &services_listed);
    let mut leader = Leader {
        context,
        term,
        tenure,
        index: Index::new(context.default_class, recollection),
        progress: BTreeMap::new(),
        queue: VecDeque::new(),
        in_flight: FuturesUnordered::new(),
        reporting: 0,
        notices: FuturesUnordered::new(),
        troubles: BTreeMap::new(),
        plan_at: clock::now(),
        stale: false,
        planned_at: Instant::ZERO,
        plan_cost: Duration::ZERO,
        usage: BTreeMap::new(),
        moves: Moves::default(),
        silent: Quota::default(),
    };
    let mut questions = context.questions.lock().await;
    loop {
        leader.plan_if_due();
        leader.dispatch();
        tokio::select! {
            biased;
            () = &mut end => break,
            Some(done) = leader.in_flight.next() => leader.finished(done),
            Some(()) = leader.notices.next() => {}
            Some(change) = changes.next() => leader.take_in(change),
            // What must not be sent any more waits for the next renewal.
            Ok(()) = renewed.changed() => {}
            () = sleep_until(leader.plan_at) => {}
            // People come last.
            Some(question) = questions.recv() => {
                let began = leasehold::clock::now();
                if questions.is_stale(began) {
                    questions.keep(leader.status(), began, leasehold::clock::now());
                }
                questions.answer(question);
                continue;
            }
        }
        questions.forget_stale(leasehold::clock::now());
        if leader.index.tables().services().is_listed() {
            services_listed.send_replace(true);
        }
    }
    drop(changes);
    leader.drain().await
}

impl Leader<'_> {
    fn status(&self) -> ClusterStatus {
        let role = self.context.health.read().to_string();
        ClusterStatus::of(&self.index, &self.usage, &self.moves, role, clock::now())
    }

    /// Remembers the owner of a claim, or of all, for people.
    fn note_owner(&mut self, name: Option<&LeaseName>) {
        let at = clock::time_of_day();
        match name.map(|name| (name, self.index.tables().claims().get(name))) {
            Some((name, Some(row))) => self.moves.note(at, name, row),
            Some((name, None)) => self.moves.forget(name),
            None => {
                for (name, row) in self.index.tables().claims().iter() {
                    self.moves.note(at, name, row);
                }
            }
        }
    }

    fn take_in(&mut self, change: Change) {
        let kind = match &change {
            Change::Service(_) => Kind::Service,
            Change::Namespace(_) => Kind::Namespace,
            Change::Pool(_) => Kind::Pool,
            Change::Policy(_) => Kind::Policy,
            Change::Node(_) => Kind::Node,
            Change::Slice(_) => Kind::Slice,
            Change::Claim(_) => Kind::Claim,
            Change::Session(_) => Kind::Session,
            Change::Failed(kind, error) => {
                let trouble = format!("cannot watch {}: {}", kind.name(), watch_trouble(error));
                self.plan_by(clock::now() + QUIET);
                let again = self.troubles.insert(*kind, clock::now()).is_some();
                // A watch that was renewed at a bad moment works at the next try.
                if !again && !self.index.tables().missing().contains(&kind.name()) {
                    return;
                }
                if self.context.health.trouble(kind.name(), Some(trouble.clone())) {
                    tracing::warn!(kind = kind.name(), "{trouble}; retrying");
                }
                return;
            }
        };
        if !change.is_only_a_start() {
            self.recovered(kind);
        }
        let claim = match &change {
            Change::Claim(event) => match event.as_ref() {
                Event::Apply(lease) | Event::Delete(lease) => Some(lease.name_any().parse().ok()),
                Event::InitDone => Some(None),
                Event::Init | Event::InitApply(_) => None,
            },
            _ => None,
        };
        let one = claim.as_ref().and_then(Option::as_ref);
        let expected = one.map(|name| self.index.expected_lists(name)).unwrap_or_default();
        if self.index.apply(change, clock::now()) {
            let listed = one.and_then(|name| self.index.tables().claims().get(name));
            let expected = listed.is_some_and(|row| expected.contains(&row.record.addresses));
            // What is queued depends neither on owners nor on endpoints. Thousands of new Services bring news of
            // both all the time.
            if expected || matches!(kind, Kind::Slice) { self.plan_soon() } else { self.changed() }
        }
        if let Some(claim) = claim {
            self.note_owner(claim.as_ref());
        }
    }

    fn recovered(&mut self, kind: Kind) {
        if self.troubles.remove(&kind).is_some() && self.context.health.trouble(kind.name(), None) {
            tracing::info!(kind = kind.name(), "the watch works again");
        }
    }

    /// Notes a change: plans anew, and holds back the queue.
    fn changed(&mut self) {
        if !self.stale {
            self.stale = true;
            self.plan_soon();
        }
    }

    /// Plans anew in a moment. While many things change, plans cost a fraction of the time.
    fn plan_soon(&mut self) {
        let rested = self.planned_at + self.plan_cost * 4;
        self.plan_by(rested.max(clock::now() + DEBOUNCE));
    }

    fn plan_by(&mut self, at: Instant) {
        self.plan_at = self.plan_at.min(at);
    }

    fn plan_if_due(&mut self) {
        let begin = clock::now();
        if begin < self.plan_at {
            return;
        }
        self.plan_at = begin + RESYNC;
        self.stale = false;
        let quiet = self.troubles.iter().filter(|(_, at)| **at + QUIET <= begin);
        for kind in quiet.map(|(kind, _)| *kind).collect::<Vec<_>>() {
            self.recovered(kind);
        }
        let missing = self.index.tables().missing();
        if !missing.is_empty() {
            self.context.health.role(Role::Listing(missing));
            return;
        }
        self.context.health.role(Role::Active);
        let keys: Vec<_> = self.index.pending().keys().cloned().collect();
        for key in keys {
            // While a write is under way, its answer settles it.
            let target = Target::Service(key.clone());
            if !self.progress.get(&target).is_some_and(|progress| progress.in_flight) {
                self.index.resolve(&key);
            }
        }
        self.index.forget(begin);
        self.index.open_due(begin);
        let replaced = self.index.tables().replaced_by().filter(|at| begin < *at);
        // Mere reports wait: plans for them alone cost a tenth of the time.
        let rested = begin + self.plan_cost * 8;
        let reported = self.index.reported_at(begin).map(|at| at.max(rested));
        let weighed = self.index.weigh_families(begin);
        let contested = self.index.rivals().next(begin);
        for at in replaced.into_iter().chain(reported).chain(weighed).chain(contested) {
            self.plan_by(at);
        }
        let plan = self.index.plan();
        // Before the next is made: ten thousand jobs take tens of MiB.
        self.queue = VecDeque::new();
        let jobs = jobs(&self.index, &plan, begin, clock::time_of_day());
        let busy = jobs.iter().map(Job::target).collect();
        self.index.settle(&plan, &busy, begin);
        self.queue = jobs.into();
        self.context.metrics.show(&plan, self.index.settled(), self.index.tables().malformed());
        let pools = self.index.tables().pools().iter();
        self.context.metrics.rules(pools.map(|(name, row)| {
            let rules = &row.pool.rules;
            (name.as_str(), rules.auto_assign, rules.disabled)
        }));
        let sessions = self.index.tables().sessions().iter();
        let unsteady = sessions.filter(|(_, row)| row.record.fences >= UNSTEADY);
        self.context.metrics.unsteady(unsteady.count());
        self.context.metrics.contested(self.index.rivals().contested());
        self.usage.clone_from(&plan.pools);
        self.postpone(begin);
        self.planned_at = clock::now();
        self.plan_cost = self.planned_at.saturating_sub(begin);
        self.context.metrics.reconciled.observe(self.plan_cost.as_secs_f64());
    }

    /// Takes out of the queue the jobs whose targets are busy or have to wait, and plans again when that is
    /// over.
    fn postpone(&mut self, now: Instant) {
        let (progress, mut again) = (&mut self.progress, self.plan_at);
        self.queue.retain(|job| match progress.get_mut(&job.target()) {
            Some(progress) if progress.in_flight => {
                progress.superseded |= match (job, &progress.sent) {
                    (Job::Service { write, .. }, Some(sent)) => !write.repeats(sent),
                    _ => true,
                };
                false
            }
            Some(progress) if progress.not_before > now => {
                again = again.min(progress.not_before);
                false
            }
            _ => true,
        });
        self.plan_at = again;
        self.progress.retain(|_, progress| {
            progress.in_flight || progress.failures > 0 || progress.not_before > now
        });
    }

    fn dispatch(&mut self) {
        while !self.stale && self.in_flight.len() < MAX_IN_FLIGHT {
            if !self.tenure.borrow().permits(self.term, clock::now()) {
                return;
            }
            let Some(job) = self.queue.front() else { return };
            if job.only_reports() {
                // Those are last in the queue.
                if self.reporting >= MAX_REPORTING {
                    return;
                }
                self.reporting += 1;
            }
            let Some(job) = self.queue.pop_front() else { return };
            tracing::debug!(kind = job.target().kind(), name = job.target().name(), "writing");
            if let Job::Service { key, version, write } = &job {
                let pending = Pending {
                    version: *version,
                    addresses: write.addresses.clone(),
                    allocated_from: write.allocated_from.clone(),
                    claims: write.claims.clone(),
                };
                self.index.sent(key, pending);
            }
            if let Job::List(name, write) = &job {
                let base = write.base.as_ref();
                let listing = Listing {
                    version: base.and_then(|base| base.resource_version.parse().ok()),
                    addresses: write.record.addresses.clone(),
                    unanswered: false,
                };
                self.index.list_sent(name, listing);
            }
            let progress = self.progress.entry(job.target()).or_default();
            progress.in_flight = true;
            progress.sent = match &job {
                Job::Service { write, .. } => Some(write.clone()),
                _ => None,
            };
            self.in_flight.push(self.context.writer.clone().carry_out(job).boxed());
        }
    }

    fn finished(&mut self, done: Done) {
        let Done { job, result, service, claim } = done;
        let target = job.target();
        self.reporting -= usize::from(job.only_reports());
        let outcome = match &result {
            Ok(()) => "done",
            Err(CallError::Conflict) => "conflict",
            Err(CallError::NotFound(_) | CallError::Refused(_)) => "refused",
            Err(CallError::Unknown(_)) => "unknown",
        };
        let labels = WriteLabels { kind: target.kind(), outcome };
        self.context.metrics.writes.get_or_create(&labels).inc();
        let pause = self.pause(&job, &result);
        let progress = self.progress.entry(target.clone()).or_default();
        progress.in_flight = false;
        progress.sent = None;
        let superseded = std::mem::take(&mut progress.superseded);
        progress.failures = if result.is_ok() { 0 } else { progress.failures.saturating_add(1) };
        progress.not_before = clock::now() + pause;
        if let Job::Service { key, write, .. } = &job {
            self.service_finished(key, write, &result, service.map(|service| *service));
        }
        if let Job::List(name, _) = &job {
            self.list_finished(name, &result, claim.map(|claim| *claim));
        }
        if superseded {
            self.changed();
        }
        match result {
            Ok(()) => self.publish_outcome(&job),
            Err(CallError::Conflict) => self.changed(),
            Err(error) => {
                tracing::warn!(kind = target.kind(), name = target.name(), %error, "a write failed");
                self.changed();
            }
        }
    }

    /// The pause before the next job about the target.
    fn pause(&self, job: &Job, result: &Result<(), CallError>) -> Duration {
        const FIRST: Duration = Duration::from_millis(20);
        const LONGEST: Duration = Duration::from_secs(10);
        // An API server that comes back is to be written to at once.
        const LONGEST_UNKNOWN: Duration = Duration::from_secs(1);
        let failures = self.progress.get(&job.target()).map_or(0, |progress| progress.failures);
        match (result, job) {
            (Ok(()), Job::Service { .. }) => Duration::ZERO,
            (Ok(()), Job::List(_, write)) if write.base.is_some() => Duration::ZERO,
            // Until the watch has brought it. The Service may be there again at once.
            (Ok(()), Job::List(..) | Job::DeleteClaim(..)) => FIRST,
            (Ok(()), Job::Pool(..) | Job::Policy(..)) => STATUS_PAUSE,
            (Ok(()), Job::DeleteSession(..)) => SESSION_PAUSE,
            (Err(error), _) => {
                let longest = match error {
                    CallError::Unknown(_) => LONGEST_UNKNOWN,
                    _ => LONGEST,
                };
                (FIRST * 2_u32.saturating_pow(failures.min(16))).min(longest)
            }
        }
    }

    fn service_finished(
        &mut self,
        key: &ServiceKey,
        write: &ServiceWrite,
        result: &Result<(), CallError>,
        seen: Option<k8s_openapi::api::core::v1::Service>,
    ) {
        let version = seen.as_ref().and_then(|it| it.resource_version()?.parse::<u64>().ok());
        let mut news = seen.is_some_and(|service| self.index.answered(key, service, clock::now()));
        if result.is_ok() && self.index.written(key, write, version, clock::now()) {
            self.context.metrics.restored.inc();
        }
        match result {
            // An answer without news: what was written was so already.
            Ok(()) | Err(CallError::Conflict | CallError::NotFound(_) | CallError::Refused(_)) => {
                self.index.failed(key);
            }
            // It may still be carried out: until a newer version shows up, the Service counts as
            // having these addresses, too.
            Err(CallError::Unknown(_)) => news = true,
        }
        if news {
            self.changed();
        }
        // What is on record now is to be listed; what is queued is as right as it was.
        self.plan_soon();
    }

    fn list_finished(
        &mut self,
        name: &LeaseName,
        result: &Result<(), CallError>,
        written: Option<Lease>,
    ) {
        match result {
            Ok(()) => {}
            Err(CallError::Unknown(_)) => self.index.list_unanswered(name),
            Err(_) => self.index.list_failed(name),
        }
        if let Some(lease) = written {
            self.index.claim_answered(lease);
        }
        if result.is_ok() { self.plan_soon() } else { self.changed() }
    }

    /// Publishes the events and metrics of a job that was done.
    fn publish_outcome(&mut self, job: &Job) {
        match job {
            Job::Service { key, write, .. } => {
                if write.assigns {
                    self.context.metrics.allocations.inc();
                }
                if let Some(reason) = write.failure {
                    self.context.metrics.failures.get_or_create(&ReasonLabel { reason }).inc();
                }
                if let Some(row) = self.index.tables().services().get(key) {
                    let reference = row.reference(key);
                    self.publish(&key.to_string(), &write.notices, &reference);
                }
            }
            Job::Pool(name, write) => {
                if let Some(row) = self.index.tables().pools().get(name) {
                    let reference = row.reference().clone();
                    self.publish(name, &write.notices, &reference);
                }
            }
            Job::Policy(..) | Job::List(..) | Job::DeleteClaim(..) | Job::DeleteSession(..) => {}
        }
    }

    fn publish(
        &mut self,
        object: &str,
        notices: &[Notice],
        reference: &k8s_openapi::api::core::v1::ObjectReference,
    ) {
        for notice in notices {
            let silent = matches!(notice.reason, Reason::NotAnnounced | Reason::NotToBeAnnounced);
            if silent && !self.silent.take(&notice.note, clock::now()) {
                continue;
            }
            tracing::info!(object, reason = notice.reason.as_str(), "{}", notice.note);
            if self.notices.len() < MAX_NOTICES {
                let (events, notice) = (self.context.events.clone(), notice.clone());
                let reference = reference.clone();
                self.notices.push(async move { events.publish(&notice, &reference).await }.boxed());
            }
        }
    }

    /// Waits for the calls under way.
    async fn drain(mut self) -> Ended {
        self.queue.clear();
        while let Some(done) = self.in_flight.next().await {
            self.finished(done);
        }
        while self.notices.next().await.is_some() {}
        let unanswered = self.index.listings().values().any(|listing| listing.unanswered);
        let clean = self.index.pending().is_empty() && !unanswered;
        Ended { clean, recollection: self.index.into_recollection() }
    }
}
