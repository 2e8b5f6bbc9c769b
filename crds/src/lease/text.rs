//! Annotations as values: lists are separated by commas, flags are `true` or missing, and a value that cannot be
//! read counts as missing.

use std::collections::BTreeMap;
use std::str::FromStr;

const TRUE: &str = "true";

/// The annotations of a Lease, to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'a> Reader<'a> {
    /// The text of an annotation.
    pub(super) fn text(self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(String::as_str)
    }

    /// The parsed text of an annotation.
    pub(super) fn value<T: FromStr>(self, key: &str) -> Option<T> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    /// The items of a list that are not empty.
    pub(super) fn items(self, key: &str) -> impl Iterator<Item = &'a str> {
        self.text(key).unwrap_or_default().split(',').filter(|item| !item.is_empty())
    }

    /// The items of a list that can be parsed.
    pub(super) fn list<T: FromStr, C: FromIterator<T>>(self, key: &str) -> C {
        self.items(key).filter_map(|item| item.parse().ok()).collect()
    }

    /// Whether a flag is set.
    pub(super) fn flag(self, key: &str) -> bool {
        self.text(key) == Some(TRUE)
    }
}

/// The annotations of a Lease, to write.
#[derive(Debug, Default)]
pub(super) struct Writer(BTreeMap<String, String>);

impl Writer {
    /// Writes a text.
    pub(super) fn text(&mut self, key: &str, text: impl Into<String>) {
        self.0.insert(key.to_owned(), text.into());
    }

    /// Writes a value, if there is one.
    pub(super) fn value(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.text(key, value.to_string());
        }
    }

    /// Writes a list, unless it has no items.
    pub(super) fn list(&mut self, key: &str, items: impl IntoIterator<Item = impl ToString>) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.text(key, joined(items));
        }
    }

    /// Writes a flag, if it is set.
    pub(super) fn flag(&mut self, key: &str, is_set: bool) {
        self.value(key, is_set.then_some(TRUE));
    }

    /// The annotations.
    pub(super) fn finish(self) -> BTreeMap<String, String> {
        self.0
    }
}

/// A list as text.
pub(super) fn joined(items: impl IntoIterator<Item = impl ToString>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}
