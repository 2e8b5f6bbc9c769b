//! The bundle and the catalog of `deploy/olm`: what the Operator Framework's own programs say of them, and
//! what the Operator Lifecycle Manager makes of a bundle.
//!
//! The manager itself does not run here. What it does with a bundle is little: it applies the manifests in the
//! namespace of the installation, and for the `ClusterServiceVersion` makes accounts, roles and Deployments. Where
//! the installation is for all namespaces, `permissions` are for all of them, too: it lifts each Role to a
//! `ClusterRole`, with the right to read all Namespaces besides (`ensureSingletonRBAC` in its source).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::controlplane::documents;
use crate::{Lab, SYSTEM_NAMESPACE, programs, repository};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The kind that the manager installs.
const VERSION: &str = "ClusterServiceVersion";

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

/// The rights of one account, in a namespace or (empty) in all: the items of a role's `rules`.
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
                if object.get("kind") == Some(&json!(VERSION)) {
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

    /// The rights that the manager gives to the accounts, all of them in all namespaces.
    fn lifted(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for field in ["permissions", "clusterPermissions"] {
            let path = format!("/spec/install/spec/{field}");
            for permission in
                self.csv.pointer(&path).and_then(Value::as_array).into_iter().flatten()
            {
                let account = permission.get("serviceAccountName").and_then(Value::as_str);
                let rules = permission.get("rules").and_then(Value::as_array);
                let mut rules = rules.cloned().unwrap_or_default();
                if field == "permissions" {
                    rules.push(json!({
                        "apiGroups": [""], "resources": ["namespaces"],
                        "verbs": ["get", "list", "watch"],
                    }));
                }
                grants.push(Grant {
                    account: account.context("no account")?.to_owned(),
                    namespace: String::new(),
                    rules: rules.into(),
                });
            }
        }
        Ok(grants)
    }

    /// The same, and what the accounts get by the Roles and `RoleBindings` among the manifests.
    pub fn grants(&self) -> Result<Vec<Grant>> {
        let mut grants = self.lifted()?;
        for binding in self.others.iter().filter(|it| it.get("kind") == Some(&json!("RoleBinding")))
        {
            let text =
                |path: &str| binding.pointer(path).and_then(Value::as_str).context("no text");
            let subjects = binding.get("subjects").and_then(Value::as_array);
            ensure!(subjects.is_some_and(|it| it.len() == 1), "not one subject: {binding}");
            ensure!(text("/subjects/0/namespace")? == SYSTEM_NAMESPACE, "{binding}");
            grants.push(Grant {
                account: text("/subjects/0/name")?.to_owned(),
                namespace: SYSTEM_NAMESPACE.to_owned(),
                rules: self.role(text("/roleRef/kind")?, text("/roleRef/name")?)?,
            });
        }
        Ok(grants)
    }

    /// The rules of a role of this kind among the manifests.
    pub fn role(&self, kind: &str, name: &str) -> Result<Value> {
        let role = self.others.iter().find(|object| {
            object.get("kind") == Some(&json!(kind))
                && object.pointer("/metadata/name") == Some(&json!(name))
        });
        let rules = role.and_then(|role| role.get("rules")).cloned();
        rules.with_context(|| format!("no {kind} {name}"))
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

    /// Installs it in the namespace that it suggests.
    pub async fn install(&self, lab: &Lab) -> Result<()> {
        let namespace = "/metadata/annotations/operatorframework.io~1suggested-namespace-template";
        let namespace = self.at(namespace)?.as_str().context("no text")?;
        let mut objects = vec![serde_json::from_str(namespace)?, definition(), self.csv.clone()];
        for grant in self.lifted()? {
            objects.extend(grant.objects(objects.len()));
        }
        for object in &self.others {
            objects.push(placed(object.clone()));
        }
        lab.plane().apply(&objects).await?;
        self.deploy(lab).await
    }

    /// Makes the Deployment, which belongs to the `ClusterServiceVersion`: as the manager does again where
    /// somebody has deleted it.
    pub async fn deploy(&self, lab: &Lab) -> Result<()> {
        let owner = self.owner(lab)?;
        for deployment in self.list("/spec/install/spec/deployments")? {
            let field = |name: &str| deployment.get(name).cloned().unwrap_or_default();
            lab.apply(placed(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": field("name"), "labels": field("label"), "ownerReferences": [owner],
                },
                "spec": field("spec"),
            })))
            .await?;
        }
        Ok(())
    }

    /// The `ClusterServiceVersion`, as what belongs to it refers to it.
    pub fn owner(&self, lab: &Lab) -> Result<Value> {
        let name = self.at("/metadata/name")?.as_str().context("no text")?;
        let uid = lab.plane().kubectl(&[
            "get",
            VERSION,
            name,
            "--namespace",
            SYSTEM_NAMESPACE,
            "-o",
            "jsonpath={.metadata.uid}",
        ])?;
        Ok(json!({
            "apiVersion": self.at("/apiVersion")?, "kind": VERSION, "name": name, "uid": uid.trim(),
            "blockOwnerDeletion": false, "controller": false,
        }))
    }

    /// Deletes the `ClusterServiceVersion`, and with it what belongs to it.
    pub async fn uninstall(&self, lab: &Lab) -> Result<()> {
        lab.delete(&self.csv).await
    }
}

/// The definition of `ClusterServiceVersions`, as far as somebody looks at their fields here.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusterserviceversions.operators.coreos.com" },
        "spec": {
            "group": "operators.coreos.com", "scope": "Namespaced",
            "names": { "kind": VERSION, "plural": "clusterserviceversions" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    })
}

impl Grant {
    /// The account, a role for all namespaces and its binding, with a name that the manager makes up.
    fn objects(&self, number: usize) -> [Value; 3] {
        let (account, namespace) = (&self.account, SYSTEM_NAMESPACE);
        let name = format!("leasehold-by-bundle-{number}");
        let (role, binding, metadata) =
            ("ClusterRole", "ClusterRoleBinding", json!({ "name": name }));
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
