//! `leasehold-speaker`: see [`leasehold`].

use clap::Parser;
use leasehold::config::Config;

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    leasehold::report::start_log(&config.log, config.log_format)?;
    // One thread: the core decides in order, and memory stays small.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(leasehold::run::run(config))
}
