//! What people can write into the chart's values.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use leasehold_lab::helm::{self, Helm};
use leasehold_lab::{Lab, binaries};
use serde::Deserialize;
use serde_json::Value;

use super::{OPTIONS, objects};

const SPEAKER: &str = "DaemonSet leasehold-system/leasehold-speaker";
const OPERATOR: &str = "Deployment leasehold-system/leasehold-operator";

/// What values do.
#[derive(Debug, Deserialize)]
struct Effects {
    /// Of single values.
    rows: Vec<Effect>,
    /// Of values that both components have.
    both: Vec<Effect>,
}

/// What a value does.
#[derive(Debug, Deserialize)]
struct Effect {
    value: String,
    is: Value,
    #[serde(rename = "in")]
    object: String,
    at: String,
    has: Value,
}

/// A value that cannot be.
#[derive(Debug, Deserialize)]
struct Refusal {
    value: String,
    is: Value,
    says: Vec<String>,
}

/// A table beside this file, with what stands for something filled in.
fn filled(table: &str) -> String {
    table
        .replace("POD/..", "/spec/template")
        .replace("CONTAINER", "POD/containers/0")
        .replace("POD", "/spec/template/spec")
        .replace("SPEAKER", SPEAKER)
        .replace("OPERATOR", OPERATOR)
        .replace("DIGEST", &format!("sha256:{}", "0a".repeat(32)))
        .replace("VERSION", env!("CARGO_PKG_VERSION"))
}

fn effects() -> Result<Vec<Effect>> {
    let mut all = Vec::new();
    for (component, object) in [("speaker", SPEAKER), ("operator", OPERATOR)] {
        let table = filled(include_str!("values.yaml"));
        let table = table.replace("COMPONENT", component).replace("OBJECT", object);
        let effects: Effects = serde_yaml_ng::from_str(&table)?;
        // Those of single values are the same in both.
        all.extend(effects.rows.into_iter().filter(|_| component == "speaker"));
        all.extend(effects.both);
    }
    Ok(all)
}

/// Whether what is at a place is what is expected, or has it among its items.
fn shows(there: Option<&Value>, expected: &Value) -> bool {
    match there {
        None => expected.is_null(),
        Some(Value::Array(items)) => items.contains(expected),
        Some(there) => there == expected,
    }
}

pub async fn each_value_does_what_it_says() -> Result<()> {
    let helm = Helm::of(&*Lab::shared().await?)?;
    let effects = effects()?;
    for effect in &effects {
        let set = format!("{}={}", effect.value, effect.is);
        let yaml = helm.template(&[&OPTIONS[..], &["--set-json", &set]].concat())?;
        let objects = objects::read(&yaml)?;
        let there = objects.get(&effect.object).and_then(|object| object.pointer(&effect.at));
        ensure!(
            shows(there, &effect.has),
            "{set}: {there:?} in {} at {}",
            effect.object,
            effect.at
        );
    }
    let rows: BTreeSet<&str> = effects.iter().map(|effect| effect.value.as_str()).collect();
    let chart = helm::chart();
    let read = |file: &str| fs::read_to_string(chart.join(file));
    let readme = read("README.md")?;
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let mut leaves = Vec::new();
    named("", &serde_yaml_ng::from_str(&read("values.yaml")?)?, &rows, &mut leaves);
    for value in &leaves {
        ensure!(rows.contains(value.as_str()), "no row in values.yaml shows what {value} does");
        ensure!(readme.contains(&format!("`{value}`")), "the chart's README does not name {value}");
        described(&schema, value).with_context(|| format!("in the schema: {value}"))?;
    }
    ensure!(leaves.len() == rows.len(), "rows about values that are not there: {rows:?}");
    Ok(())
}

/// The values that are scalars or lists, or have a row as a whole.
fn named(at: &str, value: &Value, rows: &BTreeSet<&str>, to: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() && !rows.contains(at) => {
            for (name, value) in fields {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                named(&at, value, rows, to);
            }
        }
        _ => to.push(at.to_owned()),
    }
}

/// Follows a value's path through the schema; each step has a description and takes no other fields.
fn described(root: &Value, value: &str) -> Result<()> {
    let mut schema = root;
    for name in value.split('.') {
        ensure!(schema.get("additionalProperties") == Some(&false.into()), "more before {name}");
        schema = schema.pointer(&format!("/properties/{name}")).with_context(|| name.to_owned())?;
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            schema = root.pointer(reference.trim_start_matches('#')).context("no definition")?;
        }
        ensure!(schema.get("description").is_some(), "{name} has no description");
    }
    Ok(())
}

pub async fn what_cannot_be_is_refused_by_name() -> Result<()> {
    let helm = Helm::of(&*Lab::shared().await?)?;
    let refused: Vec<Refusal> = serde_yaml_ng::from_str(&filled(include_str!("refused.yaml")))?;
    for Refusal { value, is, says } in refused {
        let set = format!("{value}={is}");
        let Err(error) = helm.template(&["--set-json", &set]) else { bail!("{set} is accepted") };
        let text = format!("{error:#}");
        let missing = says.iter().find(|words| !text.contains(*words));
        ensure!(missing.is_none(), "{set}: no {missing:?} in {text}");
    }
    Ok(())
}

/// Flags that differ from the programs' defaults are not written, so these have to be the same.
pub async fn flags_are_those_of_the_programs() -> Result<()> {
    let helm = Helm::of(&*Lab::shared().await?)?;
    let both = |it: &str| format!("{it}.log=debug,{it}.logFormat=json,{it}.metrics.port=1");
    let [speaker, operator] = ["speaker", "operator"].map(both);
    let speaker = format!("{speaker},speaker.leaseDuration=60s,speaker.metrics.address=127.0.0.1");
    let speaker = format!("{speaker},speaker.kubeProxyHealthAddress=127.0.0.2:10257");
    let yaml = helm.template(&["--set", &speaker, "--set", &operator])?;
    let objects = objects::read(&yaml)?;
    for (object, program, count) in
        [(SPEAKER, binaries::speaker()?, 5), (OPERATOR, binaries::operator()?, 4)]
    {
        let object = objects.get(object).with_context(|| object.to_owned())?;
        let flags =
            object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
        let flags: Vec<&str> = flags.into_iter().flatten().filter_map(Value::as_str).collect();
        ensure!(flags.len() == count, "{flags:?}");
        // What it cannot read it complains of first.
        let output = Command::new(&program).args(&flags).arg("--version").output()?;
        ensure!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
        let output = Command::new(&program).args(&flags).args(["--no", "--version"]).output()?;
        ensure!(!output.status.success(), "{} reads no flags before --version", program.display());
    }
    for (program, defaults) in [
        (
            binaries::speaker()?,
            &["[default: 5s]", "[default: 127.0.0.1:10256]", "[default: :9650]", "[default: text]"]
                [..],
        ),
        (binaries::operator()?, &["[default: :9651]", "[default: text]"]),
    ] {
        let output = Command::new(&program).arg("--help").output()?;
        let text = String::from_utf8(output.stdout)?;
        let other = defaults.iter().find(|default| !text.contains(*default));
        ensure!(
            other.is_none(),
            "{}: no {other:?}, which the chart takes for granted",
            program.display()
        );
    }
    Ok(())
}
