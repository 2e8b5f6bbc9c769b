//! The thread that polls the owners.
//!
//! It is a thread of its own so that nothing else of this process comes between a wake-up and its
//! judgement, with a real-time priority where that is granted. At each wake-up it first takes the
//! clock, then reads everything that has arrived by then, then judges and asks: an answer that waited
//! while this thread did not run is never taken for a missing one, nor one that the kernel had no room
//! for. What arrives while it reads waits for the next wake-up, so that a flood stops no judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::detect::timer::Timer;
use crate::net::edge::error_chain;
use crate::net::frames::socket::{FrameBuffer, PacketError, PacketKind, PacketSocket, Sought};
use crate::net::rtnl::links::Links;
use crate::net::wire::{Heard, HeardKind, encode_question};
use leasehold_core::clock::Instant;
use leasehold_core::detect::counters::WireCounters;
use leasehold_core::detect::detector::Detector;
use leasehold_core::detect::question::{Question, Witnesses};
use leasehold_core::election::{Voice, Voices, Watchlist};

/// Above ordinary processes and below the kernel's own threads.
const PRIORITY: u8 = 10;
const STACK: usize = 512 * 1024;
/// The delay of a frame on its way out of this node from which on the wait for its answer begins later.
const DELAY: Duration = Duration::from_millis(1);

