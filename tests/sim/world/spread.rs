//! The way of packets for addresses that are spread over nodes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_core::election::{BUCKETS, Spreading, Way};
use pnet_base::MacAddr;

use super::World;
use super::laws::broken;

/// The buckets that are looked at.
pub(crate) fn sample() -> impl Iterator<Item = u16> + Clone {
    (0..BUCKETS).step_by(29)
}

/// The end of the way of a packet that begins no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the host that knows its connection.
    Known,
    /// Dropped: TCP sends it again.
    Dropped,
    /// At a host that does not know its connection: the pod there answers with a reset.
    Reset,
}

/// The treatment of a packet by a host.
enum Step {
    /// Forwarded to this host.
    To(usize),
    Ends(End),
}

impl World {
    /// The kernel of a host spreads so from now on.
    pub(super) fn spread(&mut self, id: usize, spreading: Arc<Spreading>) {
        self.hosts[id].kernel.spreading = spreading;
        self.check_spreading();
    }

    /// Wherever a client sends a packet of whichever bucket, no host forwards it twice as one that it does not know.
    fn check_spreading(&self) {
        for (id, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.powered) {
            for ip in host.kernel.spreading.addresses.keys() {
                for bucket in sample() {
                    let (way, end) = self.way_of(*ip, bucket, id, None);
                    if end.is_none() {
                        let names: Vec<_> = way.iter().map(|id| &self.hosts[*id].name).collect();
                        let text = format!("a host forwards a packet for {ip} twice: {names:?}");
                        broken(self.now, "spread", &text);
                    }
                }
            }
        }
    }

    /// The host that a way leads to from host `at`.
    fn host_behind(&self, way: &Way) -> Option<usize> {
        let Way::To(hop) = way else { return None };
        self.hosts.iter().position(|other| {
            other.powered && other.nics.iter().any(|nic| nic.own() == Some(hop.to))
        })
    }

    /// The way of a new connection of a client that comes to `at`, if that has the address and sends it to another host.
    fn dispatched(&self, ip: IpAddr, bucket: u16, at: usize) -> Option<&Way> {
        let kernel = &self.hosts[at].kernel;
        let spread = kernel.spreading.addresses.get(&ip)?;
        spread.interface.as_ref().filter(|_| kernel.has(ip))?;
        let order = spread.layout.buckets.get(usize::from(bucket))?;
        let member = spread.layout.target(order)?;
        Some(&member.way).filter(|way| matches!(way, Way::To(_)))
    }

    /// What a host does with a packet of a bucket that belongs to no connection of its own.
    fn unknown(&self, ip: IpAddr, bucket: u16, at: usize, from: Option<MacAddr>) -> Step {
        let kernel = &self.hosts[at].kernel;
        let spreading = &kernel.spreading;
        let Some(spread) = spreading.addresses.get(&ip) else { return Step::Ends(End::Reset) };
        let from = from.filter(|mac| spreading.speakers.contains(mac));
        let layout = &spread.layout;
        let order = layout.buckets.get(usize::from(bucket)).copied().unwrap_or_default();
        let nobody = layout.target(&order).is_none_or(|it| it.way == Way::None);
        let unknown = layout.unknown(&order);
        let goes_on = unknown.as_ref().is_some_and(|unknown| match from {
            Some(mac) => unknown.before.is_some_and(|it| it.macs.contains(&mac)),
            None => unknown.clients,
        });
        if !goes_on {
            let end = if from.is_none() && nobody { End::Reset } else { End::Dropped };
            return Step::Ends(end);
        }
        let Some(hop) = unknown.and_then(|it| it.next) else { return Step::Ends(End::Reset) };
        let next = self.host_behind(&Way::To(hop.clone()));
        next.map_or(Step::Ends(End::Dropped), Step::To)
    }

