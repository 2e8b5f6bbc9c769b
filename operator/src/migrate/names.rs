//! Names for objects that have none of their own.

use std::collections::BTreeSet;

/// Shorter than a name may be (253), so that a number fits behind.
const LONGEST: usize = 240;

/// The names that are given out.
#[derive(Debug, Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// Names that nobody else gets.
    pub fn reserving(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// `wanted`, or where that is given out, with the first free number behind.
    pub fn give(&mut self, wanted: &str) -> String {
        let mut name: String = wanted.chars().take(LONGEST).collect();
        name.truncate(name.trim_end_matches(['-', '.']).len());
        let base = name.clone();
        let mut number = 1;
        while !self.0.insert(name.clone()) {
            number += 1;
            name = format!("{base}-{number}");
        }
        name
    }
}
