//! The objects of the speakers, from the manifests in `deploy/base`.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ApiResource;
use leasehold_crds::lease::SESSION_NAMESPACE;
use serde::Deserialize;
use serde_json::{Value, json};

/// The manifests that have what a bundle cannot hold, in the order in which it is applied.
const MANIFESTS: [&str; 4] = [
    include_str!("../../../deploy/base/namespace.yaml"),
    include_str!("../../../deploy/base/speaker-rbac.yaml"),
    include_str!("../../../deploy/base/operator-rbac.yaml"),
    include_str!("../../../deploy/base/speaker.yaml"),
];

/// Why there is nothing to deploy.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A manifest is no YAML.
    #[error("a manifest is not valid YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// An object lacks what each has.
    #[error("{0} lacks a field that it should have")]
    Incomplete(&'static str),
}

/// One object to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; none for a Namespace.
    pub namespace: Option<String>,
    pub(super) resource: ApiResource,
    /// All of it.
    pub fields: Value,
}

impl Object {
    /// All of it, as belonging to `owners`.
    pub(super) fn owned_by(&self, owners: &[OwnerReference]) -> Value {
        let mut fields = self.fields.clone();
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("ownerReferences".to_owned(), json!(owners));
        }
        fields
    }
}

/// The `ClusterRole` of a bundle that stands for the Role `name` in the namespace of the sessions: that
/// namespace is there only once the operator runs.
pub fn sessions_role(name: &str) -> String {
    format!("{name}-sessions")
}

/// The namespace of the sessions, the bindings in it, and the speakers' `DaemonSet` with `image`, by default
/// that of the manifest.
pub fn objects(image: Option<&str>) -> Result<Vec<Object>, ManifestError> {
    let mut objects = Vec::new();
    for manifest in MANIFESTS {
        for document in serde_yaml_ng::Deserializer::from_str(manifest) {
            let fields = Value::deserialize(document)?;
            objects.extend(object(fields, image)?);
        }
    }
    Ok(objects)
}

fn object(mut fields: Value, image: Option<&str>) -> Result<Option<Object>, ManifestError> {
    let text = |path: &str| fields.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let kind = text("/kind").ok_or(ManifestError::Incomplete("an object"))?;
    let name = text("/metadata/name").ok_or(ManifestError::Incomplete("an object"))?;
    let namespace = text("/metadata/namespace");
    let resource = match kind.as_str() {
        "Namespace" if name == SESSION_NAMESPACE => ApiResource::erase::<Namespace>(&()),
        "RoleBinding" if namespace.as_deref() == Some(SESSION_NAMESPACE) => {
            let role = fields.get_mut("roleRef").and_then(Value::as_object_mut);
            let role = role.ok_or(ManifestError::Incomplete("a RoleBinding"))?;
            role.insert("kind".to_owned(), json!("ClusterRole"));
            role.insert("name".to_owned(), json!(sessions_role(&name)));
            ApiResource::erase::<RoleBinding>(&())
        }
        "DaemonSet" => {
            let place = fields.pointer_mut("/spec/template/spec/containers/0/image");
            let place = place.ok_or(ManifestError::Incomplete("the DaemonSet"))?;
            if let Some(image) = image {
                *place = json!(image);
            }
            ApiResource::erase::<DaemonSet>(&())
        }
        _ => return Ok(None),
    };
    Ok(Some(Object { kind, name, namespace, resource, fields }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_the_sessions_comes_first_and_the_speakers_last() {
        let objects = objects(Some("registry.example/speaker:2")).unwrap();
        let names: Vec<_> = objects.iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
        assert_eq!(
            names,
            [
                "Namespace leasehold-sessions",
                "RoleBinding leasehold-speaker",
                "RoleBinding leasehold-operator",
                "DaemonSet leasehold-speaker",
            ]
        );
        let binding = &objects[1].fields;
        assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
        assert_eq!(binding["roleRef"]["name"], "leasehold-speaker-sessions");
        let speakers: DaemonSet = serde_json::from_value(objects[3].fields.clone()).unwrap();
        let pod = speakers.spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.containers[0].image.as_deref(), Some("registry.example/speaker:2"));
    }

    #[test]
    fn what_is_deployed_belongs_to_its_owner() {
        let owner = OwnerReference { uid: "1".to_owned(), ..OwnerReference::default() };
        let objects = objects(None).unwrap();
        let speakers = objects.last().unwrap().owned_by(&[owner]);
        assert_eq!(speakers["metadata"]["ownerReferences"][0]["uid"], "1");
        assert_eq!(speakers["metadata"]["name"], "leasehold-speaker");
    }
}
