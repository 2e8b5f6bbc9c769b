//! What the pages tell people to type, typed as it stands there.

use std::collections::BTreeSet;
use std::fs;
use std::mem;

use anyhow::{Context, Result, ensure};
use leasehold_lab::terminal::Terminal;
use leasehold_lab::{Lab, helm, repository};

use crate::chart::release::nothing_but;
use crate::migration::what_metallb_leaves;

/// The pages whose commands count.
const PAGES: [&str; 13] = [
    "README.md",
    "deploy/helm/leasehold/README.md",
    "deploy/olm/description.md",
    "examples/gitops/README.md",
    "kind/README.md",
    "docs/src/configuration/services.md",
    "docs/src/installation/install.md",
    "docs/src/installation/olm.md",
    "docs/src/installation/upgrade.md",
    "docs/src/migration/metallb.md",
    "docs/src/operations/monitoring.md",
    "docs/src/operations/security.md",
    "docs/src/usage/plugin.md",
];

/// Commands in running text count if they begin so, and name something.
const IN_TEXT: [&str; 4] =
    ["kubectl apply -", "kubectl delete -", "helm ", "leasehold-operator free-addresses"];

/// What is typed one after another in a cluster that has never heard of Leasehold. Afterwards it has not, either.
const SESSIONS: [&[&str]; 8] = [
    &[
        "kubectl apply -f deploy/base/flow-control.yaml",
        "kubectl apply -k deploy",
        "kubectl label namespace leasehold-system pod-security.kubernetes.io/enforce=privileged",
        "kubectl delete -k deploy",
    ],
    &[
        "kubectl apply -k deploy",
        "kubectl apply -k deploy/monitoring",
        "kubectl delete -k deploy/base",
        "leasehold-operator free-addresses",
        "kubectl delete -k crds",
    ],
    &[
        "helm install leasehold deploy/helm/leasehold",
        "kubectl apply -k deploy/monitoring",
        "kubectl delete -k deploy/monitoring",
        "helm upgrade leasehold deploy/helm/leasehold",
        "helm upgrade leasehold deploy/helm/leasehold --reuse-values   --set monitoring.podMonitors.enabled=true \
         --set monitoring.prometheusRule.enabled=true",
        "helm rollback leasehold",
        "helm uninstall leasehold",
        "kubectl delete -k crds",
    ],
    &[
        "helm install leasehold deploy/helm/leasehold --namespace leasehold-system --create-namespace",
        "helm uninstall leasehold --namespace leasehold-system",
        "kubectl delete -k crds",
        "kubectl delete namespace leasehold-system",
    ],
    &[
        "kubectl apply -k deploy",
        "helm install leasehold deploy/helm/leasehold --take-ownership --force-conflicts",
        "helm uninstall leasehold",
        "kubectl delete -k crds",
    ],
    &[
        "kubectl apply -k examples/gitops/leasehold",
        "kubectl apply -k examples/gitops/clusters/north",
        "kubectl delete -k deploy",
    ],
    &[
        "kubectl apply -f crds/generated",
        "helm install leasehold deploy/helm/leasehold --set crds.install=false",
        "helm uninstall leasehold",
        "kubectl delete -k crds",
    ],
    &[
        "kubectl apply -f crds/generated",
        "leasehold-operator migrate-from-metallb > leasehold.yaml",
        "kubectl apply -f examples/policy-hold.yaml -f leasehold.yaml",
        "kubectl -n metallb-system scale deployment controller --replicas=0",
        "kubectl -n metallb-system wait --for=delete pod -l component=controller --timeout=2m",
        "kubectl apply -k deploy/base",
        "kubectl get services -A -o custom-columns='NAMESPACE:.metadata.namespace,NAME:.metadata.name,\
         ''ADDRESSES:.status.loadBalancer.ingress[*].ip,POOL:.metadata.annotations.leasehold\\.dev/allocated-from'",
        "kubectl -n metallb-system delete daemonset speaker --cascade=foreground",
        "kubectl delete announcementpolicy hold",
        "kubectl apply -f examples/policy-hold.yaml",
        "kubectl -n leasehold-system scale deployment leasehold-operator --replicas=0",
        "kubectl -n metallb-system scale deployment controller --replicas=1",
        "kubectl delete -k deploy/base",
        "kubectl delete -k crds",
    ],
];

/// Are typed here and stand on no page.
const OURS: [&str; 2] =
    ["kubectl delete namespace leasehold-system", "kubectl delete -k deploy/monitoring"];

