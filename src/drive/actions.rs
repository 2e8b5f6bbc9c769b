//! Actions of the core, carried out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_crds::names::InterfaceName;

use super::Driver;
use crate::net::hearing::{Attention, Peer};
use crate::net::wire::Transmit;
use leasehold_core::election::{Action, Frame};

impl Driver {
    /// Carries out one action; returns whether it was the last.
    pub(super) fn carry_out(&mut self, action: Action) -> bool {
        tracing::debug!(?action, "decided");
        match action {
            Action::Write { request, write } => self.requests.write(request, write),
            Action::Read { request, target } => self.requests.read(request, target),
            Action::List { asked } => {
                self.observer.report_list();
                self.requests.list(asked);
            }
            Action::Serve(serving) => {
                self.serving.send_replace(serving);
            }
            Action::Listen(watchlist) => {
                self.listener.watchlist.send_replace(watchlist);
            }
            Action::Forward(forwarding) => {
                self.forward.wanted.send_replace(Some(forwarding));
            }
            Action::Spread(spreading) => {
                self.spread.wanted.send_replace(Some(spreading));
            }
            Action::Down(down) => {
                self.down.send_replace(down);
            }
            Action::Look(watched) => {
                self.proxy.watched.send_replace(watched);
            }
            Action::Transmit { interface, frame } => {
                // If the channel is full, the frame is lost: the core asks again.
                let _ = self.edge.transmit.try_send(transmit(interface, &frame));
            }
            Action::Persist(record) => self.record.keep(record),
            Action::Report(fact) => self.observer.report(fact, &self.election),
            Action::Exit => return true,
        }
        false
    }

    /// Tells the kernel edge what the core attends to, if that has changed.
    pub(super) fn attend(&mut self) {
        let heeds = self.election.heeds();
        if self.heeds.replace(heeds) != Some(heeds) {
            let attention = self.attention();
            self.edge.attention.send_if_modified(|current| {
                let changed = *current != attention;
                *current = attention;
                changed
            });
        }
    }

    fn attention(&self) -> Attention {
        let peers = self.election.peers().flat_map(|interface| {
            interface.own_addresses().map(|ip| Peer { ip, mac: interface.mac })
        });
        Attention {
            interfaces: self.election.interfaces().cloned().collect(),
            peers: peers.collect(),
            vips: self.election.heeded().collect::<BTreeSet<IpAddr>>(),
        }
    }
}

fn transmit(interface: InterfaceName, frame: &Frame) -> Transmit {
    match *frame {
        Frame::Announce(vip) => Transmit::Announce { vip, interface },
        Frame::Probe(ip) => Transmit::Probe { ip, interface },
        Frame::Ask(ip, mac) => Transmit::Ask { ip, mac, interface },
        Frame::AskAround => Transmit::AskAround { interface },
    }
}
