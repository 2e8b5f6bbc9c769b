//! The task that owns the election core: it feeds it events and carries out its actions.
//!
//! | channel | producer | consumer | when full |
//! |---|---|---|---|
//! | `events` | watches | this task | the watches wait |
//! | `edge.heard` | packet task | this task | frames are dropped and counted |
//! | `edge.missed` (state) | packet task | this task | latest wins |
//! | `edge.transmit` | this task, announcer | packet task | the frame is dropped: the next one comes |
//! | `serving` (state) | this task | applier, announcer | latest wins |
//! | `edge.attention` (state) | this task | packet task | latest wins |
//! | `guard.desired` (state) | this task | guard | latest wins |
//! | `guard.guarded` (state) | guard | this task, applier | latest wins |
//! | gate (state) | applier | guard | latest wins |
//! | `listener.watchlist` (state) | this task | listener | latest wins |
//! | `listener.voices` (state) | listener | this task | latest wins |
//! | `proxy.watched` (state) | this task | proxy | latest wins |
//! | `proxy.view` (state) | proxy | this task | latest wins |
//! | `questions` | the page | this task, when nothing else waits | the page says so |
//! | `record` (state) | this task | recorder | latest wins |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use leasehold_crds::names::InterfaceName;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};

use crate::announce::Announcement;
use crate::announce::layer2::confine::restore;
use crate::api::installed::{Installed, OwnDaemonSet};
use crate::api::leases::Leases;
use crate::clock::{Instant, sleep_until};
use crate::datapath::guard::Guard;
use crate::detect::listener::{Listener, ListenerError};
use crate::host::{Recorder, StateFolder};
use crate::lease::{
    Action, Answer, Election, Event, Fact, Follower, Frame, Heard, HeardFrame, Interface,
    RequestId, Serving,
};
use crate::net::edge::Edge;
use crate::net::hearing::{Attention, Peer};
use crate::net::rtnl::links::Links;
use crate::net::wire::{self, Transmit};
use crate::proxy::Proxy;
use crate::report::ask::Questions;
use crate::report::facts::Reports;
use crate::report::gauges::Delivered;
use crate::report::health::Health;
use crate::report::heartbeat::{BEAT, Heartbeats};
use crate::report::log::Log;
use crate::report::metrics::{Metrics, Observed, RequestKind};
use crate::report::status::{Moves, Sources, Status};

