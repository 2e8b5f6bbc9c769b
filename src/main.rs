//! `leasehold-speaker`: see [`leasehold`].

use clap::Parser;
use leasehold::config::Config;
use leasehold::report::log::Log;

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let log = Log::start(&config.log, config.log_format)?;
    // One thread: the core decides in order, and memory stays small.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(leasehold::run::run(config, log))
}
