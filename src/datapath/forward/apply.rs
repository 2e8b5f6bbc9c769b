//! The thread that owns the tables.
//!
//! Level-triggered: at each change of what is wanted or of the links, and when somebody else has changed a table, it
//! plans and acts. It reads the tables when somebody else may have changed them, and every minute while there is
//! something to forward; in between it knows what it has done itself.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_netfilter::nftables::NfTablesMessage;
use tokio::sync::watch;

use crate::clock;
use crate::datapath::forward::counting::Counting;
use crate::datapath::forward::elements::{self, SETS};
use crate::datapath::forward::plan::{self, Change, Content, Table};
use crate::datapath::forward::ruleset::{self, TABLE};
use crate::datapath::forward::state::Forwarded;
use crate::datapath::tables::{self, RESYNC, Tables};
use crate::datapath::upkeep::{self, Connection, RETRY, Work, causes, publish};
use crate::net::nft::connection::{self, Message, Nfnetlink};
use crate::net::nft::elements as nft_elements;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::Family;
use crate::net::nft::rules as nft;
use crate::net::rtnl::links::Links;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Forwarding, OpenConnections};

/// The thread's state.
#[derive(Debug)]
pub(super) struct Applier {
    forwarded: watch::Sender<Forwarded>,
    tables: Tables<Table>,
    counting: Counting,
}

impl Applier {
    pub(super) fn new(forwarded: watch::Sender<Forwarded>) -> Self {
        Self { forwarded, tables: Tables::default(), counting: Counting::default() }
    }

    /// Counts the open connections through these addresses, if it is time; the last number, and the time of the next
    /// count.
    fn count(
        &mut self,
        addresses: &Arc<BTreeSet<IpAddr>>,
    ) -> (Option<OpenConnections>, Option<Instant>) {
        let Some(due) = self.counting.due(addresses) else { return (None, None) };
        if clock::now() < due {
            return (self.forwarded.borrow().open.clone(), Some(due));
        }
        let counted = self.tables.connected().and_then(|requests| self.counting.count(requests));
        let open = counted.map_err(|error| {
            self.tables.disconnect();
            tracing::debug!(cause = causes(&error), "open connections are not counted");
        });
        (open.ok(), self.counting.due(addresses))
    }
}

impl Work for Applier {
    type Wanted = Forwarding;

    const TABLE: &'static str = TABLE;

    fn connection(&self) -> Option<&Connection> {
        self.tables.connection()
    }

    fn forget(&mut self) {
        self.tables.forget();
    }

    fn settle(
        &mut self,
        forwarding: Arc<Forwarding>,
        links: &mut watch::Receiver<Links>,
    ) -> Option<Instant> {
        let now = clock::now();
        let contents = {
            let links = links.borrow_and_update();
            Family::ALL.map(|family| (family, Content::of(family, &forwarding, &links, now)))
        };
        let (mut addresses, mut failures) = (0, Vec::new());
        for (family, content) in &contents {
            match self.tables.bring_in_line(*family, content) {
                Ok(()) => addresses += content.former.len(),
                Err(error) => {
                    if !matches!(error, NfnetlinkError::Refused(..)) {
                        self.tables.disconnect();
                    }
                    failures.push(causes(&error));
                }
            }
        }
        failures.dedup();
        let failure = (!failures.is_empty()).then(|| failures.join("; "));
        if let Some(cause) = &failure
            && self.forwarded.borrow().failure.as_ref() != Some(cause)
        {
            tracing::error!(cause, "connections that are older than a move are not forwarded");
        }
        let retry = failure.as_ref().map(|_| RETRY);
        let handed = Arc::clone(&forwarding.handed);
        // Addresses wait for this, and a count may take a second.
        publish(&self.forwarded, |view| {
            view.applied = Some(forwarding);
            view.addresses = addresses;
            view.failure = failure;
        });
        let (open, count_again) = self.count(&handed);
        publish(&self.forwarded, |view| view.open = open);
        let ends = contents.iter().flat_map(|(_, content)| content.addresses.values().copied());
        let end = ends.min();
        let rest = retry.or(end.map(|_| RESYNC)).map(|rest| clock::now() + rest);
        end.into_iter().chain(rest).chain(count_again).min()
    }
}

impl tables::Table for Table {
    type Place = Family;
    type Content = Content;
    type Change = Change;

    fn read(requests: &mut Nfnetlink, family: Family) -> Result<Option<Self>, NfnetlinkError> {
        read(requests, family)
    }

    fn end(&mut self, now: Instant) {
        self.content.end(now);
    }

    fn plan(_family: Family, wanted: &Content, table: Option<&Self>) -> Option<Change> {
        plan::plan(wanted, table)
    }

    fn steps(family: Family, change: &Change) -> Vec<Vec<connection::Change>> {
        steps(family, change)
    }

    fn after(_family: Family, wanted: &Content) -> Option<Self> {
        let there = !wanted.addresses.is_empty();
        there.then(|| Self { intact: true, content: wanted.clone() })
    }
}

/// The table as the kernel has it.
fn read(requests: &mut Nfnetlink, family: Family) -> Result<Option<Table>, NfnetlinkError> {
    let about = |question| Message::of(family.tables(), question);
    let Some(answer) = requests.get("tables", about(nft::table_question(TABLE)))? else {
        return Ok(None);
    };
    let chain = requests.get("a chain", about(ruleset::chain_question()))?;
    let rules = requests.dump("rules", about(nft::rules_question(TABLE)))?;
    let intact = ruleset::is_intact(family, &answer, chain.as_ref(), &rules);
    let mut table = Table { intact, ..Table::default() };
    let mut rows: [Vec<Vec<u8>>; 8] = Default::default();
    for (rows, set) in rows.iter_mut().zip(SETS) {
        let question = about(nft_elements::question(TABLE, set));
        *rows = requests.dump_attributes("a set", question)?;
    }
    elements::read(family, &rows, clock::now(), &mut table);
    Ok(Some(table))
}

/// A change as transactions: a packet that has not found its sender in one set finds it in another, if it goes from one to
/// the other meanwhile.
fn steps(family: Family, change: &Change) -> Vec<Vec<connection::Change>> {
    let now = clock::now();
    let added = |content: &Content| {
        let add =
            |message| connection::Change::add("elements", NfTablesMessage::NewSetElement(message));
        elements::messages(content, now).into_iter().map(add)
    };
    let removed = |content: &Content| {
        let delete = |message| {
            connection::Change::delete("elements", NfTablesMessage::DeleteSetElement(message))
        };
        elements::messages(content, now).into_iter().map(delete)
    };
    let steps: Vec<Vec<_>> = match change {
        Change::Delete => vec![vec![upkeep::delete(TABLE)]],
        Change::Replace(content) => {
            let skeleton = ruleset::skeleton(family).into_iter();
            let made = skeleton.map(|(what, message)| connection::Change::add(what, message));
            vec![upkeep::anew(TABLE).into_iter().chain(made).chain(added(content)).collect()]
        }
        Change::Update { remove, add } => {
            let [new, changed] = add.new_and_changed(remove);
            vec![added(&new).collect(), removed(remove).chain(added(&changed)).collect()]
        }
    };
    tables::of_family(family.tables(), steps)
}
