//! The task that owns the packet sockets, and the start of the whole kernel edge.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::clock::sleep_until;
use crate::net::frames::socket::{FrameBuffer, PacketError, PacketKind, PacketSocket, Sought};
use crate::net::hearing::{Attention, Hearing};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::follow::LinksTask;
use crate::net::rtnl::kept::{self, MarkError};
use crate::net::rtnl::links::Links;
use crate::net::rtnl::mark::Mark;
use crate::net::rtnl::netlink::{self, Netlink};
use crate::net::wire::{Heard, Transmit, encode_question};
use leasehold_core::clock::Instant;
use leasehold_core::detect::question::{Question, Witnesses};

/// Frames that wait to be sent. Full: the producer waits.
const TRANSMIT_CAPACITY: usize = 1_024;
/// Frames that wait for the core. Full: further ones are dropped and counted.
const HEARD_CAPACITY: usize = 1_024;
/// Frames read in one go before anything else gets its turn.
const READ_AT_ONCE: usize = 256;

/// A failure to start the edge, or its end.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The packet socket.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// Netlink.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Addresses cannot be marked.
    #[error(transparent)]
    Mark(#[from] MarkError),
}

/// Counters since the start of the edge.
#[derive(Debug, Default)]
pub struct EdgeCounters {
    /// Frames sent.
    pub sent: AtomicU64,
    /// Frames that could not be sent: link down or gone, queue full, no source address.
    pub unsent: AtomicU64,
    /// Gratuitous ARP requests sent.
    pub arp_announced: AtomicU64,
    /// Unsolicited Neighbor Advertisements sent.
    pub ndp_announced: AtomicU64,
    /// Announcements by others of addresses that the core attends to: what is served here, and what is
    /// about to be.
    pub foreign: AtomicU64,
    /// Frames for the core that were dropped because it did not keep up.
    pub unheard: AtomicU64,
    /// Frames that the kernel dropped because the edge did not keep up.
    pub dropped: AtomicU64,
}

/// The running kernel edge. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Edge {
    /// Links, addresses and gateways, current.
    pub links: watch::Receiver<Links>,
    /// The number of events, whoever caused them, after which the addresses with our mark have to be checked: one
    /// left the kernel or lost its end, or an address of the node's own was put behind them.
    pub disturbed: watch::Receiver<u64>,
    /// The interfaces, peers and addresses that the core attends to; nothing is heard before it is set.
    pub attention: watch::Sender<Attention>,
    /// Frames of other hosts about the addresses attended to, and their answers to this node's questions.
    /// Bounded; full: dropped and counted.
    pub heard: mpsc::Receiver<Heard>,
    /// The number of times that frames were dropped which the core may have wanted.
    pub missed: watch::Receiver<u64>,
    /// The time of the last answer to a question of this node on each interface.
    pub hearing: watch::Receiver<BTreeMap<InterfaceName, Instant>>,
    /// The hosts that answered this node's last questions to them, speakers' nodes and others.
    pub witnesses: watch::Receiver<Witnesses>,
    /// Frames to send. Bounded; full: the producer waits.
    pub transmit: mpsc::Sender<Transmit>,
    /// Requests to the kernel.
    pub netlink: Netlink,
    /// Counters for metrics.
    pub counters: Arc<EdgeCounters>,
    /// The tasks. All are essential: the end of one is an error.
    pub tasks: JoinSet<EdgeError>,
}

impl Edge {
    /// Opens all sockets in the network namespace of the calling thread, reads the kernel's state
    /// once and starts the tasks. Addresses are marked by `mark`, or else by the best that the kernel keeps.
    pub async fn start(mark: Option<Mark>) -> Result<Self, EdgeError> {
        let sockets = Sockets {
            arp: PacketSocket::open(PacketKind::Arp, Sought::All)?,
            ndp: PacketSocket::open(PacketKind::Ndp, Sought::All)?,
        };
        let mut tasks = JoinSet::new();
        let (events, subscription) = netlink::subscribe()?;
        let mut drive = |driver: BoxFuture<'static, ()>| {
            tasks.spawn(driver.map(|()| NetlinkError::Closed.into()));
        };
        drive(Box::pin(subscription));
        // Its own: what adds addresses does not wait for a dump of everything.
        let (reader, reading) = Netlink::open(Mark::Protocol)?;
        drive(Box::pin(reading));
        let mark = kept::find(&reader, mark).await?;
        let (netlink, connection) = Netlink::open(mark)?;
        drive(Box::pin(connection));
        tracing::info!(kernel = kept::release(), %mark, "addresses can be marked");
        let links_task = LinksTask::new(reader, events).await?;
        let (links, disturbed) = (links_task.links(), links_task.disturbed());
        tasks.spawn(async { links_task.run().await.into() });

