//! `helm test`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold_lab::helm::{self, Helm, RELEASE};
use leasehold_lab::{Lab, binaries};
use serde_json::json;

use crate::scene::{PATIENCE, Scene};

/// The pod of the test, and its service account.
const NAME: &str = "leasehold-test";

/// Runs `helm test --logs`, and the pod's command in the kubelet's place, with the account's token. Returns what
/// the command printed, and whether helm says that the test succeeded.
async fn tested(lab: &Lab, helm: &Helm) -> Result<(String, bool)> {
    let test = helm.start("test", &["test", RELEASE, "--logs", "--timeout", "60s"])?;
    let all: Api<Pod> = Api::all(lab.admin());
    let mut pod = None;
    let comes = lab.eventually("the pod is there", PATIENCE, async || {
        let found =
            all.list(&ListParams::default().fields(&format!("metadata.name={NAME}"))).await?;
        pod = found.items.into_iter().find(|pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending")
        });
        Ok(pod.is_some())
    });
    comes.await.with_context(|| test.output())?;
    let pod = pod.context("no pod")?;
    let namespace = pod.namespace().context("a pod without namespace")?;
    let pods: Api<Pod> = Api::namespaced(lab.admin(), &namespace);
    let spec = pod.spec.context("a pod without spec")?;
    let container = spec.containers.first().context("a pod without containers")?;
    let (command, arguments) = (container.command.as_deref(), container.args.as_deref());
    ensure!(command == Some(&["/kubectl-leasehold".to_owned()]), "{container:?}");
    let account = spec.service_account_name.context("no service account")?;
    let kubeconfig = lab.plane().service_account(&namespace, &account).await?;
    let mut check = Command::new(binaries::plugin()?);
    let output =
        check.args(arguments.unwrap_or_default()).env("KUBECONFIG", kubeconfig).output()?;
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = json!({ "status": { "phase": phase } });
    pods.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
    let ended = test.wait(Duration::from_secs(60)).await?;
    // It has asked for the log, of which there is none where no kubelet ran a container.
    ensure!(test.output().contains(&format!("POD LOGS: {NAME}")), "{}", test.output());
    Ok((String::from_utf8(output.stdout)?, ended.success()))
}

pub async fn helm_test_finds_what_stands_in_the_way() -> Result<()> {
    let scene = Scene::alone("helmtest").await?;
    let (lab, helm) = (scene.lab(), Helm::of(scene.lab())?);
    // The lab has applied all but what needs a kubelet.
    helm.with_chart(
        &["install", RELEASE, "--take-ownership", "--force-conflicts"],
        &helm::chart(),
    )?;

    // The pod is in a namespace of the user's, who may be strict.
    lab.plane().kubectl(&[
        "label",
        "namespace",
        "default",
        "pod-security.kubernetes.io/enforce=restricted",
    ])?;
    let (text, success) = tested(lab, &helm).await?;
    ensure!(success, "{text}");
    // Its account may look at everything, and sees what an admin sees.
    let full = lab.plugin(&["check"])?.with_code(0)?.text;
    ensure!(text == full, "{text}\ninstead of\n{full}");
    let left = lab.plane().kubectl(&[
        "get",
        "pods,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings",
        "-A",
        "-o",
        "name",
    ])?;
    ensure!(!left.contains(NAME), "{left}");

    // Two pools with the same addresses.
    let vip = scene.cluster.addresses().vip(10).0;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": { "name": "again" }, "spec": { "addresses": [format!("{vip}/32")] },
    });
    lab.apply(pool).await?;
    let (text, success) = tested(lab, &helm).await?;
    ensure!(!success, "helm calls it a success: {text}");
    ensure!(text.contains("again") && text.contains(&vip.to_string()), "{text}");
    Ok(())
}
