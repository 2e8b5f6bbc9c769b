//! The protocol as a model that stateright explores.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};

use crate::action::{Action, Options};
use crate::names::{Node, Renaming};
use crate::properties;
use crate::rules::{Bounds, Rules};
use crate::state::State;

/// How often each thing happened, over all steps that were explored.
#[derive(Clone, Debug, Default)]
pub struct Happened(Arc<BTreeMap<&'static str, AtomicU64>>);

impl Happened {
    /// Nothing yet, of these.
    pub fn new(names: &[&'static str]) -> Self {
        Self(Arc::new(names.iter().map(|name| (*name, AtomicU64::new(0))).collect()))
    }

    fn count(&self, name: &str) {
        if let Some(count) = self.0.get(name) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All counts.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.iter().map(|(name, count)| (*name, count.load(Ordering::Relaxed))).collect()
    }
}

/// The protocol, within bounds.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Which rules are kept.
    pub rules: Rules,
    /// How far it goes.
    pub bounds: Bounds,
    /// What happened.
    pub happened: Happened,
    /// Whether states that differ only in the names of nodes count as one.
    pub symmetric: bool,
    renamings: Vec<Renaming>,
}

impl Protocol {
    /// The protocol under these rules.
    pub fn new(rules: Rules, bounds: Bounds, symmetric: bool) -> Self {
        let renamings = Renaming::all(bounds.speakers);
        let happened = Happened::new(&crate::variants::HAPPENINGS);
        Self { rules, bounds, happened, symmetric, renamings }
    }

    fn representative(&self, state: State) -> State {
        if !self.symmetric {
            return state;
        }
        let renamed = self.renamings.iter().map(|names| state.renamed(names)).min();
        match renamed {
            Some(renamed) if renamed < state => renamed,
            _ => state,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.representative(State::initial(&self.bounds))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What comes after a breach proves nothing more.
        if state.breach.is_none() {
            Options::new(&self.rules, &self.bounds, state, actions).collect();
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.after(&self.rules, action);
        if self.bounds.edits == 0 {
            // Without edits no number falls.
            for node in Node::ALL {
                next.speakers[node].held = None;
            }
        }
        self.happened.count(action.name());
        Some(self.representative(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
