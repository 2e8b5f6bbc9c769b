//! Checks, and archives.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_lab::{Lab, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use super::{list, text};
use crate::scene::Scene;

/// What nobody may find in an archive.
const SECRET: &str = "not-for-the-eyes-of-others";

/// The findings of a check with this exit code.
fn findings(lab: &Lab, code: i32) -> Result<Vec<Value>> {
    let answer = lab.plugin(&["check", "-o", "json"])?.with_code(code)?.json()?;
    Ok(list(&answer, "")?.to_vec())
}

/// Whether a check found something of this level whose message has these words.
fn found(findings: &[Value], check: &str, level: &str, words: &[&str]) -> bool {
    findings.iter().any(|it| {
        let message = it["message"].as_str().unwrap_or_default();
        it["check"] == check
            && it["level"] == level
            && words.iter().all(|word| message.contains(word))
    })
}

/// A pool of its own with these addresses.
fn pool(name: &str, addresses: &str) -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": { "name": name }, "spec": { "addresses": [addresses], "autoAssign": false },
    })
}

/// A webhook that is called for leases and cannot be reached.
fn webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "all-things" },
        "webhooks": [{
            "name": "all.things.example", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "operations": ["*"], "apiGroups": ["coordination.k8s.io"],
                "apiVersions": ["v1"], "resources": ["leases"] }],
        }],
    })
}

pub async fn a_check_finds_pools_that_overlap_and_webhooks_on_leases() -> Result<()> {
    let scene = Scene::alone("plugcheck").await?;
    let lab = scene.lab();
    let well = findings(lab, 0)?;
    for (check, word) in [
        ("definitions", "are installed"),
        ("pools", "without overlaps"),
        ("rights", "leasehold-speaker has all"),
        ("rights", "leasehold-operator has all"),
        ("webhooks", "no webhook"),
        ("kernel", "Linux 5.10 or later on 4 of 4 nodes"),
        ("node-ip", "no InternalIP of a node"),
        ("speakers", "all 3 nodes"),
        ("interfaces", "each node has a subnet"),
        ("mtu", "the same on all"),
        ("heard", "no other host"),
        ("announcers", "no other load balancer"),
        ("writers", "no other controller"),
    ] {
        let ok = found(&well, check, "ok", &[word]);
        let partly = check == "speakers" && found(&well, check, "warn", &["plugcheck-worker-1"]);
        ensure!(ok || partly, "{check}: {well:#?}");
    }
    print!("{}", lab.plugin(&["check"])?.with_code(0)?.text);
    print!("{}", lab.plugin(&["status"])?.with_code(0)?.text);

    let own = scene.cluster.addresses().vip(10).0;
    let overlapping = pool("second", &format!("{own}/32"));
    lab.apply(overlapping.clone()).await?;
    let bad = findings(lab, 1)?;
    let both = ["plugcheck", "second", &own.to_string()];
    ensure!(found(&bad, "pools", "fail", &both), "{bad:#?}");
    lab.delete(&overlapping).await?;

    lab.apply(webhook()).await?;
    let slow = findings(lab, 0)?;
    ensure!(
        found(&slow, "webhooks", "warn", &["all-things", "every write of a Lease"]),
        "{slow:#?}"
    );
    lab.delete(&webhook()).await?;

    let far = pool("far", "198.51.100.0/24");
    lab.apply(far.clone()).await?;
    let unreachable = findings(lab, 0)?;
    let words = ["pool far", "no node has a subnet that contains 198.51.100.0-"];
    ensure!(found(&unreachable, "interfaces", "warn", &words), "{unreachable:#?}");
    lab.delete(&far).await?;

    let node = scene.cluster.node(0);
    node.namespace().ip("link set dev eth0 mtu 1400\n")?;
    let place = format!("1400 on {} eth0", node.name());
    scene
        .until("different MTUs are found", async || {
            Ok(found(&findings(lab, 0)?, "mtu", "warn", &[&place, "1500 on"]))
        })
        .await?;
    node.namespace().ip("link set dev eth0 mtu 1500\n")?;

    // A host that is no speaker says that it has the address; its owner hears it.
    let (stranger, vip) = ("02:1e:a5:00:00:77", scene.vip.to_string());
    let client = scene.cluster.client().namespace();
    // With this, Linux announces what a link has when its MAC address changes.
    client.sysctl(&[("net.ipv4.conf.eth0.arp_notify", "1")])?;
    client.ip(&format!("address add {vip}/32 dev eth0\nlink set dev eth0 address {stranger}\n"))?;
    scene
        .until("somebody else announces", async || {
            Ok(found(&findings(lab, 0)?, "heard", "warn", &[&vip, stranger]))
        })
        .await?;
    client.ip(&format!("address del {vip}/32 dev eth0\n"))?;

    // A speaker that hangs renews nothing.
    scene.cluster.node(0).speaker()?.freeze()?;
    let hung = scene.cluster.node(0).name();
    let still = findings(lab, 1);
    scene.cluster.node(0).speaker()?.thaw()?;
    let still = still?;
    ensure!(found(&still, "speakers", "fail", &["not renewed", hung]), "{still:#?}");

    lab.apply(proxy("ipvs")).await?;
    let arp = findings(lab, 1)?;
    ensure!(found(&arp, "kube-proxy", "fail", &["strictARP"]), "{arp:#?}");

    // A kubelet takes an address of the pool for its node's.
    let (taken, node) = (scene.cluster.addresses().vip(20).0, scene.cluster.node(1).name());
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": taken }],
    } });
    let nodes: Api<NodeObject> = Api::all(lab.admin());
    nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await?;
    let mistaken = findings(lab, 1)?;
    let words = [node, &taken.to_string(), "in pool plugcheck"];
    ensure!(found(&mistaken, "node-ip", "fail", &words), "{mistaken:#?}");
    Ok(())
}

