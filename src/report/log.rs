//! Logs, on standard error, and what of them is written: what a process was started with, or what people
//! ask for while it runs, by the annotation `leasehold.dev/log` of a lease of it.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use crate::config::LogFormat;

/// The filter of the log.
#[derive(Debug)]
pub struct Log {
    started_with: String,
    /// The filter that was requested last, valid or not.
    asked: Option<String>,
    filter: Handle<EnvFilter, Registry>,
}

impl Log {
    /// Starts logging to standard error what `filter` lets through: tracing filters, such as `info` or
    /// `info,leasehold::announce=debug`.
    pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<Self> {
        let parsed = parse(filter).map_err(|error| {
            anyhow::anyhow!("--log `{filter}` is not a valid filter, such as `info`: {error}")
        })?;
        let (layer, handle) = reload::Layer::new(parsed);
        let (log, lines) = (tracing_subscriber::registry().with(layer), fmt::layer());
        let lines = lines.with_writer(std::io::stderr);
        match format {
            LogFormat::Text => log.with(lines.with_ansi(false)).init(),
            LogFormat::Json => log.with(lines.json()).init(),
        }
        Ok(Self { started_with: filter.to_owned(), asked: None, filter: handle })
    }

    /// Logs what is asked for, or again what the process was started with. A filter that cannot be read
    /// changes nothing but a line in the log.
    pub fn follow(&mut self, asked: Option<&str>) {
        if asked == self.asked.as_deref() {
            return;
        }
        self.asked = asked.map(str::to_owned);
        let filter = asked.unwrap_or(&self.started_with);
        let done = parse(filter)
            .and_then(|parsed| self.filter.reload(parsed).map_err(|error| error.to_string()));
        match done {
            Ok(()) => tracing::info!(filter, "changed the log filter"),
            Err(error) => tracing::warn!(
                filter,
                error,
                "the annotation leasehold.dev/log is not a valid filter, such as `debug`; the log \
                 filter is unchanged"
            ),
        }
    }
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    filter.parse().map_err(|error: tracing_subscriber::filter::ParseError| error.to_string())
}
