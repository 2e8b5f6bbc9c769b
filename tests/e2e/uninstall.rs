//! Leasehold goes: what it changed on a node goes with it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use leasehold_lab::{Lab, Node, SYSTEM_NAMESPACE, binaries, eventually};
use serde_json::json;
use tokio::time::sleep;

use crate::scene::Scene;

/// How long the operator may take.
const PATIENCE: Duration = Duration::from_secs(30);

const NAME: &str = "leasehold-speaker";

fn arp(node: &Node) -> Result<[String; 2]> {
    let read = |setting: &str| -> Result<String> {
        let path = format!("/proc/sys/net/ipv4/conf/eth0/{setting}");
        let output = node.namespace().command("cat").arg(path).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    Ok([read("arp_ignore")?, read("arp_announce")?])
}

fn has_table(node: &Node) -> Result<bool> {
    let output = node.namespace().command("nft").args(["list", "tables"]).output()?;
    Ok(String::from_utf8(output.stdout)?.contains(" leasehold"))
}

/// A `DaemonSet` as `deploy/base` has it; nothing in the lab makes pods of it.
pub async fn daemon_sets(scene: &Scene) -> Result<Api<DaemonSet>> {
    let daemon_sets: Api<DaemonSet> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    let labels = json!({ "app": NAME });
    let object = serde_json::from_value(json!({
        "metadata": { "name": NAME },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "speaker", "image": "speaker" }] },
            },
        },
    }))?;
    daemon_sets.create(&PostParams::default(), &object).await?;
    Ok(daemon_sets)
}

/// The name of the pod that a node's speaker says it runs in.
fn pod_of(node: &Node) -> String {
    format!("{NAME}-{}", node.name())
}

/// The pod of a node's speaker, with a deletion under way: no kubelet confirms it in the lab.
async fn pod_is_replaced(scene: &Scene, node: &Node) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    let object = serde_json::from_value(json!({
        "metadata": { "name": pod_of(node) },
        "spec": {
            "nodeName": node.name(),
            "serviceAccountName": NAME,
            "containers": [{ "name": "speaker", "image": "speaker" }],
        },
    }))?;
    pods.create(&PostParams::default(), &object).await?;
    pods.delete(&pod_of(node), &DeleteParams::default()).await?;
    let going = pods.get_metadata(&pod_of(node)).await?.metadata.deletion_timestamp;
    ensure!(going.is_some(), "the pod is not being deleted");
    Ok(())
}

pub async fn what_was_changed_on_a_node_is_undone_when_leasehold_goes_and_not_in_an_upgrade()
-> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let scene = Scene::before(lab.cluster("gone"), |cluster| {
        for node in cluster.nodes() {
            node.namespace().sysctl(&[("net.ipv4.conf.eth0.arp_announce", "1")])?;
            node.speaker()?.reconfigure(|options| {
                let (daemon_set, pod) = (NAME.to_owned(), pod_of(node));
                options.arguments.extend(["--daemon-set".to_owned(), daemon_set]);
                options.arguments.extend(["--pod-name".to_owned(), pod]);
            });
        }
        Ok(())
    })
    .await?;
    let daemon_sets = daemon_sets(&scene).await?;
    let owner = scene.owner().await?;
    let confined = ["1".to_owned(), "2".to_owned()];
    ensure!(arp(owner)? == confined && has_table(owner)?, "{:?}", arp(owner)?);

    // An upgrade: its pod is deleted, and another process follows.
    let claim = scene.claim().await?;
    pod_is_replaced(&scene, owner).await?;
    let probe = scene.watch().await?;
    ensure!(owner.speaker()?.terminate().await?.success());
    ensure!(arp(owner)? == confined && has_table(owner)?, "{:?}", arp(owner)?);
    let stays = scene.session(owner).await?.spec.and_then(|spec| spec.lease_duration_seconds);
    ensure!(stays == Some(30), "the session lasts {stays:?} s while a pod is replaced");
    let left = owner.has_address(scene.vip)?.and_then(|address| address.valid_seconds);
    ensure!(left.is_some_and(|left| (25..=31).contains(&left)), "the address has {left:?} s left");
    owner.start_speaker()?;
    sleep(Duration::from_secs(3)).await;
    scene.nothing_was_felt("an upgrade", probe).await?;
    scene.not_moved(&claim).await?;

    // `kubectl delete`: all are asked to end at once.
    daemon_sets.delete(NAME, &DeleteParams::default()).await?;
    scene.all_leave().await?;
    for node in scene.cluster.nodes() {
        let settings = arp(node)?;
        ensure!(settings == ["0", "1"], "{}: {settings:?}", node.name());
        ensure!(!has_table(node)?, "{} still has the table", node.name());
    }
    Ok(())
}

/// What `free-addresses` says, and whether it did all of it.
fn free(lab: &Lab) -> Result<(bool, String)> {
    let mut command = Command::new(binaries::operator()?);
    command.arg("free-addresses").arg("--kubeconfig").arg(lab.plane().kubeconfig("admin"));
    let output = command.output()?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    Ok((output.status.success(), text))
}

pub async fn addresses_stay_after_an_uninstall_until_they_are_freed() -> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&["--default-class"])?;
    let kubectl = |arguments: &[&str]| lab.plane().kubectl(arguments);
    let status = |name: &str| {
        kubectl(&["get", "service", name, "-o", "jsonpath={.metadata.annotations}{.status}"])
    };
    lab.apply_yaml(
        "{apiVersion: leasehold.dev/v1alpha1, kind: IPAddressPool, metadata: {name: lan}, \
         spec: {addresses: [192.0.2.0/29]}}",
    )
    .await?;
    for name in ["one", "two"] {
        kubectl(&["create", "service", "loadbalancer", name, "--tcp=80"])?;
    }
    for name in ["one", "two"] {
        // Its condition comes last: from then on nothing changes.
        let what = format!("{name} has an address, and nobody announces it");
        let given = async || {
            let status = status(name)?;
            Ok(status.contains("192.0.2.") && status.contains("leasehold.dev/Announced"))
        };
        eventually(&what, PATIENCE, given, async || status(name).unwrap_or_default()).await?;
    }
    // Another load balancer's Service.
    kubectl(&["create", "service", "clusterip", "other", "--tcp=80"])?;
    let theirs = r#"{"spec":{"type":"LoadBalancer","loadBalancerClass":"example.com/other"}}"#;
    kubectl(&["patch", "service", "other", "-p", theirs])?;
    let theirs = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7"}]}}}"#;
    kubectl(&["patch", "service", "other", "--subresource=status", "-p", theirs])?;
    let (other, one) = (status("other")?, status("one")?);

    let (done, said) = free(&lab)?;
    ensure!(!done && said.contains("is active") && said.contains("--replicas=0"), "{said}");
    ensure!(status("one")? == one, "it was freed while the operator was active");

    // Killed: its lease names it still.
    lab.operator()?.process().kill().await?;
    ensure!(status("one")? == one, "{}", status("one")?);
    let (done, said) = free(&lab)?;
    ensure!(
        done && said.contains("default/one: 192.0.2.") && said.contains("Services freed: 2"),
        "{said}"
    );
    for name in ["one", "two"] {
        let left = status(name)?;
        ensure!(!left.contains("leasehold.dev") && !left.contains("192.0.2."), "{left}");
    }
    ensure!(status("other")? == other, "{}", status("other")?);
    let (done, said) = free(&lab)?;
    ensure!(done && said.contains("Services freed: 0"), "{said}");
    Ok(())
}
