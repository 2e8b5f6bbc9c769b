//! `NetworkPolicies`, which kube-router enforces.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use leasehold_lab::machines::{AGNHOST, Ground, Machines, MachinesPlan, NAMESPACE, WEB, web};
use leasehold_lab::{SYSTEM_NAMESPACE, repository};
use serde_json::{Value, json};

/// A pod that asks.
const ASKER: &str = "asker";
/// A Service that is new.
const NEW: &str = "new";

pub async fn the_operator_works_under_default_deny_with_the_policy_of_the_manifests() -> Result<()>
{
    let ground = ground("deny").await?;
    for namespace in [NAMESPACE, SYSTEM_NAMESPACE] {
        ask_from(&ground, namespace).await?;
    }
    let label = "app.kubernetes.io/component=operator";
    let pods = ground.machines.pods(SYSTEM_NAMESPACE, label).await?;
    let operators = pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref());
    let metrics: Vec<_> = operators.map(|ip| format!("{ip}:9651")).collect();
    let metrics: Vec<_> = metrics.iter().map(|it| (NAMESPACE, it.as_str())).collect();
    let server = [(SYSTEM_NAMESPACE, "172.29.0.1:443")];
    reach(&ground.machines, "before", &[&metrics[..], &server].concat(), true).await?;

    ground.machines.lab().apply(default_deny(SYSTEM_NAMESPACE, &["Ingress", "Egress"])).await?;
    reach(&ground.machines, "under default deny", &[&metrics[..], &server].concat(), false).await?;

    let file = repository().join("deploy/components/network-policy/network-policy.yaml");
    ground.machines.kubectl(&["apply", "-f", &file.to_string_lossy()])?;
    reach(&ground.machines, "with the operator's policy", &metrics, true).await?;
    reach(&ground.machines, "with the operator's policy", &server, false).await?;
    let probe = ground.watch().await?;
    ground.machines.roll_out().await?;
    for object in web(NAMESPACE, NEW) {
        ground.machines.lab().apply(object).await?;
    }
    ground.machines.served(NAMESPACE, NEW).await?;
    ground.nothing_failed("default deny", probe).await.map(|_| ())
}

pub async fn a_policy_on_the_pods_of_a_service_tells_clients_by_their_addresses() -> Result<()> {
    let ground = ground("admit").await?;
    let local = json!({ "spec": { "externalTrafficPolicy": "Local" } }).to_string();
    ground.machines.kubectl(&["patch", "service", WEB, "-p", &local])?;
    ask_from(&ground, NAMESPACE).await?;
    let vip = format!("{}:80", ground.vip);
    let asker = [(NAMESPACE, vip.as_str())];
    reach(&ground.machines, "without a policy", &asker, true).await?;

    // Those of one pod add up.
    ground.machines.lab().apply(default_deny(NAMESPACE, &["Ingress"])).await?;
    client(&ground, "a client under default deny", false).await?;
    let [v4, _] = ground.machines.client().addresses();
    ground.machines.lab().apply(admit(&format!("{v4}/32"))).await?;
    client(&ground, "a client that is admitted", true).await?;
    reach(&ground.machines, "a pod that is not admitted", &asker, false).await?;

    // So it is on the next owner.
    let owner = ground.owner().await?;
    owner.power_off()?;
    ground.moved_from(owner).await?;
    client(&ground, "a client that is admitted, by another owner", true).await?;
    let probe = ground.watch().await?;
    ground.nothing_failed("admitted", probe).await?;
    reach(&ground.machines, "a pod that is not admitted, by another owner", &asker, false).await
}

/// With what enforces policies.
async fn ground(name: &str) -> Result<Ground> {
    let machines = MachinesPlan::new(name).images("kube-router").start().await?;
    machines.network_policies().await?;
    Ground::on(machines).await
}

fn default_deny(namespace: &str, directions: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": "default-deny", "namespace": namespace },
        "spec": { "podSelector": {}, "policyTypes": directions },
    })
}

/// The pods of the Service take connections from a range alone.
fn admit(range: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": WEB, "namespace": NAMESPACE },
        "spec": {
            "podSelector": { "matchLabels": { "app": WEB } },
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{ "ipBlock": { "cidr": range } }],
                "ports": [{ "protocol": "TCP", "port": 8080 }],
            }],
        },
    })
}

/// Starts a pod to ask from, on a node other than the owner's.
async fn ask_from(ground: &Ground, namespace: &str) -> Result<()> {
    let (machines, owner) = (&ground.machines, ground.owner().await?);
    let node = machines.on().find(|machine| machine.name() != owner.name());
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": ASKER, "namespace": namespace, "labels": { "app": ASKER } },
        "spec": {
            "nodeName": node.context("there are three")?.name(),
            "containers": [{ "name": ASKER, "image": AGNHOST, "args": ["pause"] }],
        },
    });
    machines.lab().apply(pod).await?;
    let what = format!("{namespace}/{ASKER} runs");
    machines
        .eventually(&what, async || {
            let pods = machines.pods(namespace, &format!("app={ASKER}")).await?;
            let phase = pods.first().and_then(|pod| pod.status.as_ref()?.phase.as_deref());
            Ok(phase == Some("Running"))
        })
        .await
}

/// Waits until the pods of these namespaces reach their servers, or do not.
async fn reach(
    machines: &Machines,
    when: &str,
    asked: &[(&str, &str)],
    expected: bool,
) -> Result<()> {
    ensure!(!asked.is_empty(), "{when}: nobody to ask");
    for (namespace, server) in asked {
        let verb = if expected { "reaches" } else { "does not reach" };
        let what = format!("{when}: a pod in {namespace} {verb} {server}");
        let command =
            ["exec", "-n", namespace, ASKER, "--", "/agnhost", "connect", "--timeout=2s", server];
        let reaches = async || match machines.kubectl(&command) {
            Ok(_) => Ok(expected),
            // What `agnhost connect` says when it could ask and got no answer.
            Err(error) => {
                let denied =
                    ["TIMEOUT", "REFUSED"].iter().any(|it| format!("{error:#}").contains(it));
                if denied { Ok(!expected) } else { Err(error) }
            }
        };
        machines.eventually(&what, reaches).await?;
        println!("    {what}");
    }
    Ok(())
}

/// Waits until new connections of the client are answered, or are not.
async fn client(ground: &Ground, what: &str, expected: bool) -> Result<()> {
    let vip: IpAddr = ground.vip;
    let client = ground.machines.client();
    let answered = async || Ok(client.get(vip, 80, "/hostname").is_ok() == expected);
    ground.machines.eventually(&format!("{what}: answered is {expected}"), answered).await?;
    println!("    {what}: {}", if expected { "answered" } else { "not answered" });
    Ok(())
}
