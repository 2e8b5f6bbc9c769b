//! What can go wrong.

use std::time::Duration;

use leasehold::lease::Target;

use crate::dice::Dice;
use crate::world::controls::{claim, session};
use crate::world::spells::Health;
use crate::world::{Cuts, Down, ROUTER, Store, Troubles, World};

/// One thing that goes wrong, for a while or at once.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Killed(usize),
    PowerOff(usize),
    Terminated(usize),
    Stopped { host: usize, halfway: bool },
    Paused(usize),
    Lag(usize, Duration),
    Cordoned(usize),
    NodeGone(usize),
    Carrier(usize),
    Wire(Box<Cuts>),
    NoApi(usize),
    Down(Down),
    ReadOnly,
    Slow(Duration),
    AnswersLate(Duration),
    Troubled(Troubles),
    Hung(usize),
    LateWatch(usize, Duration),
    Reset(usize),
    ServiceGone(u8),
    Excluded(u8, usize),
    ClaimDeleted(u8),
    SessionDeleted(usize),
    ClaimEdited(u8),
    SessionEdited(usize),
    Restored,
}

/// What is wrong now, and what was before.
#[derive(Debug, Default)]
pub(super) struct Sickness {
    cuts: Vec<Cuts>,
    backup: Option<Store>,
    gone: Vec<(leasehold_crds::lease::LeaseName, leasehold::desired::DesiredClaim)>,
}

impl Fault {
    pub(super) fn any(dice: &mut Dice, world: &World) -> Self {
        let host = dice.below(world.hosts.len());
        let number = u8::try_from(1 + dice.below(world.desired.claims.len())).unwrap();
        match dice.below(39) {
            0 | 1 => Self::Killed(host),
            2 | 3 => Self::PowerOff(host),
            4 => Self::Terminated(host),
            5..=7 => Self::Stopped { host, halfway: dice.percent(30) },
            8 => Self::Paused(host),
            9 => {
                Self::Lag(host, dice.between(Duration::from_millis(5), Duration::from_millis(150)))
            }
            10 | 11 => Self::Cordoned(host),
            12 => Self::NodeGone(host),
            13 => Self::Carrier(host),
            14..=19 => Self::Wire(Box::new(cuts(dice, world))),
            20 | 21 => Self::NoApi(host),
            22 | 23 => Self::Down(dice.pick(&[Down::Silent, Down::Refusing])),
            24 => Self::ReadOnly,
            25 => Self::Slow(dice.between(Duration::from_millis(20), Duration::from_millis(1200))),
            26 | 27 => Self::Troubled(troubles(dice)),
            28 => Self::Hung(host),
            29 => Self::LateWatch(
                host,
                dice.between(Duration::from_millis(50), Duration::from_secs(3)),
            ),
            30 => Self::Reset(host),
            31 => Self::ServiceGone(number),
            32 => Self::Excluded(number, host),
            33 => Self::ClaimDeleted(number),
            34 => Self::SessionDeleted(host),
            35 => Self::ClaimEdited(number),
            36 => Self::SessionEdited(host),
            37 => Self::Restored,
            _ => Self::AnswersLate(
                dice.between(Duration::from_millis(50), Duration::from_millis(1400)),
            ),
        }
    }

    /// One that is no cause for anything to move, if it is alone.
    pub(super) fn innocent(dice: &mut Dice, world: &World) -> Self {
        let host = dice.below(world.hosts.len());
        let number = u8::try_from(1 + dice.below(world.desired.claims.len())).unwrap();
        match dice.below(14) {
            0 | 1 => Self::Down(Down::Silent),
            2 => Self::Down(Down::Refusing),
            3 => Self::ReadOnly,
            4 => Self::Slow(dice.between(Duration::from_millis(20), Duration::from_millis(600))),
            5 => Self::Hung(host),
            6 => Self::LateWatch(
                host,
                dice.between(Duration::from_millis(50), Duration::from_secs(3)),
            ),
            7 => Self::Reset(host),
            8 => Self::Killed(host),
            9 => Self::Terminated(host),
            10 => Self::ClaimDeleted(number),
            11 => Self::SessionDeleted(host),
            12 => Self::Stopped { host, halfway: dice.percent(30) },
            _ => {
                Self::Lag(host, dice.between(Duration::from_millis(5), Duration::from_millis(150)))
            }
        }
    }

