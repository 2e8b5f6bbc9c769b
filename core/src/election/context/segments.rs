//! Segments: the interface of this node on which another one is met, and the speakers that probe an owner there.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use leasehold_crds::lease::{Claim, Session, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, InterfacePattern, NodeName};
use pnet_base::MacAddr;

use crate::election::context::Context;
use crate::election::context::state::facts::is_under;
use crate::election::context::state::segments::{Crews, Place};
use crate::election::io::event::Interface;
use crate::election::io::forwarding::Hop;
use crate::election::io::probes::VoiceId;
use crate::election::placement::rank::{combined, name_hash, weight};

/// The number of speakers that poll an owner, and fence it if it falls silent.
pub(in crate::election) const POLLERS: usize = 3;

/// On a segment with so many speakers or fewer each polls all others: each knows by itself who is down, also without
/// the API server.
pub(in crate::election) const ALL_POLL: usize = 16;

/// Whether two interfaces with these addresses are on one segment.
pub fn share_a_subnet(ours: &[IpNet], theirs: &[IpNet]) -> bool {
    let mut ours = ours.iter().filter(|net| !is_host(net));
    ours.any(|ours| theirs.iter().any(|theirs| theirs.trunc() == ours.trunc()))
}

/// A host route says nothing about the segment.
pub(in crate::election) fn is_host(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// The first of `speakers` by rendezvous hash with `owner`.
pub(in crate::election) fn pollers<'a>(
    owner: &NodeName,
    speakers: &[&'a NodeName],
) -> Vec<&'a NodeName> {
    let mut weighed: Vec<(std::cmp::Reverse<u64>, &NodeName)> = speakers
        .iter()
        .filter(|node| **node != owner)
        .map(|node| (std::cmp::Reverse(weight(owner.as_str(), node.as_str())), *node))
        .collect();
    weighed.sort_unstable();
    weighed.into_iter().map(|(_, node)| node).take(POLLERS).collect()
}

impl Context {
    /// Where this node meets the interface `theirs` of `node`, or has met it under the same session.
    pub(in crate::election) fn place(
        &self,
        node: &NodeName,
        theirs: &InterfaceName,
    ) -> Option<Place> {
        let stored = self.sessions.get(node.as_str())?;
        let listed = stored.record.interfaces.iter().find(|listed| listed.name == *theirs);
        let theirs = listed.or_else(|| self.unlisted.get(stored, theirs))?;
        let interface = self.meets(theirs)?.clone();
        let own = theirs.own_addresses().collect();
        Some(Place { interface, mac: theirs.mac, own })
    }

    /// The interface of this node on which it meets another, and that of the other.
    pub(in crate::election) fn met(
        &self,
        node: &NodeName,
    ) -> Option<(&InterfaceName, &SessionInterface)> {
        let links = &self.sessions.get(node.as_str())?.record.interfaces;
        links.iter().find_map(|link| Some((self.meets(link)?, link)))
    }

