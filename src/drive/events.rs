//! Events for the core: where they come from, and in which order they are taken.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::names::InterfaceName;
use tokio::sync::watch;
use tokio::task::JoinError;

use super::Driver;
use super::error::DriveError;
use super::requests::Completed;
use crate::api::installed::Installed;
use crate::clock;
use crate::clock::sleep_until;
use crate::net::rtnl::links::Links;
use crate::net::wire;
use crate::proxy::replacement;
use crate::report::heartbeat::BEAT;
use leasehold_core::clock::Instant;
use leasehold_core::election::{DataPathView, Event, Follower, Heard, HeardFrame, Interface};

/// The most events that the core is given at once.
const TOGETHER: usize = 256;
/// The most frames among them: there may always be more, and watches and answers wait meanwhile.
const FRAMES: usize = 64;

impl Driver {
    /// Waits for the next event that the core has to be given; an empty list only lets its time pass. `None` if
    /// the core is not concerned.
    pub(super) async fn next_events(
        &mut self,
        now: Instant,
    ) -> Result<Option<Vec<Event>>, DriveError> {
        let deadlines = [self.election.next_deadline(), self.observer.due()];
        let deadline = deadlines.into_iter().flatten().min();
        let wake = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let [terminate, interrupt] = &mut self.signals;
        let events = tokio::select! {
            biased;
            // What takes an address away comes first.
            Ok(()) = self.edge.links.changed() => {
                let events = self.note_links();
                if events.is_empty() {
                    return Ok(None);
                }
                events
            }
            Ok(()) = self.announcement.kernel.changed() => {
                vec![Event::Kernel(self.announcement.kernel.borrow_and_update().clone())]
            }
            Ok(()) = self.guard.guarded.changed() => {
                let guarded = self.guard.guarded.borrow_and_update().clone();
                self.observer.report_guard(guarded);
                Vec::new()
            }
            Ok(()) = self.forward.forwarded.changed() => {
                let forwarded = self.forward.forwarded.borrow_and_update().clone();
                self.observer.report_forwarding(&forwarded);
                forwarded.open.map(Event::Connections).into_iter().collect()
            }
            Ok(()) = either(self.spread.placed.changed(), self.spread.filtered.changed()) => {
                let Some(event) = self.noting_spread() else { return Ok(None) };
                vec![event]
            }
            Ok(()) = self.detour.detoured.changed() => {
                let detoured = self.detour.detoured.borrow_and_update().clone();
                self.observer.report_detours(&detoured);
                return Ok(None);
            }
            Ok(()) = self.return_paths.returned.changed() => {
                let returned = self.return_paths.returned.borrow_and_update().clone();
                self.observer.report_return_paths(&returned);
                return Ok(None);
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
                self.observer.report_proxy(view.health);
                vec![Event::Proxy(view)]
            }
            _ = terminate.recv() => self.terminate(),
            _ = interrupt.recv() => self.terminate(),
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
            _ = self.forward.tasks.join_next() => return Err(DriveError::Task("forward")),
            _ = self.spread.tasks.join_next() => return Err(DriveError::Task("spread")),
            _ = self.detour.tasks.join_next() => return Err(DriveError::Task("detour")),
            _ = self.return_paths.tasks.join_next() => return Err(DriveError::Task("return path")),
            _ = self.proxy.tasks.join_next() => return Err(DriveError::Task("proxy")),
            _ = self.watches.join_next() => return Err(DriveError::Task("watch")),
            // Of these there may always be more.
            Some(heard) = self.edge.heard.recv() => {
                heard_in(&heard).map(Event::Heard).into_iter().collect()
            }
            Some(done) = self.requests.next(), if !self.requests.is_empty() => {
                self.completed(done)?.into_iter().collect()
            }
            Some(event) = self.events.recv() => vec![event],
            () = wake => {
                self.observer.report_wake(deadline.unwrap_or_default());
                vec![Event::Tick]
            }
            // People come last.
            Some(question) = self.observer.question() => {
                self.observer.answer(question, &self.election);
                return Ok(None);
            }
            () = sleep_until(now + BEAT) => return Ok(None),
        };
        Ok(Some(events))
    }

