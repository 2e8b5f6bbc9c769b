//! The change after which the table leads around nodes that are down.
//!
//! A port leads to a chain that chooses among endpoints. A chain is named after its content: it is never changed, ports
//! with the same endpoints share it, and whether it is there is all there is to know of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_core::desired::{Detours, Port, ServicePort};

/// Lifetime of a detour, unless it is renewed: as long as endpoints may be others without this process.
pub const LIFETIME: Duration = Duration::from_secs(15);
/// It is renewed when this is left.
pub const RENEWAL: Duration = Duration::from_secs(8);
/// Lifetime of the note whose clients stay with a pod.
pub const AFFINE_LIFETIME: Duration = Duration::from_secs(20 * 60);
/// It is renewed when this is left.
pub const AFFINE_RENEWAL: Duration = Duration::from_secs(10 * 60);

/// A choice among endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    /// The clients that are let in; none: all.
    pub sources: Box<[IpNet]>,
    /// Whether a client stays with one endpoint.
    pub affine: bool,
    /// The endpoints, of one family.
    pub to: Box<[(IpAddr, u16)]>,
}

impl Choice {
    /// The name of its chain.
    pub fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("to-{:016x}", hasher.finish())
    }
}

/// The content of the table, as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The chains.
    pub choices: BTreeMap<String, Choice>,
    /// The chain to which each port leads.
    pub ports: BTreeMap<Port, String>,
    /// The endpoints whose open connections end.
    pub lost: BTreeSet<Port>,
    /// The ports whose clients stay with a pod.
    pub affine: BTreeSet<Port>,
}

impl Wanted {
    /// The content that these detours ask for.
    pub fn of(detours: &Detours) -> Self {
        let mut wanted = Self::default();
        for ((ip, port), detour) in &detours.ports {
            let choice = Choice {
                sources: detour.sources.clone(),
                affine: detour.affine,
                to: detour.to.clone(),
            };
            let name = choice.name();
            wanted.choices.entry(name.clone()).or_insert(choice);
            wanted.ports.insert((*ip, *port), name);
            let lost = detour.lost.iter();
            wanted
                .lost
                .extend(lost.map(|(ip, number)| (*ip, ServicePort { port: *number, ..*port })));
        }
        wanted.affine.clone_from(&detours.affine);
        wanted
    }

    fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.affine.is_empty()
    }
}

/// The table as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether all but its content is as this version makes it.
    pub intact: bool,
    /// The chains that choose.
    pub choices: BTreeSet<String>,
    /// The chain to which each port leads, and for how much longer.
    pub ports: BTreeMap<Port, (String, Duration)>,
    /// The endpoints whose open connections end.
    pub lost: BTreeMap<Port, Duration>,
    /// The ports whose clients stay with a pod.
    pub affine: BTreeMap<Port, Duration>,
}

/// Content of the table: all of it, or a part to be added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Chains; of those to be removed the name alone counts.
    pub choices: BTreeMap<String, Option<Choice>>,
    /// The chain of each port.
    pub ports: BTreeMap<Port, String>,
    /// Endpoints.
    pub lost: BTreeSet<Port>,
    /// Ports.
    pub affine: BTreeSet<Port>,
}

