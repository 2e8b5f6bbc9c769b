//! Validation of objects against the API server's types: kubeconform, with schemas that are made of the API server's
//! own description. Unlike the server it accepts no field that the schema lacks.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::{Lab, programs};

/// The file with all definitions, to which those of kinds refer.
const DEFINITIONS: &str = "definitions.json";
/// Where kubeconform finds the schema of a kind.
const LOCATION: &str = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json";
/// The kinds that a definition is of (an extension of Kubernetes).
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The schemas of all kinds that an API server serves.
#[derive(Clone, Debug)]
pub struct Schemas {
    folder: PathBuf,
    kubeconform: PathBuf,
}

impl Schemas {
    /// Reads them from the API server, which serves those of custom resources a moment after their definitions
    /// are applied.
    pub fn of(lab: &Lab) -> Result<Self> {
        let api: Value =
            serde_json::from_str(&lab.plane().kubectl(&["get", "--raw", "/openapi/v2"])?)?;
        let definitions = api.get("definitions").and_then(Value::as_object);
        let mut definitions = definitions.context("no definitions")?.clone();
        let folder = lab.folder().join("schemas");
        fs::create_dir_all(&folder)?;
        for (name, schema) in &mut definitions {
            for kind in schema.get(KINDS).and_then(Value::as_array).into_iter().flatten() {
                let text =
                    |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default();
                let (version, kind) = (text("version"), text("kind").to_lowercase());
                let group =
                    Some(text("group")).filter(|group| !group.is_empty()).unwrap_or(version);
                let schema = json!({ "$ref": format!("{DEFINITIONS}#/definitions/{name}") });
                let file = folder.join(format!("{group}_{version}_{kind}.json"));
                fs::write(file, schema.to_string())?;
            }
            strict(schema);
        }
        // It is written as text or as a number.
        let quantity = definitions.get_mut("io.k8s.apimachinery.pkg.api.resource.Quantity");
        *quantity.context("no quantities")? = json!({ "type": ["string", "number"] });
        fs::write(folder.join(DEFINITIONS), json!({ "definitions": definitions }).to_string())?;
        Ok(Self { folder, kubeconform: programs::of("helm")?.join("kubeconform") })
    }

    /// Fails unless all objects of a YAML text are valid; says how many these are.
    pub fn check(&self, name: &str, yaml: &str) -> Result<u64> {
        let file = self.folder.join(format!("{name}.yaml"));
        fs::write(&file, yaml)?;
        let mut command = Command::new(&self.kubeconform);
        command.args(["-strict", "-summary", "-output", "json", "-schema-location"]);
        let output = command.arg(self.folder.join(LOCATION)).arg(&file).output()?;
        let (text, notes) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{name}: {}\n{text}{notes}", output.status);
        let answer: Value = serde_json::from_str(&text)?;
        let count = |outcome: &str| answer.pointer(&format!("/summary/{outcome}"))?.as_u64();
        ensure!(count("skipped") == Some(0), "{name}: {text}");
        count("valid").with_context(|| format!("{name}: {text}"))
    }
}

/// Has a schema refuse fields that it does not name, as the API server does in strict validation.
fn strict(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    // OpenAPI v2 has no word for it but this format of strings.
    if fields.get("format") == Some(&json!("int-or-string")) {
        fields.remove("format");
        fields.insert("type".to_owned(), json!(["integer", "string"]));
    }
    let open = ["additionalProperties", "x-kubernetes-preserve-unknown-fields"];
    if fields.contains_key("properties") && !open.iter().any(|field| fields.contains_key(*field)) {
        fields.insert("additionalProperties".to_owned(), json!(false));
    }
    for field in ["items", "additionalProperties"] {
        fields.get_mut(field).into_iter().for_each(strict);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(strict);
}
