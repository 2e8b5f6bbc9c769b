//! `leasehold-operator`: parses, initialises, runs.

use std::io::IsTerminal;

use clap::Parser;
use leasehold_operator::config::{Config, LogFormat};
use leasehold_operator::error::StartError;
use leasehold_operator::run::run;
use tracing_subscriber::EnvFilter;

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    log(&config)?;
    // One thread: the work is small, and each thread's stack and heap would count.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(config))?;
    Ok(())
}

fn log(config: &Config) -> Result<(), StartError> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|source| StartError::LogFilter { filter: config.log.clone(), source })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
