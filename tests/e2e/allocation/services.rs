//! What a Service gets, keeps and gives back.

use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::api::WatchParams;
use kube::core::WatchEvent;
use leasehold_lab::Lab;
use serde_json::json;

use super::{ALLOCATED_FROM, CLAIM, SOON, Turn, addresses, annotation, condition, versions};

pub async fn a_service_gets_its_address_and_the_claim_that_governs_it_in_one_write() -> Result<()> {
    let turn = Turn::take("one-write").await?;
    turn.pool("lan", &["192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20"]).await?;
    let services = turn.services();
    let params = WatchParams::default().timeout(10);
    let mut versions = pin!(services.watch(&params, "0").await?.boxed());
    turn.plain("web").await?;
    turn.has("web", &["192.0.2.10"]).await?;
    turn.service("both", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    turn.has("both", &["192.0.2.11", "2001:db8::10"]).await?;
    let mut seen = 0;
    while seen < 2 {
        let event = versions.next().await.context("the watch ended")??;
        let (WatchEvent::Added(service) | WatchEvent::Modified(service)) = event else { continue };
        let name = service.metadata.name.clone().unwrap_or_default();
        let has_claim = annotation(&service, CLAIM) == Some(&format!("one-write.{name}"));
        let has_pool = annotation(&service, ALLOCATED_FROM) == Some("lan");
        let has_address = !addresses(&service).is_empty();
        ensure!(has_claim == has_address && has_pool == has_address, "half a write: {service:?}");
        ensure!((condition(&service)["status"] == "True") == has_address);
        seen += usize::from(has_address);
    }
    turn.event("web", "Normal", "AddressAssigned", "192.0.2.10 from pool lan").await
}

pub async fn an_address_survives_the_operator_and_its_pool_and_nothing_is_written_again()
-> Result<()> {
    let turn = Turn::take("survives").await?;
    turn.pool("lan", &["192.0.2.0/30"]).await?;
    for (name, address) in [("first", "192.0.2.0"), ("second", "192.0.2.1"), ("third", "192.0.2.2")]
    {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    turn.delete("first").await?;
    let names = ["second", "third"];
    let before = versions(&turn, &names).await?;

    turn.lab.operator()?.terminate().await?;
    turn.lab.start_operator(&["--default-class"])?;
    turn.plain("fourth").await?;
    turn.has("fourth", &["192.0.2.0"]).await?;
    ensure!(versions(&turn, &names).await? == before, "a restart writes");

    turn.pool("lan", &["198.51.100.0/30"]).await?;
    turn.plain("fifth").await?;
    turn.has("fifth", &["198.51.100.0"]).await?;
    turn.lab.plane().kubectl(&["delete", "ipaddresspool", "lan"])?;
    turn.plain("sixth").await?;
    turn.fails("sixth", "NoPool", "create one").await?;
    turn.pool("again", &["203.0.113.0/30"]).await?;
    turn.has("sixth", &["203.0.113.0"]).await?;
    ensure!(versions(&turn, &names).await? == before, "the edit of a pool writes");
    ensure!(turn.addresses("fourth").await? == ["192.0.2.0"]);
    Ok(())
}

pub async fn an_address_is_free_after_deletion_and_after_a_change_of_type() -> Result<()> {
    let turn = Turn::take("freed").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    turn.plain("one").await?;
    turn.has("one", &["192.0.2.7"]).await?;
    turn.plain("two").await?;
    turn.fails("two", "PoolExhausted", "no IPv4 address is free in pool lan").await?;
    turn.delete("one").await?;
    turn.has("two", &["192.0.2.7"]).await?;

    turn.plain("three").await?;
    turn.merge("two", json!({"spec": {"type": "ClusterIP"}})).await?;
    turn.has("three", &["192.0.2.7"]).await?;
    let what = "a Service that is no load balancer bears no mark of ours";
    turn.lab
        .eventually(what, SOON, async || {
            let two = turn.services().get("two").await?;
            let marks = [annotation(&two, CLAIM), annotation(&two, ALLOCATED_FROM)];
            Ok(marks == [None, None] && condition(&two).is_null() && addresses(&two).is_empty())
        })
        .await?;
    turn.merge("two", json!({"spec": {"type": "LoadBalancer"}})).await?;
    turn.fails("two", "PoolExhausted", "192.0.2.7").await.err().context("not its message")?;
    turn.fails("two", "PoolExhausted", "pool lan").await
}

pub async fn services_of_other_classes_are_left_alone_and_their_addresses_are_not_given_out()
-> Result<()> {
    let turn = Turn::take("classes").await?;
    turn.pool("lan", &["192.0.2.0/31"]).await?;
    turn.service("theirs", json!({}), json!({"loadBalancerClass": "example.com/other"})).await?;
    turn.forge("theirs", "192.0.2.0").await?;
    let before = versions(&turn, &["theirs"]).await?;
    turn.service("ours", json!({}), json!({"loadBalancerClass": "leasehold.dev/lease"})).await?;
    turn.has("ours", &["192.0.2.1"]).await?;
    turn.plain("waits").await?;
    turn.fails("waits", "PoolExhausted", "pool lan").await?;
    ensure!(versions(&turn, &["theirs"]).await? == before, "wrote to the Service of another");
    Ok(())
}

pub async fn without_the_default_class_only_services_that_name_it_are_served() -> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/30"]},
    });
    lab.apply(pool).await?;
    let service = |name: &str, class: serde_json::Value| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": class},
        })
    };
    lab.apply(service("classless", json!(null))).await?;
    lab.apply(service("named", json!("leasehold.dev/lease"))).await?;
    let services: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::namespaced(lab.admin(), "default");
    lab.eventually("the Service that names the class is served", SOON, async || {
        Ok(addresses(&services.get("named").await?) == ["192.0.2.0"])
    })
    .await?;
    let classless = services.get("classless").await?;
    ensure!(addresses(&classless).is_empty() && condition(&classless).is_null(), "{classless:?}");
    Ok(())
}

pub async fn a_status_written_by_hand_takes_nothing_from_anybody() -> Result<()> {
    let turn = Turn::take("forged").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.plain("older").await?;
    turn.has("older", &["192.0.2.0"]).await?;
    turn.plain("younger").await?;
    turn.has("younger", &["192.0.2.1"]).await?;

    turn.forge("older", "192.0.2.1").await?;
    turn.has("older", &["192.0.2.0"]).await?;
    turn.forge("younger", "172.16.0.1").await?;
    turn.has("younger", &["192.0.2.1"]).await?;
    turn.event("younger", "Normal", "AddressAssigned", "instead of 172.16.0.1").await?;

    // A free address of a pool is as good as any.
    turn.forge("older", "192.0.2.5").await?;
    let what = "the address that somebody chose is governed by a claim again";
    turn.lab
        .eventually(what, SOON, async || {
            let older = turn.services().get("older").await?;
            let message = condition(&older)["message"].clone();
            Ok(addresses(&older) == ["192.0.2.5"] && message == "192.0.2.5 from pool lan")
        })
        .await
}
