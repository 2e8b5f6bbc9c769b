//! The definitions as YAML, generated from the types.

use kube::CustomResourceExt;

use crate::{AnnouncementPolicy, IPAddressPool};

/// The folders with the generated files, from the root of the repository: for kubectl, and in the Helm chart.
pub const FOLDERS: [&str; 2] = ["crds/generated", "deploy/helm/leasehold/files/crds"];

/// The generated files of each folder: name and content.
pub fn files() -> Result<[(&'static str, String); 2], serde_yaml_ng::Error> {
    Ok([
        ("ipaddresspools.yaml", serde_yaml_ng::to_string(&IPAddressPool::crd())?),
        ("announcementpolicies.yaml", serde_yaml_ng::to_string(&AnnouncementPolicy::crd())?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_files_are_up_to_date() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for folder in FOLDERS {
            for (file, yaml) in files().unwrap() {
                let found = std::fs::read_to_string(root.join(folder).join(file));
                let stale = found.unwrap_or_default() != yaml;
                assert!(!stale, "{folder}/{file} is stale: run `make crds`");
            }
        }
    }

    #[test]
    fn every_field_has_a_description() {
        fn check(path: &str, schema: &serde_json::Value) {
            let properties = schema.get("properties").and_then(|p| p.as_object());
            for (name, field) in properties.into_iter().flatten() {
                let path = format!("{path}.{name}");
                assert!(field.get("description").is_some(), "{path} has no description");
                check(&path, field);
            }
            if let Some(items) = schema.get("items") {
                check(&format!("{path}[]"), items);
            }
        }
        for crd in [IPAddressPool::crd(), AnnouncementPolicy::crd()] {
            for version in &crd.spec.versions {
                let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
                let properties = &schema["openAPIV3Schema"]["properties"];
                check(&format!("{}.spec", crd.spec.names.kind), &properties["spec"]);
                check(&format!("{}.status", crd.spec.names.kind), &properties["status"]);
            }
        }
    }
}
