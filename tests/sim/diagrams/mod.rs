//! Sequence diagrams of the protocol, drawn from recorded runs.
//!
//! ```text
//!  runs: one recorded run each ──► reader: rows ──┬─► svg: a picture
//!                                                └─► the same rows as text
//! ```
//!
//! The pictures are files beside the page `docs/src/development/protocol.md`, the texts parts of it, each between
//! `<!-- run: NAME -->` and `<!-- end of run -->`.

mod labels;
mod reader;
mod repeats;
mod rows;
mod runs;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use self::rows::Diagram;

const END: &str = "<!-- end of run -->";

/// Writes the pictures, and the texts into the page.
///
/// # Errors
///
/// If a file cannot be read or written, or the page has no part for a run.
pub fn write() -> Result<()> {
    for (path, text) in files()? {
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The files that differ from those that the runs lead to.
///
/// # Errors
///
/// If the page cannot be read or has no part for a run.
pub fn stale() -> Result<Vec<PathBuf>> {
    let differs = |(path, text): (PathBuf, String)| {
        (fs::read_to_string(&path).unwrap_or_default() != text).then_some(path)
    };
    Ok(files()?.into_iter().filter_map(differs).collect())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/development")
}

/// Each file with its content.
fn files() -> Result<Vec<(PathBuf, String)>> {
    let path = folder().join("protocol.md");
    let mut page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut files = Vec::new();
    for run in runs::ALL {
        let diagram = Diagram::of(&(run.record)());
        page = filled(&page, run.name, &diagram.text())?;
        let picture = folder().join("protocol").join(format!("{}.svg", run.name));
        files.push((picture, svg::draw(run.title, &diagram)));
    }
    let parts = page.matches(END).count();
    ensure!(parts == runs::ALL.len(), "the page has parts of runs that do not exist");
    files.push((path, page));
    Ok(files)
}

/// The page with `text` in the part of the run.
fn filled(page: &str, name: &str, text: &str) -> Result<String> {
    let mark = format!("<!-- run: {name} -->\n");
    let (before, rest) = page.split_once(&mark).with_context(|| format!("no part `{mark}`"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("`{mark}` has no end"))?;
    Ok(format!(
        "{before}{mark}\n![Sequence diagram; its steps follow as text](protocol/{name}.svg)\n\n<details>\n\
         <summary>Steps as text</summary>\n\n```text\n{text}```\n\n</details>\n\n{END}{after}"
    ))
}
