//! The watches on sessions and claims. The addresses that claims list go to the task that watches the Services as
//! well.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use leasehold_crds::lease::{Claim, LeaseName, Record, Stored};
use tokio::sync::{mpsc, watch};

use super::renewal::WATCH_SECONDS;
use crate::api::leases::is_claim;
use crate::api::pause::Pause;
use crate::clock;
use crate::report::gauges::Delivered;
use crate::report::health::{Health, Part};
use leasehold_core::election::Event;

/// A change of the claims.
#[derive(Clone, Debug)]
pub(super) enum Claims {
    /// All of them.
    All(Vec<Arc<Stored<Claim>>>),
    /// One has changed.
    One(Arc<Stored<Claim>>),
    /// One was deleted.
    Gone(LeaseName),
}

impl Claims {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Claims(all) => Some(Self::All(all.clone())),
            Event::Claim(stored) => Some(Self::One(Arc::clone(stored))),
            Event::ClaimGone(name) => Some(Self::Gone(name.clone())),
            _ => None,
        }
    }
}

/// Capacity of the channel of changes of claims to the task that watches the Services. Full: the watch waits.
pub(super) const LISTED: usize = 64;

/// The events of one kind of Lease.
struct Kind<T> {
    part: Part,
    is_one: fn(&Lease) -> bool,
    all: fn(Vec<Arc<Stored<T>>>) -> Event,
    one: fn(Arc<Stored<T>>) -> Event,
    gone: fn(LeaseName) -> Event,
}

impl<T: Record> Kind<T> {
    /// Reads a Lease; `None` for one of another kind.
    fn read(&self, lease: &Lease) -> Option<Arc<Stored<T>>> {
        let stored = if (self.is_one)(lease) { Stored::from_lease(lease) } else { None };
        stored.map(Arc::new)
    }
}

pub(super) async fn sessions(
    api: Api<Lease>,
    events: mpsc::Sender<Event>,
    health: watch::Sender<Health>,
    delivered: Arc<Delivered>,
) {
    let kind = Kind {
        part: Part::Sessions,
        is_one: |_| true,
        all: Event::Sessions,
        one: Event::Session,
        gone: Event::SessionGone,
    };
    follow(api, kind, events, None, health, &delivered).await;
}

pub(super) async fn claims(
    api: Api<Lease>,
    events: mpsc::Sender<Event>,
    listed: mpsc::Sender<Claims>,
    health: watch::Sender<Health>,
    delivered: Arc<Delivered>,
) {
    let kind = Kind {
        part: Part::Claims,
        is_one: is_claim,
        all: Event::Claims,
        one: Event::Claim,
        gone: Event::ClaimGone,
    };
    follow(api, kind, events, Some(listed), health, &delivered).await;
}

async fn follow<T: Record>(
    api: Api<Lease>,
    kind: Kind<T>,
    events: mpsc::Sender<Event>,
    listed: Option<mpsc::Sender<Claims>>,
    health: watch::Sender<Health>,
    delivered: &Delivered,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut stream = pin!(watcher(api, config).backoff(Pause::default()));
    let mut initial = Vec::new();
    while let Some(change) = stream.next().await {
        if change.is_ok() {
            delivered.note(clock::now(), kind.part);
        }
        let event = match change {
            Ok(watcher::Event::Init) => {
                initial.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(lease)) => {
                initial.extend(kind.read(&lease));
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                Health::listed(&health, kind.part);
                (kind.all)(std::mem::take(&mut initial))
            }
            Ok(watcher::Event::Apply(lease)) => {
                let Some(stored) = kind.read(&lease) else { continue };
                (kind.one)(stored)
            }
            Ok(watcher::Event::Delete(lease)) => {
                let name = Some(lease).filter(kind.is_one).and_then(|lease| lease.metadata.name);
                let Some(name) = name.and_then(|name| name.parse().ok()) else { continue };
                (kind.gone)(name)
            }
            Err(error) => {
                Health::failed(&health, kind.part, &error);
                continue;
            }
        };
        let claims = listed.as_ref().zip(Claims::of(&event));
        if events.send(event).await.is_err() {
            return;
        }
        if let Some((listed, claims)) = claims
            && listed.send(claims).await.is_err()
        {
            return;
        }
    }
}
