//! How faults begin and end.

use std::sync::Arc;

use std::time::Duration;

use leasehold_core::desired::{NodeState, SpreadOver};
use leasehold_core::election::{DataPathView, Target};
use leasehold_crds::addresses::AddressSet;

use super::fault::Fault;
use crate::world::controls::{claim, session};
use crate::world::spells::Health;
use crate::world::{Cuts, Store, Troubles, World};

/// What is wrong now, and what was before.
#[derive(Debug, Default)]
pub(super) struct Sickness {
    cuts: Vec<Cuts>,
    backup: Option<Store>,
    gone: Vec<(leasehold_crds::lease::LeaseName, Arc<leasehold_core::desired::DesiredClaim>)>,
}

impl Sickness {
    pub(super) fn begin(&mut self, world: &mut World, fault: &Fault) {
        match fault {
            Fault::Killed(host) => world.kill_process(*host),
            Fault::PowerOff(host) => world.power_off(*host),
            Fault::Terminated(host, follower) => world.terminate_process(*host, *follower),
            Fault::Stopped { host, halfway } if world.hosts[*host].is_running() => {
                world.stop(*host, *halfway);
            }
            Fault::Paused(host) if world.hosts[*host].is_running() => world.pause(*host),
            Fault::Stopped { .. } | Fault::Paused(_) => {}
            Fault::Lag(host, lag) => self.change(world, |world| world.hosts[*host].lag = *lag),
            Fault::Overflows(host) => world.hosts[*host].overflows = 50,
            Fault::State(host, state) => {
                let name = world.hosts[*host].name.clone();
                world.set_state(&name, *state);
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
            Fault::Reassigned(number) => {
                let names = [claim(*number), claim(number + 50)];
                for (from, to) in [(&names[0], &names[1]), (&names[1], &names[0])] {
                    if let Some(moved) = world.desired.claims.remove(from) {
                        world.desired.claims.insert(to.clone(), moved);
                        break;
                    }
                }
                world.publish_desired();
            }
            Fault::RecordGone(number, lost) => world.lose_record(&claim(*number), *lost),
            Fault::RecordGoneForLong(number, lost) => {
                world.set_operator(false);
                world.lose_record(&claim(*number), *lost);
            }
            Fault::NoOperator => world.set_operator(false),
            Fault::ProxySilent(host) => world.set_proxy_silent(*host, true),
            Fault::RulesLate(host) => world.set_rules_late(*host, true),
            Fault::DataPath(host, view) => world.set_data_path(*host, *view),
            Fault::Excluded(number, host) => {
                let node = world.hosts[*host].node.clone();
                let asked = world.desired.claims.get_mut(&claim(*number));
                if let Some(claim) = asked.map(Arc::make_mut) {
                    let nodes = claim.nodes.iter().filter(|other| **other != node).cloned();
                    claim.nodes = std::sync::Arc::new(nodes.collect());
                    world.publish_desired();
                }
            }
            Fault::Endpoints(number, over) => {
                let asked = world.desired.claims.get_mut(&claim(*number)).map(Arc::make_mut);
                if let Some(spread) = asked.and_then(|claim| claim.spread.as_mut()) {
                    *spread = SpreadOver::clone(over);
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
                    _ => claim.addresses = AddressSet::default(),
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
            Fault::Killed(host) | Fault::Terminated(host, _) => Self::start(world, *host),
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
            Fault::Overflows(host) => world.hosts[*host].overflows = 0,
            Fault::State(host, _) => {
                let name = world.hosts[*host].name.clone();
                world.set_state(&name, NodeState::Ready);
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
                let asked = world.desired.claims.get_mut(&claim(*number));
                if let Some(claim) = asked.map(Arc::make_mut) {
                    let mut nodes = claim.nodes.as_ref().clone();
                    nodes.insert(node);
                    claim.nodes = std::sync::Arc::new(nodes);
                    world.publish_desired();
                }
            }
            Fault::NoOperator | Fault::RecordGoneForLong(..) => world.set_operator(true),
            Fault::ProxySilent(host) => world.set_proxy_silent(*host, false),
            Fault::RulesLate(host) => world.set_rules_late(*host, false),
            Fault::DataPath(host, _) => world.set_data_path(*host, DataPathView::default()),
            Fault::PowerOff(_)
            | Fault::Reset(_)
            | Fault::Reassigned(_)
            | Fault::RecordGone(..)
            | Fault::Endpoints(..)
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
        world.set_operator(true);
        world.server.latency.1 = Duration::from_millis(3);
        world.server.answers_late = Duration::ZERO;
        world.server.troubles = Troubles::default();
        let nodes: std::collections::BTreeSet<_> =
            world.hosts.iter().map(|host| host.node.clone()).collect();
        for (name, claim) in self.gone.drain(..) {
            world.desired.claims.insert(name, claim);
        }
        for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
            claim.nodes = std::sync::Arc::new(nodes.clone());
        }
        for node in nodes {
            world.desired.nodes.insert(node, NodeState::default());
        }
        // What heals them comes in time.
        for host in 0..world.hosts.len() {
            world.hosts[host].watch_delay = Duration::from_millis(10);
        }
        world.publish_desired();
        for host in 0..world.hosts.len() {
            self.heal_host(world, host);
        }
        world.laws.dirty = true;
    }

    fn heal_host(&mut self, world: &mut World, host: usize) {
        world.hosts[host].lag = Duration::ZERO;
        world.hosts[host].overflows = 0;
        world.set_proxy_silent(host, false);
        world.set_rules_late(host, false);
        world.set_data_path(host, DataPathView::default());
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
