//! Where the programs of the control plane are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The folders with etcd, kube-apiserver, kube-controller-manager, kube-proxy and kubectl.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    assets: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs, and builds them if this user has not got them yet
    /// (`tests/controlplane/build`, which also honours `LEASEHOLD_LAB_BIN`).
    pub fn locate() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane/build");
        let output = Command::new(&script)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}", script.display()))?;
        ensure!(output.status.success(), "the control plane could not be built: see above");
        let folder = String::from_utf8(output.stdout)?.trim().into();
        Ok(Self { folder, assets: env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) })
    }

    /// The path of a program: from `KUBEBUILDER_ASSETS` where that has it.
    pub fn path(&self, program: &str) -> PathBuf {
        let asset = self.assets.as_ref().map(|assets| assets.join(program));
        asset.filter(|path| path.exists()).unwrap_or_else(|| self.folder.join(program))
    }
}
