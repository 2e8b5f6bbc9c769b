//! The thread that owns the table.
//!
//! Level-triggered: at each change of what is wanted, and when somebody else has changed the table, it reads, plans
//! and acts. Most of the time there is no table, and nothing to do.

use std::time::Duration;

use tokio::sync::watch;

use crate::clock;
use crate::datapath::detour::plan::{Change, Table, Wanted, plan};
use crate::datapath::detour::ruleset::{self, TABLE};
use crate::datapath::detour::state::Detoured;
use crate::datapath::detour::{clients, elements, ended};
use crate::datapath::upkeep::{self, Connection, PASSES, RETRY, Repairs, causes};
use crate::net::nft::connection::{self, Nfnetlink};
use crate::net::nft::elements as nft_elements;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::Family;
use crate::net::nft::rules as nft;
use leasehold_core::clock::Instant;
use leasehold_core::desired::Detours;

/// The table is looked at at least this often while there is one, whatever the news have said.
const RESYNC: Duration = Duration::from_secs(60);
/// Connections that were about to begin when a detour was made are forgotten as much later.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// The thread's state.
#[derive(Debug)]
pub(super) struct Applier {
    wanted: watch::Receiver<Detours>,
    detoured: watch::Sender<Detoured>,
    /// Opened when it is first needed, and anew where it has failed.
    connection: Option<Connection>,
    /// The detours around which connections were last forgotten, and when they are again.
    forgotten: Detours,
    again: Option<Instant>,
}

impl Applier {
    pub(super) fn new(wanted: watch::Receiver<Detours>, detoured: watch::Sender<Detoured>) -> Self {
        Self { wanted, detoured, connection: None, forgotten: Detours::default(), again: None }
    }

    /// Runs until nobody says any more what is wanted.
    pub(super) async fn run(mut self) {
        // A former process may have left something.
        let mut look = Some(Instant::default());
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
                due = due => Some(due.at(look, &mut repairs)),
            };
        }
    }

    /// Brings the table in line with what is wanted; when to look again.
    fn settle(&mut self) -> Option<Instant> {
        let detours = self.wanted.borrow_and_update().clone();
        let wanted = Wanted::of(&detours);
        let result = self.bring_in_line(&wanted).and_then(|rest| {
            self.forget(&detours)?;
            Ok(rest)
        });
        let now = clock::now();
        match result {
            Ok(rest) => {
                self.publish(|view| {
                    view.ports = wanted.ports.len();
                    view.failure = None;
                });
                let rest = rest.map(|rest| now + rest.min(RESYNC));
                rest.into_iter().chain(self.again).min()
            }
            Err(error) => {
                if !matches!(error, NfnetlinkError::Refused(..)) {
                    self.connection = None;
                }
                let cause = causes(&error);
                let known = self.detoured.borrow().failure.as_ref() == Some(&cause);
                if !known {
                    tracing::error!(cause, "detours around nodes that are down do not work");
                }
                self.publish(|view| view.failure = Some(cause));
                Some(now + RETRY)
            }
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Detoured)) {
        upkeep::publish(&self.detoured, change);
    }

    /// Reads, plans and acts; for how long nothing has to be renewed then, if anything is there.
    fn bring_in_line(&mut self, wanted: &Wanted) -> Result<Option<Duration>, NfnetlinkError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let table = read(self.connected()?, wanted)?;
            let plan = plan(wanted, table.as_ref());
            let Some(change) = plan.change else { return Ok(plan.rest) };
            // What expired meanwhile may still hold its chain: then all is made anew.
            let change = match change {
                Change::Update { .. } if tries >= PASSES => Change::anew(wanted),
                change => change,
            };
            match self.connected()?.transact(messages(&change)) {
                Ok(()) => tracing::debug!(?change, "detours changed"),
                // Somebody changed it since it was read.
                Err(NfnetlinkError::Refused(what, error)) if tries < PASSES => {
                    tracing::debug!(what, %error, "a change of detours was refused");
                }
                Err(error) => return Err(error),
            }
            if tries > PASSES {
                return Ok(Some(RETRY));
            }
        }
    }

    /// Forgets connections that are to begin anew, when others are detoured and once more a little later.
    fn forget(&mut self, detours: &Detours) -> Result<(), NfnetlinkError> {
        let now = clock::now();
        let new = self.forgotten.ports != detours.ports;
        if !new && self.again.is_none_or(|again| now < again) {
            return Ok(());
        }
        self.again = (new && !detours.ports.is_empty()).then(|| now + STRAGGLERS);
        self.forgotten = detours.clone();
        if detours.ports.is_empty() {
            return Ok(());
        }
        clients::forget(self.connected()?, detours)?;
        let forgotten = ended::forget(self.connected()?, detours)?;
        self.publish(|view| view.forgotten += forgotten);
        Ok(())
    }

    fn connected(&mut self) -> Result<&mut Nfnetlink, NfnetlinkError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open()?,
        };
        Ok(&mut self.connection.insert(connection).requests)
    }
}

/// The table as the kernel has it.
fn read(requests: &mut Nfnetlink, wanted: &Wanted) -> Result<Option<Table>, NfnetlinkError> {
    let question = nft::table_question(TABLE);
    let Some(answer) = requests.get("tables of the family inet", question)? else {
        return Ok(None);
    };
    let mut chains = Vec::new();
    for question in ruleset::chain_questions() {
        chains.push(requests.get("a chain", question)?);
    }
    let rules = requests.dump("rules", nft::rules_question(TABLE))?;
    let (intact, choices) = ruleset::is_intact(&answer, &chains, &rules, wanted);
    let mut table = Table { intact, choices: choices.into_iter().collect(), ..Table::default() };
    for family in Family::ALL {
        let sets = [ruleset::ports, ruleset::detoured, ruleset::lost, ruleset::affine];
        let mut rows: [Vec<Vec<u8>>; 4] = Default::default();
        for (rows, set) in rows.iter_mut().zip(sets) {
            let question = nft_elements::question(TABLE, set(family));
            *rows = requests.dump_attributes("a set", question)?;
        }
        elements::read(family, &rows, &mut table);
    }
    Ok(Some(table))
}

/// A change as a transaction.
fn messages(change: &Change) -> Vec<connection::Change> {
    let add = |(what, message)| connection::Change::add(what, message);
    match change {
        Change::Delete => vec![upkeep::delete(TABLE)],
        Change::Replace(content) => {
            let made = ruleset::skeleton().into_iter().chain(elements::added(content));
            upkeep::anew(TABLE).into_iter().chain(made.map(add)).collect()
        }
        Change::Update { remove, add: added } => {
            let removed = elements::removed(remove).into_iter();
            let removed = removed.map(|(what, message)| connection::Change::delete(what, message));
            removed.chain(elements::added(added).into_iter().map(add)).collect()
        }
    }
}
