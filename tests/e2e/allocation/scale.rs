//! Many services at once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, ResourceExt};
use leasehold_lab::Lab;
use serde_json::json;
use tokio::time::timeout;

use super::addresses;

const COUNT: usize = 1000;
/// What is promised on an idle machine is 5 s; tests share theirs.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn a_thousand_services_that_wait_for_a_pool_are_served_at_once() -> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&["--default-class"])?;
    let services: Api<Service> = Api::namespaced(lab.admin(), "default");
    let create = async |number: usize| -> Result<()> {
        let service = serde_json::from_value(json!({
            "metadata": {"name": format!("web-{number}")},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }))?;
        services.create(&PostParams::default(), &service).await?;
        Ok(())
    };
    stream::iter(0..COUNT).map(create).buffer_unordered(16).try_collect::<()>().await?;
    let waiting = async || -> Result<Option<String>> {
        let list = services.list(&ListParams::default()).await?;
        let told = |service: &&Service| !super::condition(service).is_null();
        let count = list.items.iter().filter(told).count();
        Ok(list.metadata.resource_version.filter(|_| count == COUNT))
    };
    let mut from = None;
    lab.eventually("all are told that there is no pool", PATIENCE * 2, async || {
        // A look costs the API server as much as some allocations.
        tokio::time::sleep(Duration::from_millis(500)).await;
        from = waiting().await?;
        Ok(from.is_some())
    })
    .await?;

    let params = WatchParams::default().timeout(120);
    let mut changes = pin!(services.watch(&params, &from.context("no version")?).await?);
    let begin = Instant::now();
    lab.apply(json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0-192.0.2.255", "10.0.0.0/20"]},
    }))
    .await?;
    let (mut served, mut given) = (BTreeSet::new(), BTreeSet::new());
    let all = async {
        while served.len() < COUNT {
            let event = changes.try_next().await?.context("the watch ended")?;
            let WatchEvent::Modified(service) = event else { continue };
            if let [address] = addresses(&service).as_slice()
                && served.insert(service.name_any())
            {
                ensure!(given.insert(address.clone()), "{address} was given twice");
            }
        }
        Ok(begin.elapsed())
    };
    let took = timeout(PATIENCE, all).await.context("not all were served")??;
    println!("    {COUNT} services that waited for one pool are served after {took:?}");
    Ok(())
}
