//! What the speaker says of itself: logs, metrics, events, health.
//!
//! Every stage writes facts; nothing here decides anything.

pub mod ask;
mod exposition;
pub mod facts;
pub mod gauges;
pub mod health;
pub mod metrics;
pub mod page;
pub mod server;
pub mod status;
mod takeovers;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts logging to standard error.
pub fn start_log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter: EnvFilter = filter.parse().map_err(|error| {
        anyhow::anyhow!("--log `{filter}` is not a filter such as `info`: {error}")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
