//! Checks the links and the figures of the book, and of the Markdown files beside it.
//!
//! A link must lead to a file of the repository, and to a heading there if it names one; links to other sites are
//! not followed. A figure must be a constant of the code; see [`figures`].
//!
//! It reads the sources and not the built book, because the same files are read on the forge, and the README
//! is no part of the book.

mod figures;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// The sources of the book.
const BOOK: &str = "docs/src";
/// The page that lists all others.
const SUMMARY: &str = "docs/src/SUMMARY.md";

fn main() -> io::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = read(&root)?;
    let mut found = check(&pages, |path| root.join(path).exists());
    found.extend(wrong_figures(&root)?);
    for problem in &found {
        eprintln!("{problem}");
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The problems of the figures in the book and in the README.
fn wrong_figures(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = vec![PathBuf::from("README.md")];
    markdown(root, Path::new(BOOK), true, &mut paths)?;
    let mut pages = Vec::new();
    for path in paths {
        let name = path.strip_prefix(BOOK).unwrap_or(&path);
        if figures::reads(name) {
            pages.push((name.display().to_string(), fs::read_to_string(root.join(&path))?));
        }
    }
    pages.sort();
    let mut files = Vec::new();
    sources(root, Path::new(""), &mut files)?;
    let source = |part: &str| {
        let part: Vec<_> = Path::new(part).components().collect();
        let has = |path: &Path| {
            path.components().collect::<Vec<_>>().windows(part.len()).any(|it| it == part)
        };
        let named = files.iter().filter(|path| has(path));
        named.filter_map(|path| fs::read_to_string(root.join(path)).ok()).collect()
    };
    Ok(match figures::read(&fs::read_to_string(root.join("docs/figures.txt"))?) {
        Ok(table) => figures::check(&table, &pages, source),
        Err(problem) => vec![problem],
    })
}

/// The files of the repository from which figures come.
fn sources(root: &Path, folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" && entry.file_name() != ".git" {
                sources(root, &path, paths)?;
            }
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// A Markdown file.
#[derive(Debug, Default)]
struct Page {
    /// Where its links lead, with their lines.
    links: Vec<(usize, String)>,
    /// The anchors of its headings.
    anchors: BTreeSet<String>,
}

/// All files, by their paths in the repository.
fn read(root: &Path) -> io::Result<BTreeMap<PathBuf, Page>> {
    let mut paths = Vec::new();
    markdown(root, Path::new(""), false, &mut paths)?;
    markdown(root, Path::new(BOOK), true, &mut paths)?;
    let read = |path: PathBuf| {
        let page = Page::of(&fs::read_to_string(root.join(&path))?);
        Ok((path, page))
    };
    paths.into_iter().map(read).collect()
}

fn markdown(root: &Path, folder: &Path, deep: bool, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if deep && entry.file_type()?.is_dir() {
            markdown(root, &path, deep, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    Ok(())
}

impl Page {
    fn of(text: &str) -> Self {
        let mut page = Self::default();
        let mut fence = None;
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let marker = ["```", "~~~"].into_iter().find(|marker| start.starts_with(marker));
            match (fence, marker) {
                (None, Some(_)) => fence = marker,
                (Some(open), Some(marker)) if open == marker => fence = None,
                (None, None) => page.read(number + 1, line),
                (Some(_), _) => {}
            }
        }
        page
    }

    fn read(&mut self, number: usize, line: &str) {
        if let Some(heading) = line.strip_prefix('#') {
            let anchor = anchor(heading.trim_start_matches('#').trim());
            let taken = |anchor: &String| self.anchors.contains(anchor);
            let numbered = (1..).map(|number| format!("{anchor}-{number}"));
            let free = std::iter::once(anchor.clone()).chain(numbered).find(|it| !taken(it));
            self.anchors.extend(free);
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (start, end) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            for part in prose.split(start).skip(1) {
                let target = part.split(end).next().unwrap_or_default();
                let target = target.split_whitespace().next().unwrap_or_default();
                self.links.push((number, target.trim_matches(['<', '>']).to_owned()));
            }
        }
        // [label]: target
        let label = prose.strip_prefix('[').filter(|label| !label.starts_with('^'));
        if let Some((_, target)) = label.and_then(|label| label.split_once("]: ")) {
            self.links.push((number, target.trim().to_owned()));
        }
    }
}

/// The anchor that mdBook, and forges, give a heading.
fn anchor(heading: &str) -> String {
    // The text of a link, without its target.
    let mut text = String::new();
    for (number, part) in heading.split("](").enumerate() {
        let part = if number == 0 { part } else { part.split_once(')').map_or("", |it| it.1) };
        text.push_str(part);
    }
    let characters = text.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    characters.flat_map(char::to_lowercase).collect()
}

/// The broken links and unlisted pages, each with its place.
fn check(pages: &BTreeMap<PathBuf, Page>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for (path, page) in pages {
        for (line, link) in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let mut wrong = |what: &str| {
                problems.push(format!("{}:{line}: {link}: {what}", path.display()));
            };
            let (file, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = match file {
                "" => Some(path.clone()),
                file => resolved(path, file),
            };
            let Some(target) = target.filter(|target| exists(target)) else {
                wrong("no such file");
                continue;
            };
            if path.starts_with(BOOK) && !target.starts_with(BOOK) {
                wrong("not in the book");
            }
            if !anchor.is_empty()
                && !pages.get(&target).is_some_and(|it| it.anchors.contains(anchor))
            {
                wrong("no such heading");
            }
            if path == Path::new(SUMMARY) {
                listed.insert(target);
            }
        }
    }
    let unlisted = pages.keys().filter(|path| path.starts_with(BOOK) && !listed.contains(*path));
    for path in unlisted.filter(|path| *path != Path::new(SUMMARY)) {
        problems.push(format!("{}: not in {SUMMARY}", path.display()));
    }
    problems
}

/// The path in the repository to which `file` leads from `page`; none: out of it.
fn resolved(page: &Path, file: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for component in Path::new(file).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_that_links_name() {
        for (heading, expected) in [
            ("The claim's own `Renew Time`", "the-claims-own-renew-time"),
            ("move, drain and undrain", "move-drain-and-undrain"),
            ("See [Status](x.md#status): `rp_filter`", "see-status-rp_filter"),
        ] {
            assert_eq!(anchor(heading), expected);
        }
        let page = Page::of("# Twice\n\n```sh\n# Not a heading [x](y)\n```\n\n## Twice\n");
        assert_eq!(page.anchors, ["twice".to_owned(), "twice-1".to_owned()].into());
        assert!(page.links.is_empty());
    }

    #[test]
    fn the_figures_of_the_book_are_those_of_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(wrong_figures(&root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "# A\n[a](b.md) [b](b.md#there) [c](#a) <https://a.example> [d](https://a.example/#x)\n\
            [e](missing.md) [f](b.md#gone) `[g](code.md)` [h](../../README.md)\n";
        let pages = [
            ("docs/src/a.md", text),
            ("docs/src/b.md", "## There\n"),
            ("docs/src/SUMMARY.md", "- [A](a.md)\n"),
            ("README.md", "[book](docs/src/a.md#a)\n"),
        ];
        let pages: BTreeMap<PathBuf, Page> =
            pages.into_iter().map(|(path, text)| (path.into(), Page::of(text))).collect();
        assert_eq!(
            check(&pages, |path| pages.contains_key(path)),
            [
                "docs/src/a.md:3: missing.md: no such file",
                "docs/src/a.md:3: b.md#gone: no such heading",
                "docs/src/a.md:3: ../../README.md: not in the book",
                "docs/src/b.md: not in docs/src/SUMMARY.md",
            ]
        );
    }
}
