//! What happens, in words.

use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::desired::Announcement;
use leasehold_core::election::{Action, Answer, Event, Follower, Write};
use leasehold_crds::lease::{Claim, Session, Stored};

use super::World;

/// Whether worlds tell what happens in them.
static TELLING: AtomicBool = AtomicBool::new(false);

/// From now on every world tells what happens in it.
pub fn tell() {
    TELLING.store(true, Ordering::Relaxed);
}

pub(crate) fn is_telling() -> bool {
    TELLING.load(Ordering::Relaxed)
}

fn session(stored: &Stored<Session>) -> String {
    format!("{}@{} {}", stored.name, stored.resource_version, session_record(&stored.record))
}

fn session_record(record: &Session) -> String {
    let holder = record.holder.as_ref().map_or("nobody", |holder| holder.as_str());
    let restarting = if record.restarting { " restarting" } else { "" };
    let (number, seconds) = (record.transitions, record.duration_seconds);
    format!("[{holder} #{number} {seconds}s{restarting} \"{}\"]", record.cause)
}

fn claim(stored: &Stored<Claim>) -> String {
    format!("{}@{} {}", stored.name, stored.resource_version, claim_record(&stored.record))
}

fn claim_record(record: &Claim) -> String {
    let holder = record.holder.as_ref().map_or("nobody", |holder| holder.as_str());
    let under = record.session.as_ref().map(ToString::to_string).unwrap_or_default();
    let to = record.successor.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
    format!("[{holder} #{} under {under}{to} \"{}\"]", record.transitions, record.cause)
}

fn write(write: &Write) -> String {
    match write {
        Write::Session(change) => {
            let base = change.base.as_ref().map_or("nothing", |base| &base.resource_version);
            format!("session {} over {base}: {}", change.name, session_record(&change.record))
        }
        Write::Claim(change) => {
            let base = change.base.as_ref().map_or("nothing", |base| &base.resource_version);
            format!("claim {} over {base}: {}", change.name, claim_record(&change.record))
        }
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Session(stored) => session(stored),
        Answer::Claim(stored) => claim(stored),
        Answer::Absent => "there is none".to_owned(),
        Answer::Conflict => "conflict".to_owned(),
        Answer::Throttled => "throttled".to_owned(),
        Answer::Refused(cause) => format!("refused: {cause}"),
        Answer::Unknown(cause) => format!("not known: {cause}"),
    }
}

impl World {
    pub(crate) fn tell(&self, id: usize, text: &str) {
        let host = &self.hosts[id];
        println!("{} {:>2}  {text}", self.now, host.name);
    }

    /// Something that is done to the world.
    pub(crate) fn tell_all(&self, text: &str) {
        if self.telling {
            println!("{} --  {text}", self.now);
        }
    }

    pub(super) fn tell_commit(&self, whom: &str, event: &Event) {
        let text = match event {
            Event::Session(stored) => session(stored),
            Event::Claim(stored) => claim(stored),
            Event::ClaimGone(name) => format!("{name} is gone"),
            _ => return,
        };
        println!("{} **  stored for {whom}: {text}", self.now);
    }

