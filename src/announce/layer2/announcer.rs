//! The task that has the announcements sent.

use tokio::sync::{mpsc, watch};

use crate::announce::layer2::schedule::Schedule;
use crate::clock;
use crate::clock::{rest_after, sleep_until};
use crate::net::rtnl::links::Links;
use crate::net::wire::Transmit;
use leasehold_core::election::{KernelView, Serving};

/// The task's state.
#[derive(Debug)]
pub struct Announcer {
    serving: watch::Receiver<Serving>,
    kernel: watch::Receiver<KernelView>,
    links: watch::Receiver<Links>,
    transmit: mpsc::Sender<Transmit>,
    schedule: Schedule,
}

impl Announcer {
    /// The task; nothing happens before it runs.
    pub fn new(
        serving: watch::Receiver<Serving>,
        kernel: watch::Receiver<KernelView>,
        links: watch::Receiver<Links>,
        transmit: mpsc::Sender<Transmit>,
    ) -> Self {
        Self { serving, kernel, links, transmit, schedule: Schedule::default() }
    }

    /// Runs until a channel closes.
    pub async fn run(mut self) {
        let mut news = true;
        loop {
            let now = clock::now();
            if news {
                self.schedule.update(
                    now,
                    &self.serving.borrow_and_update(),
                    &self.kernel.borrow_and_update(),
                    &self.links.borrow_and_update(),
                );
            }
            for (vip, interface) in self.schedule.due(now) {
                if self.transmit.send(Transmit::Announce { vip, interface }).await.is_err() {
                    return;
                }
            }
            if news {
                rest_after(now).await;
            }
            let next = self.schedule.next();
            let timer = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                // What is no longer served is not announced.
                biased;
                changed = self.serving.changed() => changed,
                changed = self.kernel.changed() => changed,
                changed = self.links.changed() => changed,
                () = timer => {
                    news = false;
                    continue;
                }
            };
            if changed.is_err() {
                return;
            }
            news = true;
        }
    }
}
