//! A sequence diagram as a picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::rows::{Diagram, Kind, Line, State, seconds};
use crate::world::Place;

const WIDTH: u32 = 900;
/// The first lifeline, from the left.
const LEFT: u32 = 130;
/// The times, from the left.
const GUTTER: u32 = 64;
/// The last lifeline, from the right.
const RIGHT: u32 = 75;
/// The first row.
const TOP: u32 = 84;
const ROW: u32 = 27;
const LOW_ROW: u32 = 20;

const OWNED: &str = "#1f6fb4";
const PROVISIONAL: &str = "#e08214";
const REQUEST: &str = "#333333";
const FRAME: &str = "#23733b";
const LOST: &str = "#b2182b";
const GREY: &str = "#999999";

/// A picture under construction.
struct Picture<'a> {
    diagram: &'a Diagram,
    /// Below the lifelines and bars are the messages.
    below: String,
    above: String,
    y: u32,
    /// The bars that are open, by place: the beginning, and the color.
    bars: BTreeMap<Place, (u32, &'static str)>,
    /// The lifelines: the beginning of the present part, and whether the place works.
    lives: BTreeMap<Place, (u32, bool)>,
}

/// Draws the picture, as SVG.
pub(super) fn draw(title: &str, diagram: &Diagram) -> String {
    let places = diagram.places.iter().map(|(place, _)| (*place, (TOP - 20, true)));
    let mut picture = Picture {
        diagram,
        below: String::new(),
        above: String::new(),
        y: TOP,
        bars: BTreeMap::new(),
        lives: places.collect(),
    };
    for row in &diagram.rows {
        picture.row(row.at, &row.kind);
    }
    picture.finish(title)
}