impl Content {
    fn all(wanted: &Wanted) -> Self {
        let choice = |(name, choice): (&String, &Choice)| (name.clone(), Some(choice.clone()));
        Self {
            choices: wanted.choices.iter().map(choice).collect(),
            ports: wanted.ports.clone(),
            lost: wanted.lost.clone(),
            affine: wanted.affine.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A change of the table, done as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Delete it.
    Delete,
    /// Make it anew, whatever there is, with this content.
    Replace(Content),
    /// Change its content: what is in both is renewed.
    Update {
        /// The content to remove.
        remove: Content,
        /// The content to add or renew.
        add: Content,
    },
}

impl Change {
    /// Makes the table anew.
    pub fn anew(wanted: &Wanted) -> Self {
        Self::Replace(Content::all(wanted))
    }
}

/// The change to make now, and the time during which nothing has to be renewed, if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The change, if one is needed.
    pub change: Option<Change>,
    /// Until when nothing has to be done without a change.
    pub rest: Option<Duration>,
}

/// Compares what is wanted with what is there.
pub fn plan(wanted: &Wanted, table: Option<&Table>) -> Plan {
    let change = |change| Plan { change: Some(change), rest: None };
    let table = match table {
        None if wanted.is_empty() => return Plan::default(),
        Some(_) if wanted.is_empty() => return change(Change::Delete),
        Some(table) if table.intact => table,
        Some(_) | None => return change(Change::anew(wanted)),
    };
    let (mut remove, mut add) = (Content::default(), Content::default());
    let mut rest = Rest::default();
    for (name, choice) in &wanted.choices {
        if !table.choices.contains(name) {
            add.choices.insert(name.clone(), Some(choice.clone()));
        }
    }
    for name in table.choices.iter().filter(|name| !wanted.choices.contains_key(*name)) {
        remove.choices.insert(name.clone(), None);
    }
    for (port, (chain, left)) in &table.ports {
        let stays = wanted.ports.get(port) == Some(chain);
        if !stays || rest.is_due(*left, RENEWAL) {
            remove.ports.insert(*port, chain.clone());
        }
    }
    for (port, chain) in &wanted.ports {
        if !table.ports.contains_key(port) || remove.ports.contains_key(port) {
            add.ports.insert(*port, chain.clone());
        }
    }
    let (stale, new) = compare(&wanted.lost, &table.lost, RENEWAL, &mut rest);
    (remove.lost, add.lost) = (stale, new);
    let (stale, new) = compare(&wanted.affine, &table.affine, AFFINE_RENEWAL, &mut rest);
    (remove.affine, add.affine) = (stale, new);
    if remove.is_empty() && add.is_empty() {
        Plan { change: None, rest: rest.0 }
    } else {
        change(Change::Update { remove, add })
    }
}

/// The elements of a set to remove, and those to add: an element that is due is in both.
fn compare(
    wanted: &BTreeSet<Port>,
    known: &BTreeMap<Port, Duration>,
    renewal: Duration,
    rest: &mut Rest,
) -> (BTreeSet<Port>, BTreeSet<Port>) {
    let stale = known
        .iter()
        .filter(|(port, left)| !wanted.contains(port) || rest.is_due(**left, renewal))
        .map(|(port, _)| *port)
        .collect::<BTreeSet<_>>();
    let new = wanted.iter().filter(|port| !known.contains_key(port) || stale.contains(port));
    let new = new.copied().collect();
    (stale, new)
}

/// The time during which nothing is due.
#[derive(Debug, Default)]
struct Rest(Option<Duration>);

impl Rest {
    fn is_due(&mut self, left: Duration, renewal: Duration) -> bool {
        let rest = left.saturating_sub(renewal);
        self.0 = Some(self.0.map_or(rest, |known| known.min(rest)));
        rest.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use leasehold_core::desired::{Detour, Protocol};

    fn port(last: u8) -> Port {
        (IpAddr::from([192, 0, 2, last]), ServicePort { protocol: Protocol::Tcp, port: 80 })
    }

    /// Detours of these addresses to so many endpoints each; which of them end connections, and which are affine.
    fn detours(rows: &[(u8, u8, bool)], affine: &[u8]) -> Detours {
        let detour = |(last, pods, lost): &(u8, u8, bool)| {
            let to = (1..=*pods).map(|pod| (IpAddr::from([10, 0, 0, pod]), 8080)).collect();
            let around: Box<[_]> = [(IpAddr::from([10, 0, 9, *last]), 8080)].into();
            let lost = if *lost { around.clone() } else { Box::default() };
            (port(*last), Arc::new(Detour { to, around, lost, ..Detour::default() }))
        };
        Detours {
            ports: rows.iter().map(detour).collect(),
            affine: affine.iter().map(|last| port(*last)).collect(),
        }
    }

    /// The kernel refuses to remove what is not there, and a chain to which a port leads.
    fn carry_out(table: Option<Table>, change: &Change) -> Option<Table> {
        let mut table = match change {
            Change::Delete => return None,
            Change::Replace(_) => Table { intact: true, ..Table::default() },
            Change::Update { .. } => table.unwrap(),
        };
        let (remove, add) = match change {
            Change::Delete => return None,
            Change::Replace(add) => (&Content::default(), add),
            Change::Update { remove, add } => (remove, add),
        };
        for (port, chain) in &remove.ports {
            assert_eq!(table.ports.remove(port).map(|(chain, _)| chain).as_ref(), Some(chain));
        }
        remove.lost.iter().for_each(|port| assert!(table.lost.remove(port).is_some()));
        remove.affine.iter().for_each(|port| assert!(table.affine.remove(port).is_some()));
        for name in remove.choices.keys() {
            assert!(table.ports.values().all(|(chain, _)| chain != name), "{name} is in use");
            assert!(table.choices.remove(name));
        }
        for (name, choice) in &add.choices {
            assert!(choice.is_some() && table.choices.insert(name.clone()), "{name} is there");
        }
        for (port, chain) in &add.ports {
            assert!(table.choices.contains(chain), "{chain} is not there");
            assert_eq!(table.ports.insert(*port, (chain.clone(), LIFETIME)), None);
        }
        table.lost.extend(add.lost.iter().map(|port| (*port, LIFETIME)));
        table.affine.extend(add.affine.iter().map(|port| (*port, AFFINE_LIFETIME)));
        Some(table)
    }

    fn settled(detours: &Detours) -> Option<Table> {
        let wanted = Wanted::of(detours);
        plan(&wanted, None).change.and_then(|change| carry_out(None, &change))
    }

    #[test]
    fn rows() {
        let none = Detours::default();
        assert_eq!(plan(&Wanted::of(&none), None), Plan::default());
        let one = detours(&[(1, 2, false)], &[]);
        let table = settled(&one).unwrap();
        let unchanged = plan(&Wanted::of(&one), Some(&table));
        assert_eq!(unchanged, Plan { change: None, rest: Some(LIFETIME.saturating_sub(RENEWAL)) });
        assert_eq!(plan(&Wanted::of(&none), Some(&table)).change, Some(Change::Delete));
        let broken = Table { intact: false, ..table.clone() };
        let anew = plan(&Wanted::of(&one), Some(&broken)).change;
        assert_eq!(anew, Some(Change::anew(&Wanted::of(&one))));
        // Another Service with the same endpoints has the same chain.
        let two = detours(&[(1, 2, false), (2, 2, false)], &[]);
        let Some(Change::Update { remove, add }) = plan(&Wanted::of(&two), Some(&table)).change
        else {
            panic!("no update")
        };
        assert!(remove.is_empty() && add.choices.is_empty());
        assert_eq!(add.ports.keys().copied().collect::<Vec<_>>(), [port(2)]);
    }

    prop_compose! {
        fn some()(
            rows in prop::collection::btree_map(0_u8..6, (1_u8..4, any::<bool>()), 0..6),
            affine in prop::collection::btree_set(0_u8..6, 0..6),
        ) -> Detours {
            let rows: Vec<_> = rows.into_iter().map(|(last, (pods, lost))| (last, pods, lost)).collect();
            detours(&rows, &affine.into_iter().collect::<Vec<_>>())
        }
    }

    proptest! {
        #[test]
        fn one_change_is_enough(before in some(), after in some(), age in 0_u64..20, intact: bool) {
            let mut table = settled(&before);
            if let Some(table) = &mut table {
                table.intact = intact;
                let age = Duration::from_secs(age).min(LIFETIME);
                for (_, left) in table.ports.values_mut() {
                    *left = left.saturating_sub(age);
                }
                for left in table.lost.values_mut() {
                    *left = left.saturating_sub(age);
                }
            }
            let wanted = Wanted::of(&after);
            let table = match plan(&wanted, table.as_ref()).change {
                Some(change) => carry_out(table, &change),
                None => table,
            };
            prop_assert_eq!(plan(&wanted, table.as_ref()).change, None);
            let table = table.unwrap_or_default();
            let ports = table.ports.iter().map(|(port, (chain, _))| (*port, chain.clone()));
            prop_assert_eq!(ports.collect::<BTreeMap<_, _>>(), wanted.ports);
            prop_assert_eq!(table.lost.into_keys().collect::<BTreeSet<_>>(), wanted.lost);
            prop_assert_eq!(table.affine.into_keys().collect::<BTreeSet<_>>(), wanted.affine);
            prop_assert!(table.choices.iter().eq(wanted.choices.keys()));
        }
    }
}
