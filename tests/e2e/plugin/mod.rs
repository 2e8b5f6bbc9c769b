//! `kubectl leasehold`, on clusters whose speakers and operator are the real ones.

pub mod acts;
pub mod answers;
pub mod looks;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::scene::Scene;

/// A Service of the scene, as it is named beside those of other tests.
pub fn named(scene: &Scene, service: &str) -> String {
    format!("{}/{service}", scene.cluster.namespace())
}

/// The text at a path of a JSON value.
fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str> {
    let found = value.pointer(path).and_then(Value::as_str);
    found.with_context(|| format!("no text at {path} of {value:#}"))
}

/// The list at a path of a JSON value.
fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value]> {
    let found = value.pointer(path).and_then(Value::as_array);
    found.map(Vec::as_slice).with_context(|| format!("no list at {path} of {value:#}"))
}
