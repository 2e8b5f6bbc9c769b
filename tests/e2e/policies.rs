//! What a policy says of its services, followed when it changes.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use leasehold_lab::{Node, SYSTEM_NAMESPACE};
use serde_json::json;
use tokio::time::sleep;

use crate::scene::{
    PATIENCE, Scene, UDP, annotation, holder_and_transitions, interfaces, say, silence,
};

const AFTERWARDS: Duration = Duration::from_secs(1);

/// The one node that has an address; none while it is nobody's or two have it.
fn holder(scene: &Scene, ip: IpAddr) -> Result<Option<String>> {
    let holders = scene.cluster.holders(ip)?;
    let [holder] = holders.as_slice() else { return Ok(None) };
    Ok(Some(holder.name().to_owned()))
}

pub async fn the_addresses_of_a_service_are_on_different_nodes_where_the_policy_says_so()
-> Result<()> {
    let scene = Scene::open("apart").await?;
    let cluster = &scene.cluster;
    let service = cluster.service("both").dual_stack().vip(1).create().await?;
    cluster.ready(&service).await?;
    let [first, second] = service.addresses().await?[..] else { anyhow::bail!("two addresses") };
    let answered =
        async || anyhow::Ok(service.answers(cluster, first)? && service.answers(cluster, second)?);
    let apart = async |parted: bool| {
        let (one, other) = (holder(&scene, first)?, holder(&scene, second)?);
        Ok(one.is_some() && other.is_some() && (one != other) == parted && answered().await?)
    };
    scene.until("both are on one node", async || apart(false).await).await?;

    // All but the first change their claim, and are nobody's for a moment.
    let watch = async || -> Result<_> {
        let probes = [first, second].map(|ip| cluster.client().probe(ip).udp(UDP).owners().start());
        let [one, other] = probes;
        sleep(Duration::from_millis(500)).await;
        Ok([one?, other?])
    };
    let [steady, moving] = watch().await?;
    cluster.policy_with(json!({ "spread": "PerAddress" })).await?;
    scene.until("they are on different nodes", async || apart(true).await).await?;
    sleep(AFTERWARDS).await;
    let (steady, moving) = (steady.stop().await?, moving.stop().await?);
    say("parted: the first address", &steady)?;
    say("parted: the second address", &moving)?;
    ensure!(steady.udp()?.lost() == 0 && steady.owners()?.two_owners().is_zero());
    ensure!(moving.udp()?.longest_outage() < Duration::from_secs(3), "{}", moving.udp()?);

    // Each has a claim; the death of one owner concerns the other address not at all.
    let leases: Api<Lease> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    let annotations = service.get().await?.metadata.annotations.unwrap_or_default();
    let own = annotations.get("leasehold.dev/address-claims").context("no claim of its own")?;
    let claims = [service.claim(), own.clone()];
    for (name, ip) in claims.iter().zip([first, second]) {
        let lease = leases.get(name).await?;
        let listed = annotation(&lease, "leasehold.dev/addresses").unwrap_or_default();
        ensure!(listed == ip.to_string(), "{name} lists {listed}");
        let (node, _) = holder_and_transitions(&lease);
        ensure!(node == holder(&scene, ip)?, "{name} is held by {node:?}");
    }
    let dead = cluster.node_named(&holder(&scene, second)?.context("nobody has it")?)?;
    let [steady, moving] = watch().await?;
    dead.dies()?;
    dead.speaker()?.kill().await?;
    scene
        .until("another node has the second address", async || {
            let now = holder(&scene, second)?;
            Ok(now.is_some_and(|now| now != dead.name()) && service.answers(cluster, second)?)
        })
        .await?;
    let (steady, moving) = (steady.stop().await?, moving.stop().await?);
    say("the owner of the second address dies: the first", &steady)?;
    say("... the second", &moving)?;
    ensure!(steady.udp()?.lost() == 0 && steady.owners()?.two_owners().is_zero());
    scene.until("they are on different nodes", async || apart(true).await).await?;

    let [steady, moving] = watch().await?;
    cluster.policy_with(json!({ "spread": "PerService" })).await?;
    scene.until("both are on one node", async || apart(false).await).await?;
    scene
        .until("the claim of the address is gone", async || {
            Ok(leases.get_opt(own).await?.is_none())
        })
        .await?;
    let (steady, moving) = (steady.stop().await?, moving.stop().await?);
    say("joined: the first address", &steady)?;
    say("joined: the second address", &moving)?;
    ensure!(steady.udp()?.lost() == 0 && steady.owners()?.two_owners().is_zero());
    ensure!(moving.udp()?.longest_outage() < Duration::from_secs(3), "{}", moving.udp()?);
    Ok(())
}

