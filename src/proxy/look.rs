//! Looks whether the service proxy has the rules for what is about to be announced.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use leasehold_crds::lease::LeaseName;
use tokio::sync::watch;

use super::http::{Answer, get};
use super::rules::Tables;
use crate::clock;
use crate::clock::sleep_until;
use crate::net::rtnl::links::Links;
use leasehold_core::clock::Instant;
use leasehold_core::election::{ProxyView, Rules, RulesQuestion, RulesWatch};

/// The pause before the next look at the rules, …
const AGAIN: Duration = Duration::from_millis(20);
/// … and for how much longer than a look takes nothing is done after it.
const REST: u32 = 4;
/// The timeout of a request to a `healthCheckNodePort`.
const PATIENCE: Duration = Duration::from_millis(250);
/// The number of concurrent requests to these ports.
const AT_ONCE: usize = 16;

/// The task's state.
#[derive(Debug)]
pub(super) struct Look {
    watched: watch::Receiver<RulesWatch>,
    links: watch::Receiver<Links>,
    view: Arc<watch::Sender<ProxyView>>,
    tables: Tables,
    has_tables: Arc<AtomicBool>,
}

impl Look {
    pub(super) fn new(
        watched: watch::Receiver<RulesWatch>,
        links: watch::Receiver<Links>,
        view: Arc<watch::Sender<ProxyView>>,
        has_tables: Arc<AtomicBool>,
    ) -> Self {
        Self { watched, links, view, tables: Tables::default(), has_tables }
    }

    /// Runs until nobody asks any more.
    pub(super) async fn run(mut self) {
        let mut again: Option<Instant> = None;
        loop {
            let timer = async {
                match again {
                    Some(again) => sleep_until(again).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.watched.changed() => if changed.is_err() { return },
                () = timer => {}
            }
            let began = clock::now();
            let watched = self.watched.borrow_and_update().clone();
            let rules = self.look(&watched).await;
            let waits = rules.values().any(|(_, rules)| *rules == Rules::Absent);
            self.view.send_if_modified(|view| {
                let changed = view.rules != rules;
                view.rules = rules;
                changed
            });
            let ended = clock::now();
            let rest = AGAIN.max(ended.saturating_since(began) * REST);
            again = waits.then_some(ended + rest);
        }
    }

    /// Looks for the rules that are not known to be there.
    async fn look(&mut self, watched: &RulesWatch) -> BTreeMap<LeaseName, (u64, Rules)> {
        let mut rules = self.view.borrow().rules.clone();
        rules.retain(|name, (number, rules)| {
            let same = watched.get(name).is_some_and(|question| question.number == *number);
            same && *rules == Rules::Present
        });
        let open = watched.iter().filter(|(name, _)| !rules.contains_key(*name));
        let (local, others): (Vec<_>, Vec<_>) =
            open.partition(|(_, question)| !question.health_checks.is_empty());
        for (name, question) in others {
            let found = self.tables.look(&question.ports, self.has_tables.load(Ordering::Relaxed));
            rules.insert(name.clone(), (question.number, found));
        }
        let addresses: Arc<[IpAddr]> = self.addresses().into();
        let asked = local.into_iter().map(|(name, question)| {
            local_rules(Arc::clone(&addresses), name.clone(), Arc::clone(question))
        });
        let asked: Vec<_> = asked.collect();
        let found: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        rules.extend(found);
        rules
    }

    /// Where kube-proxy may listen: on all addresses of the node, or on one of them.
    fn addresses(&self) -> Vec<IpAddr> {
        let links = self.links.borrow();
        let own = links.0.values().flat_map(|link| &link.addresses).map(|address| address.ip);
        let own = own.filter(|ip| match ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        });
        [Ipv4Addr::LOCALHOST.into()].into_iter().chain(own).collect()
    }
}

/// Checks whether each requested port has an endpoint on this node.
async fn local_rules(
    addresses: Arc<[IpAddr]>,
    name: LeaseName,
    question: Arc<RulesQuestion>,
) -> (LeaseName, (u64, Rules)) {
    let mut rules = Rules::Present;
    for port in &question.health_checks {
        if !has_endpoint(&addresses, *port).await {
            rules = Rules::Absent;
            break;
        }
    }
    (name, (question.number, rules))
}

/// Whether a `healthCheckNodePort` says that kube-proxy has an endpoint here. Where nobody listens on it,
/// kube-proxy does not know the Service yet.
async fn has_endpoint(addresses: &[IpAddr], port: u16) -> bool {
    for address in addresses {
        match get(SocketAddr::new(*address, port), "/healthz", PATIENCE).await {
            Answer::Refused => {}
            answer => return answer == Answer::Status(200),
        }
    }
    false
}
