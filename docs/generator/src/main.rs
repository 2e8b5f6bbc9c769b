//! Writes the reference pages of the book to `docs/src/reference`, from the code.
//!
//! | module | page |
//! |---|---|
//! | [`crds`] | the fields of the custom resources, from their schemas |
//! | [`metrics`] | the metrics, from the text that is scraped |
//! | [`flags`] | the flags, from their parsers |
//! | [`events`] | the events, from their reasons |
//! | [`annotations`] | annotations, labels and conditions, from their entries |
//!
//! [`markdown`] makes cells and tables.

mod annotations;
mod crds;
mod events;
mod flags;
mod markdown;
mod metrics;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The first line of each page.
const MARK: &str = "<!-- Written by `make reference` from the code. -->";

fn main() -> Result<()> {
    for (file, page) in pages()? {
        let path = folder().join(file);
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/reference")
}

/// The generated pages: name and content.
fn pages() -> Result<[(&'static str, String); 5]> {
    let page = |text: String| format!("{MARK}\n\n{}\n", text.trim_end());
    Ok([
        ("crds.md", page(crds::page()?)),
        ("metrics.md", page(metrics::page()?)),
        ("flags.md", page(flags::page())),
        ("events.md", page(events::page())),
        ("annotations.md", page(annotations::page())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_pages_are_up_to_date() {
        for (file, page) in pages().unwrap() {
            let found = fs::read_to_string(folder().join(file)).unwrap_or_default();
            assert!(found == page, "docs/src/reference/{file} is stale: run `make reference`");
        }
    }
}
