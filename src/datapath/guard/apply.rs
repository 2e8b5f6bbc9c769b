//! The thread that owns the table.
//!
//! Level-triggered: at each change of the addresses, of what the cluster says, and when somebody else has
//! changed the table, it plans and acts. It reads the table when somebody else may have changed it, and every
//! minute; in between it knows what it has done itself: with many addresses a dump takes as long as all the
//! rest together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::NLM_F_APPEND;
use netlink_packet_netfilter::nftables::NfTablesMessage;
use tokio::sync::watch;

use crate::clock;
use crate::clock::sleep_until;
use crate::datapath::guard::elements;
use crate::datapath::guard::plan::{Change, Elements, Table, plan, wanted};
use crate::datapath::guard::ruleset::{self, Family, TABLE};
use crate::datapath::guard::state::{Exposure, Guarded, Wanted};
use crate::net::nft::connection::{self, Nfnetlink};
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::news::News;
use leasehold_core::clock::Instant;
use leasehold_core::desired::Desired;

/// Interval between attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The table is read at least this often, whatever the news have said.
const RESYNC: Duration = Duration::from_secs(60);
/// At most once in this time the table is read because of somebody else's change: it may be one of
/// many.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// Number of attempts of a transaction in a row: the table may have changed since it was read.
const PASSES: usize = 2;

/// The thread's state.
#[derive(Debug)]
pub(super) struct Applier {
    wanted: watch::Receiver<Option<Wanted>>,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    guarded: watch::Sender<Guarded>,
    /// Opened when it is first needed, and anew where it has failed.
    connection: Option<Connection>,
    /// The elements that this process left in the table.
    left: Option<Elements>,
    /// The table, unless somebody else may have changed it.
    known: Option<Known>,
}

/// Reads of the table because of changes by other processes.
#[derive(Debug, Default)]
struct Repairs {
    /// Another process has changed it since it was last read.
    changed: bool,
    /// The earliest time of the next read because of that.
    next: Instant,
}

impl Repairs {
    /// Notes a change by another process and returns the time of the read. Any number of changes before it lead
    /// to one read.
    fn changed(&mut self, now: Instant) -> Instant {
        self.changed = true;
        self.next.max(now)
    }

    /// It is read now.
    fn read(&mut self, now: Instant) {
        if std::mem::take(&mut self.changed) {
            self.next = now + REPAIR_PAUSE;
        }
    }
}

/// The table as it was read, and as this process has changed it since.
#[derive(Debug)]
struct Known {
    read: Instant,
    /// The time from which the lifetimes are counted.
    since: Instant,
    table: Option<Table>,
}

#[derive(Debug)]
struct Connection {
    requests: Nfnetlink,
    news: News,
}

impl Connection {
    fn open() -> Result<Self, NfnetlinkError> {
        let requests = Nfnetlink::open()?;
        let news = News::open(requests.port())?;
        Ok(Self { requests, news })
    }
}

impl Applier {
    pub(super) fn new(
        wanted: watch::Receiver<Option<Wanted>>,
        desired: watch::Receiver<Option<Arc<Desired>>>,
        guarded: watch::Sender<Guarded>,
    ) -> Self {
        Self { wanted, desired, guarded, connection: None, left: None, known: None }
    }

    /// Runs until nobody says any more which addresses there are.
    pub(super) async fn run(mut self) {
        let mut look: Option<Instant> = None;
        let mut repairs = Repairs::default();
        loop {
            let now = clock::now();
            if look.is_some_and(|look| look <= now) {
                repairs.read(now);
                look = self.settle();
            }
            let news = async {
                match &self.connection {
                    Some(connection) => connection.news.changed(TABLE).await,
                    None => std::future::pending().await,
                }
            };
            let timer = async {
                match look {
                    Some(look) => sleep_until(look).await,
                    None => std::future::pending().await,
                }
            };
            look = tokio::select! {
                changed = self.wanted.changed() => match changed {
                    Ok(()) => Some(Instant::default()),
                    Err(_) => return,
                },
                Ok(()) = self.desired.changed() => Some(Instant::default()),
                () = news => {
                    self.known = None;
                    let at = repairs.changed(clock::now());
                    Some(look.map_or(at, |look| look.min(at)))
                }
                () = timer => Some(Instant::default()),
            };
        }
    }