/// What cannot be typed in the lab, and why.
const NOT_HERE: [(&str, &str); 14] = [
    ("make ", "each builds and runs everything, this test as well"),
    ("cargo build ", "builds what is there already"),
    ("docker build ", "no Docker: the images are built without it by `make images`"),
    ("kubectl leasehold ", "a cluster without nodes: `plugin` runs each of its commands"),
    ("kubectl -n leasehold-system exec ", "no kubelet runs the pod"),
    (
        "kubectl -n leasehold-system delete ",
        "objects of the manager of bundles: `olm` does what it does",
    ),
    ("kind/", "Docker runs the nodes of kind; `kind_demo` runs its scripts' other parts"),
    ("helm test leasehold --logs", "no kubelet runs its pod: `chart::trial` does in its place"),
    (
        "kubectl apply -f deploy/olm/subscription.yaml",
        "takes the manager, and a registry with four images: `olm` does what the manager does",
    ),
    ("kubectl -n leasehold-system rollout status ", "no kubelet runs the pods that it waits for"),
    ("kubectl apply -f metallb-native.yaml", "a file of MetalLB's"),
    ("kubectl delete -f metallb-native.yaml", "the same"),
    ("exec kubectl-leasehold __complete ", "a file that kubectl runs: `plugin` runs what it does"),
    ("helm upgrade --force", "what others do to Services"),
];

/// The commands of a page: each line of its shell blocks, and what of its text begins like a command.
fn commands(page: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let (mut block, mut line, mut text) = (None, String::new(), String::new());
    let mut indent = "";
    for part in page.lines() {
        match (part.trim_start().strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(language), None) => {
                block = Some(language);
                indent = &part[..part.len() - part.trim_start().len()];
            }
            (None, None) => {
                text.push_str(part);
                text.push(' ');
            }
            (None, Some("sh")) => {
                let part = part.strip_prefix(indent).unwrap_or(part);
                if let Some(begun) = part.strip_suffix('\\') {
                    line.push_str(begun);
                } else {
                    line.push_str(part);
                    let whole = mem::take(&mut line);
                    let command = whole.split(" # ").next().unwrap_or_default().trim();
                    if !command.is_empty() && !command.starts_with('#') {
                        all.insert(command.to_owned());
                    }
                }
            }
            (None, Some(_)) => {}
        }
    }
    let spans = text.split('`').skip(1).step_by(2);
    // `helm test` is the name of a thing.
    let named = |span: &&str| {
        let begins = |begin: &&str| {
            span.strip_prefix(*begin).is_some_and(|rest| rest.is_empty() || rest.contains(' '))
        };
        IN_TEXT.iter().any(begins)
    };
    all.extend(spans.filter(named).map(str::to_owned));
    all
}

pub async fn what_the_pages_tell_to_type_works_as_it_stands_there() -> Result<()> {
    let mut told = BTreeSet::new();
    for page in PAGES {
        let text = fs::read_to_string(repository().join(page)).with_context(|| page.to_owned())?;
        told.extend(commands(&text));
    }
    let typed: BTreeSet<&str> = SESSIONS.into_iter().flatten().copied().collect();
    let left: Vec<_> = told
        .iter()
        .filter(|it| !typed.contains(it.as_str()))
        .filter(|it| !NOT_HERE.iter().any(|(begin, _)| it.starts_with(begin)))
        .collect();
    ensure!(left.is_empty(), "neither typed here nor listed with a reason: {left:#?}");
    let gone: Vec<_> =
        typed.iter().filter(|it| !told.contains(**it) && !OURS.contains(*it)).collect();
    ensure!(gone.is_empty(), "typed here, and on no page: {gone:#?}");
    let gone: Vec<_> =
        NOT_HERE.iter().filter(|(it, _)| !told.iter().any(|told| told.starts_with(it))).collect();
    ensure!(gone.is_empty(), "listed, and on no page: {gone:#?}");

    let lab = Lab::bare().await?;
    let terminal = Terminal::of(&lab)?;
    let definitions = helm::monitoring_definitions()?.display().to_string();
    lab.plane().kubectl(&["apply", "-f", &definitions])?;
    what_metallb_leaves(&lab, "192.0.2.0-192.0.2.9").await?;
    for session in SESSIONS {
        for line in session {
            terminal.run(line).with_context(|| format!("{line}, of {session:#?}"))?;
        }
        nothing_but(&lab, &[]).await.with_context(|| format!("after {session:#?}"))?;
    }
    Ok(())
}
