//! Notes: remarks on the objects that are printed.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// An object to print, with the notes on it.
#[derive(Clone, Debug)]
pub struct Printed<T> {
    /// The object.
    pub object: T,
    /// The notes on settings that have no equivalent, or differ.
    pub notes: Vec<String>,
}

/// `a, b and c are`, or `a is`.
pub(super) fn are<T: fmt::Display>(items: &[T]) -> String {
    format!("{} {}", listed(items), if items.len() == 1 { "is" } else { "are" })
}

/// `a, b and c`.
pub(super) fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// A note on each unknown field.
pub(super) fn unknown_fields(
    of: &str,
    fields: &BTreeMap<String, Value>,
) -> impl Iterator<Item = String> + use<> {
    let fields: Vec<String> =
        fields.keys().map(|field| format!("{of}.{field} is unknown and omitted")).collect();
    fields.into_iter()
}
