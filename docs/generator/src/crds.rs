//! The fields of the custom resources.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use kube::CustomResourceExt;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde_json::{Map, Value};

use crate::markdown::{cell, code, codes, table};

const HEADINGS: [&str; 5] = ["Field", "Type", "Default", "Validation", "Description"];

pub fn page() -> Result<String> {
    let mut page = "# Custom resources\n\n\
        This page lists all fields of IPAddressPool and AnnouncementPolicy, with their types, defaults, and \
        validation. `kubectl explain` shows the same descriptions for the installed version.\n\n\
        In field names, `[]` is an element of a list. `LabelSelector` and `Condition` are the types of the \
        Kubernetes API. A message under *Validation* is the error of the API server for an invalid value; \
        `…` is the value.\n\n"
        .to_owned();
    for crd in [IPAddressPool::crd(), AnnouncementPolicy::crd()] {
        page.push_str(&resource(&serde_json::to_value(&crd)?)?);
    }
    Ok(page)
}

fn resource(crd: &Value) -> Result<String> {
    let spec = crd.get("spec").context("a definition without a specification")?;
    let text = |path| spec.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (kind, group) = (text("/names/kind"), text("/group"));
    let mut page = format!("## {kind}\n\n");
    for version in spec.get("versions").and_then(Value::as_array).into_iter().flatten() {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let rows = [
            ["API version".to_owned(), code(&format!("{group}/{name}"))],
            ["Scope".to_owned(), text("/scope").to_owned()],
            ["Names".to_owned(), {
                let short = words(spec.pointer("/names/shortNames"));
                codes([text("/names/plural"), text("/names/singular")].into_iter().chain(short))
            }],
            ["Categories".to_owned(), codes(words(spec.pointer("/names/categories")))],
        ];
        page.push_str(&table(["Property", "Value"], rows));
        let schema = version.pointer("/schema/openAPIV3Schema/properties");
        for part in ["spec", "status"] {
            let field = schema.and_then(|it| it.get(part)).with_context(|| format!("no {part}"))?;
            let about = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let mut rows = Vec::new();
            if !rules(field).is_empty() {
                let validation = rules(field).join("<br>");
                rows.push([
                    code(part),
                    "object".to_owned(),
                    String::new(),
                    validation,
                    String::new(),
                ]);
            }
            fields(part, field, &mut rows);
            write!(page, "### {kind} {part}\n\n{about}\n\n{}", table(HEADINGS, rows))?;
        }
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array);
        page.push_str(&columns_of(kind, columns.map(Vec::as_slice).unwrap_or_default()));
    }
    Ok(page)
}

fn columns_of(kind: &str, columns: &[Value]) -> String {
    let rows = columns.iter().map(|column| {
        let text = |key| column.get(key).and_then(Value::as_str).unwrap_or_default();
        let wide = column.get("priority").and_then(Value::as_i64).unwrap_or_default() > 0;
        [
            cell(&text("name").to_uppercase()),
            (if wide { "`-o wide`" } else { "always" }).to_owned(),
            code(text("jsonPath")),
            cell(text("description")),
        ]
    });
    format!(
        "### {kind} columns\n\nThe columns of `kubectl get`:\n\n{}",
        table(["Column", "Shown", "Source", "Description"], rows)
    )
}

/// Adds a row for each field of an object, and the rows of their fields.
fn fields(path: &str, object: &Value, rows: &mut Vec<[String; 5]>) {
    let Some(properties) = object.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> = words(object.get("required")).collect();
    for (name, field) in properties {
        let path = format!("{path}.{name}");
        let default = match field.get("default") {
            Some(Value::String(default)) => code(default),
            Some(default) => code(&default.to_string().replace(',', ", ").replace(':', ": ")),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => String::new(),
        };
        let about = field.get("description").and_then(Value::as_str).unwrap_or_default();
        rows.push([
            code(&path),
            type_of(field),
            default,
            validation(field).join("<br>"),
            cell(about),
        ]);
        descend(&path, field, rows);
    }
}

fn descend(path: &str, field: &Value, rows: &mut Vec<[String; 5]>) {
    if known(field).is_some() {
        return;
    }
    fields(path, field, rows);
    if let Some(items) = field.get("items") {
        descend(&format!("{path}[]"), items, rows);
    }
}

/// The name of a type that Kubernetes documents.
fn known(field: &Value) -> Option<&'static str> {
    let properties = field.get("properties").and_then(Value::as_object)?;
    let has = |names: [&str; 2]| names.iter().all(|name| properties.contains_key(*name));
    match () {
        () if has(["matchExpressions", "matchLabels"]) => Some("LabelSelector"),
        () if has(["lastTransitionTime", "reason"]) => Some("Condition"),
        () => None,
    }
}

