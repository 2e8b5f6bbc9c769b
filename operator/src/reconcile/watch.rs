//! The watches: one stream of changes for all kinds of objects.

use std::fmt::Debug;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use leasehold::api::watched::watched;
use leasehold_core::desired::Slice;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::client::WATCH_SECONDS;

/// The kinds that the operator watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Services, in all namespaces.
    Service,
    /// Namespaces.
    Namespace,
    /// `IPAddressPools`.
    Pool,
    /// `AnnouncementPolicies`.
    Policy,
    /// Nodes.
    Node,
    /// EndpointSlices, in all namespaces.
    Slice,
    /// Leases in the namespace of the claims.
    Claim,
    /// Leases in the namespace of the sessions.
    Session,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Service,
        Self::Namespace,
        Self::Pool,
        Self::Policy,
        Self::Node,
        Self::Slice,
        Self::Claim,
        Self::Session,
    ];

    /// As people call them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "Services",
            Self::Namespace => "Namespaces",
            Self::Pool => "IPAddressPools",
            Self::Policy => "AnnouncementPolicies",
            Self::Node => "Nodes",
            Self::Slice => "EndpointSlices",
            Self::Claim => "claim Leases",
            Self::Session => "session Leases",
        }
    }
}

/// An event of one watch. Boxed: a Node is large, and most events are about small things.
pub type Observed<K> = Box<Event<DeserializeGuard<K>>>;

/// A change that a watch brings.
#[derive(Debug)]
pub enum Change {
    /// About a Service.
    Service(Observed<Service>),
    /// About a Namespace.
    Namespace(Observed<Namespace>),
    /// About a pool.
    Pool(Observed<IPAddressPool>),
    /// About a policy.
    Policy(Observed<AnnouncementPolicy>),
    /// About a Node.
    Node(Observed<Node>),
    /// About an EndpointSlice.
    Slice(Box<Event<Slice>>),
    /// About a claim.
    Claim(Observed<Lease>),
    /// About a session.
    Session(Observed<Lease>),
    /// A watch failed and will be tried again.
    Failed(Kind, watcher::Error),
}

impl Change {
    /// Whether it says no more than that a list is about to be asked for.
    pub fn is_only_a_start(&self) -> bool {
        match self {
            Self::Service(event) => matches!(**event, Event::Init),
            Self::Namespace(event) => matches!(**event, Event::Init),
            Self::Pool(event) => matches!(**event, Event::Init),
            Self::Policy(event) => matches!(**event, Event::Init),
            Self::Node(event) => matches!(**event, Event::Init),
            Self::Slice(event) => matches!(**event, Event::Init),
            Self::Claim(event) | Self::Session(event) => matches!(**event, Event::Init),
            Self::Failed(..) => false,
        }
    }
}

/// Starts all watches. The leases are listed only once `services_listed` is true: a claim that was
/// written before its service was deleted is then seen, or gone.
pub fn changes(
    client: &Client,
    claims: &str,
    sessions: &str,
    services_listed: &watch::Sender<bool>,
) -> BoxStream<'static, Change> {
    let leases = |namespace: &str, kind, wrap| {
        let mut listed = services_listed.subscribe();
        let api = Api::namespaced(client.clone(), namespace);
        stream::once(async move {
            // The sender outlives the stream; should it not, there is nothing to wait for.
            let _ = listed.wait_for(|listed| *listed).await;
            observe::<DeserializeGuard<Lease>>(api, kind, wrap)
        })
        .flatten()
        .boxed()
    };
    stream::select_all([
        observe(Api::all(client.clone()), Kind::Service, Change::Service),
        observe(Api::all(client.clone()), Kind::Namespace, Change::Namespace),
        observe(Api::all(client.clone()), Kind::Pool, Change::Pool),
        observe(Api::all(client.clone()), Kind::Policy, Change::Policy),
        observe(Api::all(client.clone()), Kind::Node, Change::Node),
        observe(Api::all(client.clone()), Kind::Slice, Change::Slice),
        leases(claims, Kind::Claim, Change::Claim),
        leases(sessions, Kind::Session, Change::Session),
    ])
    .boxed()
}

fn observe<K>(
    api: Api<K>,
    kind: Kind,
    wrap: fn(Box<Event<K>>) -> Change,
) -> BoxStream<'static, Change>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watched(api, WATCH_SECONDS)
        .map(move |event| match event {
            Ok(event) => wrap(Box::new(event)),
            Err(error) => Change::Failed(kind, error),
        })
        .boxed()
}
