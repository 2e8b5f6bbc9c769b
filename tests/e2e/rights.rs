//! Least privilege: what the service accounts may do, and what they do, by the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use leasehold_lab::olm::{Bundle, Grant};
use leasehold_lab::{
    Lab, OPERATOR_ACCOUNT, SESSION_NAMESPACE, SPEAKER_ACCOUNT, SYSTEM_NAMESPACE, Service,
};
use serde_json::{Value, json};

use crate::olm;
use crate::scene::{Scene, annotation, cordon, edit_lease};
use crate::uninstall::daemon_sets;

/// One verb on one resource, in one namespace or (empty) in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    account: String,
    namespace: String,
    group: String,
    /// With the subresource, as in roles: `services/status`.
    resource: String,
    verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, namespace, group, resource, verb } = self;
        let place = if namespace.is_empty() { "all namespaces" } else { namespace };
        write!(f, "{account}: {verb} {resource}.{group} in {place}")
    }
}

/// All that these rules allow.
fn rights(account: &str, namespace: &str, rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| Right {
                    account: account.to_owned(),
                    namespace: namespace.to_owned(),
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    rights
}

/// What the shipped roles allow; they are named after the accounts that have them.
async fn granted(lab: &Lab) -> Result<BTreeSet<Right>> {
    let mut granted = BTreeSet::new();
    for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
        let all: Api<ClusterRole> = Api::all(lab.admin());
        granted.extend(rights(account, "", &all.get(account).await?.rules.unwrap_or_default()));
        for namespace in [SYSTEM_NAMESPACE, SESSION_NAMESPACE] {
            let api: Api<Role> = Api::namespaced(lab.admin(), namespace);
            let rules = api.get(account).await?.rules.unwrap_or_default();
            granted.extend(rights(account, namespace, &rules));
        }
    }
    Ok(granted)
}

/// What was asked for, and whether it was forbidden.
fn asked(log: &str) -> Result<BTreeMap<Right, bool>> {
    let mut asked = BTreeMap::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line)?;
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        // What every account may ask for, such as the API server's version.
        if text("/objectRef/resource").is_empty() {
            continue;
        }
        let account = text("/user/username").rsplit(':').next().unwrap_or_default();
        let subresource = text("/objectRef/subresource");
        let slash = if subresource.is_empty() { "" } else { "/" };
        let right = Right {
            account: account.to_owned(),
            namespace: text("/objectRef/namespace").to_owned(),
            group: text("/objectRef/apiGroup").to_owned(),
            resource: format!("{}{slash}{subresource}", text("/objectRef/resource")),
            verb: text("/verb").to_owned(),
        };
        let forbidden = text("/annotations/authorization.k8s.io~1decision") != "allow";
        // Server-side apply of what was not there.
        let created = event.pointer("/responseStatus/code") == Some(&json!(201));
        if created && right.verb == "patch" {
            asked.entry(Right { verb: "create".to_owned(), ..right.clone() }).or_default();
        }
        *asked.entry(right).or_default() |= forbidden;
    }
    Ok(asked)
}

pub async fn each_right_is_used_and_nothing_else_is_asked_for() -> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let scene = olm::scene(&lab, "rights").await?;
    daemon_sets(&scene).await?;
    what_happens_to_clusters(&scene).await?;
    let granted = granted(&lab).await?;
    compared(&lab, &granted, |_| false)?;

    // The rest is denied: what is not granted is refused for each verb that a rule names with others.
    denied(&lab)
}

/// Nothing was forbidden but what may be at first, and each of these rights was used.
fn compared(lab: &Lab, granted: &BTreeSet<Right>, at_first: impl Fn(&Right) -> bool) -> Result<()> {
    let asked = asked(&lab.plane().audit_log()?)?;
    let forbidden = asked.iter().filter(|(right, forbidden)| **forbidden && !at_first(right));
    let forbidden: Vec<_> = forbidden.map(|(right, _)| right.to_string()).collect();
    ensure!(forbidden.is_empty(), "asked for and forbidden: {forbidden:#?}");
    // A request in one namespace uses a right for all.
    let used = |right: &Right| {
        asked.keys().any(|it| {
            let place = right.namespace.is_empty() || right.namespace == it.namespace;
            place && Right { namespace: right.namespace.clone(), ..it.clone() } == *right
        })
    };
    let unused: Vec<_> = granted.iter().filter(|it| !used(it)).map(ToString::to_string).collect();
    ensure!(unused.is_empty(), "granted and never used: {unused:#?}");
    println!("    {} rights are granted, each is used; nothing was forbidden", granted.len());
    Ok(())
}

/// What the bundle's roles allow.
fn granted_by_bundle() -> Result<BTreeSet<Right>> {
    let bundle = Bundle::read()?;
    let mut grants = bundle.grants()?;
    for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
        grants.push(Grant {
            account: account.to_owned(),
            namespace: SESSION_NAMESPACE.to_owned(),
            rules: bundle.role("ClusterRole", &format!("{account}-sessions"))?,
        });
    }
    let mut granted = BTreeSet::new();
    for Grant { account, namespace, rules } in grants {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules)?;
        granted.extend(rights(&account, &namespace, &rules));
    }
    Ok(granted)
}

