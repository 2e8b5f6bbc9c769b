//! Server-side apply of objects of any kind.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

/// The field manager of the lab.
const MANAGER: &str = "leasehold-lab";
/// The number of attempts to look up a kind: a CRD is served a moment after it is applied.
const ATTEMPTS: u32 = 100;

pub(super) async fn folder(
    client: &Client,
    folder: &Path,
    accept: impl Fn(&str) -> bool,
) -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("read {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut wanted = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let all = documents(&text).with_context(|| format!("parse {}", file.display()))?;
        wanted.extend(all.into_iter().filter(|object| accept(field(object, "kind"))));
    }
    // Namespaces before what they hold.
    wanted.sort_by_key(|object| field(object, "kind") != "Namespace");
    objects(client, &wanted).await
}

/// The objects of a YAML text.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        // It refuses a key that is there twice, of which JSON would have the last.
        let value: Value = serde_yaml_ng::from_value(serde_yaml_ng::Value::deserialize(document)?)?;
        if !value.is_null() {
            all.push(value);
        }
    }
    Ok(all)
}

pub(super) async fn objects(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        let api = api(client, object).await?;
        let name = name(object)?;
        api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {} {name}", field(object, "kind")))?;
    }
    Ok(())
}

pub(super) async fn delete(client: &Client, object: &Value) -> Result<()> {
    let api = api(client, object).await?;
    match api.delete(name(object)?, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()).map_err(Into::into),
    }
}

fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> Result<&str> {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .ok_or_else(|| anyhow!("an object without a name: {object}"))
}

async fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let (group, version) = match field(object, "apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", field(object, "apiVersion")),
    };
    let kind = GroupVersionKind::gvk(group, version, field(object, "kind"));
    let (resource, scope) = lookup(client, &kind).await?;
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    Ok(match scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), &resource)
        }
    })
}

async fn lookup(client: &Client, kind: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
    let mut attempt = 0;
    loop {
        match pinned_kind(client, kind).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(error) if attempt == ATTEMPTS => {
                return Err(error).with_context(|| format!("look up {kind:?}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        attempt += 1;
    }
}
