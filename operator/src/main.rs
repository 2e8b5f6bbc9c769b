//! `leasehold-operator`: parses, initialises, runs.

use clap::Parser;
use leasehold_operator::config::Config;

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    leasehold::report::start_log(&config.log, config.log_format)?;
    // One thread: the work is small, and each thread's stack and heap would count.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(leasehold_operator::run::run(config))
}
