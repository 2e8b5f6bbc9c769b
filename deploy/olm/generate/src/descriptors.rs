//! The fields of our resources as consoles show them, made of the definitions.

use anyhow::{Context, Result};
use serde_json::{Value, json};

const UI: &str = "urn:alm:descriptor:com.tectonic.ui:";
const HIDDEN: &str = "urn:alm:descriptor:com.tectonic.ui:hidden";
const CONDITIONS: &str = "urn:alm:descriptor:io.kubernetes.conditions";
const TEXT: &str = "urn:alm:descriptor:text";

/// The entry of a definition among those that the operator owns.
pub fn owned(definition: &Value) -> Result<Value> {
    let at = |path: &str| definition.pointer(path).with_context(|| format!("no {path}"));
    let kind = at("/spec/names/kind")?.as_str().context("no text")?;
    let schema = at("/spec/versions/0/schema/openAPIV3Schema")?;
    let fields = |part: &str| {
        let mut descriptors = Vec::new();
        if let Some(schema) = schema.pointer(&format!("/properties/{part}")) {
            describe("", schema, part == "status", &mut descriptors);
        }
        descriptors
    };
    Ok(json!({
        "description": schema.get("description").context("no description")?,
        "displayName": words(kind),
        "kind": kind,
        "name": at("/metadata/name")?,
        "resources": [
            { "kind": "Service", "name": "", "version": "v1" },
            { "kind": "Lease", "name": "", "version": "coordination.k8s.io/v1" },
        ],
        "specDescriptors": fields("spec"),
        "statusDescriptors": fields("status"),
        "version": at("/spec/versions/0/name")?,
    }))
}

/// The descriptors of all fields below `path`, but for those of lists of objects and of deprecated fields,
/// which forms do not show.
fn describe(path: &str, schema: &Value, status: bool, descriptors: &mut Vec<Value>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, field) in properties.into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let deprecated = description.starts_with("Deprecated:");
        let shown = if deprecated { vec![HIDDEN.to_owned()] } else { shown(name, field, status) };
        descriptors.push(json!({
            "description": description.split_whitespace().collect::<Vec<_>>().join(" "),
            "displayName": words(name),
            "path": path,
            "x-descriptors": shown,
        }));
        if !deprecated && !selects(field) {
            describe(&path, field, status, descriptors);
        }
    }
}

/// How a field is shown.
fn shown(name: &str, field: &Value, status: bool) -> Vec<String> {
    let kind =
        |field: &Value| field.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if status {
        return vec![if name == "conditions" { CONDITIONS } else { TEXT }.to_owned()];
    }
    let choices = field.get("enum").and_then(Value::as_array);
    if let Some(choices) = choices {
        let choices = choices.iter().filter_map(Value::as_str);
        return choices.map(|choice| format!("{UI}select:{choice}")).collect();
    }
    match kind(field).as_str() {
        "boolean" => vec![format!("{UI}booleanSwitch")],
        "integer" => vec![format!("{UI}number")],
        "string" => vec![format!("{UI}text")],
        "object" => vec![format!("{UI}fieldGroup:{name}")],
        // Consoles have no editor of lists but for objects: these are edited as YAML.
        _ => vec![format!("{UI}advanced")],
    }
}

/// Whether a field is a label selector, whose own fields everybody knows.
fn selects(field: &Value) -> bool {
    field.pointer("/properties/matchLabels").is_some()
}

/// `ipAddressPools`, `IPAddressPool`, `assignedIPv4` as people write them.
fn words(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut words = String::new();
    for (number, letter) in letters.iter().enumerate() {
        let before = number.checked_sub(1).and_then(|it| letters.get(it));
        let after = letters.get(number + 1);
        // `IPv4` and `IPs` are one word each.
        let begins = after.is_some_and(|it| it.is_lowercase() && !matches!(it, 'v' | 's'));
        let starts = letter.is_uppercase() && before.is_some_and(|it| it.is_lowercase() || begins);
        if starts {
            words.push(' ');
        }
        if number == 0 {
            words.extend(letter.to_uppercase());
        } else {
            words.push(*letter);
        }
    }
    words.replace("Ip ", "IP ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_words() {
        for (name, shown) in [
            ("IPAddressPool", "IP Address Pool"),
            ("ipAddressPoolSelectors", "IP Address Pool Selectors"),
            ("avoidBuggyIPs", "Avoid Buggy IPs"),
            ("assignedIPv4", "Assigned IPv4"),
            ("onApiOutage", "On Api Outage"),
            ("mode", "Mode"),
        ] {
            assert_eq!(words(name), shown);
        }
    }
}
