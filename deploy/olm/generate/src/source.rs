//! What the bundle is made of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use leasehold_crds::lease::CLAIM_NAMESPACE;
use serde::Deserialize;
use serde_json::{Value, json};

/// Where our part of the repository is.
pub const FOLDER: &str = "deploy/olm";
/// The name of the package, and of most objects.
pub const PACKAGE: &str = "leasehold";
/// The channel.
pub const CHANNEL: &str = "stable";
/// The version of this bundle.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first version that was published.
const FIRST: &str = "0.1.0";

/// From which versions the manager goes to `version` in one step: all before it. Without that it would stay at the
/// one that is installed.
pub fn replaced_by(version: &str) -> String {
    format!(">={FIRST} <{version}")
}

/// Where the sources are.
pub const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// The folder of the workspace.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(3).take(1).collect()
}

/// Everything that is read.
pub struct Source {
    /// The objects of `deploy/base`.
    base: Vec<Value>,
    /// The roles of `operator-rbac.yaml`.
    more: Vec<Value>,
    /// The definitions: file and object.
    pub definitions: Vec<(String, Value)>,
    /// One example of each resource.
    pub examples: Vec<Value>,
    /// What people read about it, as Markdown.
    pub description: String,
    /// The icon, an SVG.
    icon: String,
    /// The oldest Kubernetes that is supported.
    pub kubernetes: String,
}

impl Source {
    /// Reads the repository at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let text =
            |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
        let mut base = Vec::new();
        for file in ["namespace", "speaker-rbac", "operator-rbac", "speaker", "operator"] {
            base.extend(documents(&text(&format!("deploy/base/{file}.yaml"))?)?);
        }
        let mut definitions = Vec::new();
        for (file, yaml) in leasehold_crds::generated::files()? {
            let definition = documents(&yaml)?.into_iter().next().context("an empty definition")?;
            definitions.push((file.to_owned(), definition));
        }
        let mut examples = documents(&text("examples/pool.yaml")?)?;
        examples.extend(documents(&text("examples/policy.yaml")?)?);
        let workspace = text("Cargo.toml")?;
        let (_, minor) = workspace.split_once("\"v1_").context("k8s-openapi has no version")?;
        let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
        Ok(Self {
            base,
            more: documents(&text(&format!("{FOLDER}/operator-rbac.yaml"))?)?,
            definitions,
            examples,
            description: text(&format!("{FOLDER}/description.md"))?,
            icon: text(&format!("{FOLDER}/icon.svg"))?,
            kubernetes: format!("1.{minor}.0"),
        })
    }

    /// The object of `deploy/base` with this kind, name and (empty: none) namespace.
    pub fn object(&self, kind: &str, name: &str, namespace: &str) -> Result<&Value> {
        find(&self.base, kind, name, namespace)
            .with_context(|| format!("deploy/base has no {kind} {namespace}/{name}"))
    }

    /// What the role of this kind allows, in `deploy/base` and besides.
    pub fn rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Vec<Value>> {
        let more = find(&self.more, kind, name, namespace);
        let both = [Some(self.object(kind, name, namespace)?), more];
        let rules = both.into_iter().flatten().filter_map(|role| role.get("rules")?.as_array());
        Ok(rules.flatten().cloned().collect())
    }

    /// The container of a workload.
    pub fn container(&self, kind: &str, name: &str) -> Result<&Value> {
        let object = self.object(kind, name, CLAIM_NAMESPACE)?;
        object.pointer("/spec/template/spec/containers/0").context("no container")
    }

    /// Its image, which has to be that of this version.
    pub fn image(&self, kind: &str, name: &str) -> Result<&str> {
        let image = self.container(kind, name)?.get("image").and_then(Value::as_str);
        let image = image.context("no image")?;
        ensure!(image.ends_with(&format!(":{VERSION}")), "{name} has {image}, not {VERSION}");
        Ok(image)
    }

    /// The icon as a `ClusterServiceVersion` and a catalog have it.
    pub fn icon(&self) -> Result<Value> {
        let data = serde_json::to_value(ByteString(self.icon.clone().into_bytes()))?;
        Ok(json!({ "base64data": data, "mediatype": "image/svg+xml" }))
    }
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str, namespace: &str) -> Option<&'a Value> {
    all.iter().find(|object| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        text("/kind") == kind
            && text("/metadata/name") == name
            && text("/metadata/namespace") == namespace
    })
}

/// The objects of a YAML text.
fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        all.push(Value::deserialize(document)?);
    }
    Ok(all)
}

/// A file that is generated.
pub fn yaml(object: &Value) -> Result<String> {
    Ok(format!("# Written by `make bundle`.\n{}", serde_yaml_ng::to_string(object)?))
}
