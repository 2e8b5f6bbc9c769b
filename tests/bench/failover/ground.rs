//! Where a fault is measured: a cluster, its services, and who owns them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold_lab::{Cluster, Lab, Node, SESSION_NAMESPACE, SYSTEM_NAMESPACE, Service};
use serde_json::json;
use tokio::time::sleep;

use super::fault::Shape;
use crate::others::{Daemons, Other};
use crate::record::Shares;

const PATIENCE: Duration = Duration::from_secs(90);
/// The time for which all must be well before a fault: speakers hear a new owner for the first time within a
/// second.
const QUIET: Duration = Duration::from_millis(2500);
/// The timeout of a few dozen planned moves.
const MOVED: Duration = Duration::from_secs(20);
/// The number of Services that are created concurrently.
const AT_ONCE: usize = 8;
/// For how long hosts are asked who owns an address that is in no kernel.
const ASKED: Duration = Duration::from_millis(300);

/// The system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Leasehold(Profile),
    Other(Other),
}

impl System {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Leasehold(_) => "leasehold".to_owned(),
            Self::Other(other) => other.name(),
        }
    }

    pub(crate) const fn profile(self) -> Profile {
        match self {
            Self::Leasehold(profile) => profile,
            Self::Other(_) => Profile::Default,
        }
    }
}

/// Profile of failure detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Default,
    Fast,
}

impl Profile {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fast => "fast",
        }
    }

    /// Applies the policy that governs the services of a cluster.
    pub(crate) async fn apply(self, cluster: &Cluster) -> Result<()> {
        let fields = match self {
            Self::Default => json!({}),
            Self::Fast => json!({
                "layer2": {
                    "detection": { "interval": "50ms", "retryInterval": "10ms", "misses": 4 },
                },
            }),
        };
        cluster.policy_with(fields).await
    }
}

/// A cluster with services that all answer from one pod on a worker.
pub(crate) struct Ground {
    pub(crate) shape: Shape,
    pub(crate) system: System,
    /// The first has the pod; the others share it.
    services: Vec<Service>,
    vips: Vec<IpAddr>,
    others: Option<Daemons>,
    pub(crate) cluster: Cluster,
}

impl Ground {
    /// Makes a cluster of this name and, before anything on its nodes is started, prepares it. The
    /// operator of the lab runs.
    pub(crate) async fn open(
        lab: &Arc<Lab>,
        name: &str,
        shape: Shape,
        system: System,
        prepare: impl FnOnce(&Cluster) -> Result<()>,
    ) -> Result<Self> {
        let cluster = lab.cluster(name).nodes(shape.nodes).without_speakers().start().await?;
        prepare(&cluster)?;
        let vips: Vec<IpAddr> =
            (0..shape.services).map(|number| cluster.addresses().vip(number).0.into()).collect();
        let mut ground = Self { shape, system, services: Vec::new(), vips, others: None, cluster };
        match system {
            System::Leasehold(profile) => {
                ground.cluster.pool(0, shape.services.saturating_sub(1)).await?;
                profile.apply(&ground.cluster).await?;
                ground.cluster.nodes().iter().try_for_each(Node::start_speaker)?;
                let first = ground.cluster.service("web").vip(0).create().await?;
                ground.services.push(first);
            }
            System::Other(other) => {
                let vip = *ground.vips.first().context("no VIP")?;
                let (others, first) = Daemons::start(&ground.cluster, other, vip).await?;
                ground.others = Some(others);
                ground.services.push(first);
            }
        }
        ground.deal().await?;
        Ok(ground)
    }

    pub(crate) fn lab(&self) -> &Arc<Lab> {
        self.cluster.lab()
    }

    pub(crate) fn vips(&self) -> &[IpAddr] {
        &self.vips
    }

    /// Makes the services that share the first one's pod.
    async fn deal(&mut self) -> Result<()> {
        let (cluster, first) = (&self.cluster, self.services.first().context("no service")?);
        let plans = (1..self.shape.services).map(|number| {
            cluster.service(&format!("web-{number}")).vip(number).pods_of(first).create()
        });
        let made: Vec<_> = stream::iter(plans).buffered(AT_ONCE).try_collect().await?;
        self.services.extend(made);
        Ok(())
    }

