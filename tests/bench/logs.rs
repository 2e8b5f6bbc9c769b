//! The log of speakers with `--log-format json`.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// One line of a log.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    pub(crate) timestamp: Timestamp,
    pub(crate) fields: Fields,
}

/// The fields of a line that are read.
#[derive(Debug, Deserialize)]
pub(crate) struct Fields {
    pub(crate) message: String,
    /// The time since the first sign of a failover.
    #[serde(default)]
    pub(crate) after: String,
    /// A list such as `[192.0.2.1, 192.0.2.10]`.
    #[serde(default)]
    pub(crate) addresses: String,
    #[serde(default)]
    pub(crate) ip: String,
}

/// The lines since a moment, in order.
pub(crate) fn since(log: &str, moment: Timestamp) -> Vec<Line> {
    // What ends a process is not always written as its log.
    let lines = log.lines().rev().filter_map(|text| serde_json::from_str::<Line>(text).ok());
    let mut lines: Vec<_> = lines.take_while(|line| line.timestamp >= moment).collect();
    lines.reverse();
    lines
}
