//! While the API server answers nobody: what was served when it went has to be answered all the same.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::desired::{DesiredClaim, OnApiOutage};
use leasehold_crds::lease::{Claim, LeaseName};

use super::World;
use super::laws::{Key, Law};
use super::spells::Health;

/// How long nobody may answer for an address. The owner of most is gone and is noticed within a second; the
/// longest waits for what it can no longer write to be given up, or for who has the address to have had its turn.
const UNANSWERED: Duration = Duration::from_secs(8);
/// How long all must have been well for everybody to know what is stored.
const KNOWN: Duration = Duration::from_secs(10);

/// The API server answers nobody, or writes nothing.
#[derive(Debug, Default)]
pub(super) struct Outage {
    lasts: bool,
    /// When it began, or everything was as it should be last.
    since: Instant,
    /// The hosts that knew what is stored when it began, each by its process.
    informed: BTreeMap<usize, u64>,
    /// What was served then by its owner, and under which transitions of which claim.
    served: BTreeMap<IpAddr, (LeaseName, i32)>,
}

impl World {
    /// Notes whether the API server answers anybody, and how all was when it ceased to.
    pub(super) fn note_outage(&mut self) {
        let none = || self.hosts.iter().all(|host| !host.api);
        let lasts = self.server.down.is_some() || self.server.read_only || none();
        if !lasts {
            let well = |id: &usize| {
                let well = |health| self.is_well_for(*id, health, KNOWN);
                [Health::Running, Health::Api, Health::Prompt].into_iter().all(well)
            };
            let well = (0..self.hosts.len()).filter(well);
            let informed = well.map(|id| (id, self.hosts[id].process)).collect();
            let since = self.now;
            self.laws.outage = Outage { lasts, since, informed, served: BTreeMap::new() };
        } else if !self.laws.outage.lasts {
            let served = self.store.unedited_claims().flat_map(|stored| {
                let (name, claim) = (&stored.name, &stored.record);
                let standing = claim.standing().filter(|ip| self.is_steady(*ip, claim));
                standing.map(move |ip| (ip, (name.clone(), claim.transitions)))
            });
            self.laws.outage.served = served.collect();
            self.laws.outage.lasts = true;
        }
    }

    /// Whether the owner has served this address for so long that everybody has heard it.
    fn is_steady(&self, ip: IpAddr, claim: &Claim) -> bool {
        let owner = claim.holder.as_ref().and_then(|owner| self.host_of(owner));
        let served = self.laws.served.get(&ip);
        claim.successor.is_none()
            && served.is_some_and(|(who, since)| {
                Some(*who) == owner && self.now.saturating_since(*since) >= KNOWN
            })
    }

    /// Which addresses nobody answers for although the API server is all that is away.
    pub(super) fn dark_in_an_outage(&self, active: &mut Vec<(Key, Duration)>) {
        let outage = &self.laws.outage;
        if !outage.lasts || !(0..self.hosts.len()).all(|id| self.is_reached(id)) {
            return;
        }
        for (ip, (name, transitions)) in &outage.served {
            let same = self.store.unedited_claims().find(|stored| {
                stored.name == *name
                    && stored.record.transitions == *transitions
                    && stored.record.standing().any(|listed| listed == *ip)
            });
            let owner = same.and_then(|stored| self.host_of(stored.record.holder.as_ref()?));
            let asked = self.desired.claims.get(name).filter(|claim| {
                claim.addresses.contains(ip)
                    && claim.detection.wire
                    && claim.on_api_outage == OnApiOutage::Hold
            });
            let Some((claim, owner)) = asked.zip(owner) else { continue };
            let dark = !self.is_answered(*ip) && !self.strangers.contains_key(ip);
            let may = |id| {
                self.may_answer(id, claim)
                    && (id == owner && self.has_run_on(id) || self.is_told_apart(owner))
            };
            if dark && (0..self.hosts.len()).any(may) {
                active.push(((Law::Dark, *ip, 0, 0), UNANSWERED));
            }
        }
    }

    /// Whether its process has not stood still since the outage began: what lapsed it does not serve again.
    fn has_run_on(&self, id: usize) -> bool {
        let outage = self.now.saturating_since(self.laws.outage.since);
        self.is_well_for(id, Health::Running, outage)
    }

    /// Whether anybody but the owner answers the others: if not, they cannot tell that it is not they who are deaf.
    fn is_told_apart(&self, owner: usize) -> bool {
        let linked = |(id, host): &(usize, &super::Host)| {
            *id != owner && host.powered && host.nics.iter().all(|nic| nic.carrier)
        };
        self.router || self.hosts.iter().enumerate().filter(linked).count() > 1
    }

    /// Whether it is off the segments altogether, or hears all others and is heard.
    fn is_reached(&self, id: usize) -> bool {
        let host = &self.hosts[id];
        let off = !host.powered || host.nics.iter().all(|nic| !nic.carrier);
        off || self.is_well_for(id, Health::Wire, Duration::ZERO)
    }

    /// Whether it knows what was stored, and could serve `claim` but for the API server.
    fn may_answer(&self, id: usize, claim: &DesiredClaim) -> bool {
        let host = &self.hosts[id];
        let state = self.desired.nodes.get(&host.node);
        let session = host.core.as_ref().and_then(|core| core.session());
        claim.nodes.contains(&host.node)
            && state.is_some_and(|state| state.takes())
            && self.laws.outage.informed.get(&id) == Some(&host.process)
            && session.is_some()
            && session == self.store.live(&LeaseName::session(&host.node)).as_ref()
            && !host.ending
            && [Health::Running, Health::Wire, Health::Prompt]
                .into_iter()
                .all(|health| self.is_well_for(id, health, Duration::ZERO))
    }
}
