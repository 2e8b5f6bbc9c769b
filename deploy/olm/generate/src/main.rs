//! Writes the bundle and the catalog for the Operator Lifecycle Manager to `deploy/olm`.
//!
//! ```text
//!  deploy/base, crds, examples, deploy/olm/{description.md,icon.svg,operator-rbac.yaml}
//!      └─► source ─► csv, descriptors ─► bundle ─► catalog ─► files
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`source`] | what is read |
//! | [`descriptors`] | the fields of our resources, as consoles show them |
//! | [`csv`] | the `ClusterServiceVersion` |
//! | [`bundle`] | it, and the other files of the bundle |
//! | [`catalog`] | the catalog with this one bundle |

mod bundle;
mod catalog;
mod csv;
mod descriptors;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source::Source;

/// The folders that hold nothing else than what is generated.
const FOLDERS: [&str; 2] = ["bundle", "catalog"];

fn main() -> Result<()> {
    let root = source::repository();
    let files = files(&Source::read(&root)?)?;
    for folder in FOLDERS {
        match fs::remove_dir_all(root.join(source::FOLDER).join(folder)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    for (path, content) in files {
        let path = root.join(source::FOLDER).join(path);
        let folder = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// All generated files, by their paths in `deploy/olm`.
fn files(source: &Source) -> Result<BTreeMap<PathBuf, String>> {
    let csv = csv::cluster_service_version(source)?;
    let mut files = bundle::files(source, &csv)?;
    files.extend(catalog::files(source, &csv)?);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn found(folder: &Path, paths: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found(&path, paths);
            } else {
                paths.insert(path);
            }
        }
    }

    #[test]
    fn the_generated_files_are_up_to_date_and_there_are_no_others() {
        let root = source::repository();
        let mut others = BTreeSet::new();
        for folder in FOLDERS {
            found(&root.join(source::FOLDER).join(folder), &mut others);
        }
        for (path, content) in files(&Source::read(&root).unwrap()).unwrap() {
            let path = root.join(source::FOLDER).join(path);
            let present = fs::read_to_string(&path).unwrap_or_default();
            assert!(present == content, "{} is stale: run `make bundle`", path.display());
            others.remove(&path);
        }
        assert!(others.is_empty(), "not generated: {others:?}; run `make bundle`");
    }

    #[test]
    fn each_earlier_version_is_replaced_by_this_one() {
        assert_eq!(source::replaced_by("0.2.0"), ">=0.1.0 <0.2.0");
        let files = files(&Source::read(&source::repository()).unwrap()).unwrap();
        let range = source::replaced_by(source::VERSION);
        for (file, line) in [
            ("catalog/leasehold/catalog.yaml", format!("skipRange: '{range}'")),
            ("catalog/leasehold/catalog.yaml", format!("olm.skipRange: '{range}'")),
            (
                "bundle/manifests/leasehold.clusterserviceversion.yaml",
                format!("olm.skipRange: '{range}'"),
            ),
        ] {
            let content = files.get(Path::new(file)).unwrap();
            assert!(content.contains(&line), "{file} lacks {line}");
        }
    }
}
