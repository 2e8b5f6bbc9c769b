//! The bundle: manifests and metadata, and the image that they are shipped in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};
use leasehold_operator::deploy::sessions_role;
use serde_json::{Value, json};

use crate::csv::{OPERATOR, SPEAKER};
use crate::source::{CHANNEL, PACKAGE, Source, VERSION, yaml};

/// What describes the bundle: in its metadata, and as labels of its image.
const ANNOTATIONS: [(&str, &str); 6] = [
    ("operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"),
    ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
    ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
    ("operators.operatorframework.io.bundle.package.v1", PACKAGE),
    ("operators.operatorframework.io.bundle.channels.v1", CHANNEL),
    ("operators.operatorframework.io.bundle.channel.default.v1", CHANNEL),
];

/// The image of the bundle.
pub fn image() -> String {
    format!("leasehold/bundle:{VERSION}")
}

/// The files of the bundle with this `ClusterServiceVersion`.
pub fn files(source: &Source, csv: &Value) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let mut add = |file: &str, content: String| files.insert(PathBuf::from(file), content);
    let manifests = "bundle/manifests";
    add(&format!("{manifests}/{PACKAGE}.clusterserviceversion.yaml"), yaml(csv)?);
    for (file, definition) in &source.definitions {
        add(&format!("{manifests}/leasehold.dev_{file}"), yaml(definition)?);
    }
    for account in [OPERATOR, SPEAKER] {
        let binding = installed(source, "RoleBinding", account)?;
        for (kind, object) in [("role", role(source, account)?), ("rolebinding", binding)] {
            add(
                &format!("{manifests}/{account}_rbac.authorization.k8s.io_v1_{kind}.yaml"),
                yaml(&object)?,
            );
        }
        // The operator binds them in the namespace that it makes.
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": sessions_role(account) },
            "rules": source.rules("Role", account, SESSION_NAMESPACE)?,
        });
        let name = sessions_role(account);
        add(
            &format!("{manifests}/{name}_rbac.authorization.k8s.io_v1_clusterrole.yaml"),
            yaml(&role)?,
        );
    }
    let budget = installed(source, "PodDisruptionBudget", OPERATOR)?;
    add(&format!("{manifests}/{OPERATOR}_policy_v1_poddisruptionbudget.yaml"), yaml(&budget)?);
    let annotations: BTreeMap<_, _> = ANNOTATIONS.into_iter().collect();
    let metadata = yaml(&json!({ "annotations": annotations }))?;
    add("bundle/metadata/annotations.yaml", metadata);
    add("bundle.Dockerfile", dockerfile());
    Ok(files)
}

/// What an account is allowed in the namespace of the installation.
fn role(source: &Source, account: &str) -> Result<Value> {
    let mut role = installed(source, "Role", account)?;
    let rules = source.rules("Role", account, CLAIM_NAMESPACE)?;
    if let Some(role) = role.as_object_mut() {
        role.insert("rules".to_owned(), rules.into());
    }
    Ok(role)
}

/// An object of `deploy/base`, without its namespace: it is that of the installation.
fn installed(source: &Source, kind: &str, name: &str) -> Result<Value> {
    let mut object = source.object(kind, name, CLAIM_NAMESPACE)?.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    Ok(object)
}

fn dockerfile() -> String {
    let mut text = format!(
        "# Written by `make bundle`.\n\
         # docker build --file deploy/olm/bundle.Dockerfile --tag {} deploy/olm\n\
         FROM scratch\n",
        image()
    );
    let labels = ANNOTATIONS.iter().map(|(name, value)| format!("LABEL {name}={value}\n"));
    text.extend(labels);
    text += "COPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\n";
    text
}
