//! What is to happen, in the order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use leasehold_core::clock::Instant;

/// What is to happen, and when; what is due at the same time happens in the order in which it was added.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    due: BinaryHeap<Reverse<Due<T>>>,
    added: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { due: BinaryHeap::new(), added: 0 }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn add(&mut self, at: Instant, item: T) {
        self.added += 1;
        self.due.push(Reverse(Due { at, number: self.added, item }));
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// Takes the next off the agenda.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.due.pop().map(|Reverse(due)| due.item)
    }
}

#[derive(Debug)]
struct Due<T> {
    at: Instant,
    number: u64,
    item: T,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Due<T> {}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