        let (attention, attention_receiver) = watch::channel(Attention::default());
        let (transmit, transmit_receiver) = mpsc::channel(TRANSMIT_CAPACITY);
        let (heard_sender, heard) = mpsc::channel(HEARD_CAPACITY);
        let (missed_sender, missed) = watch::channel(0);
        let (hearing_sender, hearing) = watch::channel(BTreeMap::new());
        let (witnesses_sender, witnesses) = watch::channel(Witnesses::new());
        let counters = Arc::new(EdgeCounters::default());
        let task = EdgeTask {
            sockets,
            links: links.clone(),
            attention: attention_receiver,
            transmit: transmit_receiver,
            heard: heard_sender,
            missed: missed_sender,
            hearing_at: hearing_sender,
            witnesses: witnesses_sender,
            counters: Arc::clone(&counters),
            hearing: Hearing::default(),
            attended: BTreeMap::new(),
            own: BTreeSet::new(),
        };
        tasks.spawn(async { task.run().await.into() });
        Ok(Self {
            links,
            disturbed,
            attention,
            heard,
            missed,
            hearing,
            witnesses,
            transmit,
            netlink,
            counters,
            tasks,
        })
    }
}

#[derive(Debug)]
struct Sockets {
    arp: PacketSocket,
    ndp: PacketSocket,
}

impl Sockets {
    fn of(&self, kind: PacketKind) -> &PacketSocket {
        match kind {
            PacketKind::Arp => &self.arp,
            PacketKind::Ndp => &self.ndp,
        }
    }

    fn attend(&self, indices: &[u32]) -> Result<(), PacketError> {
        self.arp.attend(indices)?;
        self.ndp.attend(indices)
    }
}

#[derive(Debug)]
struct EdgeTask {
    sockets: Sockets,
    links: watch::Receiver<Links>,
    attention: watch::Receiver<Attention>,
    transmit: mpsc::Receiver<Transmit>,
    heard: mpsc::Sender<Heard>,
    missed: watch::Sender<u64>,
    hearing_at: watch::Sender<BTreeMap<InterfaceName, Instant>>,
    witnesses: watch::Sender<Witnesses>,
    counters: Arc<EdgeCounters>,
    hearing: Hearing,
    /// The interfaces attended to, by index.
    attended: BTreeMap<u32, InterfaceName>,
    /// The MACs of this host: two of its interfaces may be on one segment.
    own: BTreeSet<MacAddr>,
}

