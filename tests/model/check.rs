//! Exploring a variant completely.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::Protocol;
use crate::rules::Rules;
use crate::variants::Variant;

/// What was found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many states were reached, each as often as it was.
    pub states: usize,
    /// How many different ones.
    pub unique: usize,
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

/// Explores `variant` until nothing new is found or, with `first`, until that property is broken.
pub fn explore(variant: &Variant, rules: Rules, first: Option<&'static str>) -> Outcome {
    // Names stay the same along the steps that are shown.
    let protocol = Protocol::new(rules, variant.bounds, first.is_none());
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
                let steps = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
                broken.insert(name, steps);
            }
        }
    }
    let properties = checker.model().properties();
    let sometimes = properties.iter().filter(|p| p.expectation == Expectation::Sometimes);
    let impossible = sometimes.map(|p| p.name).filter(|name| !possible.contains(name)).collect();
    Outcome {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        broken,
        impossible,
        happened: checker.model().happened.counts(),
    }
}
