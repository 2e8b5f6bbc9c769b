//! `leasehold-lab`: the demo, and a lab to play with.

#![allow(clippy::disallowed_methods, reason = "the demo measures with a clock")]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match leasehold_lab::serve_if_pod().and_then(|()| cli::run()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
