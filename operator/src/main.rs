//! `leasehold-operator`: parses, initialises, runs.

use clap::Parser;
use leasehold::report::log::Log;
use leasehold_operator::config::{Command, Config};
use leasehold_operator::{free, migrate, run};

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    // One thread: the work is small, and each thread's stack and heap would count.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &config.command {
        Some(Command::MigrateFromMetallb(arguments)) => {
            runtime.block_on(migrate::run(arguments, config.kubeconfig.as_deref()))
        }
        Some(Command::FreeAddresses) => {
            runtime.block_on(free::run(config.kubeconfig.as_deref(), &config.namespace))
        }
        None => {
            let log = Log::start(&config.log, config.log_format)?;
            runtime.block_on(run::run(config, log))
        }
    }
}
