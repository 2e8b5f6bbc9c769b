//! The rows of `docs/figures.txt`.
//!
//! ```text
//! # A comment.
//! NAME = EXPRESSION
//! @PAGE
//! FIGURE = EXPRESSION, EXPRESSION
//! FIGURE = outside: REASON
//! ```
//!
//! A figure has as many expressions as it has numbers. An expression has numbers, figures such as `20 ms`, names,
//! `+ - * /`, `floor()`, and these:
//!
//! | form | value |
//! |---|---|
//! | `FILE:NAME` | the constant of this name, `FILE:NAME[0]` an element of an array |
//! | `"TEXT" in FILE` | the last value in a text of a file |
//! | `alert NAME` | the time after which the alert fires |
//!
//! `FILE` is the end of the path of a file, or a folder: as much of it as tells constants of one name apart.

use std::collections::BTreeMap;

/// The content of the file.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Expressions by name.
    pub(super) names: BTreeMap<String, String>,
    pub(super) rows: Vec<Row>,
}

/// A figure of a page, and the source of its value.
#[derive(Debug)]
pub(crate) struct Row {
    pub(super) line: usize,
    pub(super) page: String,
    pub(super) figure: String,
    pub(super) source: Source,
}

/// The source of a value.
#[derive(Debug)]
pub(super) enum Source {
    /// One expression for each number.
    Values(Vec<String>),
    /// A value that this repository does not decide: the default of another program, or an example.
    Outside,
}

/// Reads the text of `docs/figures.txt`.
///
/// # Errors
///
/// The first line that has another form.
pub(crate) fn read(text: &str) -> Result<Table, String> {
    let mut table = Table::default();
    let mut page = None;
    for (number, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('@') {
            page = Some(name.to_owned());
            continue;
        }
        let (left, right) = line.split_once(" = ").ok_or_else(|| {
            format!("docs/figures.txt:{number}: neither `@PAGE` nor `FIGURE = SOURCE`")
        })?;
        let Some(page) = &page else {
            table.names.insert(left.to_owned(), right.to_owned());
            continue;
        };
        let source = match right.strip_prefix("outside: ") {
            Some(_) => Source::Outside,
            None => Source::Values(split(right)),
        };
        let (page, figure) = (page.clone(), left.to_owned());
        table.rows.push(Row { line: number, page, figure, source });
    }
    Ok(table)
}

/// The expressions of a row, which have commas between them.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut before = ' ';
    for character in text.chars() {
        if character == '"' && before != '\\' {
            quoted = !quoted;
        }
        before = character;
        if character == ',' && !quoted {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}
