//! The file-based catalog: the package, its channel, and this bundle as `opm render` shows it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use leasehold_crds::lease::CLAIM_NAMESPACE;
use serde_json::{Map, Value, json};

use crate::bundle;
use crate::csv::{SUMMARY, name};
use crate::source::{CHANNEL, PACKAGE, Source, VERSION, replaced_by, yaml};

/// The program that serves it, of the version that tests it (`tests/olm/go.mod`).
const OPM: &str = "quay.io/operator-framework/opm:v1.57.0";

/// The fields of a `ClusterServiceVersion` that clients of a catalog see: there, and here.
const SHOWN: [(&str, &str); 12] = [
    ("/metadata/annotations", "annotations"),
    ("/metadata/labels", "labels"),
    ("/spec/customresourcedefinitions", "crdDescriptions"),
    ("/spec/description", "description"),
    ("/spec/displayName", "displayName"),
    ("/spec/installModes", "installModes"),
    ("/spec/keywords", "keywords"),
    ("/spec/links", "links"),
    ("/spec/maintainers", "maintainers"),
    ("/spec/maturity", "maturity"),
    ("/spec/minKubeVersion", "minKubeVersion"),
    ("/spec/provider", "provider"),
];

/// The files of the catalog with the bundle of this `ClusterServiceVersion`.
pub fn files(source: &Source, csv: &Value) -> Result<BTreeMap<PathBuf, String>> {
    let package = json!({
        "schema": "olm.package",
        "name": PACKAGE,
        "defaultChannel": CHANNEL,
        "description": SUMMARY,
        "icon": source.icon()?,
    });
    let channel = json!({
        "schema": "olm.channel",
        "package": PACKAGE,
        "name": CHANNEL,
        "entries": [{ "name": name(), "skipRange": replaced_by(VERSION) }],
    });
    let mut text = yaml(&package)?;
    for blob in [channel, bundle(source, csv)?] {
        text += "---\n";
        text += &serde_yaml_ng::to_string(&blob)?;
    }
    let files = [
        ("catalog/leasehold/catalog.yaml", text),
        ("catalog.Dockerfile", dockerfile()),
        ("subscription.yaml", subscription(source)?),
    ];
    Ok(files.map(|(path, text)| (PathBuf::from(path), text)).into())
}

/// What a cluster with the manager is asked to install: for `kubectl apply`.
fn subscription(source: &Source) -> Result<String> {
    let metadata = json!({ "name": PACKAGE, "namespace": CLAIM_NAMESPACE });
    let mut text = yaml(source.object("Namespace", CLAIM_NAMESPACE, "")?)?;
    for object in [
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": metadata,
            "spec": { "sourceType": "grpc", "image": image(), "displayName": "Leasehold" },
        }),
        // Without target namespaces: all.
        json!({
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": metadata,
            "spec": {},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": metadata,
            "spec": {
                "name": PACKAGE,
                "channel": CHANNEL,
                "source": PACKAGE,
                "sourceNamespace": CLAIM_NAMESPACE,
            },
        }),
    ] {
        text += "---\n";
        text += &serde_yaml_ng::to_string(&object)?;
    }
    Ok(text)
}

fn image() -> String {
    format!("leasehold/catalog:{VERSION}")
}

fn bundle(source: &Source, csv: &Value) -> Result<Value> {
    let mut properties = Vec::new();
    for (_, definition) in &source.definitions {
        let at = |path: &str| definition.pointer(path).cloned().unwrap_or_default();
        properties.push(json!({ "type": "olm.gvk", "value": {
            "group": at("/spec/group"),
            "kind": at("/spec/names/kind"),
            "version": at("/spec/versions/0/name"),
        } }));
    }
    properties.sort_by_key(ToString::to_string);
    let package = json!({ "packageName": PACKAGE, "version": VERSION });
    properties.push(json!({ "type": "olm.package", "value": package }));
    let mut shown = Map::new();
    shown.insert("apiServiceDefinitions".to_owned(), json!({}));
    for (path, field) in SHOWN {
        shown.insert(field.to_owned(), csv.pointer(path).cloned().context(path)?);
    }
    properties.push(json!({ "type": "olm.csv.metadata", "value": shown }));

    let related = csv.pointer("/spec/relatedImages").and_then(Value::as_array);
    let mut related = related.context("no related images")?.clone();
    related.push(json!({ "name": "", "image": bundle::image() }));
    related.sort_by_key(|it| it.get("image").map(ToString::to_string));
    Ok(json!({
        "schema": "olm.bundle",
        "name": name(),
        "package": PACKAGE,
        "image": bundle::image(),
        "properties": properties,
        "relatedImages": related,
    }))
}

fn dockerfile() -> String {
    format!(
        "# Written by `make bundle`.\n\
         # docker build --file deploy/olm/catalog.Dockerfile --tag {} deploy/olm\n\
         FROM {OPM}\n\
         ENTRYPOINT [\"/bin/opm\"]\n\
         CMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]\n\
         COPY catalog /configs\n\
         RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n\
         LABEL operators.operatorframework.io.index.configs.v1=/configs\n",
        image()
    )
}