/// What SECURITY.md says that the operator of the bundle may do besides, in order.
const TO_DEPLOY: [&str; 9] = [
    "leasehold-operator: bind clusterroles.rbac.authorization.k8s.io in all namespaces",
    "leasehold-operator: create daemonsets.apps in leasehold-system",
    "leasehold-operator: create namespaces. in all namespaces",
    "leasehold-operator: create rolebindings.rbac.authorization.k8s.io in all namespaces",
    "leasehold-operator: delete daemonsets.apps in leasehold-system",
    "leasehold-operator: get deployments.apps in leasehold-system",
    "leasehold-operator: patch daemonsets.apps in leasehold-system",
    "leasehold-operator: patch namespaces. in all namespaces",
    "leasehold-operator: patch rolebindings.rbac.authorization.k8s.io in all namespaces",
];

pub async fn the_bundle_grants_what_the_manifests_do_and_what_deploying_takes() -> Result<()> {
    let lab = Lab::start().await?;
    let (base, bundle) = (granted(&lab).await?, granted_by_bundle()?);
    let told = |rights: &mut dyn Iterator<Item = &Right>| -> Vec<String> {
        let mut told: Vec<_> = rights.map(ToString::to_string).collect();
        told.sort();
        told
    };
    let less = told(&mut base.difference(&bundle));
    ensure!(less.is_empty(), "the bundle lacks {less:#?}");
    let more = told(&mut bundle.difference(&base));
    ensure!(more == TO_DEPLOY, "the bundle grants besides {more:#?}");
    Ok(())
}

pub async fn each_right_of_the_bundle_is_used_and_nothing_else_is_asked_for() -> Result<()> {
    let lab = Lab::start_by_bundle().await?;
    olm::start_operator(&lab, None)?;
    let scene = olm::scene(&lab, "granted").await?;
    what_happens_to_clusters(&scene).await?;
    // Bindings that the operator has just made count a moment later.
    let at_first = |right: &Right| {
        right.namespace == SESSION_NAMESPACE && right.resource == "leases" && right.verb == "list"
    };
    // No requests of their own: without the one the bindings would be forbidden; without the other the owners of
    // the DaemonSet could not change where admission asks for it, as in `olm`.
    let mut granted = granted_by_bundle()?;
    granted.retain(|right| {
        right.verb != "bind" && (&*right.verb, &*right.resource) != ("delete", "daemonsets")
    });
    compared(&lab, &granted, at_first)?;
    denied(&lab)?;

    // It may bind the two roles of leases, and no other; and deploy the speakers, and nothing else.
    let who = format!("--as=system:serviceaccount:{SYSTEM_NAMESPACE}:{OPERATOR_ACCOUNT}");
    let binding = |name: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": SESSION_NAMESPACE },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{
                "kind": "ServiceAccount", "name": SPEAKER_ACCOUNT, "namespace": SYSTEM_NAMESPACE,
            }],
        })
    };
    let labels = json!({ "app": "other" });
    let other = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "other", "namespace": SYSTEM_NAMESPACE },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "other", "image": "other" }] },
        } },
    });
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    scene.lab().plane().kubectl(&[
        "delete",
        "rolebinding",
        SPEAKER_ACCOUNT,
        "--namespace",
        SESSION_NAMESPACE,
    ])?;
    for (object, may) in [
        (binding(SPEAKER_ACCOUNT, "cluster-admin"), false),
        (binding("other", "leasehold-speaker-sessions"), false),
        (other, false),
        (namespace, false),
        (binding(SPEAKER_ACCOUNT, "leasehold-speaker-sessions"), true),
    ] {
        let path = lab.folder().join("attempt.json");
        std::fs::write(&path, object.to_string())?;
        let path = path.display().to_string();
        let tried = lab.plane().kubectl(&["apply", "--server-side", "--filename", &path, &who]);
        ensure!(tried.is_ok() == may, "{object}: {tried:?}");
    }
    Ok(())
}

