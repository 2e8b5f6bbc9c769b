//! The watches on sessions and claims.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use leasehold_crds::lease::{LeaseName, Record, Stored};
use tokio::sync::{mpsc, watch};

use super::WATCH_SECONDS;
use crate::api::leases::is_claim;
use crate::api::pause::Pause;
use crate::clock::Instant;
use crate::lease::Event;
use crate::report::gauges::Delivered;
use crate::report::health::{Health, Part};

/// How one kind of lease becomes events.
struct Kind<T> {
    part: Part,
    is_one: fn(&Lease) -> bool,
    all: fn(Vec<Arc<Stored<T>>>) -> Event,
    one: fn(Arc<Stored<T>>) -> Event,
    gone: fn(LeaseName) -> Event,
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
    follow(api, kind, events, health, &delivered).await;
}

pub(super) async fn claims(
    api: Api<Lease>,
    events: mpsc::Sender<Event>,
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
    follow(api, kind, events, health, &delivered).await;
}

async fn follow<T: Record>(
    api: Api<Lease>,
    kind: Kind<T>,
    events: mpsc::Sender<Event>,
    health: watch::Sender<Health>,
    delivered: &Delivered,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut stream = pin!(watcher(api, config).backoff(Pause::default()));
    let mut initial = Vec::new();
    while let Some(change) = stream.next().await {
        if change.is_ok() {
            delivered.note(Instant::now(), kind.part);
        }
        let event = match change {
            Ok(watcher::Event::Init) => {
                initial.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(lease)) => {
                initial.extend(
                    Some(lease)
                        .filter(kind.is_one)
                        .as_ref()
                        .and_then(Stored::from_lease)
                        .map(Arc::new),
                );
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                Health::listed(&health, kind.part);
                (kind.all)(std::mem::take(&mut initial))
            }
            Ok(watcher::Event::Apply(lease)) => {
                let Some(stored) = Some(lease)
                    .filter(kind.is_one)
                    .as_ref()
                    .and_then(Stored::from_lease)
                    .map(Arc::new)
                else {
                    continue;
                };
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
        if events.send(event).await.is_err() {
            return;
        }
    }
}
