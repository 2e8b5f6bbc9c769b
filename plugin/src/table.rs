//! Columns as kubectl writes them: no borders, three spaces between.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

/// Between two columns.
const GAP: usize = 3;

/// The meaning of a text, for its color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Something is wrong.
    Bad,
    /// Less important than the rest.
    Dim,
}

impl Tone {
    const fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Dim => Style::new().dimmed(),
        }
    }

    /// `text` in its colour; the stream takes colours out where there is no terminal.
    pub(super) fn paint(self, text: &str) -> String {
        if self == Self::Plain {
            return text.to_owned();
        }
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows under a line of headings.
#[derive(Clone, Debug)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|it| Cell::from(*it)).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The whole as text, each line ended.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                text.push_str(&cell.tone.paint(&cell.text));
                if index < last {
                    let pad = width.saturating_sub(cell.text.chars().count()) + GAP;
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{:pad$}", "");
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// `name:  text` lines, the texts below each other.
pub(super) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + GAP;
    let line = |(name, text): &(&str, String)| format!("{:width$}{text}\n", format!("{name}:"));
    fields.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_whatever_its_colour() {
        let mut table = Table::new(&["NAME", "STATE", "WHY"]);
        table.row(["a".into(), Cell::new("good", Tone::Good), "".into()]);
        table.row(["longer".into(), "x".into(), "because".into()]);
        let text = anstream::adapter::strip_str(&table.text()).to_string();
        assert_eq!(
            text,
            "NAME     STATE   WHY\n\
             a        good\n\
             longer   x       because\n"
        );
    }
}