fn type_of(field: &Value) -> String {
    let text = |key| field.get(key).and_then(Value::as_str);
    if let Some(known) = known(field) {
        return known.to_owned();
    }
    if let Some(items) = field.get("items") {
        return format!("list of {}", type_of(items));
    }
    if let Some(values) = field.get("additionalProperties") {
        return format!("map of {}", type_of(values));
    }
    match (text("type"), text("format")) {
        (Some(type_), Some(format)) => format!("{type_} ({format})"),
        (type_, _) => type_.unwrap_or("any").to_owned(),
    }
}

/// The checks of the API server on a field, and on the elements of a list.
fn validation(field: &Value) -> Vec<String> {
    let mut checks = own_validation(field);
    let items = field.get("items").filter(|items| known(items).is_none());
    // Those of objects stand in the rows of their fields.
    let items = items.filter(|items| items.get("properties").is_none());
    for check in items.map(own_validation).unwrap_or_default() {
        checks.push(format!("each: {check}"));
    }
    if let Some(items) = field.get("items").filter(|items| items.get("properties").is_some()) {
        checks.extend(rules(items).into_iter().map(|rule| format!("each: {rule}")));
    }
    checks
}

fn own_validation(field: &Value) -> Vec<String> {
    let number = |key| field.get(key).and_then(Value::as_f64);
    let range = |unit: &str, low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => Some(format!("{low} to {high}{unit}")),
        (Some(low), None) => Some(format!("at least {low}{unit}")),
        (None, Some(high)) => Some(format!("at most {high}{unit}")),
        (None, None) => None,
    };
    let mut checks = Vec::new();
    if let Some(values) = field.get("enum").and_then(Value::as_array) {
        checks.push(codes(values.iter().filter_map(Value::as_str)));
    }
    checks.extend(range("", number("minimum"), number("maximum")));
    checks.extend(range(" characters", number("minLength"), number("maxLength")));
    checks.extend(range(" elements", number("minItems"), number("maxItems")));
    checks.extend(range(" entries", number("minProperties"), number("maxProperties")));
    if let Some(pattern) = field.get("pattern").and_then(Value::as_str) {
        checks.push(code(pattern));
    }
    if field.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set") {
        checks.push("no duplicates".to_owned());
    }
    checks.extend(rules(field));
    checks
}

/// The messages of the rules of a field.
fn rules(field: &Value) -> Vec<String> {
    let rules = field.get("x-kubernetes-validations").and_then(Value::as_array);
    let mut messages = Vec::new();
    for rule in rules.into_iter().flatten().filter_map(Value::as_object) {
        let message = cell(&message(rule));
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    messages
}

fn message(rule: &Map<String, Value>) -> String {
    let text = |key| rule.get(key).and_then(Value::as_str);
    match (text("messageExpression"), text("message")) {
        (Some(expression), _) => spoken(expression),
        (None, Some(message)) => message.to_owned(),
        (None, None) => format!("`{}`", text("rule").unwrap_or_default()),
    }
}

/// The message that a CEL expression makes, with `…` for each value.
fn spoken(expression: &str) -> String {
    const VALUE: char = '…';
    let mut message = String::new();
    let mut depth = 0_u32;
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        match character {
            quote @ ('"' | '\'') => {
                let mut literal = String::new();
                while let Some(character) = characters.next() {
                    match character {
                        '\\' => literal.extend(characters.next()),
                        character if character == quote => break,
                        character => literal.push(character),
                    }
                }
                if depth == 0 {
                    message.push_str(&literal);
                    continue;
                }
            }
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ' ' | '+' if depth == 0 => continue,
            _ => {}
        }
        if !message.ends_with(VALUE) {
            message.push(VALUE);
        }
    }
    message
}

fn words(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_shown_by_the_message_that_users_see() {
        for (expression, message) in [
            (r#""'" + self + "' is out of bounds: write 1s""#, "'…' is out of bounds: write 1s"),
            (
                r"'write ' + self.split('-')[1].trim() + '-' + self + (self.contains(':') ? '/128' : '/32')",
                "write …-…",
            ),
        ] {
            assert_eq!(spoken(expression), message);
        }
    }

    #[test]
    fn fields_of_lists_and_of_objects_have_rows() {
        let schema = json!({
            "properties": {
                "list": { "type": "array", "maxItems": 2, "items": { "type": "object",
                    "properties": { "weight": { "type": "integer", "format": "int32", "minimum": 1 } } } },
                "mode": { "type": "string", "enum": ["A", "B"], "default": "A" },
            },
            "required": ["list"],
        });
        let mut rows = Vec::new();
        fields("spec", &schema, &mut rows);
        let shown: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            shown,
            [
                "`spec.list` list of object required at most 2 elements ",
                "`spec.list[].weight` integer (int32)  at least 1 ",
                "`spec.mode` string `A` `A`, `B` ",
            ]
        );
    }
}
