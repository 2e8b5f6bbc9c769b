//! The task that owns the election core: it gives it events and carries out its actions.
//!
//! ```text
//!  signals, links, kernel view, voices,  ┌────────────── Driver (task) ──────────────┐
//!  frames, proxy view, watches ────────► │ events ──► Election ──► actions           │──► serving, watchlist,
//!  answers ◄──► requests (API server)    │               └──► observe                │    frames, record
//!                                        └─────────────────────┬─────────────────────┘
//!                                 health, gauges, log filter, status page, facts
//! ```
//!
//! | module | what |
//! |---|---|
//! | `events` | the order in which events are taken, and their conversion for the core |
//! | `actions` | actions of the core, carried out |
//! | `requests` | requests to the API server that have no answer yet |
//! | `observe` | the state of the core made visible; decides nothing |
//! | `error` | ends of an essential task |
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
//! | `forward.wanted` (state) | this task | forward, its gate | latest wins |
//! | `forward.forwarded` (state) | forward | this task, applier | latest wins |
//! | `spread.wanted` (state) | this task | spread, its gate | latest wins |
//! | `spread.placed` (state) | spread | this task, applier | latest wins |
//! | `spread.filtered` (state) | spread | this task | latest wins |
//! | `return_paths.returned` (state) | return path | this task, applier | latest wins |
//! | `down` (state) | this task | the watch of what the cluster asks for | latest wins |
//! | `detours` (state) | that watch | detour | latest wins |
//! | `detour.detoured` (state) | detour | this task | latest wins |
//! | gate (state) | applier | guard | latest wins |
//! | `listener.watchlist` (state) | this task | listener | latest wins |
//! | `listener.voices` (state) | listener | this task | latest wins |
//! | `proxy.watched` (state) | this task | proxy | latest wins |
//! | `proxy.view` (state) | proxy | this task | latest wins |
//! | `questions` | status page | this task, when nothing else waits | the page says so |
//! | `record` (state) | this task | recorder | latest wins |

mod actions;
mod error;
mod events;
mod observe;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::names::InterfaceName;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::announce::Announcement;
use crate::announce::layer2::confine::restore;
use crate::api::installed::OwnDaemonSet;
use crate::api::leases::Leases;
use crate::clock;
use crate::datapath::detour::Detour;
use crate::datapath::forward::Forward;
use crate::datapath::guard::Guard;
use crate::datapath::return_path::ReturnPaths;
use crate::datapath::spread::Spread;
use crate::detect::listener::Listener;
use crate::host::{Recorder, StateFolder};
use crate::net::edge::Edge;
use crate::proxy::Proxy;
use crate::report::heartbeat::Heartbeats;
use leasehold_core::desired::Down;
use leasehold_core::election::{DataPathView, Election, Event, Interface, Serving};
use observe::{Counters, Observer};
use requests::Requests;

pub use error::DriveError;
pub use observe::Outlets;

/// The connections of the core, made by the wiring.
#[derive(Debug)]
pub struct Connections {
    /// The core.
    pub election: Election,
    /// Reads and writes Leases.
    pub leases: Leases,
    /// The `DaemonSet` that runs this process, if one does.
    pub daemon_set: Option<OwnDaemonSet>,
    /// The watches.
    pub watches: JoinSet<()>,
    /// The events of the watches.
    pub events: mpsc::Receiver<Event>,
    /// The kernel edge.
    pub edge: Edge,
    /// Failure detection.
    pub listener: Listener,
    /// The addresses that the kernel is to have.
    pub serving: watch::Sender<Serving>,
    /// The addresses that it has, and their announcement.
    pub announcement: Announcement,
    /// Host protection.
    pub guard: Guard,
    /// Forwarding of connections that this node does not know.
    pub forward: Forward,
    /// Spreading over nodes.
    pub spread: Spread,
    /// The nodes that are down.
    pub down: watch::Sender<Down>,
    /// Detours around them.
    pub detour: Detour,
    /// The interfaces by which answers leave.
    pub return_paths: ReturnPaths,
    /// The state of the service proxy.
    pub proxy: Proxy,
    /// SIGTERM and SIGINT.
    pub signals: [Signal; 2],
    /// Writes the record for the next process.
    pub record: Recorder,
    /// The state folder.
    pub state: StateFolder,
    /// For `/livez`.
    pub heartbeats: Arc<Heartbeats>,
}