    /// Whether a host looks for the connection of a packet: the owner does not where none can be its own.
    fn looks_at(&self, ip: IpAddr, bucket: u16, at: usize, from: Option<MacAddr>) -> bool {
        let kernel = &self.hosts[at].kernel;
        let Some(spread) = kernel.spreading.addresses.get(&ip) else { return true };
        let order = spread.layout.buckets.get(usize::from(bucket)).copied().unwrap_or_default();
        let dispatches = from.is_none() && self.dispatched(ip, bucket, at).is_some();
        !dispatches || spread.layout.is_ours(&order)
    }

    /// The hosts to which a packet comes that only `knowing` knows, if a client sends it to `first`, and its end; none:
    /// one has forwarded it twice.
    pub(crate) fn way_of(
        &self,
        ip: IpAddr,
        bucket: u16,
        first: usize,
        knowing: Option<usize>,
    ) -> (Vec<usize>, Option<End>) {
        let (mut way, mut forwarders) = (vec![first], BTreeSet::new());
        let mut from: Option<MacAddr> = None;
        loop {
            let at = way[way.len() - 1];
            let step = if knowing == Some(at) && self.looks_at(ip, bucket, at, from) {
                Step::Ends(End::Known)
            } else {
                self.unknown(ip, bucket, at, from)
            };
            let next = match step {
                Step::To(next) => next,
                Step::Ends(end) => return (way, Some(end)),
            };
            if !forwarders.insert(at) {
                return (way, None);
            }
            // Each host has one interface on the segment.
            from = self.hosts[at].nics.first().map(|nic| nic.mac);
            way.push(next);
        }
    }

    /// The host on which a new connection begins that a client makes by the present owner.
    pub(crate) fn begins_at(&self, ip: IpAddr, bucket: u16) -> Option<usize> {
        let owner = self.hosts.iter().position(|host| host.powered && host.kernel.has(ip))?;
        match self.dispatched(ip, bucket, owner) {
            Some(way) => self.host_behind(way),
            None => Some(owner),
        }
    }

    /// The host of each of the buckets that are looked at.
    pub(crate) fn begun(&self, ip: IpAddr) -> Vec<(u16, usize)> {
        sample().filter_map(|bucket| Some((bucket, self.begins_at(ip, bucket)?))).collect()
    }

    /// The ends of packets of connections that have begun there, by any host that has the address.
    pub(crate) fn ends(&self, ip: IpAddr, begun: &[(u16, usize)]) -> Vec<(u16, End)> {
        let holders = self.hosts.iter().enumerate();
        let holders = holders.filter(|(_, host)| host.powered && host.kernel.has(ip));
        let mut ends = Vec::new();
        for (holder, _) in holders {
            for (bucket, at) in begun.iter().filter(|(_, at)| self.hosts[*at].powered) {
                let (_, end) = self.way_of(ip, *bucket, holder, Some(*at));
                ends.extend(end.map(|end| (*bucket, end)));
            }
        }
        ends
    }

    /// The ways of packets of a bucket from each host that has the address, in words.
    pub(crate) fn ways(&self, ip: IpAddr, bucket: u16, begun: &[(u16, usize)]) -> String {
        let names = |way: &[usize]| -> Vec<&str> {
            way.iter().map(|id| self.hosts[*id].name.as_str()).collect()
        };
        let knowing = begun.iter().find(|(it, _)| *it == bucket).map(|(_, at)| *at);
        let known = knowing.map(|at| self.hosts[at].name.as_str());
        let mut text = format!("a packet of bucket {bucket}, whose connection {known:?} knows");
        let holders = self.hosts.iter().enumerate();
        for (holder, _) in holders.filter(|(_, host)| host.kernel.has(ip)) {
            let (way, end) = self.way_of(ip, bucket, holder, knowing);
            let _ = write!(text, ", goes {:?} and ends {end:?}", names(&way));
        }
        for host in self.hosts.iter().filter(|host| host.powered) {
            let spread = host.kernel.spreading.addresses.get(&ip);
            let order = spread.and_then(|it| it.layout.buckets.get(usize::from(bucket)));
            let unknown = spread.zip(order).and_then(|(it, order)| it.layout.unknown(order));
            let _ = write!(text, "\n{} has {order:?}: {unknown:?}", host.name);
        }
        text
    }
}
