//! Programs of other projects, which `build` in a folder of `tests` makes from their Go modules.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::repository;

/// The folder with the programs of a folder of `tests`. They are built if this user has not got them yet.
pub fn of(module: &str) -> Result<PathBuf> {
    chosen(module, &[])
}

/// The same where the script has arguments that choose.
pub fn chosen(module: &str, arguments: &[&str]) -> Result<PathBuf> {
    let script = repository().join("tests").join(module).join("build");
    let output = Command::new(&script)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", script.display()))?;
    ensure!(output.status.success(), "tests/{module} could not be built: see above");
    Ok(String::from_utf8(output.stdout)?.trim().into())
}