/// Why the speaker ended without having been asked to.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The kernel edge ended.
    #[error("the connection to the kernel has ended")]
    Edge(#[from] crate::net::edge::EdgeError),
    /// The listener ended.
    #[error("nobody listens to the owners any more")]
    Listener(#[from] ListenerError),
    /// A task that the speaker cannot do without has ended.
    #[error("the task `{0}` has ended")]
    Task(&'static str),
}

/// How many events the core is given at once, at most, …
const TOGETHER: usize = 256;
/// … and how many frames among them: there may always be more, and watches and answers wait meanwhile.
const FRAMES: usize = 64;

/// How often the gauges are computed, at most: some count all claims. Where that takes long, …
const GAUGES: Duration = Duration::from_millis(100);
/// … it is done for a small part of the time only.
const GAUGES_REST: u32 = 50;

/// Everything that the core is connected to.
#[derive(Debug)]
pub struct Driver {
    /// The core.
    pub election: Election,
    /// Reads and writes leases.
    pub leases: Leases,
    /// The kernel edge.
    pub edge: Edge,
    /// Listens to the owners.
    pub listener: Listener,
    /// What the kernel is told to hold.
    pub serving: watch::Sender<Serving>,
    /// What it holds.
    pub announcement: Announcement,
    /// What of the node can be reached by it.
    pub guard: Guard,
    /// What is known of the node's service proxy.
    pub proxy: Proxy,
    /// What the watches bring.
    pub events: mpsc::Receiver<Event>,
    /// The watches.
    pub watches: JoinSet<()>,
    /// SIGTERM and SIGINT.
    pub signals: [Signal; 2],
    /// For the next process.
    pub record: Recorder,
    /// For `/readyz`.
    pub health: watch::Sender<Health>,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For logs and events.
    pub reports: Reports,
    /// For the page.
    pub moves: Moves,
    /// Questions of the page.
    pub questions: Questions<Status>,
    /// When watches delivered, for the page.
    pub delivered: Arc<Delivered>,
    /// For `/livez`.
    pub heartbeats: Arc<Heartbeats>,
    /// What is logged.
    pub log: Log,
    /// Requests that have not been answered.
    pub requests: JoinSet<Completed>,
    /// The `DaemonSet` that runs this process, if one does.
    pub daemon_set: Option<OwnDaemonSet>,
    /// It was asked what becomes of that.
    pub looked: bool,
    /// Where it is kept how the host was.
    pub state: StateFolder,
    /// Whether the host is set back to that at the end.
    pub restores: bool,
    /// What was published last.
    pub published: Published,
}

/// What was published of the core's state, and when.
#[derive(Debug, Default)]
pub struct Published {
    /// What the edge attends to was made from this.
    heeds: Option<(u64, u64)>,
    /// When the gauges are computed next, at the earliest.
    gauges: Option<Instant>,
    /// They may have changed since.
    stale: bool,
}

impl Published {
    /// When stale gauges are computed.
    fn due(&self) -> Option<Instant> {
        self.gauges.filter(|_| self.stale)
    }
}

/// What a request led to.
#[derive(Debug)]
pub enum Completed {
    /// The answer to a request of the core, which was sent then.
    Answer(RequestId, Answer, RequestKind, Instant),
    /// A list; nothing where it failed.
    List(Option<Event>),
    /// What becomes of Leasehold.
    Look(Installed),
}

impl Driver {
    /// Runs until the core says that all is done, or an essential task ends.
    ///
    /// Shutdown: SIGTERM is an event; the core has the session lengthened or released and the
    /// kernel told, and then asks to exit. However it ends, the last record is written, and the
    /// announcement's end lets the guard finish. Dropping the driver aborts all other tasks; what the
    /// kernel holds by then stays for its lifetime.
    pub async fn run(mut self) -> Result<(), DriveError> {
        let ended = self.drive().await;
        self.record.finish().await;
        if self.restores {
            let links = self.edge.links.borrow().clone();
            restore(&self.edge.netlink, &self.state, &links).await;
        }
        self.announcement.tasks.shutdown().await;
        self.guard.finish().await;
        ended
    }

    async fn drive(&mut self) -> Result<(), DriveError> {
        self.edge.links.mark_changed();
        self.announcement.kernel.mark_changed();
        let mut known = None;
        loop {
            let now = Instant::now();
            self.heartbeats.core.beat(now);
            self.questions.forget_stale(now);
            let deadlines = [self.election.next_deadline(), self.published.due()];
            let deadline = deadlines.into_iter().flatten().min();
            let wake = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let [terminate, interrupt] = &mut self.signals;
            let mut events = tokio::select! {
                biased;
                // What takes an address away comes first.
                Ok(()) = self.edge.links.changed() => {
                    let now = interfaces(&self.edge.links.borrow_and_update());
                    // Our own addresses come and go on them: the core hears of these from the kernel's view.
                    if known.as_ref() == Some(&now) {
                        continue;
                    }
                    known = Some(now.clone());
                    vec![Event::Interfaces(now)]
                }
                Ok(()) = self.announcement.kernel.changed() => {
                    vec![Event::Kernel(self.announcement.kernel.borrow_and_update().clone())]
                }
                Ok(()) = self.guard.guarded.changed() => {
                    self.report_guard();
                    Vec::new()
                }
                Ok(()) = self.listener.voices.changed() => {
                    vec![Event::Voices(self.listener.voices.borrow_and_update().clone())]
                }
                Ok(()) = self.edge.hearing.changed() => {
                    vec![Event::Hearing(self.edge.hearing.borrow_and_update().clone())]
                }
                Ok(()) = self.edge.missed.changed() => vec![Event::Missed],
                Ok(()) = self.proxy.view.changed() => {
                    let view = self.proxy.view.borrow_and_update().clone();
                    self.metrics.observe_proxy(view.health);
                    vec![Event::Proxy(view)]
                }
                _ = terminate.recv() => self.asked_to_end(),
                _ = interrupt.recv() => self.asked_to_end(),
                Some(ended) = self.edge.tasks.join_next() => return Err(match ended {
                    Ok(error) => error.into(),
                    Err(_) => DriveError::Task("kernel edge"),
                }),
                Some(ended) = self.listener.tasks.join_next() => return Err(match ended {
                    Ok(error) => error.into(),
                    Err(_) => DriveError::Task("listener"),
                }),
                _ = self.announcement.tasks.join_next() => return Err(DriveError::Task("announcement")),
                _ = self.guard.tasks.join_next() => return Err(DriveError::Task("guard")),
                _ = self.proxy.tasks.join_next() => return Err(DriveError::Task("proxy")),
                _ = self.watches.join_next() => return Err(DriveError::Task("watch")),
                // Of these there may always be more.
                Some(heard) = self.edge.heard.recv() => {
                    heard_in(&heard).map(Event::Heard).into_iter().collect()
                }
                Some(done) = self.requests.join_next(), if !self.requests.is_empty() => {
                    self.completed(done)?.into_iter().collect()
                }
                Some(event) = self.events.recv() => vec![event],
                () = wake => {
                    let wanted = deadline.unwrap_or_default();
                    self.metrics.late(Instant::now().saturating_since(wanted));
                    vec![Event::Tick]
                }
                // People come last.
                Some(question) = self.questions.recv() => {
                    self.answer(question);
                    continue;
                }
                () = sleep_until(now + BEAT) => continue,
            };
            self.gather(&mut events)?;
            let mut actions = Vec::new();
            for event in &events {
                if let Event::Interfaces(interfaces) = event {
                    let addressed =
                        interfaces.iter().filter(|(_, link)| !link.addresses.is_empty());
                    self.metrics.note_interfaces(addressed.map(|(name, _)| name));
                }
                if let Event::Desired(desired) = event {
                    // Before anything is served that follows from it.
                    self.guard.desired.send_replace(Some(Arc::clone(desired)));
                }
            }
            self.election.handle(Instant::now(), events, &mut actions);
            for action in actions {
                if self.carry_out(action) {
                    return Ok(());
                }
            }
            self.log.follow(self.election.log_filter());
            self.publish();
        }
    }

    /// What waits already: with many claims a pass of the core costs more than an event, and one pass serves
    /// all of them. Each source has its turn; of an address's frames one that repeats the last says nothing new.
    fn gather(&mut self, events: &mut Vec<Event>) -> Result<(), DriveError> {
        let (kernel, voices) = (&mut self.announcement.kernel, &mut self.listener.voices);
        let (hearing, missed) = (&mut self.edge.hearing, &mut self.edge.missed);
        events.extend(changed(kernel).map(Event::Kernel));
        events.extend(changed(voices).map(Event::Voices));
        events.extend(changed(hearing).map(Event::Hearing));
        events.extend(changed(missed).map(|_| Event::Missed));
        let mut last: BTreeMap<IpAddr, Heard> = BTreeMap::new();
        let mut left = FRAMES;
        while events.len() < TOGETHER {
            let done = self.requests.try_join_next();
            let watched = self.events.try_recv().ok();
            let heard = if left > 0 { self.edge.heard.try_recv().ok() } else { None };
            if done.is_none() && watched.is_none() && heard.is_none() {
                break;
            }
            if let Some(done) = done {
                events.extend(self.completed(done)?);
            }
            events.extend(watched);
            if let Some(heard) = heard {
                left -= 1;
                if let Some(heard) = heard_in(&heard)
                    && last.insert(heard.frame.ip, heard.clone()).as_ref() != Some(&heard)
                {
                    events.push(Event::Heard(heard));
                }
            }
        }
        Ok(())
    }

    /// Answers somebody who looks at the page.
    fn answer(&mut self, question: oneshot::Sender<Arc<Status>>) {
        let began = Instant::now();
        if self.questions.is_stale(began) {
            let status = self.status();
            self.questions.keep(status, began, Instant::now());
        }
        self.questions.answer(question);
    }

    /// What a request led to, for the core.
    fn completed(
        &mut self,
        done: Result<Completed, JoinError>,
    ) -> Result<Option<Event>, DriveError> {
        Ok(match done.map_err(|_| DriveError::Task("lease request"))? {
            Completed::Answer(request, answer, kind, sent) => {
                let after = Instant::now().saturating_since(sent);
                self.metrics.answered(kind, &answer, after);
                Some(Event::Answered { request, answer })
            }
            Completed::List(listed) => listed,
            Completed::Look(installed) => {
                tracing::info!(?installed, "asked to end");
                self.restores = matches!(installed, Installed::Barred | Installed::Gone);
                Some(Event::Terminate(installed.follower()))
            }
        })
    }

    /// Whether another process follows this one has to be asked where it is run by a `DaemonSet`, once; not of
    /// an API server that answers nothing.
    fn asked_to_end(&mut self) -> Vec<Event> {
        let away = self.election.is_api_away(Instant::now());
        let Some(daemon_set) = self.daemon_set.clone().filter(|_| !away) else {
            return vec![Event::Terminate(Follower::Unknown)];
        };
        if std::mem::replace(&mut self.looked, true) {
            return Vec::new();
        }
        self.requests.spawn(async move { Completed::Look(daemon_set.look().await) });
        Vec::new()
    }

    /// Carries out one action; returns whether it was the last.
    fn carry_out(&mut self, action: Action) -> bool {
        tracing::debug!(?action, "decided");
        match action {
            Action::Write { request, write } => {
                let (leases, kind, sent) =
                    (self.leases.clone(), RequestKind::of(&write), Instant::now());
                self.requests.spawn(async move {
                    Completed::Answer(request, leases.write(write).await, kind, sent)
                });
            }
            Action::Read { request, target } => {
                let (leases, sent) = (self.leases.clone(), Instant::now());
                self.requests.spawn(async move {
                    Completed::Answer(request, leases.read(target).await, RequestKind::Read, sent)
                });
            }
            Action::List { asked } => {
                self.metrics.lists();
                let leases = self.leases.clone();
                self.requests.spawn(async move { Completed::List(leases.list(asked).await) });
            }
            Action::Serve(serving) => {
                self.serving.send_replace(serving);
            }
            Action::Listen(watchlist) => {
                self.listener.watchlist.send_replace(watchlist);
            }
            Action::Look(watched) => {
                self.proxy.watched.send_replace(watched);
            }
            Action::Transmit { interface, frame } => {
                // Full: whoever asks, asks again.
                let _ = self.edge.transmit.try_send(transmit(interface, &frame));
            }
            Action::Persist(record) => {
                self.record.keep(record);
            }
            Action::Report(fact) => {
                self.metrics.count(&fact);
                // For people to read.
                self.moves.note(Timestamp::now(), &fact);
                self.observe(&fact);
                let services = fact.claim().and_then(|claim| self.election.services_of(claim));
                self.reports.report(fact, services.unwrap_or_default());
            }
            Action::Exit => return true,
        }
        false
    }

    fn status(&self) -> Status {
        let now = Instant::now();
        let ages = self.delivered.ages(now);
        let health = self.health.borrow();
        Status::at(
            now,
            &Sources {
                election: &self.election,
                kernel: &self.announcement.kernel.borrow(),
                moves: &self.moves,
                watch_age: ages.into_iter().map(|(part, age)| (part.word(), age)).collect(),
                not_ready: (!health.is_ready()).then(|| health.to_string()),
            },
        )
    }

    fn observe(&self, fact: &Fact) {
        let failure = match fact {
            Fact::SessionAcquired { .. } => None,
            Fact::RenewalFailed { cause } => Some(cause.clone()),
            _ => return,
        };
        self.health.send_if_modified(|health| {
            let changed = health.renewal_failure != failure;
            health.renewal_failure = failure;
            changed
        });
    }

    /// Says what became of host protection.
    fn report_guard(&mut self) {
        let guarded = self.guard.guarded.borrow_and_update().clone();
        self.metrics.observe_guard(&guarded);
        self.reports.report_exposure(guarded.exposure);
    }

    /// Publishes what follows from the core's state: health, gauges, what to listen for.
    fn publish(&mut self) {
        let has_session = self.election.session().is_some();
        let unknown =
            (self.election.node_exists() == Some(false)).then(|| self.election.node().to_string());
        let now = Instant::now();
        let renews = self.election.is_api_answering(now);
        self.health.send_if_modified(|health| {
            let recovered = renews && health.renewal_failure.take().is_some();
            let changed =
                recovered || health.has_session != has_session || health.unknown_node != unknown;
            if let Some(node) = unknown.as_ref().filter(|_| health.unknown_node != unknown) {
                tracing::error!(node, "the cluster has no Node of this name: check --node-name");
            }
            health.has_session = has_session;
            health.unknown_node = unknown;
            changed
        });
        self.published.stale = true;
        if self.published.due().is_none_or(|due| now >= due) {
            self.published.stale = false;
            self.observe_gauges(now);
            let took = Instant::now().saturating_since(now);
            self.published.gauges = Some(now + GAUGES.max(took * GAUGES_REST));
        }
        let heeds = self.election.heeds();
        if self.published.heeds.replace(heeds) != Some(heeds) {
            let attention = self.attention();
            self.edge.attention.send_if_modified(|current| {
                let changed = *current != attention;
                *current = attention;
                changed
            });
        }
    }

    fn observe_gauges(&self, now: Instant) {
        let addresses = self.announcement.kernel.borrow().ours.len();
        self.metrics.observe(Observed {
            claims: self.election.held().count(),
            addresses,
            sessions: self.election.speakers(),
            unowned: self.election.unowned(),
            has_session: self.election.session().is_some(),
            is_api_reachable: self.election.is_api_answering(now),
        });
        self.metrics.observe_counters(
            &self.edge.counters,
            &self.listener.counters,
            &self.announcement.counters,
        );
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

/// A state that has changed since it was read last.
fn changed<T: Clone>(state: &mut watch::Receiver<T>) -> Option<T> {
    let changed = state.has_changed().is_ok_and(|changed| changed);
    changed.then(|| state.borrow_and_update().clone())
}

/// The interfaces that can announce: with a MAC address, not enslaved, and no end of a pod's link. One without
/// an address of the node, or with none but that of the link, announces only what a policy names it for.
fn interfaces(links: &Links) -> BTreeMap<InterfaceName, Interface> {
    links
        .0
        .values()
        .filter(|link| !link.loopback && link.master.is_none() && !link.mac.is_zero())
        .filter_map(|link| {
            let addresses: Vec<IpNet> = link
                .addresses
                .iter()
                .filter(|address| !is_link_local(address.ip))
                .filter_map(|address| IpNet::new(address.ip, address.prefix_len).ok())
                .collect();
            let leads_out = links.leads_out(link);
            let bare = addresses.is_empty();
            if bare && !leads_out && link.kind.as_deref() == Some("veth") {
                return None;
            }
            let interface = Interface {
                mac: link.mac,
                mtu: link.mtu,
                carrier: link.carrier,
                addresses,
                default_routes: link.default_routes,
                detours: link.detours.clone(),
                only_if_named: !leads_out || bare,
                link_local: link.link_local().filter(|_| bare),
            };
            Some((link.name.clone(), interface))
        })
        .collect()
}

const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// A frame that says that its sender has an address; questions say nothing.
fn heard_in(heard: &wire::Heard) -> Option<Heard> {
    (heard.announcement || heard.answer).then(|| {
        let frame = HeardFrame {
            ip: heard.sender_ip,
            mac: heard.sender_mac,
            announcement: heard.announcement,
        };
        Heard { interface: heard.interface.clone(), frame }
    })
}

fn transmit(interface: InterfaceName, frame: &Frame) -> Transmit {
    match *frame {
        Frame::Announce(vip) => Transmit::Announce { vip, interface },
        Frame::Probe(ip) => Transmit::Probe { ip, interface },
        Frame::Ask(ip, mac) => Transmit::Ask { ip, mac, interface },
        Frame::AskAround => Transmit::AskAround { interface },
    }
}
