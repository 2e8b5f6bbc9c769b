//! The quick variants, and each rule broken.

use std::collections::BTreeSet;

use leasehold_model::broken::BROKEN;
use leasehold_model::check::explore;
use leasehold_model::rules::Rules;
use leasehold_model::variants::{HAPPENINGS, TWO_SPEAKERS};

#[test]
fn the_properties_hold_in_every_state_and_everything_happens_in_some() {
    let mut happened = BTreeSet::new();
    for variant in TWO_SPEAKERS.iter().filter(|variant| variant.quick) {
        let outcome = explore(variant.bounds, Rules::KEPT, None);
        assert!(outcome.is_sound(), "{}: {:#?}", variant.name, outcome);
        happened.extend(outcome.happened.iter().filter(|(_, count)| **count > 0).map(|(n, _)| *n));
    }
    let never: Vec<&str> = HAPPENINGS.into_iter().filter(|name| !happened.contains(name)).collect();
    assert!(never.is_empty(), "never happened: {never:?}");
}

#[test]
fn each_broken_rule_is_noticed() {
    for rule in BROKEN {
        let outcome = explore(rule.bounds, rule.rules, Some(rule.breaks));
        let steps = outcome.broken.get(rule.breaks);
        assert!(steps.is_some(), "without {}: {} still holds", rule.name, rule.breaks);
    }
}
