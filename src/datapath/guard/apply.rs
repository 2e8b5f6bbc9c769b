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

use netlink_packet_netfilter::nftables::NfTablesMessage;
use tokio::sync::watch;

use crate::clock;
use crate::datapath::guard::elements;
use crate::datapath::guard::plan::{Change, Elements, Table, plan, wanted};
use crate::datapath::guard::ruleset::{self, TABLE};
use crate::datapath::guard::state::{Exposure, Guarded, Wanted};
use crate::datapath::upkeep::{self, Connection, Due, PASSES, RETRY, Repairs, causes};
use crate::net::nft::connection::{self, Nfnetlink};
use crate::net::nft::elements as nft_elements;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::Family;
use crate::net::nft::rules as nft;
use leasehold_core::clock::Instant;
use leasehold_core::desired::Desired;

/// The table is read at least this often, whatever the news have said.
const RESYNC: Duration = Duration::from_secs(60);

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

/// The table as it was read, and as this process has changed it since.
#[derive(Debug)]
struct Known {
    read: Instant,
    /// The time from which the lifetimes are counted.
    since: Instant,
    table: Option<Table>,
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
            let due = upkeep::due(self.connection.as_ref(), TABLE, look);
            look = tokio::select! {
                changed = self.wanted.changed() => match changed {
                    Ok(()) => Some(Instant::default()),
                    Err(_) => return,
                },
                Ok(()) = self.desired.changed() => Some(Instant::default()),
                due = due => {
                    if due == Due::Changed {
                        self.known = None;
                    }
                    Some(due.at(look, &mut repairs))
                }
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
        upkeep::publish(&self.guarded, change);
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
    let Some(table) = requests.get("tables of the family inet", nft::table_question(TABLE))? else {
        return Ok(None);
    };
    let chain = requests.get("a chain", ruleset::chain_question())?;
    let rules = requests.dump("rules", nft::rules_question(TABLE))?;
    let intact = ruleset::is_intact(&table, chain.as_ref(), &rules);
    let mut table = Table { intact, ..Table::default() };
    for family in Family::ALL {
        let rows = requests
            .dump_attributes("a set", nft_elements::question(TABLE, ruleset::addresses(family)))?;
        elements::read_addresses(family, &rows, &mut table);
        let rows = requests
            .dump_attributes("a set", nft_elements::question(TABLE, ruleset::ports(family)))?;
        elements::read_ports(family, &rows, &mut table);
    }
    Ok(Some(table))
}

/// A change as a transaction.
fn messages(change: &Change) -> Vec<connection::Change> {
    let add = |elements: &Elements| {
        let add =
            |message| connection::Change::add("elements", NfTablesMessage::NewSetElement(message));
        elements::messages(elements).into_iter().map(add)
    };
    match change {
        Change::Delete => vec![upkeep::delete(TABLE)],
        Change::Replace(elements) => {
            let skeleton = ruleset::skeleton().into_iter();
            let made = skeleton.map(|(what, message)| connection::Change::add(what, message));
            upkeep::anew(TABLE).into_iter().chain(made).chain(add(elements)).collect()
        }
        Change::Update { remove, add: added } => {
            let removed = elements::messages(remove).into_iter().map(|message| {
                connection::Change::delete("elements", NfTablesMessage::DeleteSetElement(message))
            });
            removed.chain(add(added)).collect()
        }
    }
}