    /// Moves services until all nodes have as many again: whoever died got nothing back. Where that is refused
    /// they stay where they are.
    pub(crate) async fn even_out(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.lab().admin(), SYSTEM_NAMESPACE);
        for (claim, to) in self.moves().await? {
            let patch = json!({ "metadata": { "annotations": { "leasehold.dev/move-to": to } } });
            leases.patch(&claim, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        let deadline = Instant::now() + MOVED;
        while !self.is_even().await? && Instant::now() < deadline {
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// The claims to move, each with the node that it should go to.
    async fn moves(&self) -> Result<Vec<(String, String)>> {
        let mut owned = self.owned().await?;
        for node in self.cluster.nodes() {
            owned.entry(node.name().to_owned()).or_default();
        }
        let claims: BTreeMap<_, _> =
            self.vips.iter().zip(self.services.iter().map(Service::claim)).collect();
        let mut moves = Vec::new();
        loop {
            let by_share = || owned.iter().map(|(node, vips)| (vips.len(), node));
            let (least, most) = by_share().min().zip(by_share().max()).context("no node")?;
            if most.0 - least.0 <= 1 {
                return Ok(moves);
            }
            let (from, to) = (most.1.clone(), least.1.clone());
            let vip = owned.get_mut(&from).and_then(Vec::pop).context("nothing to move")?;
            moves.push((claims.get(&vip).context("no claim")?.clone(), to.clone()));
            owned.entry(to).or_default().push(vip);
        }
    }

    /// Waits until all is well, and has been for a while.
    pub(crate) async fn settle(&self) -> Result<()> {
        loop {
            self.until_well().await?;
            sleep(QUIET).await;
            if self.well().await? {
                return Ok(());
            }
        }
    }

    async fn until_well(&self) -> Result<()> {
        let condition = async || {
            if self.well().await? {
                return Ok(true);
            }
            sleep(Duration::from_millis(200)).await;
            Ok(false)
        };
        self.cluster
            .eventually("each VIP has one owner, and each node a session", PATIENCE, condition)
            .await
    }

    /// Checks whether each VIP is on one node, its claim says the same, and each node has a session.
    async fn well(&self) -> Result<bool> {
        let placement = self.placement().await?;
        let each_one = self.vips.iter().all(|vip| placement.get(vip).is_some_and(|n| n.len() == 1));
        if !each_one || self.others.is_some() {
            return Ok(each_one);
        }
        let sessions = holders(&self.leases(SESSION_NAMESPACE).await?);
        let has_session =
            |node: &Node| sessions.get(node.name()).map(String::as_str) == Some(node.name());
        let claims = self.claims().await?;
        let agrees = |(service, vip): (&Service, &IpAddr)| {
            let owner = placement.get(vip).and_then(|nodes| nodes.first());
            owner.map(|node| node.name()) == claims.get(&service.claim()).map(String::as_str)
        };
        Ok(self.cluster.nodes().iter().all(has_session)
            && self.services.len() == self.vips.len()
            && self.services.iter().zip(&self.vips).all(agrees))
    }

    /// The transitions of each claim and each session.
    pub(crate) async fn transitions(&self) -> Result<BTreeMap<String, i32>> {
        let mut all = BTreeMap::new();
        for namespace in [SESSION_NAMESPACE, SYSTEM_NAMESPACE] {
            let transitions = |lease: &Lease| lease.spec.as_ref()?.lease_transitions;
            let leases = self.leases(namespace).await?;
            all.extend(leases.iter().filter_map(|lease| {
                Some((format!("{namespace}/{}", lease.name_any()), transitions(lease)?))
            }));
        }
        Ok(all)
    }

    /// The holder of each claim.
    async fn claims(&self) -> Result<BTreeMap<String, String>> {
        let own = format!("{}.", self.cluster.namespace());
        let mut claims = holders(&self.leases(SYSTEM_NAMESPACE).await?);
        claims.retain(|name, _| name.starts_with(&own));
        Ok(claims)
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.lab().admin(), namespace);
        let all = ListParams::default();
        Ok(tokio::time::timeout(Duration::from_secs(3), leases.list(&all)).await??.items)
    }

    /// Which nodes' kernels have each VIP, or answer for it.
    pub(crate) async fn placement(&self) -> Result<BTreeMap<IpAddr, Vec<&Node>>> {
        let mut placement: BTreeMap<IpAddr, Vec<&Node>> = BTreeMap::new();
        if self.others.as_ref().is_some_and(|others| !others.in_kernel()) {
            for &vip in &self.vips {
                let macs = self.cluster.client().owners(vip, ASKED).await?.macs();
                let nodes = macs.into_iter().filter_map(|mac| self.cluster.node_with_mac(mac));
                placement.insert(vip, nodes.collect());
            }
            return Ok(placement);
        }
        let vips: BTreeSet<_> = self.vips.iter().copied().collect();
        for node in self.cluster.nodes() {
            for address in node.addresses()? {
                let address = address.address.addr();
                if vips.contains(&address) {
                    placement.entry(address).or_default().push(node);
                }
            }
        }
        Ok(placement)
    }

    /// The VIPs that each node has, for nodes that have any.
    pub(crate) async fn owned(&self) -> Result<BTreeMap<String, Vec<IpAddr>>> {
        let mut owned: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (vip, nodes) in self.placement().await? {
            for node in nodes {
                owned.entry(node.name().to_owned()).or_default().push(vip);
            }
        }
        Ok(owned)
    }

    /// Checks whether the VIPs are spread over all nodes.
    pub(crate) async fn is_even(&self) -> Result<bool> {
        let Shares { fewest, most } = self.shares().await?;
        Ok(most - fewest <= 1)
    }

    /// The numbers of VIPs of the nodes.
    pub(crate) async fn shares(&self) -> Result<Shares> {
        let owned = self.owned().await?;
        let of = |node: &Node| owned.get(node.name()).map_or(0, Vec::len);
        let shares = || self.cluster.nodes().iter().map(of);
        Ok(Shares { fewest: shares().min().unwrap_or(0), most: shares().max().unwrap_or(0) })
    }

    /// Deletes the leases of all nodes and services, and waits until the operator has listed the addresses anew.
    pub(crate) async fn forget_owners(&self) -> Result<()> {
        let sessions: Api<Lease> = Api::namespaced(self.lab().admin(), SESSION_NAMESPACE);
        let claims: Api<Lease> = Api::namespaced(self.lab().admin(), SYSTEM_NAMESPACE);
        for node in self.cluster.nodes() {
            sessions.delete(node.name(), &DeleteParams::default()).await?;
        }
        for service in &self.services {
            claims.delete(&service.claim(), &DeleteParams::default()).await?;
        }
        let listed = async || {
            let leases = self.leases(SYSTEM_NAMESPACE).await?;
            let names: BTreeSet<String> = leases.iter().map(ResourceExt::name_any).collect();
            Ok(self.services.iter().all(|service| names.contains(&service.claim())))
        };
        self.cluster.eventually("the operator has listed all addresses", PATIENCE, listed).await
    }

    // === the process that looks after a node's addresses ===

    pub(crate) async fn kill(&self, node: &Node) -> Result<()> {
        match &self.others {
            Some(others) => others.of(node)?.kill_group().await,
            None => node.speaker()?.kill().await,
        }
    }

    /// SIGTERM, and waits for the end.
    pub(crate) async fn terminate(&self, node: &Node) -> Result<()> {
        match &self.others {
            Some(others) => others.of(node)?.terminate(PATIENCE).await.map(|_| ()),
            None => node.speaker()?.terminate().await.map(|_| ()),
        }
    }

    /// Ends and starts the speakers of all nodes, one after the other, each when the one before is ready.
    pub(crate) async fn upgrade(&self) -> Result<()> {
        for node in self.cluster.nodes() {
            self.terminate(node).await?;
            self.start(node)?;
            let ready = async || Ok(node.speaker_http("/readyz").is_ok());
            self.cluster.eventually("the speaker is ready", PATIENCE, ready).await?;
        }
        Ok(())
    }

    /// Starts it again, after its end.
    pub(crate) fn start(&self, node: &Node) -> Result<()> {
        match &self.others {
            Some(others) => others.restart(node),
            None => node.start_speaker(),
        }
    }

    pub(crate) fn freeze(&self, node: &Node) -> Result<()> {
        match &self.others {
            Some(others) => others.of(node)?.signal_group(leasehold_lab::process::Signal::STOP),
            None => node.speaker()?.freeze(),
        }
    }

    pub(crate) fn thaw(&self, node: &Node) -> Result<()> {
        match &self.others {
            Some(others) => others.of(node)?.signal_group(leasehold_lab::process::Signal::CONT),
            None => node.speaker()?.thaw(),
        }
    }
}

/// The holders of leases that have one.
fn holders(leases: &[Lease]) -> BTreeMap<String, String> {
    let holder = |lease: &Lease| {
        let holder = lease.spec.as_ref()?.holder_identity.clone()?;
        (!holder.is_empty()).then(|| (lease.name_any(), holder))
    };
    leases.iter().filter_map(holder).collect()
}
