//! `kubectl-leasehold`: see [`leasehold::plugin`].

use std::process::ExitCode;

use clap::Parser;
use leasehold::plugin::args::Arguments;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(leasehold::plugin::run(&arguments)))
}
