//! The version from which an upgrade is tested: its real binaries and manifests (`tests/previous/build`).

use std::path::PathBuf;

use anyhow::Result;

use crate::programs;

/// The previous version.
#[derive(Clone, Debug)]
pub struct Previous {
    folder: PathBuf,
}

impl Previous {
    /// Finds it, and builds it if this user has not got it yet.
    pub fn locate() -> Result<Self> {
        Ok(Self { folder: programs::of("previous")? })
    }

    /// Its speaker.
    pub fn speaker(&self) -> PathBuf {
        self.folder.join("leasehold-speaker")
    }

    /// Its operator.
    pub fn operator(&self) -> PathBuf {
        self.folder.join("leasehold-operator")
    }

    /// Its sources, with `crds` and `deploy`.
    pub fn source(&self) -> PathBuf {
        self.folder.join("source")
    }
}
