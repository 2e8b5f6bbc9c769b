//! Since when each host is well, or ill: what a law allows depends on it.

use std::time::Duration;

use leasehold_core::clock::Instant;

use super::{ROUTER, World};

/// What can be well or ill about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Its process runs.
    Running,
    /// The API server answers it, soon and all, and its watches deliver.
    Api,
    /// Requests reach the API server, whatever becomes of them there.
    Reach,
    /// It has a link, hears every other host on its segments and is heard by them.
    Wire,
    /// It wakes up in time, and no frame is dropped.
    Prompt,
}

const ALL: [Health; 5] =
    [Health::Running, Health::Api, Health::Reach, Health::Wire, Health::Prompt];
/// The longest way to the API server, and from it by a watch, of a host that is well.
const SOON: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug)]
struct Spell {
    well: bool,
    since: Instant,
}

/// The health of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Spells(Vec<[Spell; 5]>);

const fn place(health: Health) -> usize {
    match health {
        Health::Running => 0,
        Health::Api => 1,
        Health::Wire => 2,
        Health::Prompt => 3,
        Health::Reach => 4,
    }
}

impl World {
    /// Looks at all hosts anew.
    pub(crate) fn examine(&mut self) {
        while self.spells.0.len() < self.hosts.len() {
            self.spells.0.push([Spell { well: true, since: self.now }; 5]);
        }
        for id in 0..self.hosts.len() {
            for health in ALL {
                let well = self.is_well(id, health);
                let spell = &mut self.spells.0[id][place(health)];
                if spell.well != well {
                    *spell = Spell { well, since: self.now };
                }
            }
        }
    }

    /// Whatever was counted as well counts from now.
    pub(crate) fn upset(&mut self, health: Health) {
        for spells in &mut self.spells.0 {
            spells[place(health)].since = self.now;
        }
    }

    fn is_well(&self, id: usize, health: Health) -> bool {
        let host = &self.hosts[id];
        match health {
            Health::Running => host.is_running() && host.powered,
            Health::Prompt => host.lag.is_zero() && host.overflows == 0 && !host.paused,
            Health::Reach => self.server.down.is_none() && host.api,
            Health::Api => {
                let server = &self.server;
                server.down.is_none()
                    && !server.read_only
                    && server.latency.1 + server.answers_late <= SOON
                    && server.troubles == super::Troubles::default()
                    && host.api
                    && !host.watch_hung
                    && host.watch_delay <= SOON
                    && host.streams.iter().all(|stream| stream.open)
            }
            Health::Wire => (0..host.nics.len()).all(|segment| {
                let others = (0..self.hosts.len()).filter(|other| {
                    let other = &self.hosts[*other];
                    other.powered && other.nics.get(segment).is_some_and(|nic| nic.carrier)
                });
                let mut stations = others.chain(self.router.then_some(ROUTER));
                host.nics[segment].carrier
                    && stations.all(|other| other == id || self.connected(segment, id, other))
            }),
        }
    }

    /// For how long a host has been well; none while it is ill.
    pub(crate) fn well_for(&self, id: usize, health: Health) -> Option<Duration> {
        let spell = self.spells.0.get(id)?[place(health)];
        spell.well.then(|| self.now.saturating_since(spell.since))
    }

    /// For how long a host has been ill; none while it is well.
    pub(crate) fn ill_for(&self, id: usize, health: Health) -> Option<Duration> {
        let spell = self.spells.0.get(id)?[place(health)];
        (!spell.well).then(|| self.now.saturating_since(spell.since))
    }

    pub(crate) fn is_well_for(&self, id: usize, health: Health, least: Duration) -> bool {
        self.well_for(id, health).is_some_and(|well| well >= least)
    }
}
