//! The shell of a page, and what sections are made of.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::explain::Share;
use maud::{DOCTYPE, Markup, html};

/// A whole page.
pub fn shell(title: &str, sections: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="style.css";
                script src="live.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    h1 { (title) }
                    p #live role="status" { "Status at the time of loading." }
                }
                main #main { (sections) }
                footer {
                    p {
                        "Read only. "
                        a href="status.json" { "Status as JSON" } " · "
                        a href="metrics" { "Metrics" } " · "
                        a href="readyz" { "Readiness" }
                    }
                }
            }
        }
    }
}

/// The severity of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// To be looked at.
    Warn,
    /// Wrong.
    Bad,
}

/// A word in a frame; the word says it, the colour only helps.
pub fn badge(tone: Tone, text: &str) -> Markup {
    let class = match tone {
        Tone::Good => "badge good",
        Tone::Warn => "badge warn",
        Tone::Bad => "badge bad",
    };
    html! { span class=(class) { (text) } }
}

/// A table; on a narrow screen each row becomes a card whose cells bear the headings.
pub fn table(caption: &str, headings: &[&str], rows: Vec<Vec<Markup>>) -> Markup {
    html! {
        @if rows.is_empty() {
            p.none { "None." }
        } @else {
            div.table tabindex="0" role="region" aria-label=(caption) {
                table {
                    thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                    tbody {
                        @for row in rows {
                            tr {
                                @for (cell, heading) in row.into_iter().zip(headings) {
                                    td data-label=(heading) { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `118 ms`, `2.1 s`, `3 min`, `5 h`, `9 d`.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..=9 => format!("{:.1} s", time.as_secs_f64()),
        10..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The same of milliseconds.
pub fn span_of(millis: u64) -> String {
    span(Duration::from_millis(millis))
}

/// A point in time, to the second, in UTC.
pub fn at(time: Timestamp) -> Markup {
    let text = time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    html! { time datetime=(time) { (text) } }
}

/// The text, or a dash without one.
pub fn or_dash(text: Option<impl ToString>) -> Markup {
    html! { (text.map_or_else(|| "-".to_owned(), |text| text.to_string())) }
}

/// Things one under the other.
pub fn lines(items: impl IntoIterator<Item = impl ToString>) -> Markup {
    html! { @for item in items { span.line { (item.to_string()) } } }
}

/// A line below an owner: the nodes over which it spreads packets; nothing without any.
pub fn spread(shares: &[Share]) -> Markup {
    html! {
        @if !shares.is_empty() {
            br; small { "spread over: " (Share::listed(shares)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_only_of_what_is_spread() {
        assert_eq!(spread(&[]).into_string(), "");
        let share = |node: &str, percent| {
            let node = node.parse().unwrap();
            Share { node, weight: 1, buckets: percent * 10, percent }
        };
        let shown = spread(&[share("node-1", 51), share("node-2", 49)]).into_string();
        assert_eq!(shown, "<br><small>spread over: node-1 51 %, node-2 49 %</small>");
    }

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        for (millis, text) in [
            (0, "0 ms"),
            (118, "118 ms"),
            (2_140, "2.1 s"),
            (61_000, "61 s"),
            (180_000, "3 min"),
            (18_000_000, "5 h"),
            (777_600_000, "9 d"),
        ] {
            assert_eq!(span_of(millis), text);
        }
    }
}
