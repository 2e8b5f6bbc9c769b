//! To which owners this node listens, and which of them it polls.
//!
//! The pollers of an owner on a segment are the first three speakers there by rendezvous hash of
//! (owner, speaker), without those whom this node no longer hears. So the polls of a cluster grow with
//! its nodes and not with its services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::lease::{Claim, LeaseName, Session, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use super::claims::Owner;
use super::election::{Election, id_of};
use super::event::{Action, Fact};
use super::rank::weight;
use super::voices::{Ownership, Voice, VoiceId, Voices, Watched, Watchlist};
use crate::clock::Instant;

/// How many speakers poll an owner.
const POLLERS: usize = 3;

/// Where an owner is met: an interface of this node, and what the owner has on that segment.
#[derive(Clone, Debug)]
struct Place {
    interface: InterfaceName,
    mac: MacAddr,
    own: BTreeSet<IpAddr>,
}

impl Election {
    /// What this node has to listen to now, if that has changed.
    pub(super) fn listen(&mut self, actions: &mut Vec<Action>) {
        if !std::mem::take(&mut self.listening.stale) {
            return;
        }
        let watchlist = if self.is_informed() && self.own.id.is_some() && !self.own.is_ending() {
            self.watchlist()
        } else {
            Watchlist::default()
        };
        if watchlist != self.listening.watchlist {
            self.listening.watchlist = watchlist.clone();
            actions.push(Action::Listen(watchlist));
        }
    }

    fn watchlist(&self) -> Watchlist {
        let mut places: BTreeMap<(&NodeName, &InterfaceName), Option<Place>> = BTreeMap::new();
        let mut owners: BTreeMap<VoiceId, Watched> = BTreeMap::new();
        for stored in self.claims.stored() {
            let Owner::Other(_) = self.owner(stored) else { continue };
            let (Some(node), Some(theirs), Some(session)) =
                (&stored.record.holder, &stored.record.interface, &stored.record.session)
            else {
                continue;
            };
            let Some(claim) = self.desired_claim(&stored.name) else { continue };
            if !claim.detection.wire {
                continue;
            }
            let place =
                places.entry((node, theirs)).or_insert_with(|| self.place(node, theirs)).clone();
            let Some(place) = place else { continue };
            let id = VoiceId {
                interface: place.interface,
                node: node.clone(),
                session: session.clone(),
                mac: place.mac,
            };
            let watched = owners.entry(id).or_insert_with(|| Watched {
                polled: false,
                detection: claim.detection,
                vips: BTreeMap::new(),
                own: place.own,
            });
            if claim.detection.rank_step() < watched.detection.rank_step() {
                watched.detection = claim.detection;
            }
            let transitions = stored.record.transitions;
            for ip in stored.record.addresses.intersection(&claim.addresses) {
                let ownership = Ownership { claim: stored.name.clone(), transitions };
                watched.vips.insert(*ip, ownership);
            }
        }
        owners.retain(|_, watched| !watched.vips.is_empty());
        for (id, watched) in &mut owners {
            watched.polled = self.pollers(&id.node, &id.interface).contains(&&self.config.node);
        }
        let interfaces = self.sessions.stored().flat_map(|stored| &stored.record.interfaces);
        let own = self.interfaces.values().map(|interface| interface.mac);
        Watchlist { owners, speakers: interfaces.map(|theirs| theirs.mac).chain(own).collect() }
    }

    /// Where this node meets the interface `theirs` of `node`.
    fn place(&self, node: &NodeName, theirs: &InterfaceName) -> Option<Place> {
        let stored = self.sessions.get(&LeaseName::session(node))?;
        let theirs = stored.record.interfaces.iter().find(|listed| listed.name == *theirs)?;
        let nets = networks(theirs);
        let interface = self.meets(&nets)?.clone();
        let own = nets.iter().map(IpNet::addr).collect();
        Some(Place { interface, mac: theirs.mac, own })
    }

