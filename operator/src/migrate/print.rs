//! YAML for `kubectl apply -f -`, with the notes as comments, and a summary for people.

use std::fmt::Write as _;

use kube::ResourceExt;
use leasehold_crds::policy::AnnouncementPolicySpec;
use leasehold_crds::pool::IPAddressPoolSpec;
use serde::Serialize;
use serde_json::{Value, json};

use super::notes::Printed;
use super::outcome::Outcome;

/// The columns of a comment.
const COLUMNS: usize = 96;

/// Why there is no YAML.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// An object has no YAML.
    #[error("cannot write an object as YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// An object has no JSON.
    #[error("cannot write an object as JSON")]
    Json(#[from] serde_json::Error),
}

/// The objects as YAML documents, each below its notes.
pub fn yaml(outcome: &Outcome) -> Result<String, PrintError> {
    let mut text = String::new();
    for note in &outcome.notes {
        comment(&mut text, note);
    }
    let pool = serde_json::to_value(IPAddressPoolSpec::default())?;
    for printed in &outcome.pools {
        document(&mut text, printed, &pool)?;
    }
    // What a policy says by saying nothing.
    let policy: AnnouncementPolicySpec = serde_json::from_value(json!({}))?;
    let policy = serde_json::to_value(policy)?;
    for printed in &outcome.policies {
        document(&mut text, printed, &policy)?;
    }
    Ok(text)
}

fn document<T: Serialize>(
    text: &mut String,
    printed: &Printed<T>,
    defaults: &Value,
) -> Result<(), PrintError> {
    let mut object = serde_json::to_value(&printed.object)?;
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|field, value| defaults.get(field) != Some(value));
    }
    text.push_str("---\n");
    for note in &printed.notes {
        comment(text, note);
    }
    text.push_str(&serde_yaml_ng::to_string(&object)?);
    Ok(())
}

/// `note` as comment lines. Whatever is in it, it stays a comment.
fn comment(text: &mut String, note: &str) {
    let mut line = String::from("# -");
    for word in plain(note).split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

/// `text` on one line, without what a terminal would act on.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '\u{feff}' { ' ' } else { c }).collect()
}

/// The summary of a migration with all notes, for standard error.
pub fn summary(outcome: &Outcome) -> String {
    let Outcome { pools, policies, notes, tally } = outcome;
    let mut text = format!(
        "{} and {}; {} of MetalLB with {}, of which {} in these pools\n",
        count(pools.len(), "IPAddressPool", "IPAddressPools"),
        count(policies.len(), "AnnouncementPolicy", "AnnouncementPolicies"),
        count(tally.services, "Service", "Services"),
        count(tally.addresses, "address", "addresses"),
        count(tally.held, "is", "are"),
    );
    let of_pools = pools.iter().map(|pool| ("IPAddressPool", pool.object.name_any(), &pool.notes));
    let of_policies = policies
        .iter()
        .map(|policy| ("AnnouncementPolicy", policy.object.name_any(), &policy.notes));
    let above = of_pools.chain(of_policies).flat_map(|(kind, name, notes)| {
        notes.iter().map(move |note| format!("{kind} {name}: {note}"))
    });
    for note in notes.iter().cloned().chain(above) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {}", plain(&note));
    }
    text
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
