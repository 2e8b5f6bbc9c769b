//! What a large cluster costs, and how fast it recovers from the loss of a rack: real cores and listeners,
//! an API server that answers at once, and a segment that loses nothing, on virtual time.
//!
//! A core knows every service, so as many as there are speakers in the largest clusters do not fit into
//! memory. Real are the speakers that have a part in what is measured: those that poll the nodes of the
//! rack, those that take what these have, and some others. The rest are stand-ins: they renew their
//! sessions and refresh their claims as often as the real ones do, and answer who asks for their addresses.

mod cluster;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use leasehold_core::election::weight;
use serde::{Deserialize, Serialize};

pub use cluster::{Cluster, obedient};
use world::World;

/// How long nodes have been dead before it is counted how often they are asked.
const DEAD_FOR: Duration = Duration::from_secs(70);
/// For how long it is watched while nothing happens: what each speaker writes at its own time is spread evenly.
const STEADY: Duration = Duration::from_secs(30);
/// How many speakers poll a node.
const POLLERS: usize = 3;
/// How many speakers with no part in it are real where not all are.
const OTHERS: usize = 10;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many nodes.
    pub nodes: usize,
    /// How many services, one address each.
    pub services: usize,
    /// How many nodes die at once.
    pub rack: usize,
    /// How many speakers may be real, at most.
    pub real: usize,
}

impl Plan {
    fn check(&self) -> anyhow::Result<()> {
        let Self { nodes, services, rack, .. } = *self;
        ensure!(
            nodes <= Cluster::MOST_NODES,
            "--nodes: {} at most, as their addresses are in 10.255.0.0/16",
            Cluster::MOST_NODES
        );
        ensure!(
            services <= Cluster::MOST_SERVICES,
            "--services: {} at most, as their addresses are in 10.0.0.0/9",
            Cluster::MOST_SERVICES
        );
        ensure!(services > 0, "--services: without any nothing can be lost");
        ensure!(
            0 < rack && rack < nodes,
            "--rack: of {nodes} nodes one at least is to die and one to survive, not {rack} to die"
        );
        Ok(())
    }
}

/// What came of it. Rates are per second, of the whole cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Services, one address each.
    pub services: usize,
    /// Nodes that died at once.
    pub rack: usize,
    /// How many speakers were real.
    pub real: usize,
    /// L, in seconds.
    pub lease_seconds: u64,
    /// For how long it was watched while nothing happened, in seconds of virtual time.
    pub steady_seconds: f64,
    /// Renewals of sessions.
    pub session_writes: f64,
    /// Refreshes of claims.
    pub claim_writes: f64,
    /// Renewals and refreshes of the real speakers, times nodes over real ones: about the sum of the two
    /// above, as stand-ins write as often as the real ones.
    pub real_writes: f64,
    /// Events that the API server sends: each write to each speaker.
    pub watch_events: f64,
    /// Polls of owners: those of the real speakers, times nodes over real ones.
    pub wire_polls: f64,
    /// How many addresses the dead nodes had.
    pub moved: usize,
    /// When the first, the median and the last of them was in another kernel, in milliseconds after the
    /// nodes died.
    pub first_ms: f64,
    /// The median.
    pub median_ms: f64,
    /// The last.
    pub last_ms: f64,
    /// Lease writes from the death until then.
    pub recovery_writes: usize,
    /// Those of them that were refused, as another had been faster.
    pub recovery_conflicts: usize,
    /// How often the dead nodes are asked whether they are back, once they have been dead for a while: questions
    /// of the real speakers, times living nodes over real ones. A switch floods each.
    #[serde(default)]
    pub dead_asked: f64,
}

