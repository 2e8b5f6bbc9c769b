//! Runs that a seed stands for: a cluster, what goes wrong in it and when, and what then must hold.

mod fault;
mod sickness;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use leasehold_core::clock::Instant;
use leasehold_core::desired::{Detection, Failback, FailbackMode, OnApiOutage, SpreadOver};
use leasehold_crds::names::NodeName;

use self::fault::Fault;
use self::sickness::Sickness;
use crate::dice::Dice;
use crate::world::controls::{claim, lease_only};
use crate::world::laws::Expected;
use crate::world::{Clock, World};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What kind of run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Many faults at once.
    Storm,
    /// The API server is away, and nodes, speakers and links come and go.
    Outage,
    /// All is well, and some nodes crash.
    Crash,
    /// One fault after the other, none of them a cause for anything to move.
    Innocent,
    /// The API server is away half of the time, and nodes, speakers and links come and go. None that a seed
    /// draws by itself.
    Outages,
}

/// Runs a seed, of this kind where one is given; panics where a law is broken. For how many seconds it ran, in its
/// own time.
pub(crate) fn run(seed: u64, kind: Option<Kind>) -> u64 {
    let mut dice = Dice::new(seed);
    let drawn = match dice.below(10) {
        0..=4 => Kind::Storm,
        5 => Kind::Outage,
        6 | 7 => Kind::Crash,
        _ => Kind::Innocent,
    };
    let kind = kind.unwrap_or(drawn);
    let mut world = cluster(&mut dice, kind);
    let start = world.now;
    world.tell_all(&format!("seed {seed}: {kind:?}"));
    world.run(Duration::from_secs(9));
    world.assert_served_soon();
    match kind {
        Kind::Storm => storm(&mut world, &mut dice),
        Kind::Outage => outage(&mut world, &mut dice),
        Kind::Outages => outages(&mut world, &mut dice),
        Kind::Crash => crash(&mut world, &mut dice),
        Kind::Innocent => innocent(&mut world, &mut dice),
    }
    world.assert_served_soon();
    world.now.saturating_since(start).as_secs()
}

fn secs(dice: &mut Dice, least: u64, most: u64) -> Duration {
    dice.between(Duration::from_secs(least), Duration::from_secs(most))
}

/// A cluster that has just started.
fn cluster(dice: &mut Dice, kind: Kind) -> World {
    let mut world = World::empty(dice.next());
    world.jitter = true;
    world.recording = false;
    world.laws.listening = true;
    let hosts = 2 + dice.below(4);
    let segments = if dice.percent(15) { 2 } else { 1 };
    world.router = kind == Kind::Crash || dice.percent(85);
    world.server.latency = (Duration::from_micros(500), Duration::from_millis(3));
    let drift: u64 = if dice.percent(15) { 10_000 } else { 200 };
    for name in &NAMES[..hosts] {
        world.add_host_on(name, name, segments);
        let shown = Instant::from_boot(secs(dice, 10, 100_000));
        let rate = dice.next() % (drift + 1);
        let id = world.hosts.id(name);
        world.hosts[id].clock = Clock::new(world.now, shown, rate, dice.percent(50));
        world.hosts[id].watch_delay =
            dice.between(Duration::from_millis(2), Duration::from_millis(20));
    }
    if dice.percent(50) {
        world.give_proxies();
    }
    // Either the services are there first, or the speakers.
    let cold = dice.percent(25);
    if !cold {
        start(dice, &mut world);
    }
    let detection = detection(dice);
    let outage = if kind != Kind::Innocent && dice.percent(15) {
        OnApiOutage::Drop
    } else {
        OnApiOutage::Hold
    };
    let drain_on_cordon = dice.percent(30);
    // What moves by itself is no fault: a run in which nothing may move does without.
    let failback = (kind == Kind::Storm && dice.percent(30)).then(|| failback(dice, hosts));
    let spreads = dice.percent(30);
    for number in 1..=u8::try_from(1 + dice.below(8)).unwrap() {
        let segment = u8::try_from(dice.below(usize::from(segments))).unwrap();
        let address = IpAddr::from([10, segment, 0, number]);
        let mut claimed = world.claimed(number, address, detection, outage);
        claimed.drain_on_cordon = drain_on_cordon;
        if let Some((failback, preference)) = &failback {
            claimed.failback = *failback;
            claimed.preference = Arc::clone(preference);
        }
        claimed.spread = spreads.then(|| endpoints(dice, hosts));
        world.desired.claims.insert(claim(number), claimed.into());
    }
    world.publish_desired();
    if cold {
        world.run(Duration::from_millis(500));
        start(dice, &mut world);
    }
    world
}