    /// Adds the events that wait already: with many claims a pass of the core costs more than an event, and one
    /// pass serves all of them. Each source has its turn; a frame that repeats the last of its address is left out.
    pub(super) fn gather(&mut self, events: &mut Vec<Event>) -> Result<(), DriveError> {
        let (kernel, voices) = (&mut self.announcement.kernel, &mut self.listener.voices);
        let (hearing, missed) = (&mut self.edge.hearing, &mut self.edge.missed);
        events.extend(changed(kernel).map(Event::Kernel));
        events.extend(changed(voices).map(Event::Voices));
        events.extend(changed(hearing).map(Event::Hearing));
        events.extend(changed(missed).map(|_| Event::Missed));
        let mut last: BTreeMap<IpAddr, Heard> = BTreeMap::new();
        let mut left = FRAMES;
        while events.len() < TOGETHER {
            let done = self.requests.try_next();
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

    /// The event that follows from the result of a request.
    fn completed(
        &mut self,
        done: Result<Completed, JoinError>,
    ) -> Result<Option<Event>, DriveError> {
        Ok(match done.map_err(|_| DriveError::Task("lease request"))? {
            Completed::Answer(request, answer, kind, sent) => {
                self.observer.report_answer(kind, &answer, sent);
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

    /// The event of SIGTERM or SIGINT. If a `DaemonSet` runs this process and the API server answers, the
    /// `DaemonSet` is read first: it says whether another process follows this one.
    fn terminate(&mut self) -> Vec<Event> {
        if self.election.is_api_away(clock::now()) || !self.requests.look() {
            return vec![Event::Terminate(Follower::Unknown)];
        }
        Vec::new()
    }
}

impl Driver {
    /// Takes in the interfaces as they are now.
    fn note_links(&mut self) -> Vec<Event> {
        let links = self.edge.links.borrow_and_update().clone();
        let replacement = replacement::is_possible(&links);
        let data_path = self.noting_data_path(|view| view.has_replacement = replacement);
        let links = interfaces(&links);
        // Our own addresses come and go on them: the kernel's view tells the core of these.
        let changed = self.interfaces.as_ref() != Some(&links);
        if changed {
            self.interfaces = Some(links.clone());
        }
        let events = changed.then_some(Event::Interfaces(links)).into_iter();
        events.chain(data_path).collect()
    }

    /// Reads what is in place of the spreading on this node; says so if it is something else then.
    fn noting_spread(&mut self) -> Option<Event> {
        let placed = self.spread.placed.borrow_and_update().clone();
        let is_filtered = *self.spread.filtered.borrow_and_update();
        self.observer.report_spreading(&placed, is_filtered);
        self.noting_data_path(|view| {
            (view.slow, view.failing) = (placed.slow.is_some(), placed.failure.is_some());
            view.filtered = is_filtered;
        })
    }

    /// Changes what is known of the data path of this node; says so if it is something else then.
    fn noting_data_path(&mut self, change: impl FnOnce(&mut DataPathView)) -> Option<Event> {
        let before = self.data_path;
        change(&mut self.data_path);
        (self.data_path != before).then_some(Event::DataPath(self.data_path))
    }
}

/// The result of the first of these that ends.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    tokio::select! {
        one = one => one,
        other = other => other,
    }
}

/// The state, if it has changed since it was last read.
fn changed<T: Clone>(state: &mut watch::Receiver<T>) -> Option<T> {
    let changed = state.has_changed().is_ok_and(|changed| changed);
    changed.then(|| state.borrow_and_update().clone())
}

/// The interfaces that can announce: with a MAC address, not enslaved, and no end of a pod's link. An
/// interface without an address of the node, or with a link-local one only, announces only the addresses whose
/// policy names it.
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

/// Frames in which the sender says that it has an address; `None` for questions.
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
