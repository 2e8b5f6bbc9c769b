//! Cells and tables.

/// Prose as one cell. Code spans stay as they are; outside them, what would be markup is escaped.
pub fn cell(text: &str) -> String {
    let mut cell = String::new();
    for (number, paragraph) in text.trim().split("\n\n").enumerate() {
        if number > 0 {
            cell.push_str("<br>");
        }
        // Every second part is inside a code span.
        for (number, part) in paragraph.split('`').enumerate() {
            if number > 0 {
                cell.push('`');
            }
            let is_code = number % 2 == 1;
            for character in part.chars() {
                match character {
                    '\n' => cell.push(' '),
                    '|' => cell.push_str("\\|"),
                    '<' | '*' if !is_code => cell.extend(['\\', character]),
                    _ => cell.push(character),
                }
            }
        }
    }
    cell
}

/// A sentence, also where the code has it without a period.
pub fn sentence(text: &str) -> String {
    let end = if text.is_empty() || text.ends_with(['.', ':']) { "" } else { "." };
    format!("{text}{end}")
}

/// A code span in a cell.
pub fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Code spans, separated by commas.
pub fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

/// A table of such cells, with an empty line after it.
pub fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells =
            row.map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
        table.extend(["|", &cells.concat(), "\n"]);
    }
    table.push('\n');
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_cell_or_begin_a_tag_is_escaped() {
        for (text, expected) in [
            ("`a|b` or <c>", "`a\\|b` or \\<c>"),
            ("`leasehold-<time>`, *", "`leasehold-<time>`, \\*"),
            ("one\nline\n\nand another", "one line<br>and another"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn rows_are_lines() {
        let rows = [["a".to_owned(), String::new(), String::new()]];
        assert_eq!(table(["x", "y", "z"], rows), "| x | y | z |\n|---|---|---|\n| a | | |\n\n");
    }
}