/// Starts all hosts, one after another.
fn start(dice: &mut Dice, world: &mut World) {
    for id in 0..world.hosts.len() {
        world.start_host(id);
        let pause = dice.between(Duration::ZERO, Duration::from_millis(300));
        world.run(pause);
    }
}

/// Some of the hosts have endpoints.
fn endpoints(dice: &mut Dice, hosts: usize) -> SpreadOver {
    let one = dice.below(hosts);
    let weights = (0..hosts).map(|host| {
        let weight = if host == one || dice.percent(60) { 1 + dice.below(3) } else { 0 };
        (NAMES[host].parse().unwrap(), u16::try_from(weight).unwrap())
    });
    SpreadOver { members: Arc::new(weights.collect()), ..SpreadOver::default() }
}

/// When claims go to better nodes, and which is preferred.
fn failback(dice: &mut Dice, hosts: usize) -> (Failback, Arc<BTreeMap<NodeName, u32>>) {
    let mode = dice.pick(&[FailbackMode::Preferred, FailbackMode::Balance]);
    let delay = dice.between(Duration::from_millis(500), Duration::from_secs(8));
    let preferred = (mode == FailbackMode::Preferred || dice.percent(30))
        .then(|| (NAMES[dice.below(hosts)].parse().unwrap(), 10));
    let failback = Failback { mode, delay, moves_per_minute: 600 };
    (failback, Arc::new(preferred.into_iter().collect()))
}

fn detection(dice: &mut Dice) -> Detection {
    let (interval, retry, misses) =
        dice.pick(&[(100, 20, 3), (100, 20, 3), (50, 10, 4), (200, 20, 3), (500, 50, 3)]);
    if dice.percent(15) {
        return lease_only();
    }
    Detection {
        interval: Duration::from_millis(interval),
        retry_interval: Duration::from_millis(retry),
        misses,
        wire: true,
    }
}

/// Begins and ends of faults, in the order of time.
struct Plan(Vec<(Instant, usize, bool)>);

fn storm(world: &mut World, dice: &mut Dice) {
    let length = secs(dice, 15, 45);
    let count = 2 + dice.below(10);
    let begin = world.now;
    let faults: Vec<Fault> = (0..count).map(|_| Fault::any(dice, world)).collect();
    let mut plan = Plan(Vec::new());
    for place in 0..count {
        let at = begin + dice.between(Duration::ZERO, length);
        let lasts = match dice.below(4) {
            0 => dice.between(Duration::from_millis(1), Duration::from_millis(800)),
            1 | 2 => secs(dice, 1, 9),
            _ => secs(dice, 5, 40),
        };
        plan.0.push((at, place, true));
        plan.0.push((at + lasts, place, false));
    }
    plan.0.sort_unstable();
    let mut sickness = Sickness::default();
    for (at, place, begins) in plan.0 {
        if at > begin + length {
            break;
        }
        world.run_to(at);
        let fault = &faults[place];
        world.tell_all(&format!("{} {fault:?}", if begins { "begins:" } else { "ends:" }));
        if begins {
            sickness.begin(world, fault);
        } else {
            sickness.end(world, fault);
        }
    }
    world.tell_all("all heals");
    sickness.heal(world);
    world.run(Duration::from_secs(20));
    // Processes that were still ending when all was healed.
    sickness.heal(world);
    world.run(Duration::from_secs(40));
}

fn outage(world: &mut World, dice: &mut Dice) {
    world.run(secs(dice, 2, 6));
    let mut sickness = Sickness::default();
    let away = Fault::outage(dice);
    world.tell_all(&format!("begins: {away:?}"));
    sickness.begin(world, &away);
    world.run(dice.between(Duration::ZERO, Duration::from_secs(5)));
    for _ in 0..=dice.below(3) {
        fail_for_a_while(world, dice, &mut sickness, 30);
        world.run(dice.between(Duration::ZERO, Duration::from_secs(14)));
    }
    world.tell_all("all heals");
    sickness.heal(world);
    world.run(Duration::from_secs(40));
}

fn outages(world: &mut World, dice: &mut Dice) {
    let mut sickness = Sickness::default();
    for _ in 0..3 + dice.below(4) {
        for begins in [true, false] {
            let away = Fault::outage(dice);
            world.tell_all(&format!("{}: {away:?}", if begins { "begins" } else { "over" }));
            if begins {
                sickness.begin(world, &away);
            } else {
                sickness.heal(world);
            }
            world.run(dice.between(Duration::ZERO, Duration::from_secs(12)));
            for _ in 0..dice.below(3) {
                fail_for_a_while(world, dice, &mut sickness, 10);
                world.run(dice.between(Duration::ZERO, Duration::from_secs(6)));
            }
        }
    }
    world.tell_all("all heals");
    sickness.heal(world);
    world.run(Duration::from_secs(40));
}

