//! The figures of a page.

/// The units of figures, longer ones before those with which they begin.
const UNITS: [&str; 18] = [
    "ms",
    "s",
    "µs",
    "ns",
    "MiB",
    "KiB",
    "GiB",
    "MB",
    "%",
    "seconds",
    "second",
    "minutes",
    "minute",
    "hours",
    "hour",
    "times a second",
    "per second",
    "/s",
];
/// The texts between two numbers of one figure, such as `60 to 160 ms`.
const BETWEEN: [&str; 6] = [" to ", " and ", " or ", ", ", "-", "–"];
/// Figures in words.
const WORDS: [(&str, f64); 7] = [
    ("half a second", 1.0 / 2.0),
    ("a quarter of a second", 1.0 / 4.0),
    ("a fifth of a second", 1.0 / 5.0),
    ("a sixth of a second", 1.0 / 6.0),
    ("a seventh of a second", 1.0 / 7.0),
    ("an eighth of a second", 1.0 / 8.0),
    ("a tenth of a second", 1.0 / 10.0),
];

/// A figure, with the line in which it begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) line: usize,
    /// One or more numbers and their unit, as written.
    pub(super) text: String,
}

/// A number or several, and their unit.
#[derive(Debug, PartialEq)]
pub(super) struct Amount {
    /// The numbers, with the number of their decimals.
    pub(super) numbers: Vec<(f64, usize)>,
    pub(super) unit: &'static str,
}

/// The figures of a page, outside of code blocks, generated parts, comments and targets of links.
pub(super) fn figures(page: &str) -> Vec<Figure> {
    let prose = prose(page);
    // The text in one line, and where each line of the page begins in it.
    let mut text = String::new();
    let mut lines = Vec::new();
    for (number, line) in prose {
        lines.push((text.len(), number));
        text.push_str(line.trim());
        text.push(' ');
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else { break };
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let length = if before.is_none_or(begins_after) { length(rest) } else { None };
        if let Some(length) = length {
            let line =
                lines.iter().rev().find(|(begin, _)| *begin <= at).map_or(0, |(_, line)| *line);
            let figure = rest.get(..length).unwrap_or_default().to_owned();
            found.push(Figure { line, text: figure });
        }
        at += length.unwrap_or(first.len_utf8());
    }
    found
}

/// The value of a figure.
pub(super) fn amount(figure: &str) -> Option<Amount> {
    if let Some((_, value)) = WORDS.iter().find(|(word, _)| *word == figure) {
        return Some(Amount { numbers: vec![(*value, 3)], unit: "s" });
    }
    let (amount, rest) = parsed(figure)?;
    rest.is_empty().then_some(amount)
}

/// Whether a figure can begin after this character: not within a name, a version, or a time of day.
const fn begins_after(before: char) -> bool {
    !(before.is_ascii_alphanumeric() || matches!(before, '.' | ':' | '-' | '_' | '/' | ','))
}

/// The length of the figure at the beginning of `text`.
fn length(text: &str) -> Option<usize> {
    let word = WORDS.iter().find(|(word, _)| text.starts_with(word)).map(|(word, _)| word.len());
    word.or_else(|| parsed(text).map(|(_, rest)| text.len() - rest.len()))
}

/// The figure at the beginning of `text`, and the rest.
fn parsed(text: &str) -> Option<(Amount, &str)> {
    let (first, mut rest) = number(text)?;
    let mut numbers = vec![first];
    'more: loop {
        for between in BETWEEN {
            if let Some((next, after)) = rest.strip_prefix(between).and_then(number) {
                numbers.push(next);
                rest = after;
                continue 'more;
            }
        }
        break;
    }
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    let unit = |unit: &&&'static str| rest.strip_prefix(**unit).is_some_and(ends);
    let unit = UNITS.iter().find(unit)?;
    Some((Amount { numbers, unit }, rest.strip_prefix(unit)?))
}

/// The number at the beginning of `text` with its decimals, and the rest.
fn number(text: &str) -> Option<((f64, usize), &str)> {
    let mut digits = String::new();
    let mut decimals = None;
    let mut rest = text;
    loop {
        let next = rest.chars().next().unwrap_or_default();
        let followed = rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit());
        match next {
            '0'..='9' => {
                digits.push(next);
                decimals = decimals.map(|count| count + 1);
            }
            '.' if followed && decimals.is_none() && !digits.is_empty() => {
                digits.push(next);
                decimals = Some(0);
            }
            // Between thousands.
            ',' if followed && decimals.is_none() && !digits.is_empty() => {}
            _ => break,
        }
        rest = rest.get(1..)?;
    }
    Some(((digits.parse().ok()?, decimals.unwrap_or(0)), rest))
}

/// The lines that are read, with their numbers.
fn prose(page: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let (mut fence, mut generated) = (false, false);
    for (number, line) in page.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            fence = !fence;
        } else if start.starts_with("<!-- numbers:") || start.starts_with("<!-- run:") {
            generated = true;
        } else if start.starts_with("<!-- end of") {
            generated = false;
        } else if !fence && !generated {
            lines.push((number + 1, without_targets(line)));
        }
    }
    lines
}

/// The line without the targets of its links.
fn without_targets(line: &str) -> String {
    let mut text = String::new();
    for (number, part) in line.split("](").enumerate() {
        let part = if number == 0 { part } else { part.split_once(')').map_or("", |it| it.1) };
        text.push_str(part);
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_numbers_with_a_unit_and_some_words() {
        let page = "In 5 s, `20ms`, 0.1, 0.5, 1 and 2 s, 3 to\n4.5 s, about an eighth of a second, 10,000 \
                    Services, 76 to 100 per second, 22.7 MiB and 51 %.\n[1 s](x.md#2-s) 18:57:52 s eth0 s v1.2 s\n\
                    <!-- numbers: a -->\n7 s\n<!-- end of numbers -->\n```\n8 s\n```\n| 9 s |\n";
        let found: Vec<String> = figures(page).into_iter().map(|it| it.text).collect();
        assert_eq!(
            found,
            [
                "5 s",
                "20ms",
                "0.1, 0.5, 1 and 2 s",
                "3 to 4.5 s",
                "an eighth of a second",
                "76 to 100 per second",
                "22.7 MiB",
                "51 %",
                "1 s",
                "9 s",
            ]
        );
        assert_eq!(figures("a\nb\n5 s\n"), [Figure { line: 3, text: "5 s".to_owned() }]);
    }

    #[test]
    fn a_figure_has_a_value_for_each_of_its_numbers() {
        let amount = |text| amount(text).map(|it| (it.numbers, it.unit));
        assert_eq!(amount("3 to 4.5 s"), Some((vec![(3.0, 0), (4.5, 1)], "s")));
        assert_eq!(amount("1,000 ms"), Some((vec![(1000.0, 0)], "ms")));
        assert_eq!(amount("5"), None);
    }
}
