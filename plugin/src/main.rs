//! `kubectl-leasehold`: see [`kubectl_leasehold`].

use std::process::ExitCode;

use clap::Parser;
use kubectl_leasehold::args::Arguments;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(kubectl_leasehold::run(&arguments)))
}
