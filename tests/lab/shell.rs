//! Programs that run to their end and must succeed.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command; its failure carries what it printed.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null());
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command with a text on its standard input.
pub fn feed(command: &mut Command, input: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("run {command:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).with_context(|| format!("write to {command:?}"))?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}\nits input was:\n{input}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
