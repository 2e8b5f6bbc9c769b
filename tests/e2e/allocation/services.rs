//! What a Service gets, keeps and gives back.

use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use leasehold_lab::Lab;
use serde_json::json;

use super::{ALLOCATED_FROM, CLAIM, SOON, Turn, addresses, annotation, condition, versions};

pub async fn a_service_gets_its_address_and_the_claim_that_governs_it_in_one_write() -> Result<()> {
    let turn = Turn::take("one-write").await?;
    turn.pool("lan", &["192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20"]).await?;
    let mut versions = pin!(turn.versions().await?);
    turn.plain("web").await?;
    turn.has("web", &["192.0.2.10"]).await?;
    turn.service("both", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    turn.has("both", &["192.0.2.11", "2001:db8::10"]).await?;
    let mut seen = 0;
    while seen < 2 {
        let service = versions.try_next().await?.context("the watch ended")?;
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

pub async fn an_address_survives_its_pool_and_without_a_write_the_operator() -> Result<()> {
    let turn = Turn::take("survives").await?;
    turn.pool("lan", &["192.0.2.0/30"]).await?;
    for (name, address) in [("first", "192.0.2.0"), ("second", "192.0.2.1"), ("third", "192.0.2.2")]
    {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    turn.delete("first").await?;
    turn.until("its claim goes", async || Ok(turn.lease("survives.first").await?.is_none()))
        .await?;
    let names = ["second", "third"];
    let before = versions(&turn, &names).await?;

    turn.restart_operator().await?;
    turn.plain("fourth").await?;
    turn.has("fourth", &["192.0.2.0"]).await?;
    ensure!(versions(&turn, &names).await? == before, "a restart writes");

    turn.pool("lan", &["198.51.100.0/30"]).await?;
    turn.plain("fifth").await?;
    turn.has("fifth", &["198.51.100.0"]).await?;
    turn.delete_pool("lan")?;
    turn.plain("sixth").await?;
    turn.fails("sixth", "NoPool", "create one").await?;
    turn.pool("again", &["203.0.113.0/30"]).await?;
    turn.has("sixth", &["203.0.113.0"]).await?;
    for (name, address) in
        [("second", "192.0.2.1"), ("third", "192.0.2.2"), ("fourth", "192.0.2.0")]
    {
        turn.has(name, &[address]).await?;
    }
    Ok(())
}

pub async fn an_address_is_free_after_deletion_and_after_a_change_of_type() -> Result<()> {
    let turn = Turn::take("freed").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    turn.plain("one").await?;
    turn.has("one", &["192.0.2.7"]).await?;
    turn.plain("two").await?;
    turn.fails("two", "PoolExhausted", "no free IPv4 address in pool lan").await?;
    turn.delete("one").await?;
    turn.has("two", &["192.0.2.7"]).await?;

    turn.plain("three").await?;
    turn.merge("two", json!({"spec": {"type": "ClusterIP"}})).await?;
    turn.has("three", &["192.0.2.7"]).await?;
    let what = "a Service that is no load balancer bears no mark of ours";
    turn.until(what, async || {
        let two = turn.get("two").await?;
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

pub async fn a_service_that_changes_type_and_class_changes_hands() -> Result<()> {
    let turn = Turn::take("hands").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    let into = |type_: &str, class: Option<&str>| json!({"spec": {"type": type_, "loadBalancerClass": class}});
    turn.service("web", json!({}), json!({"loadBalancerClass": "leasehold.dev/lease"})).await?;
    turn.has("web", &["192.0.2.7"]).await?;
    turn.plain("next").await?;
    turn.fails("next", "PoolExhausted", "pool lan").await?;

    // A class stays as long as the type does.
    turn.merge("web", into("NodePort", None)).await?;
    turn.merge("web", into("LoadBalancer", Some("example.com/other"))).await?;
    turn.has("next", &["192.0.2.7"]).await?;
    // The API server takes the address away by itself; what else is ours goes by a write.
    turn.until("it bears no mark of ours", async || {
        let web = turn.get("web").await?;
        Ok(annotation(&web, CLAIM).is_none() && condition(&web).is_null())
    })
    .await?;
    turn.forge("web", "203.0.113.9").await?;
    let before = versions(&turn, &["web"]).await?;
    turn.delete("next").await?;
    turn.plain("another").await?;
    turn.has("another", &["192.0.2.7"]).await?;
    ensure!(versions(&turn, &["web"]).await? == before, "wrote to the Service of another");

    turn.merge("web", into("ClusterIP", None)).await?;
    turn.merge("web", into("LoadBalancer", None)).await?;
    turn.fails("web", "PoolExhausted", "pool lan").await?;
    turn.delete("another").await?;
    turn.has("web", &["192.0.2.7"]).await
}

pub async fn a_service_without_node_ports_gets_its_address() -> Result<()> {
    let turn = Turn::take("node-ports").await?;
    turn.pool("lan", &["192.0.2.0/30"]).await?;
    let local = json!({"allocateLoadBalancerNodePorts": false, "externalTrafficPolicy": "Local"});
    for (name, spec, address) in [
        ("cluster", json!({"allocateLoadBalancerNodePorts": false}), "192.0.2.0"),
        ("local", local, "192.0.2.1"),
    ] {
        turn.service(name, json!({}), spec).await?;
        turn.has(name, &[address]).await?;
        let ports = turn.get(name).await?.spec.and_then(|spec| spec.ports).unwrap_or_default();
        ensure!(ports.len() == 1 && ports[0].node_port.is_none(), "{name} has {ports:?}");
    }
    Ok(())
}

pub async fn a_service_that_is_being_deleted_gets_nothing_and_holds_nothing_back() -> Result<()> {
    let turn = Turn::take("leaving").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    turn.plain("holder").await?;
    turn.has("holder", &["192.0.2.7"]).await?;
    for name in ["a-pending", "b-pending", "c-pending"] {
        turn.plain(name).await?;
        turn.fails(name, "PoolExhausted", "pool lan").await?;
    }
    // One goes at once, the other as slowly as somebody else wants.
    turn.delete("a-pending").await?;
    turn.merge("b-pending", json!({"metadata": {"finalizers": ["example.com/slow"]}})).await?;
    turn.delete("b-pending").await?;
    turn.merge("holder", json!({"metadata": {"finalizers": ["example.com/slow"]}})).await?;
    turn.delete("holder").await?;
    turn.has("c-pending", &["192.0.2.7"]).await?;
    for name in ["holder", "b-pending"] {
        let service = turn.get(name).await?;
        ensure!(addresses(&service).is_empty(), "{name} has an address: {service:?}");
        ensure!(annotation(&service, CLAIM).is_none(), "{name} has a claim: {service:?}");
        turn.merge(name, json!({"metadata": {"finalizers": null}})).await?;
    }
    Ok(())
}