    /// The interface of this node on the segment of these addresses.
    fn meets(&self, theirs: &[IpNet]) -> Option<&InterfaceName> {
        let on_segment = |ours: &IpNet| {
            ours.prefix_len() < ours.max_prefix_len()
                && theirs.iter().any(|theirs| theirs.trunc() == ours.trunc())
        };
        let carried = self.interfaces.iter().filter(|(_, interface)| interface.carrier);
        carried
            .filter(|(_, interface)| interface.addresses.iter().any(on_segment))
            .map(|(name, _)| name)
            .next()
    }

    /// The voice of the owner of `stored` on the segment where it has the addresses; `None` where
    /// this node is not on that segment.
    pub(super) fn voice_of(&self, stored: &Stored<Claim>) -> Option<VoiceId> {
        let node = stored.record.holder.as_ref()?;
        let place = self.place(node, stored.record.interface.as_ref()?)?;
        let session = stored.record.session.clone()?;
        Some(VoiceId { interface: place.interface, node: node.clone(), session, mac: place.mac })
    }

    /// The speakers that poll `owner` on the segment of this node's `interface`.
    pub(super) fn pollers(&self, owner: &NodeName, interface: &InterfaceName) -> Vec<&NodeName> {
        let Some(here) = self.interfaces.get(interface) else { return Vec::new() };
        let on_segment = |stored: &Stored<Session>| {
            stored.record.interfaces.iter().any(|theirs| {
                networks(theirs).iter().any(|net| {
                    here.addresses.iter().any(|ours| {
                        ours.prefix_len() < ours.max_prefix_len() && ours.trunc() == net.trunc()
                    })
                })
            })
        };
        let mut speakers: Vec<&NodeName> = self
            .live_sessions()
            .filter(|(node, stored)| {
                let able = **node == self.config.node
                    || !stored.record.restarting && !self.is_silent(node) && on_segment(stored);
                *node != owner && able
            })
            .map(|(node, _)| node)
            .collect();
        speakers.sort_by_cached_key(|node| {
            (std::cmp::Reverse(weight(owner.as_str(), node.as_str())), *node)
        });
        speakers.truncate(POLLERS);
        speakers
    }

    /// Whether a node with a live session no longer answers this one on some segment.
    pub(super) fn is_silent(&self, node: &NodeName) -> bool {
        self.voices.owners.iter().any(|(id, voice)| {
            id.node == *node && matches!(voice, Voice::Silent(silence) if !silence.node_answers)
        })
    }

    /// Takes over what the wire says now.
    pub(super) fn hear_voices(&mut self, now: Instant, voices: Voices, actions: &mut Vec<Action>) {
        for (id, voice) in &voices.owners {
            let Voice::Silent(silence) = voice else { continue };
            let known = self.voices.owners.get(id);
            if !matches!(known, Some(Voice::Silent(before)) if before.address == silence.address) {
                let (node, interface) = (id.node.clone(), id.interface.clone());
                let address = silence.address;
                Self::report(Fact::Silent { node, interface, address }, actions);
            }
        }
        for interface in voices.blind.symmetric_difference(&self.voices.blind) {
            let blind = voices.blind.contains(interface);
            Self::report(Fact::WireBlind { interface: interface.clone(), blind }, actions);
        }
        self.voices = voices;
        self.silences.follow(now, &self.voices);
        self.listening.stale = true;
    }

    /// The session that is live under the identity in `id`, if it is.
    pub(super) fn session_of(&self, id: &VoiceId) -> Option<&Stored<Session>> {
        let stored = self.sessions.get(&LeaseName::session(&id.node))?;
        let live = stored.record.holder.as_ref() == Some(&id.node) && id_of(stored) == id.session;
        live.then_some(stored)
    }
}

/// Whom this node listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    watchlist: Watchlist,
    /// Something that it is made from may have changed.
    pub(super) stale: bool,
}

fn networks(interface: &SessionInterface) -> Vec<IpNet> {
    interface.addresses.iter().filter_map(|text| text.parse().ok()).collect()
}
