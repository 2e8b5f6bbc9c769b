//! Exploring a variant completely.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::Protocol;
use crate::rules::{Bounds, Rules};

/// What was found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many steps were looked at.
    pub steps: usize,
    /// How many states were reached.
    pub states: usize,
    /// How many steps lead to the farthest.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Properties that do not hold, each with the steps that show it.
    pub broken: BTreeMap<&'static str, Vec<String>>,
    /// What should be possible and is not.
    pub impossible: Vec<&'static str>,
    /// How often each thing happened.
    pub happened: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// Whether all properties hold, and what should be possible is.
    pub fn is_sound(&self) -> bool {
        self.broken.is_empty() && self.impossible.is_empty()
    }
}

/// Explores everything within `bounds` until nothing new is found or, with `first`, until that property is broken.
#[expect(clippy::disallowed_methods, reason = "how long the check takes is told to people")]
pub fn explore(bounds: Bounds, rules: Rules, first: Option<&'static str>) -> Outcome {
    // Names stay the same along the steps that are shown.
    let protocol = Protocol::new(rules, bounds, first.is_none());
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = protocol.checker().threads(threads);
    builder = match first {
        Some(first) => builder.finish_when(HasDiscoveries::AnyOf([first].into())),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let (mut broken, mut possible) = (BTreeMap::new(), Vec::new());
    for (name, path) in checker.discoveries() {
        match checker.model().property(name).expectation {
            Expectation::Sometimes => possible.push(name),
            Expectation::Always | Expectation::Eventually => {
                let steps = path.into_actions().iter().map(ToString::to_string).collect();
                broken.insert(name, steps);
            }
        }
    }
    let properties = checker.model().properties();
    let sometimes = properties.iter().filter(|p| p.expectation == Expectation::Sometimes);
    // Where no session reaches a second number nobody is fenced.
    let sometimes = sometimes.filter(|_| bounds.session_transitions > 1);
    let impossible = sometimes.map(|p| p.name).filter(|name| !possible.contains(name)).collect();
    Outcome {
        steps: checker.state_count(),
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        broken,
        impossible,
        happened: checker.model().happened.counts(),
    }
}
