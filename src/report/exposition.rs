//! The two text formats in which metrics are served.
//!
//! Prometheus asks for `OpenMetrics`; whoever asks for nothing, as curl does, gets Prometheus' own older
//! format, which is what `promtool check metrics` and most other tools read.

use std::collections::BTreeSet;
use std::fmt;

use axum::http::{HeaderMap, header};
use prometheus_client::registry::Registry;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Exposition {
    /// The one that a request accepts.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let mut accepted = headers.get_all(header::ACCEPT).iter();
        let names = |value: &header::HeaderValue| {
            value.to_str().is_ok_and(|value| value.contains("application/openmetrics-text"))
        };
        if accepted.any(names) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its content type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All metrics of a registry.
    pub fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry)?;
        Ok(match self {
            Self::OpenMetrics => text,
            Self::Prometheus => prometheus(&text),
        })
    }
}

/// `OpenMetrics` in Prometheus' format, which names a counter in its descriptions as in its samples, and
/// knows neither units nor an end.
fn prometheus(open_metrics: &str) -> String {
    let described = |line: &'_ str, what| -> Option<(String, String)> {
        let (name, rest) = line.strip_prefix(what)?.split_once(' ')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    let typed = open_metrics.lines().filter_map(|line| described(line, "# TYPE "));
    let counters: BTreeSet<String> =
        typed.filter(|(_, kind)| kind == "counter").map(|(name, _)| name).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let description = ["# HELP ", "# TYPE "]
            .into_iter()
            .find_map(|what| described(line, what).map(|(name, rest)| (what, name, rest)));
        match description {
            Some((what, name, rest)) if counters.contains(&name) => {
                text.extend([what, &name, "_total ", &rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Unit;

    use super::*;

    #[test]
    fn who_asks_for_open_metrics_gets_it_and_all_others_the_older_format() {
        let scrape =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        for (accept, expected) in [
            (Some(scrape), Exposition::OpenMetrics),
            (Some("*/*"), Exposition::Prometheus),
            (Some("text/html,application/xhtml+xml"), Exposition::Prometheus),
            (None, Exposition::Prometheus),
        ] {
            let headers = accept.map(|accept| (header::ACCEPT, accept.parse().unwrap()));
            let headers: HeaderMap = headers.into_iter().collect();
            assert_eq!(Exposition::accepted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_describes_counters_by_the_names_of_their_samples() {
        let mut registry = Registry::default();
        registry.register("moves", "All moves", Counter::<u64>::default());
        registry.register_with_unit("age", "How old", Unit::Seconds, Gauge::<i64>::default());
        let old = "# HELP moves_total All moves.\n# TYPE moves_total counter\nmoves_total 0\n\
                   # HELP age_seconds How old.\n# TYPE age_seconds gauge\nage_seconds 0\n";
        assert_eq!(Exposition::Prometheus.encode(&registry).unwrap(), old);
        let new = Exposition::OpenMetrics.encode(&registry).unwrap();
        assert!(new.contains("# TYPE moves counter\n") && new.ends_with("# EOF\n"), "{new}");
    }
}
