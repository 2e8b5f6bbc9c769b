//! A table of the objects of one kind, as the watches and the answers to own writes show them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::allocate::Created;

/// The part of an object that the operator needs.
pub trait Row: PartialEq {
    /// The key of its row.
    type Key: Ord + Clone;
    /// The object.
    type Object;
    /// Reads the object; `None` if the operator needs nothing of it.
    fn read(object: &Self::Object) -> Option<Self>
    where
        Self: Sized;
    /// The key, from the metadata alone.
    fn key(meta: &ObjectMeta) -> Option<Self::Key>;
}

/// The rows of one kind.
#[derive(Debug)]
pub struct Table<R: Row> {
    rows: BTreeMap<R::Key, Versioned<R>>,
    listing: Option<BTreeMap<R::Key, Versioned<R>>>,
    listed: bool,
    malformed: u64,
}

/// A row and the version of the object that it was read from. Versions of one object are compared as
/// numbers, which the API server documents since 1.35 and has always implemented.
#[derive(Debug)]
struct Versioned<R> {
    version: u64,
    row: R,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), listing: None, listed: false, malformed: 0 }
    }
}

impl<R: Row> Table<R> {
    /// Whether the first list is complete.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// The number of objects that could not be read so far.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// One row.
    pub fn get(&self, key: &R::Key) -> Option<&R> {
        self.rows.get(key).map(|versioned| &versioned.row)
    }

    /// The resource version of an object, as last seen.
    pub fn version(&self, key: &R::Key) -> Option<u64> {
        self.rows.get(key).map(|versioned| versioned.version)
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = (&R::Key, &R)> {
        self.rows.iter().map(|(key, versioned)| (key, &versioned.row))
    }

    /// One row with its key and the resource version of its object.
    pub fn entry(&self, key: &R::Key) -> Option<(&R::Key, u64, &R)> {
        let (key, versioned) = self.rows.get_key_value(key)?;
        Some((key, versioned.version, &versioned.row))
    }

    /// Takes an event in; returns whether a row changed.
    pub fn apply(&mut self, event: Event<DeserializeGuard<R::Object>>) -> bool
    where
        R::Object: Resource,
        DeserializeGuard<R::Object>: Resource,
    {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                if let Some((key, Some(versioned))) = self.parse(object)
                    && let Some(listing) = &mut self.listing
                {
                    listing.insert(key, versioned);
                }
                false
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => match self.parse(object) {
                Some((key, Some(versioned))) => self.insert(key, versioned),
                Some((key, None)) => self.rows.remove(&key).is_some(),
                None => false,
            },
            Event::Delete(object) => {
                R::key(object.meta()).is_some_and(|key| self.rows.remove(&key).is_some())
            }
        }
    }

    /// Takes in the answer to an own write or read. An object that the watch has seen deleted
    /// meanwhile stays deleted.
    pub fn answered(&mut self, object: R::Object) -> bool
    where
        R::Object: Resource,
        DeserializeGuard<R::Object>: Resource,
    {
        match self.parse(DeserializeGuard(Ok(object))) {
            Some((key, Some(versioned))) if self.rows.contains_key(&key) => {
                self.insert(key, versioned)
            }
            Some((key, None)) => self.rows.remove(&key).is_some(),
            _ => false,
        }
    }

    fn insert(&mut self, key: R::Key, versioned: Versioned<R>) -> bool {
        match self.rows.get_mut(&key) {
            // The answer to a write can overtake the watch.
            Some(known) if known.version > versioned.version => false,
            Some(known) => {
                let changed = known.row != versioned.row;
                *known = versioned;
                changed
            }
            None => {
                self.rows.insert(key, versioned);
                true
            }
        }
    }

    fn replace(&mut self) -> bool {
        let old = std::mem::replace(&mut self.rows, self.listing.take().unwrap_or_default());
        let mut changed = !self.listed || old.len() != self.rows.len();
        for (key, versioned) in old {
            match self.rows.get_mut(&key) {
                Some(new) if new.version < versioned.version => *new = versioned,
                Some(new) => changed |= new.row != versioned.row,
                None => changed = true,
            }
        }
        self.listed = true;
        changed
    }

