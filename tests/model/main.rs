//! `leasehold-model`: explores the protocol completely, within bounds.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use leasehold_model::broken::BROKEN;
use leasehold_model::check::{Outcome, explore};
use leasehold_model::rules::Rules;
use leasehold_model::variants::{THREE_SPEAKERS, TWO_SPEAKERS, Variant};

/// The exhaustive check of the protocol.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Explores every order of every event and checks that the properties hold
    Check {
        /// With how many speakers; both unless given
        #[arg(long)]
        speakers: Option<Speakers>,
        /// Only the variants whose name contains this
        #[arg(long)]
        only: Option<String>,
    },
    /// Breaks one rule after the other and shows what that leads to
    Break {
        /// Only this rule, with the steps that lead there
        rule: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Speakers {
    #[value(name = "2")]
    Two,
    #[value(name = "3")]
    Three,
}

fn main() -> ExitCode {
    let sound = match Args::parse().command {
        Command::Check { speakers, only } => check(speakers, only.as_deref()),
        Command::Break { rule } => break_rules(rule.as_deref()),
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(speakers: Option<Speakers>, only: Option<&str>) -> bool {
    let variants: Vec<&Variant> = match speakers {
        Some(Speakers::Two) => TWO_SPEAKERS.iter().collect(),
        Some(Speakers::Three) => THREE_SPEAKERS.iter().collect(),
        None => TWO_SPEAKERS.iter().chain(&THREE_SPEAKERS).collect(),
    };
    let wanted = |variant: &&&Variant| only.is_none_or(|only| variant.name.contains(only));
    let mut sound = true;
    let mut total = 0;
    println!(
        "{:38} {:>8} {:>12} {:>11} {:>5} {:>7}  properties",
        "variant", "speakers", "steps", "states", "depth", "seconds"
    );
    for variant in variants.iter().filter(wanted) {
        let outcome = explore(variant.bounds, Rules::KEPT, None);
        let verdict = if outcome.is_sound() { "hold" } else { "BROKEN" };
        println!(
            "{:38} {:>8} {:>12} {:>11} {:>5} {:>7.1}  {verdict}",
            variant.name,
            variant.bounds.speakers,
            outcome.steps,
            outcome.states,
            outcome.depth,
            outcome.took.as_secs_f64()
        );
        for (property, steps) in &outcome.broken {
            show(property, steps);
        }
        for property in &outcome.impossible {
            println!("    impossible: {property}");
        }
        sound &= outcome.is_sound();
        total += outcome.states;
    }
    println!("{total} states in all");
    sound
}

fn break_rules(only: Option<&str>) -> bool {
    let mut noticed = true;
    println!("{:28} {:>7}  leads to the opposite of", "broken rule", "steps");
    for rule in BROKEN.iter().filter(|rule| only.is_none_or(|only| rule.name == only)) {
        let Outcome { broken, .. } = explore(rule.bounds, rule.rules, Some(rule.breaks));
        let Some(steps) = broken.get(rule.breaks) else {
            println!("{:28} NOT NOTICED: {}", rule.name, rule.breaks);
            noticed = false;
            continue;
        };
        println!("{:28} {:>7}  {}", rule.name, steps.len(), rule.breaks);
        if only.is_some() {
            show(rule.breaks, steps);
        }
    }
    noticed
}

fn show(property: &str, steps: &[String]) {
    println!("    not so: {property}");
    for step in steps {
        println!("        {step}");
    }
}