    pub(super) fn tell_event(&self, id: usize, event: &Event) {
        let text = match event {
            Event::Tick | Event::Hearing(_) | Event::Connections(_) => return,
            Event::Sessions(all) => {
                format!(
                    "lists: {}",
                    all.iter().map(|one| session(one)).collect::<Vec<_>>().join(", ")
                )
            }
            Event::Claims(all) => {
                format!(
                    "lists: {}",
                    all.iter().map(|one| claim(one)).collect::<Vec<_>>().join(", ")
                )
            }
            Event::Listed { sessions, claims, .. } => {
                let all = sessions
                    .iter()
                    .map(|one| session(one))
                    .chain(claims.iter().map(|one| claim(one)));
                format!("read all: {}", all.collect::<Vec<_>>().join(", "))
            }
            Event::Session(stored) => format!("sees session {}", session(stored)),
            Event::SessionGone(name) => format!("sees session {name} gone"),
            Event::Claim(stored) => format!("sees claim {}", claim(stored)),
            Event::ClaimGone(name) => format!("sees claim {name} gone"),
            Event::Desired(desired) => {
                let nodes: Vec<String> = desired
                    .nodes
                    .iter()
                    .map(|(node, state)| format!("{node}{}", if state.takes() { "" } else { "!" }))
                    .collect();
                format!("is asked for {} claims on {}", desired.claims.len(), nodes.join(" "))
            }
            Event::Interfaces(interfaces) => {
                let carriers = interfaces.iter().map(|(name, i)| format!("{name}={}", i.carrier));
                format!("carriers: {}", carriers.collect::<Vec<_>>().join(" "))
            }
            Event::Heard(heard) => {
                let frame = heard.frame;
                let how = if frame.announcement { "announced" } else { "answered" };
                format!("hears {} {how} by {}", frame.ip, frame.mac)
            }
            Event::Missed => "misses frames".to_owned(),
            Event::Voices(voices) => {
                let voices =
                    voices.owners.iter().map(|(id, voice)| format!("{} {voice:?}", id.node));
                format!("voices: {}", voices.collect::<Vec<_>>().join(", "))
            }
            Event::Kernel(view) => {
                let now = self.hosts[id].clock.at(self.now);
                let ours = view.ours.iter().map(|(ip, held)| {
                    format!("{ip} for {:.2}s", held.until.saturating_since(now).as_secs_f64())
                });
                let ours = ours.collect::<Vec<_>>().join(", ");
                format!("kernel {}: {ours} {:?}", view.applied, view.refused)
            }
            Event::Proxy(view) => format!("kube-proxy: {view:?}"),
            Event::DataPath(view) => format!("data path: {view:?}"),
            Event::Answered { request, answer: said } => {
                format!("answer {}: {}", request.0, answer(said))
            }
            Event::Terminate(Follower::Unknown) => "SIGTERM".to_owned(),
            Event::Terminate(Follower::Expected) => "SIGTERM in a roll-out".to_owned(),
            Event::Terminate(Follower::Nobody) => "SIGTERM for good".to_owned(),
        };
        self.tell(id, &text);
    }

    pub(super) fn tell_action(&self, id: usize, action: &Action) {
        let text = match action {
            Action::Write { request, write: what } => {
                format!("writes {}: {}", request.0, write(what))
            }
            Action::Read { request, target } => format!("reads {}: {target:?}", request.0),
            Action::List { .. } => "reads all leases".to_owned(),
            Action::Serve(serving) => {
                let now = self.hosts[id].clock.at(self.now);
                let vips = serving.vips.iter().map(|(ip, vip)| {
                    let quiet =
                        if vip.announcement == Announcement::Silent { " quietly" } else { "" };
                    let left = vip.until.saturating_since(now).as_secs_f64();
                    format!("{ip} for {left:.2}s{quiet}")
                });
                let vips = vips.collect::<Vec<_>>().join(", ");
                let complete = if serving.complete { "only " } else { "" };
                format!("serves {}: {complete}{vips}", serving.generation)
            }
            Action::Listen(watchlist) => {
                let owners = watchlist.owners.iter().map(|(id, watched)| {
                    let polled = if watched.polled { " polled" } else { "" };
                    format!("{} #{}{polled}", id.node, id.session.transitions)
                });
                format!("listens to {}", owners.collect::<Vec<_>>().join(", "))
            }
            Action::Look(watched) => {
                format!("looks for the rules of {:?}", watched.keys().collect::<Vec<_>>())
            }
            Action::Spread(spreading) => format!("spreads {:?}", spreading.addresses.keys()),
            Action::Forward(forwarding) => {
                let ways = forwarding.onward.iter().map(|(ip, onward)| {
                    let to = onward.to.as_ref().map(|hop| hop.to);
                    format!("{ip} to {to:?} for {:?} (owned: {})", onward.later, onward.owned)
                });
                format!("forwards {}", ways.collect::<Vec<_>>().join(", "))
            }
            Action::Down(down) => {
                format!("sees {:?} down, {:?} lost", down.nodes, down.lost)
            }
            Action::Transmit { frame, .. } => format!("sends {frame:?}"),
            Action::Persist(_) => return,
            Action::Report(fact) => format!("says {fact:?}"),
            Action::Exit => "exits".to_owned(),
        };
        self.tell(id, &text);
    }
}
