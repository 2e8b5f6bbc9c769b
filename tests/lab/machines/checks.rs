//! What users expect of a cluster with Leasehold: of each test of it, and of each version of Kubernetes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ground::{Ground, NAMESPACE, WEB};
use super::web;
use crate::{SYSTEM_NAMESPACE, repository};

/// A Service with the pods of [`WEB`], and `externalTrafficPolicy: Local`.
const LOCAL: &str = "web-local";
/// Far more than the 0.13 s that it takes: other tests measure that.
const REPLACED: Duration = Duration::from_secs(3);

impl Ground {
    /// Gives the Service an address of each family (IPv4 first), and waits until a pod answers by both.
    pub async fn answers_over_both_families(&self) -> Result<[IpAddr; 2]> {
        self.dual_stack(WEB, json!({})).await
    }

    /// A Service with `externalTrafficPolicy: Local` shows its pods the address of the client, in both families.
    pub async fn keeps_the_address_of_clients(&self) -> Result<()> {
        let vips = self.dual_stack(LOCAL, json!({ "externalTrafficPolicy": "Local" })).await?;
        let client = self.machines.client();
        for (vip, own) in vips.into_iter().zip(client.addresses()) {
            let seen = client.get(vip, 80, "/clientip")?;
            let seen = seen.trim().parse::<std::net::SocketAddr>().context(seen)?.ip();
            ensure!(seen == own, "by {vip}, a pod sees {seen} and not {own}");
        }
        Ok(())
    }

    /// Applies a Service of both families with the pods of [`WEB`].
    async fn dual_stack(&self, name: &str, more: Value) -> Result<[IpAddr; 2]> {
        let [mut service, _] = web(NAMESPACE, WEB);
        *service.pointer_mut("/metadata/name").context("no name")? = json!(name);
        let spec = service.get_mut("spec").and_then(Value::as_object_mut).context("no spec")?;
        spec.insert("ipFamilyPolicy".to_owned(), json!("RequireDualStack"));
        spec.extend(more.as_object().cloned().unwrap_or_default());
        self.machines.lab().apply(service).await?;
        let mut both = None;
        let what = format!("{name} answers by an address of each family");
        self.machines
            .eventually(&what, async || {
                let all = self.machines.service_addresses(NAMESPACE, name).await?;
                let of = |four: bool| all.iter().copied().find(|ip| ip.is_ipv4() == four);
                let (Some(v4), Some(v6)) = (of(true), of(false)) else { return Ok(false) };
                let answers = |vip| self.machines.client().get(vip, 80, "/hostname").is_ok();
                both = (answers(v4) && answers(v6)).then_some([v4, v6]);
                Ok(both.is_some())
            })
            .await?;
        both.context(what)
    }

    /// New speakers and operators, under 200 new connections a second: none fails, an open one lasts, and the address
    /// does not move.
    pub async fn rolls_out(&self) -> Result<()> {
        let owner = self.owner().await?;
        let probe = self.watch().await?;
        self.machines.roll_out().await?;
        let report = self.nothing_failed("rolled out", probe).await?;
        ensure!(report.connection()?.broken().is_none(), "{}", report.connection()?);
        let now = self.owner().await?;
        ensure!(now.name() == owner.name(), "moved from {} to {}", owner.name(), now.name());
        Ok(())
    }

    /// A drain of the owner that heeds a disruption budget, under 200 new connections a second: none fails.
    pub async fn drains(&self) -> Result<()> {
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": WEB, "namespace": NAMESPACE },
            "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": WEB } } },
        });
        self.machines.lab().apply(budget).await?;
        let owner = self.owner().await?;
        let probe = self.watch().await?;
        let drain = ["drain", owner.name(), "--ignore-daemonsets", "--timeout=120s"];
        println!("{}", self.machines.kubectl(&drain)?);
        self.machines.deployed(NAMESPACE, WEB).await?;
        let report = self.nothing_failed("drained", probe).await?;
        // Both answer while one hands over to the other.
        let both = report.owners()?.two_owners();
        ensure!(both.as_millis() < 250, "two owners for {both:?}");
        for pod in self.machines.pods(NAMESPACE, "app=web").await? {
            let node = pod.spec.and_then(|spec| spec.node_name);
            ensure!(node.as_deref() != Some(owner.name()), "a pod is on {}", owner.name());
        }
        self.machines.kubectl(&["uncordon", owner.name()]).map(|_| ())
    }

    /// Another machine answers once the owner has no power, and the owner that comes back has nothing of the address.
    pub async fn replaces_an_owner_without_power(&self) -> Result<()> {
        let owner = self.owner().await?;
        let probe = self.watch().await?;
        let cut = Instant::now();
        owner.power_off()?;
        self.moved_from(owner).await?;
        sleep(Duration::from_secs(2)).await;
        owner.power_on().await?;
        self.machines.node_ready(owner).await?;
        self.machines.speaks(owner).await?;
        self.machines.installed().await?;
        ensure!(!owner.has_address(self.vip)?, "{} has the address again", owner.name());
        let report = probe.stop().await?;
        let track = report.tcp()?;
        println!("    power cut: {track}");
        let first = track.answered_again_since(cut).unwrap_or(Duration::MAX);
        ensure!(first < REPLACED, "a connection by the new owner after {first:?}");
        ensure!(report.owners()?.two_owners().is_zero(), "{:?}", report.owners()?.two_owners());
        Ok(())
    }

    /// Deletes what was installed, and waits until no machine that is on has an address of a Service; returns these
    /// addresses.
    pub async fn uninstalls(&self) -> Result<Vec<IpAddr>> {
        let mut vips = self.machines.service_addresses(NAMESPACE, WEB).await?;
        // Not each test has it.
        vips.extend(self.machines.service_addresses(NAMESPACE, LOCAL).await.unwrap_or_default());
        ensure!(vips.contains(&self.vip), "{WEB} has lost its address {}", self.vip);
        let deploy = repository().join("deploy");
        // Objects whose pods are on a dead node wait for it: a user asks not to wait.
        let deploy = deploy.to_string_lossy();
        self.machines.kubectl(&["delete", "--wait=false", "-k", &deploy])?;
        let gone = async || Ok(self.holders(&vips)?.is_empty());
        self.machines.eventually("no machine has the addresses", gone).await?;
        Ok(vips)
    }

    /// Waits until the namespace of what was deleted is gone; no machine has one of these addresses then.
    pub async fn leaves_nothing(&self, vips: &[IpAddr]) -> Result<()> {
        self.machines
            .eventually("the namespace is gone", async || {
                let all = self.machines.kubectl(&["get", "namespaces", "-o", "name"])?;
                Ok(!all.contains(SYSTEM_NAMESPACE))
            })
            .await?;
        let holders = self.holders(vips)?;
        ensure!(holders.is_empty(), "addresses are on {}", holders.join(", "));
        Ok(())
    }

    /// The machines that have one of these addresses.
    fn holders(&self, vips: &[IpAddr]) -> Result<Vec<&str>> {
        let all: Result<Vec<_>> = vips.iter().map(|vip| self.machines.holders(*vip)).collect();
        Ok(all?.concat())
    }
}
