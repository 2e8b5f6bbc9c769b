//! The table of rooms: which module may import which.
//!
//! ```text
//! # A comment.
//! clock
//! index::tables <- clock
//! index::plan <- clock tables
//!     service
//! ```
//!
//! A room is a module with all below it that are no rooms themselves; `crate` is the root. After the arrow
//! are the rooms that it may import, each with those within it. A name counts from the folder of the room,
//! else from the folder above, and so on: `tables` beside `index::plan` is `index::tables`. A line that
//! begins with a space continues the one before.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::Graph;

/// A table of rooms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// The rooms that each may import.
    allowed: BTreeMap<String, BTreeSet<String>>,
}

impl Rooms {
    /// Reads a table.
    pub fn parse(text: &str) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            match lines.last_mut().filter(|_| line.starts_with(' ')) {
                Some(last) => last.push_str(line),
                None => lines.push(line.to_owned()),
            }
        }
        let split = |line: &str| -> (String, Vec<String>) {
            let (room, allowed) = line.split_once("<-").unwrap_or((line, ""));
            let allowed = allowed.split_whitespace().map(str::to_owned).collect();
            (room.trim().trim_start_matches("crate").to_owned(), allowed)
        };
        let rows: BTreeMap<String, Vec<String>> = lines.iter().map(|line| split(line)).collect();
        let resolve = |room: &str, name: &str| {
            let mut folder = room;
            while let Some((above, _)) = folder.rsplit_once("::") {
                folder = above;
                let near = format!("{folder}::{name}");
                if rows.contains_key(&near) {
                    return near;
                }
            }
            name.to_owned()
        };
        let allowed = rows.iter().map(|(room, names)| {
            (room.clone(), names.iter().map(|name| resolve(room, name)).collect())
        });
        Self { allowed: allowed.collect() }
    }

    /// The room of a module.
    fn of(&self, module: &str) -> Option<&str> {
        let mut name = module;
        loop {
            if let Some((room, _)) = self.allowed.get_key_value(name) {
                return Some(room);
            }
            (name, _) = name.rsplit_once("::")?;
        }
    }

    /// The entry of the table that lets `room` import `target`. The folder around `room` is none for the
    /// other rooms in it.
    fn grant(&self, room: &str, target: &str) -> Option<&str> {
        let grants =
            |entry: &str| target == entry || is_within(target, entry) && !is_within(room, entry);
        let mut allowed = self.allowed.get(room)?.iter();
        allowed.find(|entry| grants(entry)).map(String::as_str)
    }
}

/// The faults of `graph` by this table: modules in no room, imports that the table does not allow, and
/// circles of more than `largest` modules; and the faults of the table: rooms without a module, and allowed
/// imports that do not exist.
pub fn violations(graph: &Graph, rooms: &Rooms, largest: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut inhabited = BTreeSet::new();
    for module in graph.modules() {
        match rooms.of(module) {
            Some(room) => {
                inhabited.insert(room);
            }
            None => found.push(format!("{module} is in no room")),
        }
    }
    let mut used = BTreeSet::new();
    for (from, to) in graph.arrows() {
        let (Some(room), Some(target)) = (rooms.of(from), rooms.of(to)) else { continue };
        if room == target {
            continue;
        }
        match rooms.grant(room, target) {
            Some(grant) => {
                used.insert((room, grant));
            }
            None => found.push(format!("{from} imports {to}, which {room} may not")),
        }
    }
    for circle in graph.circles().iter().filter(|circle| circle.len() > largest) {
        found.push(format!("{} modules import each other: {}", circle.len(), circle.join(", ")));
    }
    for (room, allowed) in &rooms.allowed {
        if !inhabited.contains(room.as_str()) {
            found.push(format!("the room {room} has no module"));
        }
        for target in allowed.iter().filter(|it| !used.contains(&(room.as_str(), it.as_str()))) {
            found.push(format!("{room} may import {target}, and does not"));
        }
    }
    found
}

/// Whether `room` is `other` or within it.
fn is_within(room: &str, other: &str) -> bool {
    room.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    const ROOMS: &str = "base\nmiddle <- base\ntop <- middle";

    fn faults(planted: &[(&str, &str)]) -> Vec<String> {
        let clean = [
            ("top", "use super::middle::{M, part::A};"),
            ("middle", "use crate::base::B;"),
            ("middle::part", ""),
            ("base", ""),
        ];
        let mut sources: BTreeMap<&str, &str> = clean.into();
        sources.extend(planted.iter().copied());
        let sources: Vec<_> =
            sources.iter().map(|(module, text)| Source::new(module, text)).collect();
        violations(&Graph::of(&sources), &Rooms::parse(ROOMS), 2)
    }

    #[test]
    fn a_crate_as_its_table_says_has_no_faults() {
        assert_eq!(faults(&[]), Vec::<String>::new());
    }

    #[test]
    fn each_planted_fault_is_found() {
        for (planted, expected) in [
            (
                ("base", "fn f() { super::top::T }"),
                vec![
                    "base imports top, which base may not",
                    "3 modules import each other: base, middle, top",
                ],
            ),
            (
                ("top", "use crate::{middle::part::A, base::B};"),
                vec!["top imports base, which top may not"],
            ),
            (("other", ""), vec!["other is in no room"]),
            (("middle", ""), vec!["middle may import base, and does not"]),
        ] {
            assert_eq!(faults(&[planted]), expected, "{planted:?}");
        }
    }

    #[test]
    fn a_room_may_import_what_is_within_an_allowed_one() {
        let sources = [
            Source::new("top", "use super::folder::part::A;"),
            Source::new("folder", ""),
            Source::new("folder::part", "use super::other::B;"),
            Source::new("folder::other", ""),
        ];
        let rooms = "# The folder.\nfolder\nfolder::other\nfolder::part <-\n  other\ntop <- folder";
        assert_eq!(violations(&Graph::of(&sources), &Rooms::parse(rooms), 2), Vec::<String>::new());
    }

    #[test]
    fn a_room_may_import_its_folder_without_what_is_within_that() {
        let sources = [
            Source::new("folder", ""),
            Source::new("folder::part", "use super::{A, other::B};"),
            Source::new("folder::other", ""),
        ];
        let rooms = Rooms::parse("folder\nfolder::other\nfolder::part <- folder");
        assert_eq!(
            violations(&Graph::of(&sources), &rooms, 2),
            ["folder::part imports folder::other, which folder::part may not"]
        );
    }

    #[test]
    fn a_room_without_a_module_is_a_fault_of_the_table() {
        let graph = Graph::of(&[Source::new("a", "")]);
        assert_eq!(violations(&graph, &Rooms::parse("a\nb"), 2), ["the room b has no module"]);
    }
}
