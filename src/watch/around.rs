//! The way around nodes that are down: what the snapshot says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use leasehold_core::desired::{Detours, Down, Port, SERVICE_NAME, Slice, Snapshot, detours};

/// Time before a list that failed is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Time for which a detour lasts when the EndpointSlices say what it does: until kube-proxy has followed them, which
/// gathers changes for a second (`--iptables-min-sync-period`, `--nftables-min-sync-period`), and takes seconds where
/// there are many Services.
const FOLLOWED: Duration = Duration::from_secs(5);

/// Tells the data path of detours.
#[derive(Debug)]
pub struct Around {
    down: watch::Receiver<Down>,
    detours: watch::Sender<Detours>,
    /// The ports that have a detour; and until when, those that need none any more.
    ports: BTreeMap<Port, Option<Instant>>,
}

impl Around {
    /// Detours around those that are `down`.
    pub const fn new(down: watch::Receiver<Down>, detours: watch::Sender<Detours>) -> Self {
        Self { down, detours, ports: BTreeMap::new() }
    }

    /// Waits until other nodes are down, or the time of a detour is over.
    pub(super) async fn changed(&mut self) {
        let over = self.over();
        let timer = async {
            match over {
                Some(over) => tokio::time::sleep_until(over).await,
                None => std::future::pending().await,
            }
        };
        let down = async {
            if self.down.changed().await.is_err() {
                // The process ends.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = down => {}
            () = timer => {}
        }
    }

    /// When the first detour is over that is not needed any more.
    fn over(&self) -> Option<Instant> {
        self.ports.values().flatten().min().copied()
    }

    /// Tells what follows from what is known.
    pub(super) fn tell(&mut self, snapshot: &Snapshot) {
        self.tell_at(Instant::now(), snapshot);
    }

    fn tell_at(&mut self, now: Instant, snapshot: &Snapshot) {
        self.ports.retain(|_, until| until.is_none_or(|until| now < until));
        let before = self.ports.keys().copied().collect();
        let detours = detours(snapshot, &self.down.borrow_and_update(), &before);
        let needed = |port: &Port| detours.ports.get(port).is_some_and(|it| !it.around.is_empty());
        for (port, until) in &mut self.ports {
            *until = if needed(port) { None } else { Some(until.unwrap_or(now + FOLLOWED)) };
        }
        for port in detours.ports.keys().filter(|port| needed(port)) {
            self.ports.insert(*port, None);
        }
        self.detours.send_if_modified(|known| {
            let changed = *known != detours;
            *known = detours;
            changed
        });
    }
}

/// The endpoints of Services that have become ours after their slices were read: they are asked for.
pub(super) struct Unread {
    client: Client,
    asked: BTreeSet<String>,
    lists: FuturesUnordered<BoxFuture<'static, (String, Option<Vec<Slice>>)>>,
}

impl Unread {
    pub(super) fn new(client: Client) -> Self {
        Self { client, asked: BTreeSet::new(), lists: FuturesUnordered::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Asks for what is missing.
    pub(super) fn ask(&mut self, snapshot: &Snapshot) {
        for service in snapshot.unread() {
            if self.asked.insert(service.to_owned()) {
                self.lists.push(Box::pin(list(self.client.clone(), service.to_owned(), None)));
            }
        }
    }

    /// The slices of a Service that was asked for.
    pub(super) async fn next(&mut self) -> Option<(String, Vec<Slice>)> {
        loop {
            let (service, slices) = self.lists.next().await?;
            if let Some(slices) = slices {
                self.asked.remove(&service);
                return Some((service, slices));
            }
            let again = list(self.client.clone(), service, Some(RETRY));
            self.lists.push(Box::pin(again));
        }
    }
}

/// The slices of a Service as the API server has them; none where it does not answer.
async fn list(
    client: Client,
    service: String,
    pause: Option<Duration>,
) -> (String, Option<Vec<Slice>>) {
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
    let Some((namespace, name)) = service.split_once('/') else {
        return (service, Some(Vec::new()));
    };
    let slices: Api<Slice> = Api::namespaced(client, namespace);
    let its = ListParams::default().labels(&format!("{SERVICE_NAME}={name}"));
    let listed = slices.list(&its).await;
    if let Err(error) = &listed {
        tracing::debug!(service, %error, "the EndpointSlices of a Service cannot be listed");
    }
    (service, listed.ok().map(|listed| listed.items))
}

#[cfg(test)]
mod tests {
    use leasehold_core::desired::{ServiceFacts, SliceFacts};
    use serde_json::json;

    use super::*;

    /// A Service with a pod on `n1`, ready or not, and another on `n2`.
    fn snapshot(ready: bool) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let service = json!({
            "metadata": { "namespace": "web", "name": "shop",
                "annotations": { "leasehold.dev/claim": "web.shop" } },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
        });
        snapshot.services.extend(ServiceFacts::of(&serde_json::from_value(service).unwrap()));
        let slice = json!({
            "metadata": { "namespace": "web", "name": "shop-1",
                "labels": { "kubernetes.io/service-name": "shop" } },
            "ports": [{ "port": 8080 }],
            "endpoints": [
                { "addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": { "ready": ready } },
                { "addresses": ["10.0.0.2"], "nodeName": "n2" },
            ],
        });
        let (key, facts) = SliceFacts::of(&serde_json::from_value(slice).unwrap()).unwrap();
        snapshot.set_slice(&key, Some(&facts));
        snapshot
    }

    #[test]
    fn a_detour_lasts_until_kube_proxy_has_followed_the_endpoints() {
        let (down, seen) = watch::channel(Down::default());
        let (sender, detours) = watch::channel(Detours::default());
        let mut around = Around::new(seen, sender);
        let start = Instant::now();
        let mut ports = |seconds: u64, ready: bool| {
            around.tell_at(start + Duration::from_secs(seconds), &snapshot(ready));
            (detours.borrow().ports.len(), around.over())
        };
        assert_eq!(ports(0, true), (0, None));
        down.send_replace(Down { nodes: ["n1".parse().unwrap()].into(), ..Down::default() });
        assert_eq!(ports(1, true), (1, None));
        let over = Some(start + Duration::from_secs(20) + FOLLOWED);
        assert_eq!(ports(20, false), (1, over), "kube-proxy may still lead to the dead pod");
        assert_eq!(ports(24, false), (1, over));
        assert_eq!(ports(25, false), (0, None));
        // Needed again in between, it lasts again.
        assert_eq!(ports(30, true), (1, None));
        assert_eq!(ports(31, false).0, 1);
        assert_eq!(ports(33, true), (1, None));
        let over = Some(start + Duration::from_secs(40) + FOLLOWED);
        assert_eq!(ports(40, false), (1, over));
    }
}
