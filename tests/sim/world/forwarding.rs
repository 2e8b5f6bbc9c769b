//! The way of packets of connections that a node does not know.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_core::election::Forwarding;
use pnet_base::MacAddr;

use super::World;
use super::laws::broken;

/// The treatment of a packet by a host that does not know its connection.
enum Step {
    /// Forwarded to this host.
    To(usize),
    /// Dropped: TCP sends it again.
    Dropped,
    /// Answered with a reset.
    Reset,
}

impl World {
    /// The kernel of a host forwards so from now on.
    pub(super) fn forward(&mut self, id: usize, forwarding: Arc<Forwarding>) {
        self.hosts[id].kernel.forwarding = forwarding;
        self.check_forwarding();
    }

    /// Wherever a client sends a packet for an address, no host forwards it twice.
    fn check_forwarding(&self) {
        for (id, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.powered) {
            for ip in host.kernel.forwarding.onward.keys() {
                let (way, _) = self.way_from(id, *ip, None);
                let Some((_, forwarding)) = way.split_last() else { continue };
                if forwarding.iter().collect::<BTreeSet<_>>().len() < forwarding.len() {
                    let names: Vec<_> = way.iter().map(|id| &self.hosts[*id].name).collect();
                    let text = format!("a host forwards a packet for {ip} twice: {names:?}");
                    broken(self.now, "forward", &text);
                }
            }
        }
    }

    /// What the kernel of a host does with a packet for `ip` that came from this MAC address, or from a client.
    fn forwards(&self, at: usize, ip: IpAddr, from: Option<MacAddr>) -> Step {
        let host = &self.hosts[at];
        let forwarding = &host.kernel.forwarding;
        let now = host.clock.at(self.now);
        let Some(onward) = forwarding.onward.get(&ip).filter(|it| now < it.until) else {
            return Step::Reset;
        };
        match from {
            Some(mac) if onward.later.contains(&mac) => {}
            Some(mac) if onward.others.contains(&mac) => return Step::Dropped,
            Some(mac) if forwarding.speakers.contains(&mac) => return Step::Reset,
            _ if !onward.owned => return Step::Dropped,
            _ => {}
        }
        let Some(hop) = &onward.to else { return Step::Reset };
        let next = self.hosts.iter().position(|other| {
            other.powered && other.nics.iter().any(|nic| nic.own() == Some(hop.to))
        });
        next.map_or(Step::Dropped, Step::To)
    }

    /// The hosts to which a packet for `ip` comes that only `knowing` knows, if a client sends it to `first`, and whether
    /// it is answered with a reset; the way ends where one has forwarded it twice.
    fn way_from(&self, first: usize, ip: IpAddr, knowing: Option<usize>) -> (Vec<usize>, bool) {
        let mut way = vec![first];
        let mut from: Option<MacAddr> = None;
        while let Some(at) = way.last().copied() {
            if knowing == Some(at) {
                return (way, false);
            }
            let next = match self.forwards(at, ip, from) {
                Step::To(next) => next,
                Step::Dropped => return (way, false),
                Step::Reset => return (way, true),
            };
            let host = &self.hosts[at];
            let hop = host.kernel.forwarding.onward.get(&ip).and_then(|onward| onward.to.as_ref());
            let nic = hop.and_then(|hop| host.nics.iter().find(|nic| nic.name == hop.interface));
            from = nic.map(|nic| nic.mac);
            let twice = way.iter().filter(|before| **before == at).count() > 1;
            way.push(next);
            if twice {
                break;
            }
        }
        (way, false)
    }

    /// The names of the hosts to which a packet for `ip` comes that none of them knows, from its owner on.
    pub(crate) fn way(&self, ip: IpAddr) -> Vec<&str> {
        let owner = self.hosts.iter().position(|host| host.powered && host.kernel.has(ip));
        let way = owner.map(|owner| self.way_from(owner, ip, None).0).unwrap_or_default();
        way.into_iter().map(|id| self.hosts[id].name.as_str()).collect()
    }

    /// Asserts that a client of each of these hosts, which is there, gets no reset for its open connections, to
    /// whichever host that has the address it sends.
    pub(crate) fn assert_unbroken(&self, ip: IpAddr, clients_of: &[&str]) {
        let holders = self.hosts.iter().enumerate().filter(|(_, host)| host.kernel.has(ip));
        for (holder, host) in holders {
            for name in clients_of {
                let (way, reset) = self.way_from(holder, ip, Some(self.hosts.id(name)));
                let names: Vec<_> = way.iter().map(|id| &self.hosts[*id].name).collect();
                assert!(
                    !reset,
                    "{}: a client of {name} sends to {}, and is reset after {names:?}",
                    self.now, host.name
                );
            }
        }
    }
}
