//! The rows of a diagram, from top to bottom.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold_core::clock::Instant;

use super::reader::Reader;
use super::runs::Recording;
use crate::world::Place;

/// The time without a row that is drawn as a break.
const BREAK: Duration = Duration::from_millis(100);

/// A sequence diagram.
pub(super) struct Diagram {
    /// The lifelines, from left to right.
    pub(super) places: Vec<(Place, String)>,
    pub(super) rows: Vec<Row>,
}

/// One row.
pub(super) struct Row {
    /// Since the first note, in seconds.
    pub(super) at: f64,
    pub(super) kind: Kind,
}

/// The content of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Time without a row.
    Break,
    Note {
        text: String,
        works: Option<(Place, bool)>,
    },
    /// A step of one host.
    Local {
        place: Place,
        text: String,
        state: Option<State>,
    },
    Arrow {
        from: Place,
        to: Vec<Place>,
        text: String,
        line: Line,
    },
}

/// The addresses of Services in the kernel of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    None,
    Owned,
    Provisional,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Request,
    Answer,
    Watch,
    /// A frame without a reply.
    Frame,
    /// A frame, and its reply.
    Replied,
    /// A message that does not arrive, or whose receiver does not reply.
    Lost,
}

impl Diagram {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut places = vec![(Place::Server, "API server".to_owned())];
        places.extend(
            recording.nodes.iter().enumerate().map(|(id, name)| (Place::Host(id), name.clone())),
        );
        places.push((Place::Router, "gateway, clients".to_owned()));
        if recording.stranger {
            places.push((Place::Stranger, "other host".to_owned()));
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut before: Option<Instant> = None;
        let (zero, read) = Reader::read(recording);
        for (at, kind) in read {
            let since = since(zero, at);
            if before.is_some_and(|before| at.saturating_since(before) > BREAK) {
                rows.push(Row { at: since, kind: Kind::Break });
            }
            before = Some(at);
            rows.push(Row { at: since, kind });
        }
        // The state at the beginning.
        let owned = recording.serving.iter().map(|(id, _)| Row {
            at: 0.0,
            kind: Kind::Local {
                place: Place::Host(*id),
                text: String::new(),
                state: Some(State::Owned),
            },
        });
        rows.splice(0..0, owned);
        Self { places, rows }
    }

    pub(super) fn name(&self, place: Place) -> &str {
        self.places.iter().find(|(it, _)| *it == place).map_or("?", |(_, name)| name)
    }

    /// One line a row.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let line = match &row.kind {
                Kind::Break => continue,
                Kind::Note { text, .. } => format!("*** {text}"),
                Kind::Local { text, .. } if text.is_empty() => continue,
                Kind::Local { place, text, .. } => format!("{}: {text}", self.name(*place)),
                Kind::Arrow { from, to, text, line } => {
                    let to: Vec<&str> = to.iter().map(|to| self.name(*to)).collect();
                    let end = match line {
                        Line::Lost => ", no reply",
                        Line::Replied => ", reply",
                        Line::Request | Line::Answer | Line::Watch | Line::Frame => "",
                    };
                    format!("{} -> {}: {text}{end}", self.name(*from), to.join(", "))
                }
            };
            let _infallible = writeln!(text, "{} {line}", seconds(row.at));
        }
        text
    }
}

/// The seconds from `zero` to `at`, negative before it.
pub(super) fn since(zero: Instant, at: Instant) -> f64 {
    at.saturating_since(zero).as_secs_f64() - zero.saturating_since(at).as_secs_f64()
}

/// A time since the first note, in seconds.
pub(super) fn seconds(at: f64) -> String {
    format!("{at:+7.3}")
}
