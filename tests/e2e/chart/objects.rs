//! Objects as what makes them prints them, and in what they differ.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use leasehold_lab::controlplane::documents;
use serde_json::Value;

/// The labels that Helm's own conventions want.
const LABELS: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];
/// The annotation of what stays when a release is uninstalled.
const KEPT: &str = "helm.sh/resource-policy";

/// Objects by `kind namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// The objects of a YAML text, none of them twice.
pub fn read(yaml: &str) -> Result<Objects> {
    let mut objects = Objects::new();
    for object in documents(yaml)? {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let kind = text("/kind").context("an object without a kind")?;
        let name = text("/metadata/name").with_context(|| format!("a {kind} without a name"))?;
        let name = match text("/metadata/namespace") {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        };
        ensure!(objects.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    Ok(objects)
}

/// The same without Helm's labels, which each object of a chart has to have.
pub fn without_helm(mut objects: Objects) -> Result<Objects> {
    for (name, object) in &mut objects {
        let labels = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
        let labels = labels.with_context(|| format!("{name} has no labels"))?;
        for label in LABELS {
            ensure!(labels.remove(label).is_some(), "{name} has no label {label}");
        }
        let bare = labels.is_empty();
        let metadata = object.pointer_mut("/metadata").and_then(Value::as_object_mut);
        let metadata = metadata.with_context(|| format!("{name} has no metadata"))?;
        if bare {
            metadata.remove("labels");
        }
        if metadata.get("annotations").is_some_and(|it| it.get(KEPT).is_some()) {
            metadata.remove("annotations");
        }
    }
    Ok(objects)
}

/// Fails where objects differ, with all places.
pub fn same(expected: &Objects, found: &Objects) -> Result<()> {
    let mut differences = Vec::new();
    for name in expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name))) {
        compare(name, expected.get(name), found.get(name), &mut differences);
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

fn compare(at: &str, expected: Option<&Value>, found: Option<&Value>, to: &mut Vec<String>) {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            for key in expected.keys().chain(found.keys().filter(|it| !expected.contains_key(*it)))
            {
                compare(&format!("{at}.{key}"), expected.get(key), found.get(key), to);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) => {
            for index in 0..expected.len().max(found.len()) {
                compare(&format!("{at}[{index}]"), expected.get(index), found.get(index), to);
            }
        }
        (expected, found) if expected == found => {}
        (expected, found) => {
            let text = |it: Option<&Value>| it.map_or("nothing".to_owned(), Value::to_string);
            to.push(format!("{at}: {} instead of {}", text(found), text(expected)));
        }
    }
}