/// Services that come, wait, move, share and go; nodes that drain, die and go; processes that end.
async fn what_happens_to_clusters(scene: &Scene) -> Result<()> {
    let (lab, cluster) = (scene.lab(), &scene.cluster);
    let second = cluster.service("second").pods_of(&scene.service).vip(1).create().await?;
    cluster.ready(&second).await?;
    // From node to node and back: in the end the same events are told as a series.
    let service = format!("{}/web", cluster.namespace());
    scene
        .until("an event is told as a series", async || {
            for node in cluster.nodes() {
                if scene.owner().await?.name() != node.name() {
                    lab.plugin(&["move", &service, "--to", node.name()])?.with_code(0)?;
                }
            }
            let asked = asked(&lab.plane().audit_log()?)?;
            Ok(asked.keys().any(|it| it.verb == "patch" && it.resource == "events"))
        })
        .await?;
    contended(scene, &second).await?;
    gone(scene, &second).await?;

    // Somebody deletes the lease under its owner, who has it again.
    let leases: Api<Lease> = Api::namespaced(lab.admin(), SYSTEM_NAMESPACE);
    leases.delete(&scene.service.claim(), &DeleteParams::default()).await?;
    scene
        .until("its owner has it again", async || {
            let claim = cluster.claim(&scene.service).await?;
            let holder = claim.and_then(|it| it.spec?.holder_identity);
            Ok(holder.is_some() && scene.service.answers(cluster, scene.vip)?)
        })
        .await?;

    let upgraded = scene.owner().await?;
    ensure!(upgraded.speaker()?.terminate().await?.success());
    upgraded.start_speaker()?;
    scene
        .until("it has its session again", async || {
            let session = scene.session(upgraded).await?;
            Ok(annotation(&session, "leasehold.dev/restarting").is_none())
        })
        .await?;
    let dead = scene.owner().await?;
    dead.dies()?;
    dead.speaker()?.kill().await?;
    scene.moved_from(dead).await?;
    let nodes: Api<NodeObject> = Api::all(lab.admin());
    nodes.delete(dead.name(), &DeleteParams::default()).await?;
    scene
        .until("its session is deleted", async || Ok(cluster.session(dead.name()).await?.is_none()))
        .await?;

    // A Service goes whose owner has died, and of which nobody could take the address.
    let owner = scene.owner().await?;
    for other in
        cluster.nodes().iter().filter(|it| ![dead.name(), owner.name()].contains(&it.name()))
    {
        cordon(other, true).await?;
    }
    owner.dies()?;
    owner.speaker()?.kill().await?;
    scene
        .until("its session is over", async || {
            let session = scene.session(owner).await?.spec.unwrap_or_default();
            Ok(session.holder_identity.unwrap_or_default().is_empty())
        })
        .await?;
    gone(scene, &scene.service).await?;
    ensure!(lab.operator()?.terminate().await?.success());
    Ok(())
}

/// Somebody writes to a Service all the time while its address has to change, and to a session: writes
/// conflict.
async fn contended(scene: &Scene, service: &Service) -> Result<()> {
    let plan = scene.cluster.addresses();
    let (node, mut number) = (scene.owner().await?, 0_u64);
    scene
        .until("conflicts are looked into", async || {
            for _ in 0..50 {
                number += 1;
                let vip = plan.vip(1 + u8::from((number / 10).is_multiple_of(2))).0.to_string();
                service
                    .patch(json!({ "metadata": {
                        "labels": { "number": number.to_string() },
                        "annotations": { "leasehold.dev/addresses": vip },
                    } }))
                    .await?;
                let edit = json!({ "metadata": { "labels": { "number": number.to_string() } } });
                edit_lease(scene.lab(), SESSION_NAMESPACE, node.name(), edit).await?;
            }
            let asked = asked(&scene.lab().plane().audit_log()?)?;
            let read = |resource: &str, namespace: &str| {
                asked.keys().any(|it| {
                    it.verb == "get" && it.resource == resource && it.namespace == namespace
                })
            };
            Ok(read("services", scene.cluster.namespace()) && read("leases", SESSION_NAMESPACE))
        })
        .await
}

/// A Service goes, and its claim with it.
async fn gone(scene: &Scene, service: &Service) -> Result<()> {
    let claim = service.claim();
    service.delete().await?;
    let leases: Api<Lease> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    scene
        .until("its claim is deleted", async || {
            let all = leases.list(&ListParams::default()).await?;
            Ok(!all.iter().any(|lease| lease.name_any() == claim))
        })
        .await
}

/// What a stolen token of each account must not do.
fn denied(lab: &Lab) -> Result<()> {
    for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
        let who = format!("--as=system:serviceaccount:{SYSTEM_NAMESPACE}:{account}");
        for (verb, resource, namespace) in [
            ("get", "secrets", SYSTEM_NAMESPACE),
            ("list", "secrets", "kube-system"),
            ("get", "configmaps", "kube-system"),
            ("create", "pods", SYSTEM_NAMESPACE),
            ("create", "serviceaccounts/token", SYSTEM_NAMESPACE),
            ("update", "services", "default"),
            ("delete", "services", "default"),
            ("patch", "nodes", ""),
            ("patch", "daemonsets.apps", SYSTEM_NAMESPACE),
            ("update", "leases.coordination.k8s.io", "kube-node-lease"),
            ("update", "leases.coordination.k8s.io", "kube-system"),
            ("deletecollection", "leases.coordination.k8s.io", SYSTEM_NAMESPACE),
            ("update", "ipaddresspools.leasehold.dev", ""),
            ("update", "announcementpolicies.leasehold.dev", ""),
            ("create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
        ] {
            let mut arguments = vec!["auth", "can-i", verb, resource, &who];
            if !namespace.is_empty() {
                arguments.extend(["--namespace", namespace]);
            }
            let kubectl = lab.plane().kubectl(&arguments);
            // It ends with 1 where the answer is no.
            ensure!(kubectl.is_err(), "{account} may {verb} {resource} in {namespace:?}");
        }
        let arguments = ["auth", "can-i", "list", "services", &who, "--all-namespaces"];
        let may = lab.plane().kubectl(&arguments).context("the question works")?;
        ensure!(may.trim() == "yes", "{may}");
    }
    Ok(())
}