    /// Brings the table in line with what is known; when to look again.
    fn settle(&mut self) -> Option<Instant> {
        // What a former process left stays until it is known which of its addresses are there.
        let Wanted { generation, addresses } = self.wanted.borrow_and_update().clone()?;
        let desired = self.desired.borrow_and_update().clone();
        // Before the protection of an address ends it is no longer promised.
        self.publish(|guarded| {
            guarded.generation = generation;
            guarded.settled.retain(|ip| addresses.contains(ip));
        });
        let result = self.bring_in_line(&addresses, desired.as_deref());
        let now = clock::now();
        match result {
            Ok((protected, rest)) => {
                self.publish(|guarded| {
                    guarded.settled.clone_from(&addresses);
                    guarded.protected.clone_from(&protected);
                    guarded.exposure = None;
                });
                Some(now + rest.unwrap_or(RESYNC).min(RESYNC))
            }
            Err(Failure { error, exposed }) => {
                if !matches!(error, NfnetlinkError::Refused(..)) {
                    self.connection = None;
                }
                let cause = causes(&error);
                self.publish(|guarded| {
                    // All was done that could be.
                    guarded.settled.clone_from(&addresses);
                    guarded.protected.retain(|ip| addresses.contains(ip) && !exposed.contains(ip));
                    guarded.exposure = Some(Exposure { addresses: exposed, cause });
                });
                Some(now + RETRY)
            }
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Guarded)) {
        self.guarded.send_if_modified(|guarded| {
            let before = guarded.clone();
            change(guarded);
            *guarded != before
        });
    }

    /// Plans and acts; what is protected then, and for how long nothing has to be renewed.
    fn bring_in_line(
        &mut self,
        addresses: &BTreeSet<IpAddr>,
        desired: Option<&Desired>,
    ) -> Result<(BTreeSet<IpAddr>, Option<Duration>), Failure> {
        let reach = desired.map(|desired| &desired.reach);
        let unread = |error| Failure { error, exposed: wanted(addresses, reach, None).addresses };
        let mut tries = 0;
        loop {
            tries += 1;
            let Known { read, table, .. } = self.table().map_err(unread)?;
            let wanted = wanted(addresses, reach, table.as_ref());
            let plan = plan(&wanted, table.as_ref());
            let Some(change) = plan.change else {
                self.left = table.as_ref().map(Table::elements);
                self.known = Some(Known { read, since: clock::now(), table });
                return Ok((wanted.addresses, plan.rest));
            };
            let sent = messages(&change);
            match self.connected().and_then(|requests| requests.transact(sent)) {
                Ok(()) => {
                    tracing::debug!(?change, "host protection changed");
                    let none = wanted == Elements::default();
                    let protected = wanted.addresses.clone();
                    let table = change.applied_to(table);
                    self.known = Some(Known { read, since: clock::now(), table });
                    self.left = (!none).then_some(wanted);
                    return Ok((protected, None));
                }
                // Somebody changed it since it was read.
                Err(NfnetlinkError::Refused(..)) if tries < PASSES => {}
                Err(error) => {
                    let held = table.filter(|table| table.intact);
                    let is_held = |ip: &IpAddr| {
                        held.as_ref().is_some_and(|table| table.addresses.contains_key(ip))
                    };
                    let mut exposed = wanted.addresses;
                    exposed.retain(|ip| !is_held(ip));
                    return Err(Failure { error, exposed });
                }
            }
        }
    }

