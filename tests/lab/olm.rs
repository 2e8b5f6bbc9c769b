//! The bundle and the catalog of `deploy/olm`: what the Operator Framework's own programs say of them, and
//! what the Operator Lifecycle Manager makes of a bundle.
//!
//! The manager itself does not run here. What it does with a bundle is little: it applies the manifests in the
//! namespace of the installation, and for the `ClusterServiceVersion` makes accounts, roles and Deployments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::controlplane::documents;
use crate::{SYSTEM_NAMESPACE, programs, repository};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The folder of bundle and catalog.
pub fn folder() -> PathBuf {
    repository().join("deploy/olm")
}

/// opm and validate-bundle.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Finds them, and builds them if this user has not got them yet (`tests/olm/build`).
    pub fn locate() -> Result<Self> {
        Ok(Self { folder: programs::of("olm")? })
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.folder.join(program));
        let output = command.args(arguments).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{program} {arguments:?}: {}\n{text}{errors}",
            output.status
        );
        Ok(text)
    }

    /// Runs all validators on the folder of a bundle; what they find is the error.
    pub fn validate_bundle(&self, folder: &Path) -> Result<String> {
        self.run("validate-bundle", &[&folder.to_string_lossy()])
    }

    /// The same for the folder of a catalog.
    pub fn validate_catalog(&self, folder: &Path) -> Result<String> {
        self.run("opm", &["validate", &folder.to_string_lossy()])
    }

    /// A bundle as a catalog has it, by opm.
    pub fn render(&self, folder: &Path, image: &str) -> Result<Value> {
        let (folder, image) =
            (folder.to_string_lossy(), format!("--alpha-image-ref-template={image}"));
        let level = "--migrate-level=bundle-object-to-csv-metadata";
        let text = self.run("opm", &["render", &folder, &image, level, "--output=json"])?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// The bundle, as the Operator Lifecycle Manager reads it.
#[derive(Clone, Debug)]
pub struct Bundle {
    csv: Value,
    others: Vec<Value>,
}

/// What one account is allowed, in a namespace or (empty) in all: the items of a role's `rules`.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The service account.
    pub account: String,
    /// The namespace.
    pub namespace: String,
    /// The rules.
    pub rules: Value,
}

impl Bundle {
    /// Reads that of the repository.
    pub fn read() -> Result<Self> {
        let (mut csv, mut others) = (None, Vec::new());
        for entry in fs::read_dir(folder().join("bundle/manifests"))? {
            for object in documents(&fs::read_to_string(entry?.path())?)? {
                if object.get("kind") == Some(&json!("ClusterServiceVersion")) {
                    csv = Some(object);
                } else {
                    others.push(object);
                }
            }
        }
        Ok(Self { csv: csv.context("no ClusterServiceVersion")?, others })
    }

    fn at(&self, path: &str) -> Result<&Value> {
        self.csv.pointer(path).with_context(|| format!("the ClusterServiceVersion has no {path}"))
    }

    fn list(&self, path: &str) -> Result<impl Iterator<Item = &Value>> {
        let list = self.at(path)?.as_array();
        list.map(|list| list.iter()).with_context(|| format!("{path} is no list"))
    }

    /// All roles that the accounts get from the manager.
    pub fn grants(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for (field, namespace) in [("permissions", SYSTEM_NAMESPACE), ("clusterPermissions", "")] {
            for permission in self.list(&format!("/spec/install/spec/{field}"))? {
                let account = permission.get("serviceAccountName").and_then(Value::as_str);
                grants.push(Grant {
                    account: account.context("no account")?.to_owned(),
                    namespace: namespace.to_owned(),
                    rules: permission.get("rules").cloned().unwrap_or_default(),
                });
            }
        }
        Ok(grants)
    }

    /// The rules of a `ClusterRole` among the manifests.
    pub fn cluster_role(&self, name: &str) -> Result<Value> {
        let role = self.others.iter().find(|object| {
            object.get("kind") == Some(&json!("ClusterRole"))
                && object.pointer("/metadata/name") == Some(&json!(name))
        });
        let rules = role.and_then(|role| role.get("rules")).cloned();
        rules.with_context(|| format!("no ClusterRole {name}"))
    }

    /// The container of the operator.
    pub fn operator(&self) -> Result<&Value> {
        self.at("/spec/install/spec/deployments/0/spec/template/spec/containers/0")
    }

    /// The related image of this name.
    pub fn image(&self, name: &str) -> Result<String> {
        let mut images = self.list("/spec/relatedImages")?;
        let image = images.find(|image| image.get("name") == Some(&json!(name)));
        let image = image.and_then(|image| image.get("image")?.as_str());
        Ok(image.with_context(|| format!("no related image {name}"))?.to_owned())
    }

    /// All objects that are there when it is installed, in the namespace that it suggests.
    pub fn objects(&self) -> Result<Vec<Value>> {
        let namespace = "/metadata/annotations/operatorframework.io~1suggested-namespace-template";
        let namespace = self.at(namespace)?.as_str().context("no text")?;
        let mut objects = vec![serde_json::from_str(namespace)?];
        for grant in self.grants()? {
            objects.extend(grant.objects(objects.len()));
        }
        for object in &self.others {
            objects.push(placed(object.clone()));
        }
        for deployment in self.list("/spec/install/spec/deployments")? {
            let field = |name: &str| deployment.get(name).cloned().unwrap_or_default();
            objects.push(placed(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": field("name"), "labels": field("label") },
                "spec": field("spec"),
            })));
        }
        Ok(objects)
    }
}

impl Grant {
    /// The account, a role and its binding, with a name that the manager makes up.
    fn objects(&self, number: usize) -> [Value; 3] {
        let (account, namespace) = (&self.account, SYSTEM_NAMESPACE);
        let name = format!("leasehold-by-bundle-{number}");
        let (role, binding, metadata) = if self.namespace.is_empty() {
            ("ClusterRole", "ClusterRoleBinding", json!({ "name": name }))
        } else {
            ("Role", "RoleBinding", json!({ "name": name, "namespace": namespace }))
        };
        [
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": account, "namespace": namespace },
            }),
            json!({
                "apiVersion": RBAC, "kind": role, "metadata": metadata, "rules": self.rules,
            }),
            json!({
                "apiVersion": RBAC, "kind": binding, "metadata": metadata,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
            }),
        ]
    }
}

/// An object in the namespace of the installation; where its kind has no namespace, that says nothing.
fn placed(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !metadata.contains_key("namespace")
    {
        metadata.insert("namespace".to_owned(), json!(SYSTEM_NAMESPACE));
    }
    object
}
