//! Where the programs of the control plane are, and of which versions of Kubernetes there are some.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{programs, repository};

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

    /// Those of a minor version, one of [`versions`]; no variable of the environment replaces them.
    pub fn of_version(minor: &str) -> Result<Self> {
        Ok(Self { folder: programs::chosen("controlplane", &[minor])?, assets: None })
    }

    /// The path of a program: from `KUBEBUILDER_ASSETS` where that has it.
    pub fn path(&self, program: &str) -> PathBuf {
        let asset = self.assets.as_ref().map(|assets| assets.join(program));
        asset.filter(|path| path.exists()).unwrap_or_else(|| self.folder.join(program))
    }
}

/// The version of Kubernetes unless another is asked for, as `v1.36.3`.
pub fn default_version() -> Result<String> {
    required(&repository().join("tests/controlplane/go.mod"))
}

/// The versions of Kubernetes that there are, by their minor versions (`1.36`), oldest first.
pub fn versions() -> Result<BTreeMap<String, String>> {
    let mut all = vec![default_version()?];
    for entry in fs::read_dir(repository().join("tests/controlplane/versions"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "mod") {
            all.push(required(&path)?);
        }
    }
    Ok(all.into_iter().map(|version| (minor(&version).to_owned(), version)).collect())
}

/// `1.36` of `v1.36.3`.
pub fn minor(version: &str) -> &str {
    let plain = version.trim_start_matches('v');
    plain.rsplit_once('.').map_or(plain, |(minor, _)| minor)
}

/// The version of Kubernetes that a file of Go's modules requires.
fn required(modules: &Path) -> Result<String> {
    let text = fs::read_to_string(modules).with_context(|| modules.display().to_string())?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = version.with_context(|| format!("no Kubernetes in {}", modules.display()))?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_file_of_its_minor_version() -> Result<()> {
        let (all, default) = (versions()?, default_version()?);
        for (minor, version) in &all {
            let modules = format!("tests/controlplane/versions/{minor}.mod");
            let own = *version == default;
            assert!(repository().join(&modules).exists() != own, "{version}: {modules}");
        }
        assert_eq!(all.get("1.33").map(|version| minor(version)), Some("1.33"));
        Ok(())
    }
}
