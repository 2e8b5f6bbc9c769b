//! Checks the figures of the book and of the README: times, sizes, shares and rates.
//!
//! Each figure in running text or in a table has a row in `docs/figures.txt`, which says where its value comes
//! from: a constant of the code, a text in a file, or an expression of these. A figure without a row, a row
//! without a figure, and a value that differs are problems. A measured figure has no such row: it is in a table
//! that `leasehold-bench report` writes, or in a text that a test of `tests/bench/report` compares with the
//! results. Tables that are generated, and blocks of code, are not read.
//!
//! | module | content |
//! |---|---|
//! | [`text`] | the figures of a page |
//! | [`rows`] | the rows of `docs/figures.txt` |
//! | [`value`] | the value of a row |

mod rows;
mod text;
mod value;

use std::collections::BTreeSet;
use std::path::Path;

use rows::Source;
pub(crate) use rows::{Row, read};
use text::Figure;
use value::Values;

/// The problems of `pages`: path from `docs/src/` (or `README.md`), and text. `source` reads the files of the
/// repository with a path, or the end of one, or in a folder.
pub(crate) fn check(
    table: &rows::Table,
    pages: &[(String, String)],
    source: impl Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let values = Values::new(&table.names, &source);
    let mut used = BTreeSet::new();
    for (page, text) in pages {
        for Figure { line, text } in text::figures(text) {
            let rows = table.rows.iter().enumerate();
            let rows: Vec<(usize, &Row)> =
                rows.filter(|(_, row)| row.page == *page && row.figure == text).collect();
            if rows.is_empty() {
                problems.push(format!(
                    "{page}:{line}: `{text}` has no row in docs/figures.txt: name the constant that it is, or, \
                     if it was measured, put it into a table that `leasehold-bench report` writes"
                ));
            }
            used.extend(rows.into_iter().map(|(number, _)| number));
        }
    }
    for (number, row) in table.rows.iter().enumerate() {
        let Row { line, page, figure, source } = row;
        if !used.contains(&number) {
            problems.push(format!("docs/figures.txt:{line}: {page} has no `{figure}`"));
        } else if let Source::Values(expressions) = source
            && let Err(why) = values.compare(figure, expressions)
        {
            problems.push(format!("docs/figures.txt:{line}: {page}, `{figure}`: {why}"));
        }
    }
    problems
}

/// Whether the figures of a page are checked: those of a generated page are not.
pub(crate) fn reads(page: &Path) -> bool {
    !page.starts_with("reference") || page.ends_with("README.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_a_row_a_row_without_a_figure_and_another_value_are_problems() {
        let table = read(
            "LEASE = \"value = \\\"5s\\\"\" in config.rs\n\
             @a.md\n\
             5 s = LEASE\n\
             1.67 s = LEASE / 3\n\
             60 to 160 ms = 3 * x.rs:RETRY, 100 ms + 3 * x.rs:RETRY\n\
             2 s = x.rs:GONE\n\
             7 s = LEASE\n\
             10 s = outside: a default of Kubernetes\n",
        )
        .unwrap();
        let pages = [(
            "a.md".to_owned(),
            "# A\n\nAfter 5 s, 1.67 s, `60 to\n160 ms`, 2 s; 10 s and 8 s.\n\n```\n9 s\n```\n"
                .to_owned(),
        )];
        let source = |path: &str| match path {
            "config.rs" => vec!["default_value = \"5s\"".to_owned()],
            "x.rs" => vec![
                "const RETRY: Duration = Duration::from_millis(20);\n\
                 pub(crate) const GONE: Duration = Duration::from_millis(1_500);"
                    .to_owned(),
            ],
            _ => Vec::new(),
        };
        assert_eq!(
            check(&table, &pages, source),
            [
                "a.md:4: `8 s` has no row in docs/figures.txt: name the constant that it is, or, if it was \
                 measured, put it into a table that `leasehold-bench report` writes",
                "docs/figures.txt:6: a.md, `2 s`: x.rs:GONE is 1.5 s",
                "docs/figures.txt:7: a.md has no `7 s`",
            ]
        );
    }
}
