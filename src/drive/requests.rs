//! Requests to the API server that have no answer yet.

use tokio::task::{JoinError, JoinSet};

use crate::api::installed::{Installed, OwnDaemonSet};
use crate::api::leases::Leases;
use crate::clock;
use crate::report::metrics::RequestKind;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Answer, Event, RequestId, Target, Write};

/// The result of a request.
#[derive(Debug)]
pub(super) enum Completed {
    /// The answer to a request of the core, with the time at which it was sent.
    Answer(RequestId, Answer, RequestKind, Instant),
    /// A list; `None` if it failed.
    List(Option<Event>),
    /// The state of the installation, which says what follows this process.
    Look(Installed),
}

/// The requests, each in a task of its own.
#[derive(Debug)]
pub(super) struct Requests {
    leases: Leases,
    /// The `DaemonSet` that runs this process, if one does.
    daemon_set: Option<OwnDaemonSet>,
    /// Whether it was read already.
    looked: bool,
    tasks: JoinSet<Completed>,
}

impl Requests {
    /// Creates the set without a request.
    pub(super) fn new(leases: Leases, daemon_set: Option<OwnDaemonSet>) -> Self {
        Self { leases, daemon_set, looked: false, tasks: JoinSet::new() }
    }

    /// Writes a Lease.
    pub(super) fn write(&mut self, request: RequestId, write: Write) {
        let (leases, kind, sent) = (self.leases.clone(), RequestKind::of(&write), clock::now());
        self.tasks.spawn(async move {
            Completed::Answer(request, leases.write(write).await, kind, sent)
        });
    }

    /// Reads a Lease.
    pub(super) fn read(&mut self, request: RequestId, target: Target) {
        let (leases, sent) = (self.leases.clone(), clock::now());
        self.tasks.spawn(async move {
            Completed::Answer(request, leases.read(target).await, RequestKind::Read, sent)
        });
    }

    /// Lists all sessions and claims.
    pub(super) fn list(&mut self, asked: Instant) {
        let leases = self.leases.clone();
        self.tasks.spawn(async move { Completed::List(leases.list(asked).await) });
    }

    /// Reads once in which state the `DaemonSet` is that runs this process; returns whether one does.
    pub(super) fn look(&mut self) -> bool {
        let Some(daemon_set) = self.daemon_set.clone() else { return false };
        if !std::mem::replace(&mut self.looked, true) {
            self.tasks.spawn(async move { Completed::Look(daemon_set.look().await) });
        }
        true
    }

    /// Whether no request is without an answer.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The next result; `None` if there is no request. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<Completed, JoinError>> {
        self.tasks.join_next().await
    }

    /// A result that is there already.
    pub(super) fn try_next(&mut self) -> Option<Result<Completed, JoinError>> {
        self.tasks.try_join_next()
    }
}