/// Objects of ours of this kind.
fn custom(scene: &Scene, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("leasehold.dev", "v1alpha1", kind);
    let resource = match kind.kind.as_str() {
        "AnnouncementPolicy" => ApiResource::from_gvk_with_plural(&kind, "announcementpolicies"),
        _ => ApiResource::from_gvk(&kind),
    };
    Api::all_with(scene.lab().admin(), &resource)
}

/// A condition of a policy.
pub async fn condition(scene: &Scene, policy: &str, type_: &str) -> Result<Option<Condition>> {
    let policy = custom(scene, "AnnouncementPolicy").get(policy).await?;
    let conditions = policy.data.pointer("/status/conditions").cloned().unwrap_or_default();
    let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
    Ok(conditions.into_iter().find(|condition| condition.type_ == type_))
}

pub async fn a_policy_follows_the_labels_of_pools_and_says_what_of_it_matches_nothing() -> Result<()>
{
    let scene = Scene::open("labels").await?;
    let pool = scene.service.get().await?.metadata.annotations.unwrap_or_default();
    let pool = pool.get("leasehold.dev/allocated-from").context("from no pool")?.clone();
    let pools = custom(&scene, "IPAddressPool");
    let label = async |zone: &str| -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "zone": zone } } }));
        pools.patch(&pool, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    let effective = async |status: &str, part: &str| {
        let found = condition(&scene, scene.cluster.name(), "Effective").await?;
        Ok(found.is_some_and(|it| it.status == status && it.message.contains(part)))
    };
    scene.until("all of the policy matches", async || effective("True", "").await).await?;

    label("office").await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    let selector = |zone: &str| json!([{ "matchLabels": { "zone": zone } }]);
    let fields = json!({ "ipAddressPoolSelectors": selector("office") });
    scene.cluster.policy_with(fields).await?;
    scene.until("it matches the pool", async || effective("True", "").await).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the pool is selected by its label", probe).await?;
    scene.not_moved(&claim).await?;

    label("home").await?;
    scene.until("nobody has the address", async || Ok(scene.holders()?.is_empty())).await?;
    let nothing = "ipAddressPoolSelectors[0] matches no IPAddressPool";
    scene.until("the policy says so", async || effective("False", nothing).await).await?;
    let none = "the policy governs no Service with an address";
    scene.until("and that", async || effective("False", none).await).await?;

    // By its name it is matched, whatever its labels.
    let fields = json!({
        "ipAddressPools": [pool, "no-such-pool"],
        "nodeSelectors": [
            { "matchLabels": { leasehold_lab::node::CLUSTER_LABEL: scene.cluster.name() } },
            { "matchLabels": { "rack": "nowhere" } },
        ],
    });
    scene.cluster.policy_with(fields).await?;
    let nothing = "IPAddressPool no-such-pool does not exist; nodeSelectors[1] matches no node";
    scene.until("the policy says so", async || effective("False", nothing).await).await?;
    scene
        .until("it is announced again", async || {
            Ok(scene.holders()?.len() == 1 && scene.service.answers(&scene.cluster, scene.vip)?)
        })
        .await
}

pub async fn an_address_goes_to_another_interface_of_its_owner_as_the_policy_says() -> Result<()> {
    let scene = Scene::open("nics").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let on = async |interface: &str| {
        let says = scene.claim().await?;
        let says = annotation(&says, "leasehold.dev/interface").map(str::to_owned);
        let there = link_of(owner, scene.vip)?;
        Ok(says.as_deref() == Some(interface) && there == [interface])
    };
    let probe = scene.watch().await?;
    scene.cluster.policy_with(interfaces(&["bond?", "eth*"])).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("a pattern that matches the interface", probe).await?;
    scene.until("it is on eth0", async || on("eth0").await).await?;

    scene.cluster.policy_with(interfaces(&["mgmt?"])).await?;
    scene.until("it is on mgmt0", async || on("mgmt0").await).await?;
    scene.cluster.policy_with(interfaces(&["eth0"])).await?;
    scene.until("it is on eth0 again", async || on("eth0").await).await?;
    scene.until("it answers", async || scene.service.answers(&scene.cluster, scene.vip)).await?;
    scene.not_moved(&claim).await?;

    scene.cluster.policy_with(interfaces(&["bond*"])).await?;
    scene.until("nobody has it", async || Ok(scene.holders()?.is_empty())).await?;
    scene.cluster.policy_with(json!({})).await?;
    scene.until("it answers", async || scene.service.answers(&scene.cluster, scene.vip)).await
}

