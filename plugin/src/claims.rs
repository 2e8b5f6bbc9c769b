//! The claims as they change, by one watch: whoever waits for them lists them once.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Error};
use leasehold_core::explain::ClaimRow;
use leasehold_crds::lease::LeaseName;
use tokio::time::{Instant, timeout_at};

use super::connect::Cluster;
use super::error::PluginError;

/// The claims, by name.
pub(super) type Known = BTreeMap<LeaseName, ClaimRow>;

/// A watch of the claims.
pub(super) struct Claims<'a> {
    cluster: &'a Cluster,
    api: Api<Lease>,
    events: BoxStream<'static, watcher::Result<Event<Lease>>>,
    /// The items so far of a list that has begun.
    listed: BTreeSet<LeaseName>,
}

impl<'a> Claims<'a> {
    pub(super) fn watch(cluster: &'a Cluster) -> Self {
        let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.system);
        let events = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
        Self { cluster, api, events, listed: BTreeSet::new() }
    }

    /// Waits for news until then, and brings `known` up to date with all that there are.
    pub(super) async fn news(
        &mut self,
        known: &mut Known,
        until: Instant,
    ) -> Result<(), PluginError> {
        let mut next = timeout_at(until, self.events.next()).await.ok().flatten();
        while let Some(event) = next {
            match event {
                Ok(event) => self.take(known, event),
                Err(error) => self.look_into(error).await?,
            }
            next = self.events.next().now_or_never().flatten();
        }
        Ok(())
    }

    fn take(&mut self, known: &mut Known, event: Event<Lease>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(lease) | Event::Apply(lease) => {
                if let Some(claim) = ClaimRow::of(&lease) {
                    self.listed.insert(claim.stored.name.clone());
                    known.insert(claim.stored.name.clone(), claim);
                }
            }
            Event::InitDone => known.retain(|name, _| self.listed.contains(name)),
            Event::Delete(lease) => {
                if let Some(claim) = ClaimRow::of(&lease) {
                    known.remove(&claim.stored.name);
                }
            }
        }
    }

    /// The watch goes on by itself, unless the API server refuses it or does not answer at all.
    async fn look_into(&self, error: watcher::Error) -> Result<(), PluginError> {
        let refused = match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
                matches!(&error, Error::Api(status) if matches!(status.code, 401 | 403))
                    .then_some(error)
            }
            _ => None,
        };
        if let Some(error) = refused {
            return self.cluster.call("watch leases", async { Err(error) }).await;
        }
        let one = ListParams::default().limit(1);
        self.cluster.call("list leases", self.api.list_metadata(&one)).await.map(|_| ())
    }
}
