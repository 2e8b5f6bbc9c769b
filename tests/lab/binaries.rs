//! Where the binaries under test are.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The speaker: `LEASEHOLD_SPEAKER`, or the one in the target folder of this binary.
pub fn speaker() -> Result<PathBuf> {
    find("leasehold-speaker", "LEASEHOLD_SPEAKER")
}

/// The operator: `LEASEHOLD_OPERATOR`, or the one in the target folder of this binary.
pub fn operator() -> Result<PathBuf> {
    find("leasehold-operator", "LEASEHOLD_OPERATOR")
}

/// The kubectl plugin: `LEASEHOLD_KUBECTL_PLUGIN`, or the one in the target folder of this binary.
pub fn plugin() -> Result<PathBuf> {
    find("kubectl-leasehold", "LEASEHOLD_KUBECTL_PLUGIN")
}

fn find(name: &str, variable: &str) -> Result<PathBuf> {
    let path = if let Some(path) = env::var_os(variable) {
        PathBuf::from(path)
    } else {
        let own = env::current_exe()?;
        let mut folder = own.parent().context("this binary is in no folder")?;
        // Test binaries are one folder further down.
        if folder.ends_with("deps") {
            folder = folder.parent().unwrap_or(folder);
        }
        folder.join(name)
    };
    if !path.is_file() {
        bail!(
            "there is no {}: build it (`cargo build --workspace`) or name it in {variable}",
            path.display()
        );
    }
    Ok(path)
}