/// A Service without a class that asks for the pool of the cluster.
fn classless(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": namespace, "name": name,
            "annotations": { "leasehold.dev/address-pool": "plugdead" } },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    })
}

/// So many Services `status` counts.
fn counted(status: &Value, which: &str) -> Option<u64> {
    status.pointer("/services")?.get(which)?.as_u64()
}

pub async fn a_dead_operator_is_seen_and_who_waits_for_it_is_counted() -> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&["--default-class"])?;
    let scene = Scene::of(lab.cluster("plugdead")).await?;
    let namespace = scene.cluster.namespace();
    lab.apply(classless(namespace, "served")).await?;
    let well = async || {
        let status = lab.plugin(&["status", "-o", "json"])?;
        Ok(status.code == 0 && counted(&status.json()?, "total") == Some(2))
    };
    scene.until("an operator is active and both Services are well", well).await?;
    ensure!(found(&findings(&lab, 0)?, "operator", "ok", &["is active"]));

    lab.operator()?.process().kill().await?;
    let dead = lab.plugin(&["status", "-o", "json"])?.with_code(1)?.json()?;
    ensure!(
        dead.get("operator") == Some(&Value::Null) && counted(&dead, "pending") == Some(0),
        "{dead:#}"
    );
    let says = text(&dead, "/troubles/0")?;
    ensure!(says.contains("no operator replica is active"), "{dead:#}");
    print!("{}", lab.plugin(&["status"])?.with_code(1)?.text);
    let failed = findings(&lab, 1)?;
    ensure!(found(&failed, "operator", "fail", &["does not renew its Lease"]), "{failed:#?}");

    // Nobody has marked it: another of its kind shows that it is the operator's.
    lab.apply(classless(namespace, "waits")).await?;
    let waits = lab.plugin(&["status", "-o", "json"])?.with_code(1)?.json()?;
    ensure!(
        counted(&waits, "total") == Some(3) && counted(&waits, "pending") == Some(1),
        "{waits:#}"
    );
    let waiting = format!("{namespace}/waits: the operator has not processed the Service");
    let told = list(&waits, "/troubles")?;
    ensure!(told.iter().any(|it| it.as_str().is_some_and(|it| it.contains(&waiting))), "{waits:#}");

    lab.start_operator(&["--default-class"])?;
    let well = async || Ok(lab.plugin(&["status"])?.code == 0);
    scene.until("an operator is active and all Services are well", well).await
}

