//! `leasehold-speaker`: see [`leasehold`].

use clap::Parser;
use leasehold::config::Config;
use leasehold::report::log::Log;

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let log = Log::start(&config.log, config.log_format)?;
    // The core has this thread to itself: with many claims a decision takes longer than to read from the API
    // server what the next one rests on.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(leasehold::run::run(config, log))
}