/// The task.
#[derive(Debug)]
pub struct Driver {
    election: Election,
    requests: Requests,
    watches: JoinSet<()>,
    events: mpsc::Receiver<Event>,
    edge: Edge,
    listener: Listener,
    serving: watch::Sender<Serving>,
    announcement: Announcement,
    guard: Guard,
    forward: Forward,
    spread: Spread,
    down: watch::Sender<Down>,
    detour: Detour,
    return_paths: ReturnPaths,
    proxy: Proxy,
    signals: [Signal; 2],
    record: Recorder,
    state: StateFolder,
    heartbeats: Arc<Heartbeats>,
    observer: Observer,
    /// The interfaces as the core was last told.
    interfaces: Option<BTreeMap<InterfaceName, Interface>>,
    /// The state of the spreading on this node, as the core was last told.
    data_path: DataPathView,
    /// The revision of the core's state from which the kernel edge was last told what to attend to.
    heeds: Option<(u64, u64)>,
    /// Whether the host is set back at the end to the state before Leasehold.
    restores: bool,
}

impl Driver {
    /// Creates the driver; nothing happens before it runs.
    pub fn new(connections: Connections, outlets: Outlets) -> Self {
        let Connections { edge, listener, announcement, .. } = &connections;
        let counters = Counters {
            edge: Arc::clone(&edge.counters),
            wire: Arc::clone(&listener.counters),
            announcement: Arc::clone(&announcement.counters),
        };
        Self {
            observer: Observer::new(outlets, announcement.kernel.clone(), counters),
            election: connections.election,
            requests: Requests::new(connections.leases, connections.daemon_set),
            watches: connections.watches,
            events: connections.events,
            edge: connections.edge,
            listener: connections.listener,
            serving: connections.serving,
            announcement: connections.announcement,
            guard: connections.guard,
            forward: connections.forward,
            spread: connections.spread,
            down: connections.down,
            detour: connections.detour,
            return_paths: connections.return_paths,
            proxy: connections.proxy,
            signals: connections.signals,
            record: connections.record,
            state: connections.state,
            heartbeats: connections.heartbeats,
            interfaces: None,
            data_path: DataPathView::default(),
            heeds: None,
            restores: false,
        }
    }

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
            self.forward.remove().await;
            self.spread.remove().await;
            self.return_paths.remove().await;
        }
        self.announcement.tasks.shutdown().await;
        self.guard.finish().await;
        ended
    }

    async fn drive(&mut self) -> Result<(), DriveError> {
        self.edge.links.mark_changed();
        self.announcement.kernel.mark_changed();
        loop {
            let now = clock::now();
            self.heartbeats.core.beat(now);
            self.observer.forget_stale(now);
            let Some(mut events) = self.next_events(now).await? else { continue };
            self.gather(&mut events)?;
            self.pass_on(&events);
            let mut actions = Vec::new();
            self.election.handle(clock::now(), events, &mut actions);
            for action in actions {
                if self.carry_out(action) {
                    return Ok(());
                }
            }
            self.observer.publish(&self.election);
            self.attend();
        }
    }

    /// Passes on what others than the core have to know, before it decides anything that follows from it.
    fn pass_on(&self, events: &[Event]) {
        for event in events {
            match event {
                Event::Interfaces(interfaces) => self.observer.report_interfaces(interfaces),
                Event::Desired(desired) => {
                    self.guard.desired.send_replace(Some(Arc::clone(desired)));
                }
                _ => {}
            }
        }
    }
}
