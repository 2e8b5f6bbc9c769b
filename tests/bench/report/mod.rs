//! From results to the tables of the README and to its pictures.
//!
//! What is between `<!-- numbers: NAME -->` and `<!-- end of numbers -->` is generated.

mod figures;
mod results;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

pub(crate) use results::Results;

const END: &str = "<!-- end of numbers -->";

/// Writes the README's tables and the pictures beside the results in `folder`.
pub(crate) fn write(folder: &Path) -> Result<bool> {
    let results = Results::read(folder)?;
    let path = readme();
    let before = fs::read_to_string(&path)?;
    let after = filled(&before, &tables::all(&results)?)?;
    if after != before {
        fs::write(&path, after)?;
    }
    for (name, picture) in figures::all(&results)? {
        fs::write(folder.join(name), picture)?;
    }
    println!("README.md and the pictures in {} are those of the results", folder.display());
    Ok(true)
}

fn readme() -> std::path::PathBuf {
    leasehold_lab::repository().join("README.md")
}

/// `text` with each marked part replaced by the table of its name.
fn filled(text: &str, tables: &BTreeMap<&'static str, String>) -> Result<String> {
    let mut rest = text;
    let mut filled = String::new();
    let mut left: Vec<&str> = tables.keys().copied().collect();
    while let Some(at) = rest.find("<!-- numbers: ") {
        let (before, part) = rest.split_at(at);
        let (mark, inside) = part.split_once('\n').context("a mark has no line of its own")?;
        let name = mark.trim_start_matches("<!-- numbers: ").trim_end_matches(" -->");
        let (_, after) =
            inside.split_once(END).with_context(|| format!("`{mark}` has no end: add {END}"))?;
        let table = tables.get(name).with_context(|| format!("nothing is named {name}"))?;
        left.retain(|other| *other != name);
        filled.push_str(before);
        filled.push_str(mark);
        filled.push_str("\n\n");
        filled.push_str(table.trim_end());
        filled.push_str("\n\n");
        filled.push_str(END);
        rest = after;
    }
    ensure!(left.is_empty(), "the README has no place for {}", left.join(", "));
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_and_the_pictures_are_those_of_the_results() {
        let folder = leasehold_lab::repository().join("tests/bench/results");
        let results = Results::read(&folder).unwrap();
        let text = fs::read_to_string(readme()).unwrap();
        let tables = tables::all(&results).unwrap();
        assert_eq!(filled(&text, &tables).unwrap(), text, "run `leasehold-bench report`");
        for (name, picture) in figures::all(&results).unwrap() {
            let drawn = fs::read_to_string(folder.join(name)).unwrap();
            assert!(drawn == picture, "{name} is another picture: run `leasehold-bench report`");
        }
    }

    #[test]
    fn a_marked_part_is_replaced_and_nothing_else() {
        let tables = BTreeMap::from([("cost", "| new |\n".to_owned())]);
        let text = "# A\n\n<!-- numbers: cost -->\nold\n<!-- end of numbers -->\n\nb\n";
        let new = "# A\n\n<!-- numbers: cost -->\n\n| new |\n\n<!-- end of numbers -->\n\nb\n";
        assert_eq!(filled(text, &tables).unwrap(), new);
        assert_eq!(filled(new, &tables).unwrap(), new);
        let missing = filled("# A\n", &tables).unwrap_err().to_string();
        assert!(missing.contains("no place for cost"), "{missing}");
        let endless = filled("<!-- numbers: cost -->\n", &tables).unwrap_err().to_string();
        assert!(endless.contains("has no end"), "{endless}");
    }
}