    /// For how long it is no cause.
    pub(super) fn innocent_for(&self, dice: &mut Dice) -> Duration {
        let most = match self {
            Self::Killed(_) | Self::Stopped { .. } => Duration::from_millis(2500),
            Self::Terminated(_) => Duration::from_secs(25),
            _ => Duration::from_secs(40),
        };
        dice.between(Duration::from_millis(50), most)
    }
}

fn cuts(dice: &mut Dice, world: &World) -> Cuts {
    let hosts = world.hosts.len();
    let segment = dice.below(world.hosts[0].nics.len());
    let (one, other) = (dice.below(hosts), dice.below(hosts));
    let mut cuts = Cuts::default();
    match dice.below(7) {
        0 | 1 => cuts.off(segment, one),
        2 => cuts.both_ways(segment, one, other),
        3 => cuts.one_way(segment, one, other),
        // Filtered ARP: it hears nothing.
        4 => cuts.deaf(segment, one),
        5 => {
            // Port isolation: the hosts hear the router and nobody else.
            for one in 0..hosts {
                for other in 0..hosts {
                    cuts.one_way(segment, one, other);
                }
            }
        }
        _ => {
            // Two halves.
            let half = dice.next();
            let side = |station: usize| half & (1 << station) != 0;
            for one in (0..hosts).chain([ROUTER]) {
                for other in (0..hosts).chain([ROUTER]) {
                    if side(one) != side(other) {
                        cuts.one_way(segment, one, other);
                    }
                }
            }
        }
    }
    cuts
}

fn troubles(dice: &mut Dice) -> Troubles {
    let mut chance = || if dice.percent(40) { dice.next() % 30 } else { 0 };
    Troubles {
        lost: chance(),
        answer_lost: chance(),
        late: chance(),
        throttled: chance(),
        refused: chance(),
    }
}

impl Sickness {
    pub(super) fn begin(&mut self, world: &mut World, fault: &Fault) {
        match fault {
            Fault::Killed(host) => world.kill_process(*host),
            Fault::PowerOff(host) => world.power_off(*host),
            Fault::Terminated(host) => {
                let name = world.hosts[*host].name.clone();
                world.terminate(&name);
            }
            Fault::Stopped { host, halfway } if world.hosts[*host].is_running() => {
                world.stop(*host, *halfway);
            }
            Fault::Paused(host) if world.hosts[*host].is_running() => world.pause(*host),
            Fault::Stopped { .. } | Fault::Paused(_) => {}
            Fault::Lag(host, lag) => self.change(world, |world| world.hosts[*host].lag = *lag),
            Fault::Cordoned(host) => {
                let name = world.hosts[*host].name.clone();
                world.cordon(&name, true);
            }
            Fault::NodeGone(host) => {
                let node = world.hosts[*host].node.clone();
                world.desired.nodes.remove(&node);
                world.publish_desired();
            }
            Fault::Carrier(host) => world.set_carrier_of(*host, 0, false),
            Fault::Wire(cuts) => {
                self.cuts.push(Cuts::clone(cuts));
                self.cut(world);
            }
            Fault::NoApi(host) => world.set_reach(*host, false),
            Fault::Down(down) => world.set_down(Some(*down)),
            Fault::ReadOnly => world.set_read_only(true),
            Fault::Slow(most) => self.change(world, |world| world.server.latency.1 = *most),
            Fault::AnswersLate(late) => {
                self.change(world, |world| world.server.answers_late = *late);
            }
            Fault::Troubled(troubles) => {
                self.change(world, |world| world.server.troubles = *troubles);
            }
            Fault::Hung(host) => self.change(world, |world| world.hosts[*host].watch_hung = true),
            Fault::LateWatch(host, late) => {
                self.change(world, |world| world.hosts[*host].watch_delay = *late);
            }
            Fault::Reset(host) => {
                let delay = world.dice.between(Duration::ZERO, Duration::from_secs(2));
                world.reset_watches(*host, delay);
            }
            Fault::ServiceGone(number) => {
                if let Some(gone) = world.desired.claims.remove_entry(&claim(*number)) {
                    self.gone.push(gone);
                    world.publish_desired();
                }
            }
            Fault::Excluded(number, host) => {
                let node = world.hosts[*host].node.clone();
                if let Some(claim) = world.desired.claims.get_mut(&claim(*number)) {
                    let nodes = claim.nodes.iter().filter(|other| **other != node).cloned();
                    claim.nodes = std::sync::Arc::new(nodes.collect());
                    world.publish_desired();
                }
            }
            Fault::ClaimDeleted(_)
            | Fault::SessionDeleted(_)
            | Fault::ClaimEdited(_)
            | Fault::SessionEdited(_)
            | Fault::Restored => self.meddle(world, fault),
        }
        world.laws.dirty = true;
    }

