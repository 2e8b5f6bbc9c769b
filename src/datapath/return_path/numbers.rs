//! The numbers of carrying interfaces, and what follows from them: marks, tables, places of rules.
//!
//! | what | value |
//! |---|---|
//! | bits of packet marks | [`MASK`]; the others are kept as they are |
//! | bit of connection marks | [`ANSWERS`]: its packets came in by the interface that carries its address |
//! | routing tables | 7601 to 7615 |
//! | priorities of rules | 760 to 764 |
//!
//! Of packet marks, kube-proxy uses 0xc000, the plugin `portmap` 0x2000, Cilium 0x0f00 and, with these, the upper half
//! and the lowest byte; Calico the lowest free bits of 0xffff0000, and all of them for endpoints where kube-proxy works
//! by IPVS; Tailscale 0xff0000; Antrea 0x80000000.

use std::collections::{BTreeMap, BTreeSet};

use crate::net::rtnl::routing::{MAIN, Routing, RuleRow};

/// The bits of packet marks that are ours.
pub const MASK: u32 = 0x7c00_0000;
/// The bit of what pods answer; and, in the mark of a connection, that it is to be answered so.
pub const ANSWERS: u32 = 0x4000_0000;
/// The place of the number in a mark.
const SHIFT: u32 = 26;
/// The greatest number.
pub const COUNT: u8 = 15;
/// The table of the number 0, which no interface has.
const TABLES: u32 = 7600;

/// The rules for what has come in, and goes on as ever.
pub const GOING_ON: u32 = 760;
/// The rules for the sources of what comes in, and for what the node itself answers.
pub const COMING: u32 = 761;
/// The rules for the sources of what pods answer, where these are looked up with their mark.
pub const SOURCES: u32 = 762;
/// The rules for what pods answer.
pub const ANSWERING: u32 = 763;
/// The end of these rules.
pub const END: u32 = 764;

/// The number of an interface that carries addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u8);

impl Number {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=COUNT).map(Self)
    }

    /// As a figure.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The one of this figure.
    pub fn new(figure: u8) -> Option<Self> {
        (1..=COUNT).contains(&figure).then_some(Self(figure))
    }

    /// The mark of what comes in by the interface, and of what the node itself answers.
    pub fn coming(self) -> u32 {
        u32::from(self.0) << SHIFT
    }

    /// The mark of what pods answer.
    pub fn answering(self) -> u32 {
        self.coming() | ANSWERS
    }

    /// Its routing table.
    pub fn table(self) -> u32 {
        TABLES + u32::from(self.0)
    }

    /// Whether another program uses its table or its marks.
    fn is_taken(self, routing: &Routing) -> bool {
        let marks = [self.coming(), self.answering()];
        let takes = |row: &RuleRow| {
            let marked = row.rule.mark.is_some_and(|(mark, mask)| {
                let bits = mask & MASK;
                bits != 0 && !row.inverted && marks.iter().any(|own| (own ^ mark) & bits == 0)
            });
            row.table == self.table() || marked
        };
        let rules = routing.rules.iter().filter(|row| !is_ours(row));
        let mut routes = routing.routes.iter().filter(|row| !row.ours);
        rules.into_iter().any(takes) || routes.any(|row| row.route.table == self.table())
    }
}

/// Whether this is a table of ours, if nobody else uses it.
pub fn is_table(table: u32) -> bool {
    Number::all().any(|number| number.table() == table)
}

/// Whether it is a rule that this tenant has added, or one of its former versions.
pub fn is_ours(row: &RuleRow) -> bool {
    row.ours && (GOING_ON..=END).contains(&row.rule.priority)
}

/// Gives each of these interfaces a number: the one that it had, or the lowest that is free. The second has those for
/// which there is none.
pub fn numbers(
    interfaces: &BTreeSet<u32>,
    before: &BTreeMap<u32, Number>,
    routing: &Routing,
) -> (BTreeMap<u32, Number>, Vec<u32>) {
    let mut free: BTreeSet<Number> = Number::all().filter(|it| !it.is_taken(routing)).collect();
    let mut numbers = BTreeMap::new();
    let known = interfaces.iter().filter_map(|index| Some((*index, *before.get(index)?)));
    for (index, number) in known {
        if free.remove(&number) {
            numbers.insert(index, number);
        }
    }
    let mut without = Vec::new();
    for index in interfaces {
        if numbers.contains_key(index) {
            continue;
        }
        match free.pop_first() {
            Some(number) => drop(numbers.insert(*index, number)),
            None => without.push(*index),
        }
    }
    (numbers, without)
}

/// The table `main`, whose routes by an interface its table has, too.
pub const SOURCE: u32 = MAIN;