    /// The MAC addresses of a node's interfaces.
    pub(in crate::election) fn macs(&self, node: &NodeName) -> impl Iterator<Item = MacAddr> + '_ {
        let session = self.sessions.get(node.as_str());
        session.into_iter().flat_map(|stored| &stored.record.interfaces).map(|link| link.mac)
    }

    /// The MAC addresses of the interfaces of all other speakers.
    pub(in crate::election) fn macs_of_others(&self) -> impl Iterator<Item = MacAddr> + '_ {
        let others = self.sessions.stored().filter(|stored| stored.name != *self.own_name());
        others.flat_map(|stored| &stored.record.interfaces).map(|link| link.mac)
    }

    /// The way to another node's link, on the segment of this node's `interface`, of packets for an address of the
    /// family of `address`.
    pub(in crate::election) fn hop(
        &self,
        interface: &InterfaceName,
        link: &SessionInterface,
        address: IpAddr,
    ) -> Option<Hop> {
        let nets = &self.interfaces.get(interface)?.addresses;
        let on_link = |ip: &IpAddr| nets.iter().any(|net| !is_host(net) && net.contains(ip));
        let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let own = || link.own_addresses().filter(|ip| ip.is_ipv4() == address.is_ipv4());
        let to = own().find(on_link).or_else(|| own().find(link_local))?;
        Some(Hop { to, interface: interface.clone() })
    }

    /// Whether two interfaces of this node are one, or on one segment.
    pub(in crate::election) fn share_a_segment(
        &self,
        one: &InterfaceName,
        other: &InterfaceName,
    ) -> bool {
        let nets = |name| self.interfaces.get(name).map(|link| link.addresses.as_slice());
        one == other
            || nets(one).zip(nets(other)).is_some_and(|(one, other)| share_a_subnet(one, other))
    }

    /// Whether this node's `interface` and another node's link carry packets of the same size, as far as is known.
    pub(in crate::election) fn has_same_mtu(
        &self,
        interface: &InterfaceName,
        link: &SessionInterface,
    ) -> bool {
        let own = self.interfaces.get(interface).map(|own| own.mtu);
        own.zip(link.mtu).is_none_or(|(own, its)| own == its)
    }

    /// The interface of this node on the segment of an interface of another.
    pub(in crate::election) fn meets(&self, theirs: &SessionInterface) -> Option<&InterfaceName> {
        let carried = || self.interfaces.iter().filter(|(_, interface)| interface.carrier);
        let in_subnet =
            carried().find(|(_, ours)| share_a_subnet(&ours.addresses, &theirs.addresses));
        let presumed = || {
            let presumed = carried().filter(|(name, ours)| self.may_meet(name, ours, theirs));
            presumed.min_by_key(|(name, _)| (**name != theirs.name, *name))
        };
        in_subnet.or_else(presumed).map(|(name, _)| name)
    }

    /// Whether an interface of this node and one of another may be on one segment where no address says so:
    /// policies name both for the same addresses. Where they are not, nobody is heard, and nobody falls
    /// silent.
    pub(in crate::election) fn may_meet(
        &self,
        name: &InterfaceName,
        ours: &Interface,
        theirs: &SessionInterface,
    ) -> bool {
        let bare = ours.addresses.is_empty() || theirs.addresses.is_empty();
        let matching = |patterns: &[InterfacePattern], name| {
            patterns.iter().any(|pattern| pattern.matches(name))
        };
        let mut named = self.named.iter();
        bare && named.any(|them| matching(them, name) && matching(them, &theirs.name))
    }

    /// The voice of the owner of `stored` on the segment where it has the addresses; `None` where
    /// this node is not on that segment.
    pub(in crate::election) fn voice_of(&self, stored: &Stored<Claim>) -> Option<VoiceId> {
        let node = stored.record.holder.as_ref()?;
        let place = self.place(node, stored.record.interface.as_ref()?)?;
        let session = stored.record.session.clone()?;
        Some(VoiceId { interface: place.interface, node: node.clone(), session, mac: place.mac })
    }

    /// The speakers that poll `owner` on the segment of this node's `interface`.
    pub(in crate::election) fn pollers(
        &self,
        owner: &NodeName,
        interface: &InterfaceName,
    ) -> Vec<&NodeName> {
        pollers(owner, &self.speakers_on(interface))
    }

    /// [`Self::speakers_on`], with the hashes of their names.
    pub(in crate::election) fn crew<'a, 'b>(
        &'a self,
        interface: &InterfaceName,
        crews: &'b mut Crews<'a>,
    ) -> &'b [(u64, &'a NodeName)] {
        let hashed = |node: &'a NodeName| (name_hash(node.as_str()), node);
        let crew = crews.0.entry(interface.clone());
        crew.or_insert_with(|| self.speakers_on(interface).into_iter().map(hashed).collect())
    }

    /// Whether this node is one of [`Self::pollers`].
    pub(in crate::election) fn polls<'a>(
        &'a self,
        owner: &NodeName,
        interface: &InterfaceName,
        crews: &mut Crews<'a>,
    ) -> bool {
        let crew = self.crew(interface, crews);
        let own = &self.config.node;
        let hash = name_hash(owner.as_str());
        let rank = |(speaker, node): &(u64, &'a NodeName)| {
            (std::cmp::Reverse(combined(hash, *speaker)), *node)
        };
        let here = rank(&(name_hash(own.as_str()), own));
        // Most find three that come before them among the first few.
        let before = crew.iter().filter(|it| it.1 != owner && rank(it) < here);
        own != owner && before.take(POLLERS).count() < POLLERS && crew.iter().any(|it| it.1 == own)
    }

    /// Whether this node polls `node` on the segment of its `interface`, be it only to know whether it is down.
    pub(in crate::election) fn watches<'a>(
        &'a self,
        node: &NodeName,
        interface: &InterfaceName,
        crews: &mut Crews<'a>,
    ) -> bool {
        let own = &self.config.node;
        let crew = self.crew(interface, crews);
        let few = crew.len() <= ALL_POLL && crew.iter().any(|it| it.1 == own);
        own != node && few || self.polls(node, interface, crews)
    }

    /// The speakers on the segment of this node's `interface` that could poll, as far as it hears.
    pub(in crate::election) fn speakers_on(&self, interface: &InterfaceName) -> Vec<&NodeName> {
        let Some(here) = self.interfaces.get(interface) else { return Vec::new() };
        let on_segment = |stored: &Stored<Session>| {
            stored.record.interfaces.iter().any(|theirs| {
                share_a_subnet(&here.addresses, &theirs.addresses)
                    || self.may_meet(interface, here, theirs)
            })
        };
        self.live_sessions()
            .filter(|(node, stored)| {
                **node == self.config.node
                    || !stored.record.restarting && !self.is_silent(node) && on_segment(stored)
            })
            .map(|(node, _)| node)
            .collect()
    }

    /// Whether a node with a live session no longer answers this one on some segment.
    pub(in crate::election) fn is_silent(&self, node: &NodeName) -> bool {
        self.silent.contains(node)
    }

    /// The session that is live under the identity in `id`, if it is.
    pub(in crate::election) fn session_of(&self, id: &VoiceId) -> Option<&Arc<Stored<Session>>> {
        let stored = self.sessions.get(id.node.as_str())?;
        let live = stored.record.holder.as_ref() == Some(&id.node) && is_under(stored, &id.session);
        live.then_some(stored)
    }
}
