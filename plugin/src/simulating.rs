//! `simulate`: who would take what.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use leasehold_core::explain::{Simulation, View, simulate};

use super::args::SimulateArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone};
use super::{output, read, target};

pub(super) async fn run(
    cluster: &Cluster,
    asked: &SimulateArguments,
) -> Result<Outcome, PluginError> {
    let world = read::world(cluster).await?;
    let down = asked.node_down.iter().map(|name| target::node(&world, name.trim()));
    let down: BTreeSet<_> = down.collect::<Result<_, _>>()?;
    let simulation = simulate(&View::new(&world), &down);
    let text = match output::document(&simulation, asked.format.output)? {
        Some(document) => document,
        None => text(&simulation),
    };
    output::print(&text)?;
    Ok((simulation.lost().count() == 0).into())
}

/// A simulation for people.
fn text(simulation: &Simulation) -> String {
    let down = output::listed(&simulation.down);
    if simulation.moves.is_empty() {
        return format!("{down} owns no addresses: nothing would move.\n");
    }
    let mut moves = Table::new(&["SERVICE", "ADDRESS", "FROM", "TO", "NEXT"]);
    for step in &simulation.moves {
        let to = step.to.as_ref().map_or_else(
            || Cell::new("<none>", Tone::Bad),
            |to| Cell::new(to.as_str(), Tone::Good),
        );
        moves.row([
            output::listed(&step.services).into(),
            output::listed(&step.addresses).into(),
            step.from.as_str().into(),
            to,
            output::listed(&step.then).into(),
        ]);
    }
    let mut loads = Table::new(&["NODE", "ADDRESSES NOW", "ADDRESSES AFTER"]);
    for load in &simulation.loads {
        loads.row([
            Cell::from(load.node.as_str()),
            load.before.to_string().into(),
            load.after.to_string().into(),
        ]);
    }
    let mut text = format!("{}\n{}", moves.text(), loads.text());
    for step in simulation.lost() {
        let services = output::listed(&step.services);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nNo node could take {services}:");
        for obstacle in &step.obstacles {
            let _ = writeln!(text, "  {obstacle}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use leasehold_core::explain::{Load, Move};
    use leasehold_crds::addresses::AddressSet;

    use super::*;

    #[test]
    fn a_simulation_says_who_takes_what_and_what_nobody_can_take() {
        let step = |name: &str, to: Option<&str>| Move {
            claim: format!("web.{name}").parse().unwrap(),
            services: vec![format!("web/{name}")],
            addresses: AddressSet::from(["192.0.2.1".parse().unwrap()]),
            from: "node-1".parse().unwrap(),
            to: to.map(|to| to.parse().unwrap()),
            then: Vec::new(),
            obstacles: vec!["node-2: cordoned: takes no addresses".to_owned()],
        };
        let load = |node: &str, before, after| Load { node: node.parse().unwrap(), before, after };
        let simulation = Simulation {
            down: BTreeSet::from(["node-1".parse().unwrap()]),
            moves: vec![step("a", Some("node-3")), step("b", None)],
            loads: vec![load("node-1", 2, 0), load("node-3", 0, 1)],
        };
        assert_eq!(
            anstream::adapter::strip_str(&text(&simulation)).to_string(),
            "SERVICE   ADDRESS     FROM     TO       NEXT\n\
             web/a     192.0.2.1   node-1   node-3   -\n\
             web/b     192.0.2.1   node-1   <none>   -\n\
             \n\
             NODE     ADDRESSES NOW   ADDRESSES AFTER\n\
             node-1   2               0\n\
             node-3   0               1\n\
             \n\
             No node could take web/b:\n  \
             node-2: cordoned: takes no addresses\n"
        );
    }
}