    /// What somebody does to the stored leases.
    fn meddle(&mut self, world: &mut World, fault: &Fault) {
        match fault {
            Fault::ClaimDeleted(number) => world.delete(&Target::Claim(claim(*number))),
            Fault::SessionDeleted(host) => {
                let name = session(world.hosts[*host].node.as_str());
                world.delete(&Target::Session(name));
            }
            Fault::ClaimEdited(number) if world.store.claims.contains_key(&claim(*number)) => {
                let how = world.dice.below(4);
                world.edit_claim(*number, |claim| match how {
                    0 => claim.holder = None,
                    1 => claim.transitions -= 1,
                    2 => claim.session = None,
                    _ => claim.addresses.clear(),
                });
            }
            Fault::SessionEdited(host) => {
                let name = world.hosts[*host].node.to_string();
                let how = world.dice.below(3);
                if world.store.sessions.contains_key(&session(&name)) {
                    world.edit_session(&name, |session| match how {
                        0 => session.holder = None,
                        1 => session.transitions -= 1,
                        _ => session.duration_seconds = 100_000,
                    });
                }
            }
            Fault::Restored => match self.backup.take() {
                Some(backup) => {
                    world.tell_all("a backup is restored");
                    world.store.restore(&backup);
                    world.laws.stored = true;
                    world.upset(Health::Api);
                    for host in 0..world.hosts.len() {
                        let delay = world.dice.between(Duration::ZERO, Duration::from_secs(1));
                        world.reset_watches(host, delay);
                    }
                }
                None => self.backup = Some(world.store.clone()),
            },
            _ => {}
        }
    }

