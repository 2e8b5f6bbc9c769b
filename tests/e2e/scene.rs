//! Where most tests begin: three nodes with speakers, a worker with the pod, one Service that is
//! owned and answers, and a client that watches it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use leasehold_lab::client::Probe;
use leasehold_lab::{Cluster, ClusterPlan, Lab, Node, Report, Service, Track};
use serde_json::{Value, json};
use tokio::time::sleep;

/// How long to wait for what must come: machines may be slow, and the bounds that matter are
/// asserted on what was measured.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The port of the datagrams.
pub const UDP: u16 = 5005;
/// The lease duration that speakers have by default.
pub const LEASE: Duration = Duration::from_secs(5);
/// Longer than after a speaker's start what is given out counts as given out without it.
const AFTER_SPEAKERS: Duration = Duration::from_secs(1);

/// The open connections of a probe.
const LASTING: usize = 5;

/// One cluster with one Service.
pub struct Scene {
    pub service: Service,
    pub vip: IpAddr,
    pub cluster: Cluster,
}

impl Scene {
    /// Three nodes, in the lab that tests share.
    pub async fn open(name: &str) -> Result<Self> {
        Self::of(Lab::shared().await?.cluster(name)).await
    }

    /// In a lab of its own, for what breaks the API server.
    pub async fn alone(name: &str) -> Result<Self> {
        let lab = Lab::start().await?;
        lab.start_operator(&[])?;
        Self::of(lab.cluster(name)).await
    }

    /// Of a cluster that is yet to start.
    pub async fn of(plan: ClusterPlan) -> Result<Self> {
        Self::before(plan, |_| Ok(())).await
    }

    /// The same, with something done to the cluster before any speaker starts.
    pub async fn before(
        plan: ClusterPlan,
        prepare: impl FnOnce(&Cluster) -> Result<()>,
    ) -> Result<Self> {
        let cluster = plan.without_speakers().start().await?;
        prepare(&cluster)?;
        // Before the speakers: a policy that comes later would move what they have taken.
        cluster.pool(0, 29).await?;
        cluster.policy().await?;
        Self::served(cluster).await
    }

    /// In the lab of all, with a service that comes long after the last speaker: none of them has joined since, and
    /// nothing is evened out.
    pub async fn late(name: &str) -> Result<Self> {
        let cluster = Lab::shared().await?.cluster(name).start().await?;
        cluster.pool(0, 29).await?;
        cluster.policy().await?;
        for node in cluster.nodes() {
            let what = format!("the speaker of {} is ready", node.name());
            let ready = async || Ok(node.speaker_http("/readyz").is_ok());
            cluster.eventually(&what, PATIENCE, ready).await?;
        }
        sleep(AFTER_SPEAKERS).await;
        Self::with_service(cluster).await
    }

    /// Of a cluster with a pool, whose speakers are yet to start.
    pub async fn served(cluster: Cluster) -> Result<Self> {
        for node in cluster.nodes() {
            node.start_speaker()?;
        }
        Self::with_service(cluster).await
    }

    /// Of a cluster whose speakers run.
    async fn with_service(cluster: Cluster) -> Result<Self> {
        let service = cluster.service("web").vip(0).create().await?;
        let (vip, _) = cluster.ready(&service).await?;
        Ok(Self { service, vip, cluster })
    }

    pub fn lab(&self) -> &Arc<Lab> {
        self.cluster.lab()
    }

    /// Waits for a condition of this cluster.
    pub async fn until(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.cluster.eventually(what, PATIENCE, condition).await
    }

    /// The node that the claim names.
    pub async fn owner(&self) -> Result<&Node> {
        let owner = self.cluster.owner(&self.service).await?.context("the claim has no holder")?;
        self.cluster.node_named(&owner)
    }

    /// The nodes whose kernels have the VIP.
    pub fn holders(&self) -> Result<Vec<&str>> {
        Ok(self.cluster.holders(self.vip)?.into_iter().map(Node::name).collect())
    }

    /// The claim as it is stored.
    pub async fn claim(&self) -> Result<Lease> {
        self.cluster.claim(&self.service).await?.context("the service has no claim")
    }