/// The configuration of kube-proxy as kubeadm keeps it.
fn proxy(mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "kube-system", "name": "kube-proxy" },
        "data": { "config.conf": format!("mode: {mode}\nipvs:\n  strictARP: false\n") },
    })
}

pub async fn an_archive_has_all_that_is_of_use_and_no_secret() -> Result<()> {
    let scene = Scene::open("plugdump").await?;
    let lab = scene.lab();
    lab.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": { "password": SECRET },
        "metadata": { "namespace": SYSTEM_NAMESPACE, "name": "plugdump" },
    }))
    .await?;
    let path = lab.folder().join("plugdump.tar.gz");
    let file = path.to_str().context("a path of text")?;
    let answer = lab.plugin(&["sysdump", "--file", file])?.with_code(0)?;
    ensure!(answer.text.trim() == file, "{answer:?}");

    let mode = std::fs::metadata(&path)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "its mode is {mode:o}");
    let before = std::fs::read(&path)?;
    let again = lab.plugin(&["sysdump", "--file", file])?.with_code(2)?;
    ensure!(again.notes.contains("already exists"), "{again:?}");
    ensure!(std::fs::read(&path)? == before, "it was overwritten");

    let folder = lab.folder().join("plugdump");
    std::fs::create_dir_all(&folder)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&path).arg("--strip-components=1").arg("-C").arg(&folder);
    ensure!(unpack.status()?.success(), "tar cannot read it");
    let mut all = String::new();
    for (name, words) in [
        ("versions.json", "kubernetes"),
        ("nodes.yaml", "plugdump-node-1"),
        ("services.yaml", "leasehold.dev/claim"),
        ("endpointslices.yaml", "addressType"),
        ("ipaddresspools.yaml", "plugdump"),
        ("announcementpolicies.yaml", "plugdump"),
        ("leases-claims.yaml", "leasehold.dev/cause"),
        ("leases-sessions.yaml", "leasehold.dev/interfaces"),
        ("events.yaml", "AddressAssigned"),
        ("pods.yaml", ""),
        ("status.json", "operator"),
        ("owners.json", "plugdump/web"),
        ("explain.json", "plugdump/web"),
        ("explain.txt", "plugdump/web"),
        ("check.json", "definitions"),
    ] {
        let content = std::fs::read_to_string(folder.join(name)).context(name)?;
        ensure!(content.contains(words), "no {words} in {name}");
        all.push_str(&content);
    }
    ensure!(!all.contains(SECRET) && !all.contains("managedFields"));
    ensure!(
        !folder.join("errors.txt").exists(),
        "{:?}",
        std::fs::read_to_string(folder.join("errors.txt"))
    );
    let owners: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("owners.json"))?)?;
    let own = list(&owners, "")?.iter().find(|it| it["service"] == "plugdump/web");
    ensure!(text(own.context("not in it")?, "/node")? == scene.owner().await?.name());

    // Rights that are lacking keep nothing else out of it.
    let kubeconfig = lab.plane().kubeconfig(leasehold_lab::SPEAKER_ACCOUNT);
    let partial = lab.folder().join("partial.tar.gz");
    let partial = partial.to_str().context("a path of text")?;
    let answer = lab.plugin_with(&kubeconfig, &["sysdump", "--file", partial])?.with_code(1)?;
    ensure!(answer.notes.contains("errors.txt"), "{answer:?}");
    let listed = Command::new("tar").args(["-tzf", partial]).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    ensure!(listed.contains("nodes.yaml") && listed.contains("errors.txt"), "{listed}");
    Ok(())
}