    /// The table as it is now.
    fn table(&mut self) -> Result<Known, NfnetlinkError> {
        let now = clock::now();
        let known = self.known.take().filter(|known| now.saturating_since(known.read) < RESYNC);
        if let Some(mut known) = known {
            let passed = now.saturating_since(known.since);
            known.since = now;
            known.table.iter_mut().for_each(|table| table.age(passed));
            return Ok(known);
        }
        let table = self.connected().and_then(read)?;
        self.notice_repairs(table.as_ref());
        Ok(Known { read: now, since: now, table })
    }

    /// Says so where somebody else has changed what this process left.
    fn notice_repairs(&mut self, table: Option<&Table>) {
        let Some(left) = &self.left else { return };
        if table.is_some_and(|table| table.intact && table.elements() == *left) {
            return;
        }
        tracing::warn!(
            table = TABLE,
            "somebody removed or changed the nftables rules that protect this node: putting them back"
        );
        self.left = None;
        self.publish(|guarded| guarded.repairs = guarded.repairs.saturating_add(1));
    }

    fn connected(&mut self) -> Result<&mut Nfnetlink, NfnetlinkError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open()?,
        };
        Ok(&mut self.connection.insert(connection).requests)
    }
}

/// A failure to protect addresses.
struct Failure {
    error: NfnetlinkError,
    exposed: BTreeSet<IpAddr>,
}

/// The table as the kernel has it.
fn read(requests: &mut Nfnetlink) -> Result<Option<Table>, NfnetlinkError> {
    let Some(table) = requests.get("tables of the family inet", ruleset::table_question())? else {
        return Ok(None);
    };
    let chain = requests.get("a chain", ruleset::chain_question())?;
    let rules = requests.dump("rules", ruleset::rules_question())?;
    let intact = ruleset::is_intact(&table, chain.as_ref(), &rules);
    let mut table = Table { intact, ..Table::default() };
    for family in Family::ALL {
        let rows = requests.dump_attributes("a set", elements::question(family.addresses()))?;
        elements::read_addresses(family, &rows, &mut table);
        let rows = requests.dump_attributes("a set", elements::question(family.ports()))?;
        elements::read_ports(family, &rows, &mut table);
    }
    Ok(Some(table))
}

/// A change as a transaction.
fn messages(change: &Change) -> Vec<connection::Change> {
    let table = |make: fn(_) -> NfTablesMessage| make(ruleset::table());
    let delete = || connection::Change::delete("the table", table(NfTablesMessage::DeleteTable));
    let create = || connection::Change::add("the table", table(NfTablesMessage::NewTable));
    let add = |elements: &Elements| {
        let add =
            |message| connection::Change::add("elements", NfTablesMessage::NewSetElement(message));
        elements::messages(elements).into_iter().map(add)
    };
    let mut messages = Vec::new();
    match change {
        Change::Delete => messages.push(delete()),
        Change::Replace(elements) => {
            // To be deleted whether it is there or not.
            messages.extend([create(), delete(), create()]);
            for (what, message) in ruleset::skeleton() {
                let mut change = connection::Change::add(what, message);
                if matches!(change.message, NfTablesMessage::NewRule(_)) {
                    change.flags |= NLM_F_APPEND;
                }
                messages.push(change);
            }
            messages.extend(add(elements));
        }
        Change::Update { remove, add: added } => {
            messages.extend(elements::messages(remove).into_iter().map(|message| {
                connection::Change::delete("elements", NfTablesMessage::DeleteSetElement(message))
            }));
            messages.extend(add(added));
        }
    }
    messages
}

fn causes(error: &NfnetlinkError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    #[test]
    fn many_changes_at_once_delay_the_repair_of_the_next_by_one_pause() {
        let mut repairs = Repairs::default();
        assert_eq!(repairs.changed(at(0)), at(0));
        repairs.read(at(0));
        for change in 1..100 {
            assert_eq!(repairs.changed(at(change)), at(1_000));
        }
        // Read meanwhile for something else, it is read again no sooner.
        repairs.read(at(500));
        assert_eq!(repairs.changed(at(600)), at(1_500));
        repairs.read(at(1_500));
        repairs.read(at(2_000));
        assert_eq!(repairs.changed(at(5_000)), at(5_000));
    }
}
