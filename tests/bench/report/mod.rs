//! From results to the tables of the README and the book, and to their pictures.
//!
//! What is between `<!-- numbers: NAME -->` and `<!-- end of numbers -->` is generated.

mod figures;
mod kubernetes;
mod matrix;
mod results;
mod tables;
#[cfg(test)]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub(crate) use results::Results;

const END: &str = "<!-- end of numbers -->";

/// Writes the tables and pictures of all pages from the results in `folder`.
pub(crate) fn write(folder: &Path) -> Result<bool> {
    let results = Results::read(folder)?;
    let pages = pages()?;
    for (page, before, after) in rewritten(&pages, &tables::all(&results)?)? {
        if after != before {
            fs::write(page, after)?;
        }
    }
    for (name, picture) in figures::all(&results)? {
        fs::write(chapter().join(name), picture)?;
    }
    println!("{} pages and their pictures are those of the results", pages.len());
    Ok(true)
}

/// The book's chapter on performance.
fn chapter() -> PathBuf {
    leasehold_lab::repository().join("docs/src/performance")
}

/// The README, the pages of that chapter, and those of other chapters.
fn pages() -> Result<Vec<PathBuf>> {
    let chapter = chapter();
    let others = [
        "README.md",
        "docs/src/installation/compatibility.md",
        "docs/src/installation/kubernetes-tests.md",
    ];
    let mut pages: Vec<PathBuf> = others.map(|page| leasehold_lab::repository().join(page)).into();
    for entry in fs::read_dir(&chapter).with_context(|| chapter.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// Each page as it is and as it has to be. Each table has one place.
fn rewritten<'a>(
    pages: &'a [PathBuf],
    tables: &BTreeMap<&'static str, String>,
) -> Result<Vec<(&'a Path, String, String)>> {
    let mut left = tables.clone();
    let mut all = Vec::new();
    for page in pages {
        let before = fs::read_to_string(page).with_context(|| page.display().to_string())?;
        let after = filled(&before, &mut left).with_context(|| page.display().to_string())?;
        all.push((page.as_path(), before, after));
    }
    let left: Vec<&str> = left.into_keys().collect();
    ensure!(left.is_empty(), "no page has a place for {}", left.join(", "));
    Ok(all)
}

/// `text` with each marked part replaced by the table of its name, which is taken.
fn filled(text: &str, tables: &mut BTreeMap<&'static str, String>) -> Result<String> {
    let mut rest = text;
    let mut filled = String::new();
    while let Some(at) = rest.find("<!-- numbers: ") {
        let (before, part) = rest.split_at(at);
        let (mark, inside) = part.split_once('\n').context("a mark has no line of its own")?;
        let name = mark.trim_start_matches("<!-- numbers: ").trim_end_matches(" -->");
        let (_, after) =
            inside.split_once(END).with_context(|| format!("`{mark}` has no end: add {END}"))?;
        let table = tables
            .remove(name)
            .with_context(|| format!("nothing is named {name}, or it has another place"))?;
        filled.push_str(before);
        filled.push_str(mark);
        filled.push_str("\n\n");
        filled.push_str(table.trim_end());
        filled.push_str("\n\n");
        filled.push_str(END);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_and_the_pictures_are_those_of_the_results() {
        let folder = leasehold_lab::repository().join("tests/bench/results");
        let results = Results::read(&folder).unwrap();
        let pages = pages().unwrap();
        for (page, before, after) in rewritten(&pages, &tables::all(&results).unwrap()).unwrap() {
            assert_eq!(before, after, "{}: run `leasehold-bench report`", page.display());
        }
        for (name, picture) in figures::all(&results).unwrap() {
            let drawn = fs::read_to_string(chapter().join(name)).unwrap();
            assert!(drawn == picture, "{name} is another picture: run `leasehold-bench report`");
        }
    }

    #[test]
    fn a_marked_part_is_replaced_and_nothing_else() {
        let tables = BTreeMap::from([("cost", "| new |\n".to_owned())]);
        let text = "# A\n\n<!-- numbers: cost -->\nold\n<!-- end of numbers -->\n\nb\n";
        let new = "# A\n\n<!-- numbers: cost -->\n\n| new |\n\n<!-- end of numbers -->\n\nb\n";
        assert_eq!(filled(text, &mut tables.clone()).unwrap(), new);
        assert_eq!(filled(new, &mut tables.clone()).unwrap(), new);
        let twice = filled(&text.repeat(2), &mut tables.clone()).unwrap_err().to_string();
        assert!(twice.contains("another place"), "{twice}");
        let endless = filled("<!-- numbers: cost -->\n", &mut tables.clone()).unwrap_err();
        assert!(endless.to_string().contains("has no end"), "{endless}");
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::write(&page, "# A\n").unwrap();
        let missing = rewritten(&[page], &tables).unwrap_err().to_string();
        assert!(missing.contains("a place for cost"), "{missing}");
    }
}
