//! The images of machines, as archives that containerd imports: there is no registry.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{programs, repository, shell};

/// Names the folder of Leasehold's images: an OCI image layout with the tags `speaker` and `operator`, as `make
/// images` writes it.
const LAYOUT: &str = "LEASEHOLD_IMAGES";
/// The annotation of an OCI index by which containerd names an image.
const NAME: &str = "io.containerd.image.name";
/// The annotation of an OCI index with the tag of an image.
const TAG: &str = "org.opencontainers.image.ref.name";

/// The archives: those of other projects, and Leasehold's.
#[derive(Clone, Debug)]
pub(super) struct Images {
    archives: Vec<PathBuf>,
}

impl Images {
    /// Those of other projects (`tests/images/build`), those of these systems, and Leasehold's of the layout that
    /// `LEASEHOLD_IMAGES` names, or that was built last.
    pub(super) fn collect(scratch: &Path, systems: &[String]) -> Result<Self> {
        let mut archives = Vec::new();
        let systems = systems.iter().map(|system| vec![system.as_str()]);
        for arguments in std::iter::once(Vec::new()).chain(systems) {
            for entry in fs::read_dir(programs::chosen("images", &arguments)?)? {
                archives.push(entry?.path());
            }
        }
        archives.sort();
        archives.push(own(&layout()?, scratch)?);
        Ok(Self { archives })
    }

    pub(super) fn archives(&self) -> &[PathBuf] {
        &self.archives
    }
}

fn layout() -> Result<PathBuf> {
    let folder = if let Some(folder) = env::var_os(LAYOUT) {
        PathBuf::from(folder)
    } else {
        let architecture = if env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
        repository().join(format!("target/image/oci-{architecture}"))
    };
    ensure!(
        folder.join("index.json").is_file(),
        "there are no images in {}: build them (`make images`) or name their folder in {LAYOUT}",
        folder.display()
    );
    Ok(folder)
}

/// Makes one archive of a layout, with the names that the manifests use.
fn own(layout: &Path, scratch: &Path) -> Result<PathBuf> {
    let named = scratch.join("images");
    fs::create_dir_all(&named)?;
    shell::run(Command::new("cp").arg("-r").arg(layout.join(".")).arg(&named))?;
    let path = named.join("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let manifests = index.get_mut("manifests").and_then(Value::as_array_mut);
    for manifest in manifests.context("a layout without images")? {
        let annotations = manifest.get_mut("annotations").and_then(Value::as_object_mut);
        let annotations = annotations.context("an image without a tag")?;
        let tag = annotations.get(TAG).and_then(Value::as_str).context("an image without a tag")?;
        let name = format!("docker.io/leasehold/{tag}:{}", env!("CARGO_PKG_VERSION"));
        annotations.insert(NAME.to_owned(), json!(name));
    }
    fs::write(&path, index.to_string())?;
    let archive = scratch.join("leasehold.tar");
    shell::run(Command::new("tar").arg("-C").arg(&named).arg("-cf").arg(&archive).arg("."))?;
    Ok(archive)
}