/// Runs it; an error says what of the plan cannot be simulated.
pub fn run(plan: Plan) -> anyhow::Result<Outcome> {
    plan.check()?;
    let cluster = Cluster::new(plan.nodes, plan.services, |number| number % plan.nodes);
    let rack: BTreeSet<usize> = (0..plan.rack).collect();
    let real = real(&cluster, &rack, plan.real)?;
    let share = number(plan.nodes) / number(real.len());
    let lease = Duration::from_secs(cluster.lease_seconds());
    let mut world = World::new(&cluster, &real);
    world.settle();

    let before = world.counts;
    world.run(STEADY);
    let seconds = STEADY.as_secs_f64();
    let counts = world.counts.since(&before);
    let rate = |count: usize| number(count) / seconds;

    let before = world.counts;
    let moved = world.kill(&rack);
    let recovered = world.recover(lease * 2);
    let recovery = world.counts.since(&before);
    let at =
        |index: usize| recovered.get(index).map_or(f64::NAN, |after| after.as_secs_f64() * 1e3);
    assert_eq!(recovered.len(), moved, "addresses stayed without an owner");
    world.run(DEAD_FOR);
    let before = world.counts;
    world.run(STEADY);
    let asked = world.counts.since(&before).asked;
    let living = number(plan.nodes - plan.rack) / number(real.difference(&rack).count());
    let all = counts.session_writes + counts.claim_writes;
    Ok(Outcome {
        nodes: plan.nodes,
        services: plan.services,
        rack: plan.rack,
        real: real.len(),
        lease_seconds: lease.as_secs(),
        steady_seconds: seconds,
        session_writes: rate(counts.session_writes),
        claim_writes: rate(counts.claim_writes),
        real_writes: rate(counts.real_writes) * share,
        watch_events: rate(all) * number(plan.nodes),
        wire_polls: rate(counts.polls) * share,
        moved,
        first_ms: at(0),
        median_ms: at(moved / 2),
        last_ms: at(moved.saturating_sub(1)),
        recovery_writes: recovery.session_writes + recovery.claim_writes,
        recovery_conflicts: recovery.conflicts,
        dead_asked: rate(asked) * living,
    })
}

/// Which speakers are real: all, or those that poll the nodes of the rack, those that are first to take
/// what these have, and a few others, `most` in all.
fn real(cluster: &Cluster, rack: &BTreeSet<usize>, most: usize) -> anyhow::Result<BTreeSet<usize>> {
    let count = cluster.nodes.len();
    if count <= most {
        return Ok((0..count).collect());
    }
    let mut real = BTreeSet::new();
    for dead in rack {
        // Each set of survivors has its first three: nodes of the rack may be among those of all.
        let mut weighed: Vec<_> = (0..count)
            .filter(|other| other != dead)
            .map(|other| {
                let (owner, poller) = (&cluster.nodes[*dead], &cluster.nodes[other]);
                (std::cmp::Reverse(weight(owner.as_str(), poller.as_str())), poller, other)
            })
            .collect();
        weighed.sort_unstable();
        real.extend(weighed.iter().take(POLLERS).map(|(.., other)| *other));
        let survivors = weighed.iter().map(|(.., other)| *other).filter(|it| !rack.contains(it));
        real.extend(survivors.take(POLLERS));
    }
    real.extend(world::takers(cluster, rack));
    let others = (0..count).filter(|node| !rack.contains(node)).take(OTHERS);
    real.extend(others);
    let needed = real.len();
    ensure!(needed <= most, "{needed} speakers have a part in it: --real is to be that at least");
    Ok(real)
}

/// As a number to reckon with.
fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    session_writes: usize,
    claim_writes: usize,
    /// Of both, those of real speakers.
    real_writes: usize,
    conflicts: usize,
    polls: usize,
    /// Questions of real speakers to nodes that are dead.
    asked: usize,
}

impl Counts {
    const fn since(&self, before: &Self) -> Self {
        Self {
            session_writes: self.session_writes - before.session_writes,
            claim_writes: self.claim_writes - before.claim_writes,
            real_writes: self.real_writes - before.real_writes,
            conflicts: self.conflicts - before.conflicts,
            polls: self.polls - before.polls,
            asked: self.asked - before.asked,
        }
    }
}