    /// The key and, if the operator needs it, the row of an object.
    fn parse(
        &mut self,
        object: DeserializeGuard<R::Object>,
    ) -> Option<(R::Key, Option<Versioned<R>>)>
    where
        R::Object: Resource,
        DeserializeGuard<R::Object>: Resource,
    {
        let key = R::key(object.meta())?;
        let version = object.resource_version()?.parse().ok()?;
        match object.0 {
            Ok(object) => {
                let row = R::read(&object).map(|row| Versioned { version, row });
                Some((key, row))
            }
            Err(invalid) => {
                self.malformed += 1;
                tracing::warn!(
                    name = invalid.metadata.name,
                    namespace = invalid.metadata.namespace,
                    error = invalid.error,
                    "skipping an object that cannot be read"
                );
                Some((key, None))
            }
        }
    }
}

/// The creation time of an object.
pub(super) fn created(meta: &ObjectMeta) -> Created {
    meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::error_boundary::InvalidObject;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Label(String);

    impl Row for Label {
        type Key = String;
        type Object = Node;

        fn read(node: &Node) -> Option<Self> {
            node.labels().get("label").cloned().map(Self)
        }

        fn key(meta: &ObjectMeta) -> Option<String> {
            meta.name.clone()
        }
    }

    fn node(name: &str, version: u64, label: Option<&str>) -> Node {
        let labels = label.map(|label| BTreeMap::from([("label".to_owned(), label.to_owned())]));
        let resource_version = Some(version.to_string());
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version,
            labels,
            ..ObjectMeta::default()
        };
        Node { metadata, ..Node::default() }
    }

    fn guard(node: Node) -> DeserializeGuard<Node> {
        DeserializeGuard(Ok(node))
    }

    fn listed(nodes: Vec<Node>) -> Table<Label> {
        let mut table = Table::default();
        table.apply(Event::Init);
        for node in nodes {
            table.apply(Event::InitApply(guard(node)));
        }
        assert!(table.apply(Event::InitDone), "the first list is news, even an empty one");
        table
    }

    fn shown(table: &Table<Label>) -> Vec<&str> {
        table.iter().map(|(_, label)| label.0.as_str()).collect()
    }

    #[test]
    fn a_list_replaces_everything_at_once() {
        let mut table = listed(vec![node("a", 1, Some("x")), node("b", 2, Some("y"))]);
        table.apply(Event::Init);
        table.apply(Event::InitApply(guard(node("b", 2, Some("y")))));
        assert_eq!(shown(&table), ["x", "y"], "until the list is complete");
        assert!(table.apply(Event::InitDone));
        assert_eq!(shown(&table), ["y"]);
    }

    #[test]
    fn older_versions_never_replace_newer_ones() {
        let mut table = listed(vec![node("a", 5, Some("old"))]);
        assert!(table.answered(node("a", 9, Some("new"))));
        assert!(!table.apply(Event::Apply(guard(node("a", 7, Some("between"))))));
        assert_eq!(shown(&table), ["new"]);
        table.apply(Event::Init);
        table.apply(Event::InitApply(guard(node("a", 8, Some("listed before")))));
        table.apply(Event::InitDone);
        assert_eq!(shown(&table), ["new"]);
    }

    #[test]
    fn an_answer_does_not_revive_what_was_deleted() {
        let mut table = listed(vec![node("a", 5, Some("x"))]);
        assert!(table.apply(Event::Delete(guard(node("a", 8, Some("x"))))));
        assert!(!table.answered(node("a", 7, Some("x"))));
        assert!(shown(&table).is_empty());
    }

    #[test]
    fn the_same_again_is_no_news_and_what_stops_to_matter_goes() {
        let mut table = listed(vec![node("a", 5, Some("x"))]);
        assert!(!table.apply(Event::Apply(guard(node("a", 6, Some("x"))))));
        assert!(table.apply(Event::Apply(guard(node("a", 7, None)))));
        assert!(shown(&table).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_skipped() {
        let mut table = listed(vec![node("a", 5, Some("x")), node("b", 6, Some("y"))]);
        let metadata = node("a", 7, None).metadata;
        let invalid = InvalidObject { error: "odd".to_owned(), metadata };
        assert!(table.apply(Event::Apply(DeserializeGuard(Err(invalid)))));
        assert_eq!(shown(&table), ["y"]);
        assert_eq!(table.malformed(), 1);
    }
}