/// The links of a node that have an address.
pub fn link_of(node: &Node, ip: IpAddr) -> Result<Vec<String>> {
    let output = node.namespace().command("ip").args(["-brief", "address", "show"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let has = |line: &&str| line.split_whitespace().any(|word| word == format!("{ip}/32"));
    let name = |line: &str| line.split(['@', ' ']).next().unwrap_or_default().to_owned();
    Ok(text.lines().filter(has).map(name).collect())
}

pub async fn an_address_is_announced_as_often_as_the_policy_says() -> Result<()> {
    let scene = Scene::open("refresh").await?;
    let owner = scene.owner().await?;
    let client = scene.cluster.client().namespace();
    // The burst of the first ownership is over.
    sleep(Duration::from_secs(4)).await;
    let vip = scene.vip;
    let forget = || {
        // As a switch, or a neighbour, that has it wrong.
        client.ip(&format!("neigh replace {vip} lladdr 02:00:00:00:00:99 nud stale dev eth0\n"))
    };
    let right = || -> Result<bool> {
        let output = client.command("ip").args(["neigh", "show", &vip.to_string()]).output()?;
        Ok(String::from_utf8(output.stdout)?.contains(&owner.mac()))
    };
    forget()?;
    sleep(Duration::from_secs(3)).await;
    ensure!(!right()?, "announced although a minute is not over");
    let often = json!({ "burst": 1, "refreshInterval": "1s" });
    let fields = json!({ "layer2": { "announcements": often } });
    scene.cluster.policy_with(fields).await?;
    scene.cluster.eventually("it is announced each second", PATIENCE, async || right()).await?;
    for _ in 0..3 {
        forget()?;
        scene.cluster.eventually("it is announced again", PATIENCE, async || right()).await?;
    }
    Ok(())
}

/// A further policy of these services and nodes.
async fn further_policy(scene: &Scene, name: &str, spec: serde_json::Value) -> Result<()> {
    let own =
        json!([{ "matchLabels": { leasehold_lab::node::CLUSTER_LABEL: scene.cluster.name() } }]);
    let mut all = json!({ "serviceSelectors": own, "nodeSelectors": own });
    if let (Some(all), serde_json::Value::Object(spec)) = (all.as_object_mut(), spec) {
        all.extend(spec);
    }
    scene
        .lab()
        .apply(json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "AnnouncementPolicy",
            "metadata": { "name": name },
            "spec": all,
        }))
        .await
}

pub async fn what_a_deleted_policy_governed_goes_to_the_next_one_and_then_to_nobody() -> Result<()>
{
    let scene = Scene::open("unruled").await?;
    let policies = custom(&scene, "AnnouncementPolicy");
    let [first, second] = ["unruled-first", "unruled-second"];
    let owner = scene.owner().await?;
    let other = scene.cluster.nodes().iter().find(|node| node.name() != owner.name());
    let other = other.context("no other node")?;
    let only = |node: &Node| {
        json!([{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": [node.name()] },
        ] }])
    };
    further_policy(&scene, first, json!({ "priority": 1, "nodeSelectors": only(owner) })).await?;
    further_policy(&scene, second, json!({ "priority": 2, "nodeSelectors": only(other) })).await?;
    let governs = async |name: &str, services: i64| {
        let policy = policies.get(name).await?;
        Ok(policy.data.pointer("/status/services").and_then(serde_json::Value::as_i64)
            == Some(services))
    };
    scene.until("the first one governs", async || governs(first, 1).await).await?;
    let claim = scene.claim().await?;
    scene.not_moved(&claim).await?;

    // The next one wants another node: the address moves there, and nothing is lost.
    let probe = scene.watch().await?;
    policies.delete(first, &kube::api::DeleteParams::default()).await?;
    let now = scene.moved_from(owner).await?;
    ensure!(now.name() == other.name(), "{} has it", now.name());
    scene.moved_smoothly("its policy is deleted, the next one wants another node", probe).await?;
    scene.until("the second one governs", async || governs(second, 1).await).await?;

    // The last one of this cluster agrees with where it is: nothing moves.
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    policies.delete(second, &kube::api::DeleteParams::default()).await?;
    let own = scene.cluster.name();
    scene.until("the cluster's policy governs", async || governs(own, 1).await).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("its policy is deleted, the next one agrees", probe).await?;
    scene.not_moved(&claim).await?;

    policies.delete(own, &kube::api::DeleteParams::default()).await?;
    scene.until("nobody has it", async || Ok(scene.holders()?.is_empty())).await?;
    scene
        .until("the service says why", async || {
            let says = silence(&scene.service).await?;
            Ok(says.is_some_and(|it| it.status == "False" && it.reason == "NoPolicy"))
        })
        .await?;
    scene.cluster.policy().await?;
    scene.until("it answers", async || scene.service.answers(&scene.cluster, scene.vip)).await
}
