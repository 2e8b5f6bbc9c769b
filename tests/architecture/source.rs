//! The files of a crate as modules.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// One module with its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path of the module below the crate, such as `reconcile::index`; empty for `lib.rs`.
    pub module: String,
    /// The content of its file.
    pub text: String,
}

impl Source {
    /// A module of this path and text.
    pub fn new(module: &str, text: &str) -> Self {
        Self { module: module.to_owned(), text: text.to_owned() }
    }
}

/// All modules of the library whose `lib.rs` is in `root`.
pub fn read(root: &Path) -> io::Result<Vec<Source>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let relative = file.strip_prefix(root).unwrap_or(&file);
        let Some(module) = module_of(relative) else { continue };
        sources.push(Source { module, text: fs::read_to_string(&file)? });
    }
    Ok(sources)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The module of a file; none for `main.rs`, which is another crate.
fn module_of(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    let parent = file.parent()?.components().filter_map(|part| part.as_os_str().to_str());
    let mut segments: Vec<&str> = parent.collect();
    match (stem, segments.is_empty()) {
        ("main", true) => return None,
        ("lib", true) | ("mod", false) => {}
        _ => segments.push(stem),
    }
    Some(segments.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_module_and_a_folder_is_its_mod_rs() {
        for (file, module) in [
            ("lib.rs", Some("")),
            ("main.rs", None),
            ("clock.rs", Some("clock")),
            ("index/mod.rs", Some("index")),
            ("index/ledger.rs", Some("index::ledger")),
        ] {
            assert_eq!(module_of(Path::new(file)).as_deref(), module, "{file}");
        }
    }
}
