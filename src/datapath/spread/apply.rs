//! The thread that owns the tables.
//!
//! Level-triggered: at each change of what is wanted or of the links, and when somebody else has changed a table, it
//! plans and acts.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::clock;
use crate::datapath::spread::elements::{self, Set};
use crate::datapath::spread::plan::{self, Change, Content, Place, Table};
use crate::datapath::spread::rules;
use crate::datapath::spread::ruleset::{self, TABLE};
use crate::datapath::spread::state::Placed;
use crate::datapath::tables::{self, RESYNC, Tables};
use crate::datapath::upkeep::{self, Connection, RETRY, Work, causes, publish};
use crate::net::nft::connection::{self, Message, Nfnetlink};
use crate::net::nft::elements as nft_elements;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::rules as nft;
use crate::net::rtnl::links::Links;
use leasehold_core::clock::Instant;
use leasehold_core::election::Spreading;

/// The thread's state.
#[derive(Debug)]
pub(super) struct Applier {
    placed: watch::Sender<Placed>,
    tables: Tables<Table>,
}

impl Applier {
    pub(super) fn new(placed: watch::Sender<Placed>) -> Self {
        Self { placed, tables: Tables::default() }
    }

    /// Brings the table for what comes in by devices in line; why it is not there, if so. What it does otherwise, those of
    /// the families do.
    fn bring_ingress_in_line(
        &mut self,
        content: &Content,
    ) -> Result<Option<String>, NfnetlinkError> {
        match self.tables.bring_in_line(Place::Ingress, content) {
            Ok(()) => Ok(None),
            Err(error) if is_refusal(&error) => {
                // What is there may lead astray.
                if let Err(error) = self.tables.bring_in_line(Place::Ingress, &Content::default()) {
                    tracing::debug!(cause = causes(&error), "the table of devices stays");
                }
                Ok(Some(causes(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the tables in line; the number of addresses whose packets are spread then, why packets take the slow path, and
    /// why not all is done.
    fn bring_in_line(
        &mut self,
        spreading: &Spreading,
        contents: &[(Place, Content)],
    ) -> (usize, Option<String>, Option<String>) {
        let (mut addresses, mut slow, mut failures) = (0, None, Vec::new());
        for (place, content) in contents {
            let result = match place {
                Place::Ingress => self.bring_ingress_in_line(content).map(|cause| slow = cause),
                Place::Routing(_) => self.tables.bring_in_line(*place, content),
            };
            match result {
                Ok(()) if *place == Place::Ingress => {}
                Ok(()) => {
                    let owned =
                        |ip| spreading.addresses.get(ip).is_some_and(|it| it.layout.is_owned());
                    let dispatched = content.elements.dispatched.keys();
                    addresses += dispatched.filter(|(ip, _)| owned(ip)).count();
                }
                Err(error) => {
                    if !is_refusal(&error) {
                        self.tables.disconnect();
                    }
                    failures.push(causes(&error));
                }
            }
        }
        failures.dedup();
        (addresses, slow, (!failures.is_empty()).then(|| failures.join("; ")))
    }
}

/// Whether the kernel refuses what it was asked for: it would do so again.
const fn is_refusal(error: &NfnetlinkError) -> bool {
    matches!(error, NfnetlinkError::Refused(..) | NfnetlinkError::Unsupported(..))
}

impl Work for Applier {
    type Wanted = Spreading;

    const TABLE: &'static str = TABLE;

    fn connection(&self) -> Option<&Connection> {
        self.tables.connection()
    }

    fn forget(&mut self) {
        self.tables.forget();
    }

    fn settle(
        &mut self,
        spreading: Arc<Spreading>,
        links: &mut watch::Receiver<Links>,
    ) -> Option<Instant> {
        let contents = {
            let links = links.borrow_and_update();
            Place::ALL.map(|place| (place, Content::of(place, &spreading, &links)))
        };
        let (addresses, slow, failure) = self.bring_in_line(&spreading, &contents);
        let before = self.placed.borrow().clone();
        if let Some(cause) = failure.as_ref().filter(|_| before.failure != failure) {
            tracing::error!(cause, "packets for addresses are not spread over nodes");
        }
        if let Some(cause) = slow.as_ref().filter(|_| before.slow != slow) {
            tracing::warn!(cause, "packets for addresses are spread over nodes by the slow path");
        }
        let retry = failure.as_ref().map(|_| RETRY);
        let empty = contents.iter().all(|(_, content)| content.is_empty());
        publish(&self.placed, |view| {
            *view = Placed { applied: Some(spreading), addresses, slow, failure };
        });
        retry.or((!empty).then_some(RESYNC)).map(|rest| clock::now() + rest)
    }
}

impl tables::Table for Table {
    type Place = Place;
    type Content = Content;
    type Change = Change;

    fn read(requests: &mut Nfnetlink, place: Place) -> Result<Option<Self>, NfnetlinkError> {
        let about = |question| Message::of(place.tables(), question);
        let Some(answer) = requests.get("tables", about(nft::table_question(TABLE)))? else {
            return Ok(None);
        };
        let rules = requests.dump("rules", about(nft::rules_question(TABLE)))?;
        let sets = requests.dump("sets", about(nft::sets_question(TABLE)))?;
        let mut base = BTreeMap::new();
        for name in ruleset::base_chains(place, &rules) {
            let chain = requests.get("a chain", about(nft::chain_question(TABLE, &name)))?;
            base.insert(name, chain);
        }
        let mut table = ruleset::read(place, &answer, &base, &rules, &sets);
        for set in Set::all(place) {
            let question = about(nft_elements::question(TABLE, set.name()));
            set.read(&requests.dump_attributes("a set", question)?, &mut table);
        }
        Ok(Some(table))
    }

    fn end(&mut self, _now: Instant) {}

    fn plan(place: Place, wanted: &Content, table: Option<&Self>) -> Option<Change> {
        plan::plan(wanted, table, |name, chain| rules::expected(place, name, chain))
    }

    fn steps(place: Place, change: &Change) -> Vec<Vec<connection::Change>> {
        let add = |(what, message)| connection::Change::add(what, message);
        let delete = |(what, message)| connection::Change::delete(what, message);
        let steps: Vec<Vec<_>> = match change {
            Change::Delete => vec![vec![upkeep::delete(TABLE)]],
            Change::Replace(content) => {
                let made = ruleset::skeleton(place).into_iter();
                let made = made.chain(elements::chains(place, content));
                let made = made.chain(elements::leads(place, content));
                vec![upkeep::anew(TABLE).into_iter().chain(made.map(add)).collect()]
            }
            Change::Update { remove, add: added } => {
                let no_more = elements::leads_no_more(place, remove).into_iter();
                let leading = elements::leads(place, added).into_iter();
                vec![
                    elements::chains(place, added).into_iter().map(add).collect(),
                    no_more.map(delete).chain(leading.map(add)).collect(),
                    elements::without_chains(remove).into_iter().map(delete).collect(),
                ]
            }
        };
        tables::of_family(place.tables(), steps)
    }

    fn after(place: Place, wanted: &Content) -> Option<Self> {
        (!wanted.is_empty()).then(|| {
            let expected = |(name, chain): (&String, &Arc<_>)| {
                (name.clone(), rules::expected(place, name, chain))
            };
            let chains: BTreeMap<_, _> = wanted.chains.iter().map(expected).collect();
            let devices = wanted.devices.iter();
            Self {
                intact: true,
                devices: devices
                    .map(|(name, device)| (name.clone(), Some(device.clone())))
                    .collect(),
                sets: chains.values().flat_map(|(_, sets)| sets).cloned().collect(),
                chains: chains.into_iter().map(|(name, (mark, _))| (name, mark)).collect(),
                elements: wanted.elements.clone(),
            }
        })
    }
}