/// Something of a node or of all links fails, for so many seconds at most.
fn fail_for_a_while(world: &mut World, dice: &mut Dice, sickness: &mut Sickness, most: u64) {
    let faults = Fault::of_an_outage(dice, world);
    for fault in &faults {
        world.tell_all(&format!("begins: {fault:?}"));
        sickness.begin(world, fault);
        world.run(dice.between(Duration::ZERO, Duration::from_millis(20)));
    }
    let lasts = match dice.below(3) {
        0 => dice.between(Duration::from_millis(1), Duration::from_millis(500)),
        _ => secs(dice, 1, most),
    };
    world.run(lasts);
    for fault in &faults {
        world.tell_all(&format!("ends: {fault:?}"));
        sickness.end(world, fault);
        world.run(dice.between(Duration::ZERO, Duration::from_millis(20)));
    }
}

fn crash(world: &mut World, dice: &mut Dice) {
    let hosts = world.hosts.len();
    world.run(dice.between(Duration::ZERO, Duration::from_secs(4)));
    let first = dice.below(hosts);
    let mut dead = vec![first];
    if hosts >= 4 && dice.percent(40) {
        dead.push((first + 1 + dice.below(hosts - 1)) % hosts);
    }
    let cut = dice.percent(40);
    let pieces = !cut && dice.percent(60);
    let detection = world.desired.claims.values().next().unwrap().detection;
    // The first to act may be the other that is dead.
    let steps = u32::try_from(dead.len() - 1).unwrap() * 2;
    let wire = detection.interval
        + detection.retry_interval * detection.misses
        + Duration::from_millis(120)
        + detection.rank_step() * steps;
    // A session that counts as silent after L is read and fenced by one in its turn.
    let lease = Duration::from_secs(7) + detection.rank_step() * steps;
    let bound = match (detection.wire, cut && dead.len() > 1) {
        // The other that dies may have taken what the first had, and nobody has heard it there.
        (true, false) if pieces && dead.len() > 1 => lease.max(wire),
        (true, false) => wire,
        // The other that is cut off may believe for 2 s that it hears, and take.
        (true, true) => wire * 2 + Duration::from_millis(2_500),
        (false, _) => lease,
    };
    let since = world.now;
    let lost: Vec<IpAddr> = world
        .desired
        .claims
        .values()
        .flat_map(|claim| claim.addresses.iter().copied())
        .filter(|ip| dead.iter().any(|id| world.hosts[*id].kernel.has(*ip)))
        .collect();
    for id in &dead {
        if cut && detection.wire {
            world.tell_all(&format!("{} is cut off", world.hosts[*id].name));
            world.cuts.off(0, *id);
            world.cuts.off(1, *id);
            world.laws.dirty = true;
        } else if pieces {
            die_piece_by_piece(world, dice, *id);
        } else {
            world.power_off(*id);
        }
    }
    let bound = bound + world.now.saturating_since(since);
    if dead.len() < hosts {
        let expected = lost.into_iter().map(|ip| Expected { ip, by: since + bound, since });
        world.laws.expected = expected.collect();
    }
    world.run(secs(dice, 1, 25));
    world.heal_wire();
    for id in dead {
        if !world.hosts[id].api {
            world.set_reach(id, true);
        }
        if !world.hosts[id].powered {
            world.power_on(id);
        }
    }
    world.run(Duration::from_secs(15));
}

/// The links of a node, its way to the API server and the rest of it end one after another, in any order.
fn die_piece_by_piece(world: &mut World, dice: &mut Dice, id: usize) {
    let mut pieces = vec![0, 1, 2];
    while !pieces.is_empty() {
        match pieces.swap_remove(dice.below(pieces.len())) {
            0 => (0..world.hosts[id].nics.len()).for_each(|it| world.set_carrier_of(id, it, false)),
            1 => world.set_reach(id, false),
            _ => world.power_off(id),
        }
        let pause = dice.between(Duration::ZERO, Duration::from_millis(20));
        world.run(pause);
    }
}

fn innocent(world: &mut World, dice: &mut Dice) {
    world.laws.innocent = true;
    let mut sickness = Sickness::default();
    for _ in 0..=dice.below(4) {
        let fault = Fault::innocent(dice, world);
        let lasts = fault.innocent_for(dice);
        world.tell_all(&format!("begins: {fault:?}"));
        sickness.begin(world, &fault);
        world.run(lasts);
        // The next process starts when the one before has ended.
        if let Fault::Terminated(host, _) = fault {
            let by = world.now + Duration::from_secs(10);
            while world.hosts[host].is_running() && world.now < by {
                world.run(Duration::from_millis(10));
            }
        }
        world.tell_all(&format!("ends: {fault:?}"));
        sickness.end(world, &fault);
        world.run(secs(dice, 9, 14));
    }
    world.run(Duration::from_secs(10));
}
