//! A trial of the network: whether it lets through what this node sends for others. An owner sends packets with the addresses of clients, a
//! node with endpoints those with the address of a Service. Hypervisors and switches may drop both.
//!
//! Every five seconds each speaker sends to three others on a segment: a packet from its own address, one from an address
//! that nobody has and, where it has endpoints, one from an address of Services. The rules of the spreading note which of
//! them come in, and drop them. Each speaker reads that, and tells those that it hears which of their packets come through.
//!
//! The packets are ICMP echo replies that nobody has asked for, to an address of Services: a host without these rules
//! ignores them.

mod judge;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::election::{Spreading, Trial};
use pnet_base::MacAddr;
use tokio::sync::watch;

use crate::clock;
use crate::clock::sleep_until;
use crate::datapath::spread::passage::judge::{Judge, Kind, Other, Round};
use crate::datapath::spread::ruleset::{HEARD, TABLE, TRIALS};
use crate::datapath::upkeep::{causes, publish};
use crate::net::frames::echo::EchoReply;
use crate::net::frames::socket::FrameSender;
use crate::net::nft::connection::{Message, Nfnetlink};
use crate::net::nft::elements::{self, Found};
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::Family;
use crate::net::rtnl::links::{Link, Links};

/// The time between two rounds.
const EVERY: Duration = Duration::from_secs(5);

/// The source of packets of nobody: addresses that are valid as a source, and assigned to no host (RFC 7600, section 4.8;
/// RFC 6666).
const fn nobody(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1)),
    }
}

/// The input of the thread.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) wanted: watch::Receiver<Option<Arc<Spreading>>>,
    pub(super) links: watch::Receiver<Links>,
}

/// The thread's state.
#[derive(Debug, Default)]
struct Passage {
    judge: Judge,
    requests: Option<Nfnetlink>,
    sender: Option<FrameSender>,
}

/// Tries segments out until nobody says any more what is wanted; `filtered`: whether packets are dropped.
pub(super) async fn run(mut told: Told, filtered: watch::Sender<bool>) {
    let mut passage = Passage::default();
    loop {
        let spreading = told.wanted.borrow_and_update().clone();
        let trials = spreading.map(|it| it.trials.clone()).unwrap_or_default();
        let mut rest = None;
        if trials.is_empty() {
            passage = Passage::default();
        } else {
            let links = told.links.borrow_and_update().clone();
            passage.round(&trials, &links);
            rest = Some(clock::now() + EVERY);
        }
        let is_filtered = passage.judge.is_filtered();
        publish(&filtered, |view| *view = is_filtered);
        let slept = async {
            match rest {
                Some(rest) => sleep_until(rest).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(slept);
        loop {
            tokio::select! {
                () = &mut slept => break,
                changed = told.wanted.changed() => match changed {
                    Ok(()) if rest.is_none() => break,
                    Ok(()) => {}
                    Err(_) => return,
                },
            }
        }
    }
}

impl Passage {
    fn round(&mut self, trials: &[Trial], links: &Links) {
        match self.read(trials) {
            Ok(heard) => self.judge.take(clock::now(), &heard),
            Err(error) => {
                tracing::debug!(
                    cause = causes(&error),
                    "the packets of other speakers are not known"
                );
                self.requests = None;
            }
        }
        if let Err(error) = self.send(trials, links) {
            tracing::debug!(%error, "packets to other speakers are not sent");
            self.sender = None;
        }
    }

    /// The packets that came in since the last round, or shortly before.
    fn read(&mut self, trials: &[Trial]) -> Result<BTreeMap<Other, Round>, NfnetlinkError> {
        let requests = match &mut self.requests {
            Some(requests) => requests,
            none => none.insert(Nfnetlink::open()?),
        };
        let mut heard: BTreeMap<Other, Round> = BTreeMap::new();
        for family in Family::ALL {
            if !trials.iter().any(|trial| family.has(trial.address)) {
                continue;
            }
            let question = Message::of(family.tables(), elements::question(TABLE, HEARD));
            for row in requests.dump_attributes("packets of other speakers", question)? {
                elements::for_each(&row, |found| {
                    if let Some((other, kind)) = read(family, &found) {
                        heard.entry(other).or_default().hear(kind, found.left);
                    }
                });
            }
        }
        Ok(heard)
    }

    fn send(&mut self, trials: &[Trial], links: &Links) -> std::io::Result<()> {
        let sender = match &self.sender {
            Some(sender) => sender,
            None => self.sender.insert(FrameSender::open()?),
        };
        for trial in trials {
            let Some(from) = From::of(trial, links) else { continue };
            for peer in &trial.peers {
                let hello = Kind::Hello { answers: trial.answers.is_some() };
                let forwarded = (nobody(from.family), Kind::Forwarded);
                let answer = trial.answers.map(|address| (address, Kind::Answer));
                let packets = [(from.own, hello), forwarded];
                for (source, kind) in packets.into_iter().chain(answer) {
                    from.send(sender, *peer, source, kind);
                }
            }
            let here =
                |other: &Other| (other.family, other.interface) == (from.family, from.link.index);
            for (other, report) in self.judge.reports().filter(|(other, _)| here(other)) {
                from.send(sender, other.mac, from.own, Kind::Report(report));
            }
        }
        Ok(())
    }
}

/// The sender of a segment.
struct From<'a> {
    family: Family,
    link: &'a Link,
    own: IpAddr,
    to: IpAddr,
}

impl<'a> From<'a> {
    /// None where the interface is not there, or has no address of the family.
    fn of(trial: &Trial, links: &'a Links) -> Option<Self> {
        let family = Family::of(trial.address);
        let link = links.get(&trial.interface)?;
        let mut own = link.addresses.iter().filter(|address| !address.tentative);
        let own = own.find(|address| family.has(address.ip))?.ip;
        Some(Self { family, link, own, to: trial.address })
    }

    fn send(&self, sender: &FrameSender, peer: MacAddr, source: IpAddr, kind: Kind) {
        let macs = [peer, self.link.mac];
        let (destination, identifier, sequence) = (self.to, TRIALS, kind.number());
        let reply = EchoReply { macs, destination, source, identifier, sequence };
        if let Some(frame) = reply.encode()
            && let Err(error) = sender.send(self.link.index, &frame)
        {
            // The link is down, or its queue full: the next round is soon.
            tracing::debug!(%error, interface = %self.link.name, "a packet to another speaker is not sent");
        }
    }
}

/// The sender and the kind of a packet that came in.
fn read(family: Family, found: &Found) -> Option<(Other, Kind)> {
    let (interface, rest) = found.key.split_first_chunk()?;
    let (_identifier, rest) = rest.split_first_chunk::<2>()?;
    let (number, rest) = rest.split_first_chunk()?;
    let mac = MacAddr::from(*rest.first_chunk::<6>()?);
    let kind = Kind::of(u16::from_be_bytes(*number))?;
    Some((Other { family, interface: u32::from_ne_bytes(*interface), mac }, kind))
}
