//! A dual-stack Service, and a client that watches both its addresses.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::client::Probe;
use leasehold_lab::{Node, Report, Service};
use tokio::time::sleep;

use crate::scene::{Scene, UDP, annotation, say};

/// A Service with an address of each family.
pub struct Pair<'a> {
    pub scene: &'a Scene,
    pub service: Service,
    pub v4: IpAddr,
    pub v6: IpAddr,
}

impl<'a> Pair<'a> {
    /// Makes the Service, with the VIPs of this number, and waits until it is owned and answers.
    pub async fn open(scene: &'a Scene, number: u8) -> Result<Self> {
        let service = scene.cluster.service("pair").dual_stack().vip(number);
        let service = service.pods_of(&scene.service).create().await?;
        scene.cluster.ready(&service).await?;
        let (v4, v6) = scene.cluster.addresses().vip(number);
        let pair = Self { scene, service, v4: v4.into(), v6: v6.into() };
        pair.settled("it is owned at first", |_| true).await?;
        Ok(pair)
    }

    /// Waits until one node that is `right` owns both addresses, alone, and they answer; returns it
    /// with the name of its interface.
    pub async fn settled(
        &self,
        what: &str,
        right: impl Fn(&Node) -> bool,
    ) -> Result<(&'a Node, String)> {
        let cluster = &self.scene.cluster;
        let mut found = None;
        self.scene
            .until(&format!("{what}: one node owns {} and {}", self.v4, self.v6), async || {
                let claim = cluster.claim(&self.service).await?.context("no claim")?;
                let holder = claim.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let node = cluster.node_named(&holder.context("no holder")?)?;
                let listed = annotation(&claim, "leasehold.dev/interface").map(str::to_owned);
                let mut settled = right(node);
                for vip in [self.v4, self.v6] {
                    let has = node.has_address(vip)?.map(|held| held.interface);
                    let alone = cluster.holders(vip)?.len() == 1;
                    settled &= alone && has.is_some() && has == listed;
                    settled = settled && self.service.answers(cluster, vip)?;
                }
                found = listed.map(|interface| (node, interface));
                Ok(settled)
            })
            .await?;
        found.context("nobody owns it")
    }

    /// Both addresses from now on, and for half a second already.
    pub async fn watch(&self) -> Result<[Probe; 2]> {
        let probe = |vip| self.scene.cluster.client().probe(vip).udp(UDP).owners().start();
        let probes = [probe(self.v4)?, probe(self.v6)?];
        sleep(Duration::from_millis(500)).await;
        Ok(probes)
    }

    /// Ends the probes and says what they saw.
    pub async fn stop(&self, what: &str, [v4, v6]: [Probe; 2]) -> Result<[Report; 2]> {
        let (v4, v6) = futures::try_join!(v4.stop(), v6.stop())?;
        say(&format!("{what}, IPv4"), &v4)?;
        say(&format!("{what}, IPv6"), &v6)?;
        Ok([v4, v6])
    }

    /// The client believes both addresses to be at this MAC address, and nobody else answers.
    pub async fn is_at(&self, mac: &str) -> Result<()> {
        let client = self.scene.cluster.client();
        for vip in [self.v4, self.v6] {
            let known = client.neighbour(vip)?.map(|mac| mac.to_string());
            ensure!(known.as_deref() == Some(mac), "the client has {vip} at {known:?}, not {mac}");
            let macs = client.owners(vip, Duration::from_millis(300)).await?.macs();
            let only = macs.len() == 1 && macs.iter().all(|answers| answers.to_string() == mac);
            ensure!(only, "{vip} is answered for by {macs:?}, not by {mac}");
        }
        Ok(())
    }
}

/// Nothing of either address took longer than this.
pub fn shorter_than(what: &str, most: Duration, reports: &[Report; 2]) -> Result<()> {
    for report in reports {
        let outage = report.udp()?.longest_outage();
        ensure!(outage < most, "{what}: an outage of {outage:?}\n{}", report.udp()?);
    }
    Ok(())
}