    pub(super) fn end(&mut self, world: &mut World, fault: &Fault) {
        match fault {
            Fault::Killed(host) | Fault::Terminated(host) => Self::start(world, *host),
            Fault::PowerOff(host) if !world.hosts[*host].powered => world.power_on(*host),
            Fault::Stopped { host, .. } => {
                if world.hosts[*host].stopped {
                    world.cont(*host);
                }
            }
            Fault::Paused(host) => {
                if world.hosts[*host].paused {
                    world.resume(*host);
                }
            }
            Fault::Lag(host, _) => {
                self.change(world, |world| world.hosts[*host].lag = Duration::ZERO);
            }
            Fault::Cordoned(host) => {
                let name = world.hosts[*host].name.clone();
                world.cordon(&name, false);
            }
            Fault::NodeGone(host) => {
                let node = world.hosts[*host].node.clone();
                world.desired.nodes.entry(node).or_default();
                world.publish_desired();
            }
            Fault::Carrier(host) => world.set_carrier_of(*host, 0, true),
            Fault::Wire(cuts) => {
                if let Some(place) = self.cuts.iter().position(|other| *other == **cuts) {
                    self.cuts.remove(place);
                }
                self.cut(world);
            }
            Fault::NoApi(host) => world.set_reach(*host, true),
            Fault::Down(_) => world.set_down(None),
            Fault::ReadOnly => world.set_read_only(false),
            Fault::Slow(_) => {
                self.change(world, |world| world.server.latency.1 = Duration::from_millis(3));
            }
            Fault::AnswersLate(_) => {
                self.change(world, |world| world.server.answers_late = Duration::ZERO);
            }
            Fault::Troubled(_) => {
                self.change(world, |world| world.server.troubles = Troubles::default());
            }
            Fault::Hung(host) => {
                self.change(world, |world| world.hosts[*host].watch_hung = false);
                world.reset_watches(*host, Duration::from_millis(5));
            }
            Fault::LateWatch(host, _) => self.change(world, |world| {
                world.hosts[*host].watch_delay = Duration::from_millis(10);
            }),
            Fault::ServiceGone(_) => {
                for (name, claim) in self.gone.drain(..) {
                    world.desired.claims.insert(name, claim);
                }
                world.publish_desired();
            }
            Fault::Excluded(number, host) => {
                let node = world.hosts[*host].node.clone();
                if let Some(claim) = world.desired.claims.get_mut(&claim(*number)) {
                    let mut nodes = claim.nodes.as_ref().clone();
                    nodes.insert(node);
                    claim.nodes = std::sync::Arc::new(nodes);
                    world.publish_desired();
                }
            }
            Fault::PowerOff(_)
            | Fault::Reset(_)
            | Fault::ClaimDeleted(_)
            | Fault::SessionDeleted(_)
            | Fault::ClaimEdited(_)
            | Fault::SessionEdited(_)
            | Fault::Restored => {}
        }
        world.laws.dirty = true;
    }

    #[expect(clippy::unused_self, reason = "reads like its neighbours")]
    fn change(&self, world: &mut World, change: impl FnOnce(&mut World)) {
        change(world);
    }

    fn cut(&self, world: &mut World) {
        world.cuts.clear();
        for cuts in &self.cuts {
            world.cuts.add(cuts);
        }
    }

    fn start(world: &mut World, host: usize) {
        let this = &world.hosts[host];
        if this.core.is_none() && this.powered && !this.paused {
            world.start_host(host);
        }
    }

    /// All is well again.
    pub(super) fn heal(&mut self, world: &mut World) {
        self.cuts.clear();
        self.cut(world);
        if world.server.down.is_some() {
            world.set_down(None);
        }
        world.set_read_only(false);
        world.server.latency.1 = Duration::from_millis(3);
        world.server.answers_late = Duration::ZERO;
        world.server.troubles = Troubles::default();
        let nodes: std::collections::BTreeSet<_> =
            world.hosts.iter().map(|host| host.node.clone()).collect();
        for (name, claim) in self.gone.drain(..) {
            world.desired.claims.insert(name, claim);
        }
        for claim in world.desired.claims.values_mut() {
            claim.nodes = std::sync::Arc::new(nodes.clone());
        }
        for node in nodes {
            world.desired.nodes.insert(node, leasehold::desired::NodeFacts::default());
        }
        world.publish_desired();
        for host in 0..world.hosts.len() {
            self.heal_host(world, host);
        }
        world.laws.dirty = true;
    }

    fn heal_host(&mut self, world: &mut World, host: usize) {
        world.hosts[host].lag = Duration::ZERO;
        world.hosts[host].watch_delay = Duration::from_millis(10);
        if world.hosts[host].watch_hung {
            self.end(world, &Fault::Hung(host));
        }
        if world.hosts[host].paused {
            world.resume(host);
        }
        if world.hosts[host].stopped {
            world.cont(host);
        }
        if !world.hosts[host].api {
            world.set_reach(host, true);
        }
        if !world.hosts[host].powered {
            world.power_on(host);
        }
        Self::start(world, host);
        if world.hosts[host].nics.iter().any(|nic| !nic.carrier) {
            world.set_carrier_of(host, 0, true);
        }
    }
}
