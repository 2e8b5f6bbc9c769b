//! The requests to the API server, by its own metrics.

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
    /// Bytes of answers to reads (`apiserver_response_sizes`), of request bodies
    /// (`apiserver_request_body_size_bytes`), of watch events (`apiserver_watch_events_sizes`): what, the
    /// verb where the server says it, and the resource.
    pub(crate) bytes: BTreeMap<String, f64>,
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
                // That of a watch is known when it ends; its events are counted as they come.
                "apiserver_response_sizes_sum" if sample.label("verb") != Some("WATCH") => {
                    counters.add("answers", &sample);
                }
                "apiserver_request_body_size_bytes_sum" => counters.add("requests", &sample),
                "apiserver_watch_events_sizes_sum" => counters.add("events", &sample),
                _ => {}
            }
        }
        counters
    }

    fn add(&mut self, kind: &str, sample: &Sample<'_>) {
        if let Some(resource) = sample.label("resource").filter(|it| !it.is_empty()) {
            let verb = sample.label("verb").map(|verb| format!("{verb} ")).unwrap_or_default();
            *self.bytes.entry(format!("{kind} {verb}{resource}")).or_default() += sample.value;
        }
    }

    /// The increase since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            requests: rose(&before.requests, &self.requests),
            events: self.events - before.events,
            bytes: rose(&before.bytes, &self.bytes),
        }
    }
}

/// The increase of each counter.
fn rose(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let more = |(name, now): (&String, &f64)| {
        let more = now - before.get(name).copied().unwrap_or(0.0);
        (more > 0.0).then(|| (name.clone(), more))
    };
    now.iter().filter_map(more).collect()
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
        assert_eq!(rose.bytes, BTreeMap::from([("answers PUT leases".to_owned(), 1000.0)]));
        assert!(rose.events.abs() < 0.5, "{rose:?}");
    }
}
