//! The task that keeps [`Links`] current from events and dumps.

use std::time::Duration;

use futures::StreamExt;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use tokio::sync::watch;

use crate::clock;
use crate::clock::sleep_until;
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::Links;
use crate::net::rtnl::netlink::{Events, Netlink};
use crate::net::rtnl::table::{Change, Table};
use crate::net::rtnl::ways::Ways;
use leasehold_core::clock::Instant;

/// Everything is read anew this often, whatever the events have said: a message that could not be
/// decoded is not reported as lost.
const RESYNC: Duration = Duration::from_secs(30);

/// Delay before another attempt if the read failed, or changes came between its parts.
const AGAIN: Duration = Duration::from_millis(100);

/// Keeps [`Links`] current from the kernel's events.
#[derive(Debug)]
pub(crate) struct LinksTask {
    netlink: Netlink,
    events: Events,
    table: Table,
    ways: Ways,
    links: watch::Sender<Links>,
    disturbed: watch::Sender<u64>,
    /// The time of the next complete read.
    resync: Instant,
}

impl LinksTask {
    /// Reads everything once. `events` has to be subscribed already, so that nothing falls
    /// between.
    pub(crate) async fn new(netlink: Netlink, events: Events) -> Result<Self, NetlinkError> {
        let (table, whole) = netlink.table().await?;
        let resync = clock::now() + if whole { RESYNC } else { AGAIN };
        let mut links = table.links();
        let ways = Ways::ask(&netlink, &links).await?;
        ways.tell(&mut links);
        let (links, disturbed) = (watch::Sender::new(links), watch::Sender::new(0));
        Ok(Self { netlink, events, table, ways, links, disturbed, resync })
    }

    /// The links, current.
    pub(crate) fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// The number of times that the addresses with our mark had to be checked, as [`Table::disturbed`] counts.
    pub(crate) fn disturbed(&self) -> watch::Receiver<u64> {
        self.disturbed.subscribe()
    }

    /// Runs until netlink ends, which is an error.
    pub(crate) async fn run(mut self) -> NetlinkError {
        loop {
            let change = tokio::select! {
                event = self.events.next() => match event {
                    Some((message, _)) => self.apply_all(message),
                    None => return NetlinkError::Closed,
                },
                () = sleep_until(self.resync) => Change::Everything,
            };
            self.tell_disturbed();
            let read = match change {
                Change::Nothing => continue,
                Change::Applied => Ok(()),
                Change::Routes => self.netlink.routes(&mut self.table).await,
                Change::Everything => {
                    self.resync = clock::now() + RESYNC;
                    self.read_everything().await
                }
            };
            match read {
                Ok(()) => {}
                Err(NetlinkError::Closed) => return NetlinkError::Closed,
                Err(error) => {
                    tracing::warn!(%error, "cannot read links, addresses and routes: trying again");
                    self.resync = self.resync.min(clock::now() + AGAIN);
                }
            }
            self.tell_disturbed();
            // What carries and what does not is told before the kernel is asked for anything.
            let links = self.tell_links();
            match Ways::ask(&self.netlink, &links).await {
                Ok(ways) => self.ways = ways,
                Err(NetlinkError::Closed) => return NetlinkError::Closed,
                Err(error) => tracing::warn!(%error, "cannot ask the kernel for its routes"),
            }
            self.tell_links();
        }
    }

    /// Reads everything anew. Events tell of the changes that came between the parts of the dump.
    async fn read_everything(&mut self) -> Result<(), NetlinkError> {
        let (table, whole) = self.netlink.table().await?;
        if !whole {
            return Err(NetlinkError::Interrupted);
        }
        self.table.replace_by(table);
        Ok(())
    }

    /// Publishes the links where something is different, and returns them.
    fn tell_links(&self) -> Links {
        let mut links = self.table.links();
        self.ways.tell(&mut links);
        self.links.send_if_modified(|known| {
            let modified = *known != links;
            known.clone_from(&links);
            modified
        });
        links
    }

    fn tell_disturbed(&self) {
        let count = self.table.disturbed();
        self.disturbed.send_if_modified(|known| std::mem::replace(known, count) != count);
    }

    /// Applies an event and all that wait behind it, so that a batch of changes is published once.
    fn apply_all(&mut self, first: NetlinkMessage<RouteNetlinkMessage>) -> Change {
        let mut change = Change::Nothing;
        let mut next = Some(first);
        while let Some(message) = next {
            change = change.max(match message.payload {
                NetlinkPayload::InnerMessage(message) => self.table.apply(&message),
                NetlinkPayload::Overrun(_) => Change::Everything,
                _ => Change::Nothing,
            });
            next = self.events.try_recv().ok().map(|(message, _)| message);
        }
        change
    }
}
