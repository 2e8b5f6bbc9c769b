//! The recorded runs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_core::clock::Instant;
use leasehold_core::desired::{Detection, OnApiOutage};
use pnet_base::MacAddr;

use crate::directed::{millis, secs};
use crate::world::controls::vip;
use crate::world::{Place, Step, Trace, World};

/// A run that is drawn.
pub(super) struct Run {
    pub(super) name: &'static str,
    /// One line, above the picture.
    pub(super) title: &'static str,
    pub(super) record: fn() -> Recording,
}

/// The record of a run.
pub(super) struct Recording {
    pub(super) nodes: Vec<String>,
    /// Whether a host takes part that is no node.
    pub(super) stranger: bool,
    /// The addresses of the nodes, in their order.
    pub(super) own: Vec<IpAddr>,
    /// The nodes whose kernels have addresses of Services at the beginning, and these.
    pub(super) serving: Vec<(usize, BTreeSet<IpAddr>)>,
    pub(super) steps: Vec<(Instant, Step)>,
}

pub(super) const ALL: &[Run] = &[
    Run { name: "failover", title: "The node of an owner loses its power", record: failover },
    Run { name: "handover", title: "The node of an owner is drained", record: handover },
    Run {
        name: "api-outage",
        title: "An owner dies while the API server does not answer",
        record: api_outage,
    },
    Run {
        name: "cold-start",
        title: "Three speakers start, three Services wait",
        record: cold_start,
    },
    Run {
        name: "conflict-new",
        title: "A host of the segment uses the address of a new Service",
        record: conflict_new,
    },
    Run {
        name: "conflict-owner",
        title: "A host of the segment announces the address of an owner",
        record: conflict_owner,
    },
];

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const STRANGER: MacAddr = MacAddr(2, 9, 9, 9, 9, 9);

impl World {
    /// An entry of the record that is no decision of a speaker.
    fn note(&mut self, text: &str, works: Option<(Place, bool)>) {
        self.trace(|| Step::Note { text: text.to_owned(), works });
    }

    /// One Service that a node owns, and a record that begins now.
    fn recorded() -> (Self, String) {
        let mut world = Self::listening(&NODES, 1);
        world.begin_trace();
        let owner = world.owner(1).unwrap();
        (world, owner)
    }

    fn recording(mut self) -> Recording {
        let Trace { steps, began, .. } = self.trace.take().unwrap();
        let serving = began.into_iter().enumerate().filter(|(_, ips)| !ips.is_empty()).collect();
        Recording {
            nodes: self.hosts.iter().map(|host| host.name.clone()).collect(),
            stranger: steps.iter().any(|(_, step)| {
                matches!(step, Step::Announcement { from: Place::Stranger, .. })
                    || matches!(step, Step::Question(it) if it.reply == Some(Place::Stranger))
            }),
            own: self.hosts.iter().map(|host| host.address).collect(),
            serving,
            steps,
        }
    }
}

fn failover() -> Recording {
    let (mut world, owner) = World::recorded();
    world.run(millis(130));
    let id = world.hosts.id(&owner);
    world.note(&format!("{owner} loses its power"), Some((Place::Host(id), false)));
    world.kill_node(&owner);
    world.run(millis(250));
    world.recording()
}

fn handover() -> Recording {
    let (mut world, owner) = World::recorded();
    world.run(millis(130));
    world.note(&format!("kubectl drain {owner}"), None);
    world.drain(&owner, true);
    world.run(millis(700));
    world.assert_served();
    world.recording()
}

fn api_outage() -> Recording {
    let (mut world, owner) = World::recorded();
    world.note("the API server stops answering", Some((Place::Server, false)));
    world.set_api(false);
    world.run(secs(3));
    let id = world.hosts.id(&owner);
    world.note(&format!("{owner} loses its power"), Some((Place::Host(id), false)));
    world.kill_node(&owner);
    world.run(millis(900));
    world.note("the API server answers again", Some((Place::Server, true)));
    world.set_api(true);
    world.run(millis(1700));
    world.recording()
}

fn cold_start() -> Recording {
    let mut world = World::empty(0);
    world.laws.overlap = Some(millis(270));
    for name in NODES {
        world.add_host(name, name);
    }
    world.add_services_with(1, 3, Detection::default(), OnApiOutage::Hold);
    world.run(secs(1));
    world.begin_trace();
    for name in NODES {
        world.note(&format!("the speaker of {name} starts"), None);
        world.start(name);
        world.run(millis(20));
    }
    world.outage();
    world.run(millis(60));
    world.assert_served();
    world.recording()
}

fn conflict_new() -> Recording {
    let mut world = World::new(&NODES);
    world.begin_trace();
    world.strangers.insert(vip(1), STRANGER);
    world.note("a Service gets the address 10.0.0.1", None);
    world.add_services_with(1, 1, Detection::default(), OnApiOutage::Hold);
    world.run(millis(400));
    world.recording()
}

fn conflict_owner() -> Recording {
    let (mut world, _) = World::recorded();
    world.hold_still();
    for pause in [millis(3000), millis(7500), millis(10_500), millis(100)] {
        world.note("the other host announces the address", None);
        world.announce_from(STRANGER, vip(1));
        world.run(pause);
    }
    world.recording()
}