impl Picture<'_> {
    fn finish(mut self, title: &str) -> String {
        let bottom = self.y;
        for place in self.bars.clone().into_keys() {
            self.end_bar(place, bottom);
        }
        for place in self.lives.clone().into_keys() {
            self.end_life(place, bottom);
        }
        let height = bottom + 16;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        let mut line = |part: String| {
            text.push_str(&part);
            text.push('\n');
        };
        line(label(10, 18, "start", "#000000", title, "font-size=\"14\" font-weight=\"bold\""));
        let mut x = 10;
        for (color, meaning, width) in [
            (OWNED, "owner: address in the kernel", 205),
            (PROVISIONAL, "provisional: address in the kernel", 235),
        ] {
            line(format!("<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"12\" fill=\"{color}\"/>"));
            line(label(x + 16, 38, "start", "#000000", meaning, ""));
            x += width;
        }
        for (color, dash, meaning, width) in [
            (REQUEST, "", "request", 85),
            (REQUEST, DASH, "answer, watch", 120),
            (FRAME, "", "frame", 75),
            (LOST, "", "no reply", 90),
        ] {
            line(format!(
                "<line x1=\"{x}\" y1=\"34\" x2=\"{}\" y2=\"34\" stroke=\"{color}\"{dash}/>",
                x + 22
            ));
            line(label(x + 27, 38, "start", "#000000", meaning, ""));
            x += width;
        }
        for (place, name) in &self.diagram.places {
            let bold = "font-weight=\"bold\"";
            line(label(self.x(*place), TOP - 26, "middle", "#000000", name, bold));
        }
        line(label(58, TOP - 26, "end", GREY, "seconds", ""));
        text.push_str(&self.below);
        text.push_str(&self.above);
        text.push_str("</svg>\n");
        text
    }

    /// The lifeline of a place.
    fn x(&self, place: Place) -> u32 {
        let places = &self.diagram.places;
        let number = places.iter().position(|(it, _)| *it == place).unwrap();
        let gaps = u32::try_from(places.len() - 1).unwrap();
        LEFT + (WIDTH - LEFT - RIGHT) * u32::try_from(number).unwrap() / gaps
    }

    fn row(&mut self, at: f64, kind: &Kind) {
        match kind {
            Kind::Break => {
                self.time(self.y + 11, "⋮");
                self.y += 13;
            }
            Kind::Note { text, works } => {
                let y = self.y + 14;
                self.time(y, &seconds(at));
                let (from, to) = (LEFT - 60, WIDTH - 10);
                self.put(&format!(
                    "<rect x=\"{from}\" y=\"{}\" width=\"{}\" height=\"18\" fill=\"#fff3bf\" \
                     stroke=\"#d9c36a\"/>",
                    y - 13,
                    to - from
                ));
                let middle = u32::midpoint(from, to);
                self.put(&label(middle, y, "middle", "#000000", text, "font-weight=\"bold\""));
                if let Some((place, works)) = works {
                    self.end_life(*place, y + 5);
                    self.lives.insert(*place, (y + 5, *works));
                }
                self.y += ROW;
            }
            Kind::Local { place, text, state } => self.local(at, *place, text, *state),
            Kind::Arrow { from, to, text, line } => self.arrow(at, *from, to, text, *line),
        }
    }

    fn local(&mut self, at: f64, place: Place, text: &str, state: Option<State>) {
        let y = self.y + 10;
        if !text.is_empty() {
            self.time(y + 4, &seconds(at));
            let x = self.x(place);
            self.put(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{REQUEST}\"/>"));
            // To the side where there is room.
            let text = if x > WIDTH / 2 {
                label(x - 9, y + 4, "end", "#000000", text, HALO)
            } else {
                label(x + 9, y + 4, "start", "#000000", text, HALO)
            };
            self.put(&text);
            self.y += LOW_ROW;
        }
        let y = if text.is_empty() && self.y == TOP { TOP - 20 } else { y };
        if let Some(state) = state {
            self.end_bar(place, y);
            match state {
                State::None => {}
                State::Owned => _ = self.bars.insert(place, (y, OWNED)),
                State::Provisional => _ = self.bars.insert(place, (y, PROVISIONAL)),
            }
        }
    }

    fn arrow(&mut self, at: f64, from: Place, to: &[Place], text: &str, line: Line) {
        let y = self.y + 21;
        self.time(y + 4, &seconds(at));
        let start = self.x(from);
        let ends: Vec<u32> = to.iter().map(|to| self.x(*to)).collect();
        let dead = to.iter().filter(|to| self.lives.get(to).is_some_and(|(_, works)| !works));
        let dead: Vec<u32> = dead.map(|to| self.x(*to)).collect();
        let (color, dash) = match line {
            Line::Request => (REQUEST, ""),
            Line::Answer | Line::Watch => (REQUEST, DASH),
            Line::Frame | Line::Replied => (FRAME, ""),
            Line::Lost => (LOST, ""),
        };
        let (mut least, mut most) = (start, start);
        for end in &ends {
            (least, most) = (least.min(*end), most.max(*end));
        }
        self.put(&format!(
            "<line x1=\"{least}\" y1=\"{y}\" x2=\"{most}\" y2=\"{y}\" stroke=\"{color}\"{dash}/>"
        ));
        for end in &ends {
            let mark = if dead.contains(end) { cross(*end, y) } else { head(start, *end, y) };
            self.put(&format!("<path d=\"{mark}\" fill=\"none\" stroke=\"{color}\"/>"));
        }
        if line == Line::Replied
            && let [end] = ends.as_slice()
        {
            let mark = head(*end, start, y);
            self.put(&format!("<path d=\"{mark}\" fill=\"none\" stroke=\"{color}\"/>"));
        } else {
            self.put(&format!("<circle cx=\"{start}\" cy=\"{y}\" r=\"2.5\" fill=\"{color}\"/>"));
        }
        // Over the part next to the sender.
        let near = ends.iter().copied().min_by_key(|end| end.abs_diff(start)).unwrap_or(start);
        let half = u32::try_from(text.chars().count()).unwrap() * 63 / 20;
        let middle = u32::midpoint(start, near).clamp(GUTTER + half, WIDTH - 4 - half);
        self.put(&label(middle, y - 5, "middle", color, text, HALO));
        self.y += ROW;
    }

    fn time(&mut self, y: u32, text: &str) {
        self.put(&label(58, y, "end", GREY, text, ""));
    }

    fn put(&mut self, part: &str) {
        self.above.push_str(part);
        self.above.push('\n');
    }

    fn end_bar(&mut self, place: Place, y: u32) {
        if let Some((from, color)) = self.bars.remove(&place) {
            let x = self.x(place) - 4;
            let height = y - from;
            let _infallible = writeln!(
                self.below,
                "<rect x=\"{x}\" y=\"{from}\" width=\"8\" height=\"{height}\" fill=\"{color}\"/>"
            );
        }
    }

    fn end_life(&mut self, place: Place, y: u32) {
        if let Some((from, works)) = self.lives.remove(&place) {
            let x = self.x(place);
            let (color, dash) =
                if works { (GREY, "") } else { (LOST, " stroke-dasharray=\"1 5\"") };
            let line = format!(
                "<line x1=\"{x}\" y1=\"{from}\" x2=\"{x}\" y2=\"{y}\" stroke=\"{color}\"{dash}/>\n"
            );
            // Under the bars.
            self.below.insert_str(0, &line);
        }
    }
}

const DASH: &str = " stroke-dasharray=\"5 3\"";
/// Lines behind a text stay away from it.
const HALO: &str = "paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"4\"";

fn label(x: u32, y: u32, anchor: &str, color: &str, text: &str, more: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let space = if more.is_empty() { "" } else { " " };
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{color}\"{space}{more}>{text}</text>"
    )
}

/// An arrowhead at `end`, of a line from `start`.
fn head(start: u32, end: u32, y: u32) -> String {
    let back = if end > start { end - 7 } else { end + 7 };
    format!("M{back} {} L{end} {y} L{back} {}", y - 4, y + 4)
}

fn cross(x: u32, y: u32) -> String {
    let (left, right, top, bottom) = (x - 4, x + 4, y - 4, y + 4);
    format!("M{left} {top} L{right} {bottom} M{left} {bottom} L{right} {top}")
}
