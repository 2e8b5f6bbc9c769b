//! What the API server is asked for, by its own metrics.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use leasehold_lab::Lab;

/// Counters of an API server at one moment. Each is `<verb> <resource>`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// `apiserver_request_total`.
    pub(crate) requests: BTreeMap<String, f64>,
    /// `apiserver_watch_events_total`: events to all who watch.
    pub(crate) events: f64,
    /// Bytes of answers (`apiserver_response_sizes`), of request bodies
    /// (`apiserver_request_body_size_bytes`), of watch events (`apiserver_watch_events_sizes`).
    pub(crate) bytes: f64,
}

impl Counters {
    pub(crate) async fn now(lab: &Lab) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = lab.admin().request_text(request).await.context("metrics of the API server")?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let Some(sample) = Sample::parse(line) else { continue };
            match sample.name {
                "apiserver_request_total" => {
                    let (verb, resource) = (sample.label("verb"), sample.label("resource"));
                    // A watch is counted when it ends; and the health checks have no resource.
                    if let (Some(verb), Some(resource)) = (verb, resource)
                        && !resource.is_empty()
                    {
                        *counters.requests.entry(format!("{verb} {resource}")).or_default() +=
                            sample.value;
                    }
                }
                "apiserver_watch_events_total" => counters.events += sample.value,
                "apiserver_response_sizes_sum"
                | "apiserver_request_body_size_bytes_sum"
                | "apiserver_watch_events_sizes_sum"
                    if sample.label("resource") != Some("") =>
                {
                    counters.bytes += sample.value;
                }
                _ => {}
            }
        }
        counters
    }

    /// What came since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let rose = |(name, now): (&String, &f64)| {
            let more = now - before.requests.get(name).copied().unwrap_or(0.0);
            (more > 0.0).then(|| (name.clone(), more))
        };
        Self {
            requests: self.requests.iter().filter_map(rose).collect(),
            events: self.events - before.events,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// A line of the text format: `name{label="value",…} value`.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some(Self { name, labels, value: value.parse().ok()? })
    }

    fn label(&self, name: &str) -> Option<&'a str> {
        let mut labels = self.labels.trim_end_matches('}').split("\",");
        labels.find_map(|label| {
            label.strip_prefix(name)?.strip_prefix("=\"").map(|value| value.trim_end_matches('"'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# HELP apiserver_request_total [STABLE] Counter of requests.
apiserver_request_total{code=\"200\",resource=\"leases\",scope=\"resource\",verb=\"PUT\"} 10
apiserver_request_total{code=\"409\",resource=\"leases\",scope=\"resource\",verb=\"PUT\"} 1
apiserver_request_total{code=\"200\",resource=\"\",scope=\"\",verb=\"GET\"} 70
apiserver_watch_events_total{group=\"coordination.k8s.io\",resource=\"leases\"} 100
apiserver_watch_events_sizes_sum{group=\"coordination.k8s.io\",resource=\"leases\"} 50000
apiserver_response_sizes_sum{resource=\"leases\",verb=\"PUT\"} 7e3
";

    #[test]
    fn requests_are_told_apart_by_verb_and_resource_and_added_over_the_rest() {
        let before = Counters::parse(BEFORE);
        assert_eq!(before.requests, BTreeMap::from([("PUT leases".to_owned(), 11.0)]));
        let after = BEFORE.replace("\"PUT\"} 10", "\"PUT\"} 16").replace("7e3", "8e3");
        let rose = Counters::parse(&after).since(&before);
        assert_eq!(rose.requests, BTreeMap::from([("PUT leases".to_owned(), 6.0)]));
        assert!((rose.bytes - 1000.0).abs() < 0.5 && rose.events.abs() < 0.5, "{rose:?}");
    }
}