/// A failure to start the listener, or its end.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The packet sockets.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No thread, or no timer.
    #[error("cannot start the listener")]
    Start(#[source] io::Error),
    /// The timer.
    #[error("the timer of the listener does not work")]
    Timer(#[source] io::Error),
    /// It panicked.
    #[error("the listener has ended")]
    Ended,
}

/// The running listener. Dropping it ends its thread.
#[derive(Debug)]
pub struct Listener {
    /// The owners to listen to. Written by the core.
    pub watchlist: watch::Sender<Watchlist>,
    /// The voices: the result of the detection.
    pub voices: watch::Receiver<Voices>,
    /// Counters for metrics.
    pub counters: Arc<WireCounters>,
    /// Waits for the end of the thread, which is an error.
    pub tasks: JoinSet<ListenerError>,
}

impl Listener {
    /// Starts the thread, in the network namespace of the calling one.
    pub async fn start(
        witnesses: watch::Receiver<Witnesses>,
        links: watch::Receiver<Links>,
    ) -> Result<Self, ListenerError> {
        let (watchlist, watched) = watch::channel(Watchlist::default());
        let (heard, voices) = watch::channel(Voices::default());
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let counters = Arc::new(WireCounters::default());
        let counted = Arc::clone(&counters);
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .map_err(ListenerError::Start);
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async {
                match Thread::new(watched, witnesses, links, heard, counted) {
                    Ok(thread) => {
                        let _ = started.send(Ok(()));
                        ask_for_priority();
                        if let Err(error) = thread.run().await {
                            let _ = end.send(error);
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        };
        std::thread::Builder::new()
            .name("listener".to_owned())
            .stack_size(STACK)
            .spawn(work)
            .map_err(ListenerError::Start)?;
        start.await.unwrap_or(Err(ListenerError::Ended))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async { ended.await.unwrap_or(ListenerError::Ended) });
        Ok(Self { watchlist, voices, counters, tasks })
    }
}

/// A real-time priority makes wake-ups punctual on a busy node. Without it more polls are void.
fn ask_for_priority() {
    let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) else { return };
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let asked = set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        policy,
    );
    match asked {
        Ok(()) => tracing::debug!("the listener has a real-time priority"),
        Err(error) => {
            tracing::info!(
                ?error,
                "no real-time priority for the listener: on a busy node it takes longer to find \
                 that an owner is silent"
            );
        }
    }
}

#[derive(Debug)]
struct Thread {
    arp: PacketSocket,
    ndp: PacketSocket,
    timer: Timer,
    watchlist: watch::Receiver<Watchlist>,
    witnesses: watch::Receiver<Witnesses>,
    links: watch::Receiver<Links>,
    voices: watch::Sender<Voices>,
    detector: Detector,
    /// The interfaces on which owners are listened to, by index.
    interfaces: BTreeMap<u32, InterfaceName>,
    /// The MACs of this host: two of its interfaces may be on one segment.
    own: BTreeSet<MacAddr>,
}

impl Thread {
    fn new(
        watchlist: watch::Receiver<Watchlist>,
        witnesses: watch::Receiver<Witnesses>,
        links: watch::Receiver<Links>,
        voices: watch::Sender<Voices>,
        counters: Arc<WireCounters>,
    ) -> Result<Self, ListenerError> {
        Ok(Self {
            arp: PacketSocket::open(PacketKind::Arp, Sought::Answers)?,
            ndp: PacketSocket::open(PacketKind::Ndp, Sought::Answers)?,
            timer: Timer::new().map_err(ListenerError::Start)?,
            watchlist,
            witnesses,
            links,
            voices,
            detector: Detector::counting(counters),
            interfaces: BTreeMap::new(),
            own: BTreeSet::new(),
        })
    }

    /// Runs until the handle is dropped.
    async fn run(mut self) -> Result<(), ListenerError> {
        let mut buffer = FrameBuffer::default();
        let mut questions = Vec::new();
        loop {
            let now = clock::now();
            self.drain(now, &mut buffer)?;
            self.detector.advance(now, &mut questions);
            self.ask(now, &mut questions);
            self.publish();
            self.timer.set(self.detector.next()).map_err(ListenerError::Timer)?;
            tokio::select! {
                biased;
                changed = self.watchlist.changed() => match changed {
                    Ok(()) => self.update()?,
                    Err(_) => return Ok(()),
                },
                Ok(()) = self.links.changed() => self.update()?,
                Ok(()) = self.witnesses.changed() => self.update()?,
                arrived = self.arp.arrival() => arrived?,
                arrived = self.ndp.arrival() => arrived?,
                expired = self.timer.expired() => expired.map_err(ListenerError::Timer)?,
            }
        }
    }

    fn update(&mut self) -> Result<(), PacketError> {
        let watchlist = self.watchlist.borrow_and_update();
        let witnesses = self.witnesses.borrow_and_update();
        let links = self.links.borrow_and_update();
        self.own = links.0.values().map(|link| link.mac).filter(|mac| !mac.is_zero()).collect();
        let names: BTreeSet<&InterfaceName> =
            watchlist.owners.keys().map(|id| &id.interface).collect();
        let interfaces: BTreeMap<_, _> = names
            .into_iter()
            .filter_map(|name| links.get(name).map(|link| (link.index, name.clone())))
            .collect();
        if interfaces != self.interfaces {
            let indices: Vec<u32> = interfaces.keys().copied().collect();
            self.arp.attend(&indices)?;
            self.ndp.attend(&indices)?;
            self.interfaces = interfaces;
        }
        self.detector.update(clock::now(), &watchlist, &witnesses);
        Ok(())
    }

    /// Tells the detector all that has arrived by `now`, and whether something was dropped.
    fn drain(&mut self, now: Instant, buffer: &mut FrameBuffer) -> Result<(), PacketError> {
        let mut dropped = 0;
        for (socket, kind) in [(&self.arp, PacketKind::Arp), (&self.ndp, PacketKind::Ndp)] {
            let arrived = socket.arrived()?;
            dropped += u64::from(arrived.dropped);
            for _ in 0..arrived.queued {
                let Some(received) = socket.receive_now(buffer)? else { break };
                let Some(interface) = self.interfaces.get(&received.index) else { continue };
                let heard = Heard::decode(now, interface, kind, received.frame);
                let Some(heard) = heard.filter(is_answer) else { continue };
                if !self.own.contains(&heard.sender_mac) {
                    let named = !heard.target_ip.is_unspecified();
                    let (ip, mac) = (heard.sender_ip, heard.sender_mac);
                    self.detector.hear(heard.at, interface, ip, mac, named);
                }
            }
        }
        if dropped > 0 {
            self.detector.dropped(dropped);
        }
        Ok(())
    }

    /// Sends the questions that were asked at `now`.
    fn ask(&mut self, now: Instant, questions: &mut Vec<Question>) {
        if questions.is_empty() {
            return;
        }
        let links = self.links.borrow();
        for question in questions.drain(..) {
            // Of a link that has just come, no answer would be received.
            let link = links.get(&question.interface);
            let link = link.filter(|link| self.interfaces.contains_key(&link.index));
            let sent = link.and_then(|link| {
                let (kind, frame) = encode_question(&question, link)?;
                let socket = match kind {
                    PacketKind::Arp => &self.arp,
                    PacketKind::Ndp => &self.ndp,
                };
                socket.send(link.index, &frame).map_err(|error| log_unsent(&question, &error)).ok()
            });
            if sent.is_none() {
                self.detector.unsent(&question);
            }
        }
        drop(links);
        let sent = clock::now();
        if sent.saturating_since(now) > DELAY {
            self.detector.delayed(now, sent);
        }
    }

    fn publish(&self) {
        let voices = self.detector.voices();
        self.voices.send_if_modified(|known| {
            let modified = known != voices;
            if modified {
                log(known, voices);
                known.clone_from(voices);
            }
            modified
        });
    }
}

/// Whether a packet answers a question: an unsolicited one proves that its sender can be heard, not that it
/// hears.
fn is_answer(heard: &Heard) -> bool {
    let speaks_up = matches!(heard.kind, HeardKind::ArpReply | HeardKind::NeighborAdvertisement);
    speaks_up && !heard.announcement
}

fn log_unsent(question: &Question, error: &PacketError) {
    let interface = &question.interface;
    tracing::debug!(%interface, error = %error_chain(error), "a question was not sent");
}

fn log(before: &Voices, after: &Voices) {
    for (id, voice) in after.owners.iter() {
        let node = &id.node;
        let interface = &id.interface;
        match (before.owners.get(id), voice) {
            (Some(old), new) if old == new => {}
            (_, Voice::Silent(silence)) => {
                let (address, node_answers) = (silence.address, silence.node_answers);
                tracing::debug!(%node, %interface, %address, node_answers, "an owner is silent");
            }
            (Some(Voice::Silent(_)), _) => {
                tracing::info!(%node, %interface, "an owner is no longer taken for silent");
            }
            (_, Voice::Heard) => tracing::debug!(%node, %interface, "an owner is heard"),
            (_, Voice::Unheard) => {}
        }
    }
}