    /// A node's session as it is stored.
    pub async fn session(&self, node: &Node) -> Result<Lease> {
        let session = self.cluster.session(node.name()).await?;
        session.with_context(|| format!("{} has no session", node.name()))
    }

    /// Datagrams and ARP requests every 5 ms, and some open connections, for half a second already.
    pub async fn watch(&self) -> Result<Probe> {
        let probe = self.cluster.client().probe(self.vip).udp(UDP).owners();
        let probe = probe.lasting(80, LASTING, Duration::from_millis(100)).start()?;
        sleep(Duration::from_millis(500)).await;
        Ok(probe)
    }

    /// The same with an open TCP connection.
    pub async fn watch_with_connection(&self) -> Result<Probe> {
        let probe = self.cluster.client().probe(self.vip).udp(UDP).connection(80).owners();
        let probe = probe.start()?;
        sleep(Duration::from_millis(500)).await;
        Ok(probe)
    }

    /// Waits until another node owns the VIP, alone, and answers for it.
    pub async fn moved_from(&self, old: &Node) -> Result<&Node> {
        let what = format!("another node than {} owns {} alone", old.name(), self.vip);
        self.until(&what, async || {
            let owner = self.owner().await?;
            Ok(owner.name() != old.name()
                && self.holders()? == [owner.name()]
                && self.service.answers(&self.cluster, self.vip)?)
        })
        .await?;
        self.owner().await
    }

    /// Ends all speakers at once, as an uninstall does, and asserts that no node has an address or a session
    /// afterwards.
    pub async fn all_leave(&self) -> Result<()> {
        let mut ends = Vec::new();
        for node in self.cluster.nodes() {
            ends.push(async move { node.speaker()?.terminate().await });
        }
        for status in futures::future::join_all(ends).await {
            ensure!(status?.success());
        }
        ensure!(self.holders()?.is_empty(), "{:?}", self.holders()?);
        for node in self.cluster.nodes() {
            let holder = self.session(node).await?.spec.and_then(|spec| spec.holder_identity);
            ensure!(holder.unwrap_or_default().is_empty(), "{} has a session", node.name());
        }
        Ok(())
    }

    /// Asserts that nothing has moved: the owner and the number of times that it changed.
    pub async fn not_moved(&self, before: &Lease) -> Result<()> {
        let now = self.claim().await?;
        let (old, new) = (holder_and_transitions(before), holder_and_transitions(&now));
        if old == new {
            return Ok(());
        }
        let dump = self.cluster.dump().await;
        anyhow::bail!("moved from {old:?} to {new:?}\n{dump}")
    }

    /// Ends the probe, says what it saw, and asserts that nothing was felt: not more than one probe
    /// lost, never two owners, no open connection ended.
    pub async fn nothing_was_felt(&self, what: &str, probe: Probe) -> Result<Report> {
        let report = probe.stop().await?;
        say(what, &report)?;
        let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
        // Where other rows flood the machine, its kernel drops a packet now and then.
        if lost > 1 || !two.is_zero() {
            let dump = self.cluster.dump().await;
            anyhow::bail!("{what}: {}; two owners {two:?}\n{dump}", self.story(&report)?);
        }
        none_ended(what, &report)?;
        Ok(report)
    }

    /// Ends the probe of a planned move, and asserts that at most one probe was lost, two owners did not
    /// last, and no open connection ended.
    pub async fn moved_smoothly(&self, what: &str, probe: Probe) -> Result<()> {
        let report = probe.stop().await?;
        say(what, &report)?;
        let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
        // The design allows 200 ms; the rest is the observer's lateness on a busy machine.
        if lost > 1 || two > Duration::from_millis(300) {
            let dump = self.cluster.dump().await;
            anyhow::bail!("{what}: {}; two owners {two:?}\n{dump}", self.story(&report)?);
        }
        none_ended(what, &report)
    }