impl EdgeTask {
    async fn run(mut self) -> PacketError {
        let mut buffer = FrameBuffer::default();
        if let Err(error) = self.update() {
            return error;
        }
        loop {
            let done = tokio::select! {
                ready = self.sockets.arp.readable() => {
                    ready.and_then(|()| self.receive(PacketKind::Arp, &mut buffer))
                }
                ready = self.sockets.ndp.readable() => {
                    ready.and_then(|()| self.receive(PacketKind::Ndp, &mut buffer))
                }
                Some(transmit) = self.transmit.recv() => {
                    self.transmit(&transmit);
                    Ok(())
                }
                Ok(()) = self.links.changed() => self.update(),
                Ok(()) = self.attention.changed() => self.update(),
                () = sleep_until(self.hearing.next_round()) => {
                    self.ask_around();
                    Ok(())
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    fn update(&mut self) -> Result<(), PacketError> {
        let attention = self.attention.borrow_and_update().clone();
        let links = self.links.borrow_and_update();
        self.own = links.0.values().map(|link| link.mac).filter(|mac| !mac.is_zero()).collect();
        let attended: BTreeMap<_, _> = attention
            .interfaces
            .iter()
            .filter_map(|name| links.get(name).map(|link| (link.index, name.clone())))
            .collect();
        if attended != self.attended {
            self.sockets.attend(&attended.keys().copied().collect::<Vec<_>>())?;
            self.attended = attended;
        }
        self.hearing.update(clock::now(), &links, &attention);
        drop(links);
        self.publish_hearing();
        self.publish_witnesses();
        Ok(())
    }

    fn receive(&mut self, kind: PacketKind, buffer: &mut FrameBuffer) -> Result<(), PacketError> {
        let (mut answered, mut unheard) = (false, 0);
        for _ in 0..READ_AT_ONCE {
            let Some(received) = self.sockets.of(kind).receive(buffer)? else { break };
            let Some(interface) = self.attended.get(&received.index) else { continue };
            let decoded = Heard::decode(clock::now(), interface, kind, received.frame);
            let Some(mut heard) = decoded else { continue };
            if self.own.contains(&heard.sender_mac) {
                continue;
            }
            heard.answer = self.hearing.hear(&heard, &self.links.borrow());
            answered |= heard.answer;
            let wanted = self.attention.borrow().vips.contains(&heard.sender_ip);
            if wanted && heard.announcement {
                self.counters.foreign.fetch_add(1, Ordering::Relaxed);
            }
            if (wanted || heard.answer) && self.heard.try_send(heard).is_err() {
                unheard += 1;
            }
        }
        if answered {
            self.publish_hearing();
        }
        let dropped = self.sockets.of(kind).arrived()?.dropped;
        self.counters.unheard.fetch_add(unheard, Ordering::Relaxed);
        self.counters.dropped.fetch_add(dropped.into(), Ordering::Relaxed);
        if unheard > 0 || dropped > 0 {
            self.missed.send_modify(|times| *times += 1);
        }
        Ok(())
    }

    fn publish_hearing(&self) {
        let heard_at = self.hearing.heard_at();
        self.hearing_at.send_if_modified(|known| {
            let modified = *known != heard_at;
            *known = heard_at;
            modified
        });
    }

    fn publish_witnesses(&self) {
        let witnesses = self.hearing.witnesses();
        self.witnesses.send_if_modified(|known| {
            let modified = *known != witnesses;
            *known = witnesses;
            modified
        });
    }

    fn transmit(&mut self, transmit: &Transmit) {
        if let Transmit::AskAround { interface } = transmit {
            let questions = self.hearing.ask_all(clock::now(), interface, &self.links.borrow());
            self.send_all(questions);
            return;
        }
        if let Some(ip) = transmit.asks_for() {
            self.hearing.asked(clock::now(), transmit.interface(), ip);
        }
        let frame = self
            .links
            .borrow()
            .get(transmit.interface())
            .and_then(|link| transmit.encode(link).map(|frame| (link.index, frame)));
        let sent = self.send(transmit.interface(), frame);
        if let (Transmit::Announce { vip, .. }, true) = (transmit, sent) {
            let counter = match vip {
                IpAddr::V4(_) => &self.counters.arp_announced,
                IpAddr::V6(_) => &self.counters.ndp_announced,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ask_around(&mut self) {
        let questions = self.hearing.ask(clock::now(), &self.links.borrow());
        self.publish_witnesses();
        self.send_all(questions);
    }

    fn send_all(&self, questions: Vec<Question>) {
        for question in questions {
            let frame =
                self.links.borrow().get(&question.interface).and_then(|link| {
                    encode_question(&question, link).map(|frame| (link.index, frame))
                });
            self.send(&question.interface, frame);
        }
    }

    /// Sends a frame; whether it was sent.
    fn send(&self, interface: &InterfaceName, frame: Option<(u32, (PacketKind, Vec<u8>))>) -> bool {
        let sent = frame.map(|(index, (kind, frame))| self.sockets.of(kind).send(index, &frame));
        match sent {
            Some(Ok(())) => {
                self.counters.sent.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Some(Err(error)) => {
                self.counters.unsent.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%interface, error = %error_chain(&error), "a frame was not sent");
            }
            None => {
                self.counters.unsent.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%interface, "a frame was not sent: no source address there");
            }
        }
        false
    }
}

pub(crate) fn error_chain(error: &PacketError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
