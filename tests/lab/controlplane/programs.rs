//! Where the programs of the control plane are.

use std::env;
use std::path::PathBuf;

use anyhow::Result;

use crate::programs;

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
        let folder = programs::of("controlplane")?;
        Ok(Self { folder, assets: env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) })
    }

    /// The path of a program: from `KUBEBUILDER_ASSETS` where that has it.
    pub fn path(&self, program: &str) -> PathBuf {
        let asset = self.assets.as_ref().map(|assets| assets.join(program));
        asset.filter(|path| path.exists()).unwrap_or_else(|| self.folder.join(program))
    }
}