    /// When who answered ARP, and when datagrams were lost, since the probe began.
    fn story(&self, report: &Report) -> Result<String> {
        use std::fmt::Write as _;
        let udp = report.udp()?;
        let start = udp.started().context("nothing was sent")?;
        let mut text = format!("{udp}");
        for outage in udp.outages() {
            let at = outage.from.duration_since(start).as_secs_f64();
            write!(text, "; at {at:.3} s for {:?}, {} lost", outage.length, outage.lost)?;
        }
        for (at, macs) in report.owners()?.changes() {
            let at = at.saturating_duration_since(start).as_secs_f64();
            let name = |&mac| self.cluster.node_with_mac(mac).map_or("a stranger", Node::name);
            write!(text, "; at {at:.3} s {:?}", macs.iter().map(name).collect::<Vec<_>>())?;
        }
        Ok(text)
    }

    /// Applies the cluster's policy for these nodes only.
    pub async fn policy_for(&self, nodes: &[&Node]) -> Result<()> {
        // An empty list of values is refused, so a name that no node has is always among them.
        let names: Vec<_> = nodes.iter().map(|node| node.name()).chain(["nobody"]).collect();
        let label = leasehold_lab::node::CLUSTER_LABEL;
        self.lab()
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1",
                "kind": "AnnouncementPolicy",
                "metadata": { "name": self.cluster.name() },
                "spec": {
                    "drainOnCordon": true,
                    "serviceSelectors": [{ "matchLabels": { label: self.cluster.name() } }],
                    "nodeSelectors": [{ "matchExpressions": [
                        { "key": "kubernetes.io/hostname", "operator": "In", "values": names },
                    ] }],
                },
            }))
            .await
    }
}

/// Prints what a probe measured.
pub fn say(what: &str, report: &Report) -> Result<()> {
    let (udp, owners) = (report.udp()?, report.owners()?);
    let (two, none) = (owners.two_owners().as_millis(), owners.no_owner().as_millis());
    println!("    {what}: {udp}; two owners {two} ms, none {none} ms");
    Ok(())
}

/// The fields of a policy that name the interfaces that carry addresses.
pub fn interfaces(names: &[&str]) -> Value {
    json!({ "layer2": { "interfaces": names } })
}

/// Cordons a node, or makes it schedulable again.
pub async fn cordon(node: &Node, on: bool) -> Result<()> {
    node.patch(json!({ "spec": { "unschedulable": on } })).await
}

/// The holder of a lease and the number of its transitions.
pub fn holder_and_transitions(lease: &Lease) -> (Option<String>, Option<i32>) {
    let spec = lease.spec.clone().unwrap_or_default();
    (spec.holder_identity, spec.lease_transitions)
}

/// An annotation of a lease.
pub fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    Some(lease.metadata.annotations.as_ref()?.get(name)?.as_str())
}

/// What a Service says of why nobody announces it, if it does.
pub async fn silence(service: &Service) -> Result<Option<Condition>> {
    Ok(announced(service).await?.filter(|condition| condition.status == "False"))
}

/// What a Service says of who announces it.
pub async fn announced(service: &Service) -> Result<Option<Condition>> {
    condition(service, "leasehold.dev/Announced").await
}

/// A condition of a Service.
pub async fn condition(service: &Service, type_: &str) -> Result<Option<Condition>> {
    let status = service.get().await?.status.unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default().into_iter();
    Ok(conditions.find(|condition| condition.type_ == type_))
}

/// Asserts that nothing of a track was lost.
pub fn none_lost(what: &str, track: &Track) -> Result<()> {
    println!("    {what}: {track}");
    ensure!(track.lost() == 0 && track.broken().is_none(), "{what}: {track}");
    Ok(())
}

/// Asserts that no open connection ended.
fn none_ended(what: &str, report: &Report) -> Result<()> {
    let ended: Vec<&str> = report.lasting.iter().filter_map(|track| track.broken()).collect();
    ensure!(ended.is_empty(), "{what}: {} of {LASTING} open connections: {ended:?}", ended.len());
    Ok(())
}

/// A merge patch on a lease.
pub async fn edit_lease(lab: &Lab, namespace: &str, name: &str, patch: Value) -> Result<()> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(lab.admin(), namespace);
    let patch = kube::api::Patch::Merge(patch);
    leases.patch(name, &kube::api::PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes a lease.
pub async fn delete_lease(lab: &Lab, namespace: &str, name: &str) -> Result<()> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(lab.admin(), namespace);
    leases.delete(name, &kube::api::DeleteParams::default()).await?;
    Ok(())
}
