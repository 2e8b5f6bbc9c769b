//! The thread that carries it out.
//!
//! Level-triggered: at each change of the addresses or of their interfaces, and when somebody else has changed rules,
//! routes or a table, it reads what there is, plans and acts; and every minute while there is such an address. What leads
//! somewhere comes before what leads there: routes, rules, settings, marks; and goes the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock;
use crate::datapath::return_path::marking;
use crate::datapath::return_path::numbers::{Number, SOURCE, is_table};
use crate::datapath::return_path::plan::{
    self, Change, Content, Table, Target, Wanted, plan as compare,
};
use crate::datapath::return_path::ruleset::{Part, TABLE};
use crate::datapath::return_path::settings;
use crate::datapath::return_path::state::Returned;
use crate::datapath::upkeep::{self, Connection, Due, RETRY, Repairs, causes};
use crate::host::StateFolder;
use crate::net::nft::error::NfnetlinkError;
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::{Link, Links};
use crate::net::rtnl::netlink::Netlink;
use crate::net::rtnl::routing::{Changed, RoutingNews};
use leasehold_core::clock::Instant;
use leasehold_core::election::{Forwarding, Serving, Spreading};

/// All is read at least this often while there are such addresses, whatever the news have said.
const RESYNC: Duration = Duration::from_secs(60);
/// For so long the return path of an address stays after the address, until it is known that connections through it are
/// forwarded to this node.
const LINGER: Duration = Duration::from_secs(5);

/// The inputs of the tenant.
#[derive(Debug)]
pub struct Sources {
    /// The addresses that are served.
    pub serving: watch::Receiver<Serving>,
    /// The addresses that this node has handed over: it goes on to answer their open connections.
    pub forwarding: watch::Receiver<Option<Arc<Forwarding>>>,
    /// The addresses whose clients are spread over nodes.
    pub spreading: watch::Receiver<Option<Arc<Spreading>>>,
    /// The links.
    pub links: watch::Receiver<Links>,
    /// Changes rules and routes.
    pub netlink: Netlink,
    /// Keeps what settings were.
    pub state: StateFolder,
}

/// The inputs of the thread.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) sources: Sources,
    /// Set once nothing is to be left.
    pub(super) removing: watch::Receiver<bool>,
}

/// The addresses, and their interfaces as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    wanted: Wanted,
    links: BTreeMap<InterfaceName, Link>,
    removing: bool,
}

impl Asked {
    fn indices(&self) -> BTreeSet<u32> {
        self.links.values().map(|link| link.index).collect()
    }
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Applier {
    inputs: Inputs,
    returned: watch::Sender<Returned>,
    /// Opened when it is first needed, and anew where it has failed.
    connection: Option<Connection>,
    /// The news of rules and routes while there are such addresses.
    news: Option<RoutingNews>,
    drivers: JoinSet<()>,
    /// The content that this process left in the tables.
    left: Option<Content>,
    /// The addresses in the tables that are not served any more, and until when they stay.
    gone: BTreeMap<IpAddr, Instant>,
    /// The addresses and interfaces for which all was last looked at.
    settled: Option<Asked>,
}

impl Applier {
    pub(super) fn new(inputs: Inputs, returned: watch::Sender<Returned>) -> Self {
        Self {
            inputs,
            returned,
            connection: None,
            news: None,
            drivers: JoinSet::new(),
            left: None,
            gone: BTreeMap::new(),
            settled: None,
        }
    }

    /// Runs until nobody says any more what is served.
    pub(super) async fn run(mut self) {
        let mut look: Option<Instant> = None;
        let mut repairs = Repairs::default();
        loop {
            let now = clock::now();
            if look.is_some_and(|look| look <= now) {
                repairs.read(now);
                look = self.settle().await;
            }
            let indices = self.settled.as_ref().map(Asked::indices).unwrap_or_default();
            let due = upkeep::due(self.connection.as_ref(), TABLE, look);
            let Inputs { sources, removing } = &mut self.inputs;
            let changed = tokio::select! {
                changed = sources.serving.changed() => match changed {
                    Ok(()) => None,
                    Err(_) => return,
                },
                Ok(()) = sources.forwarding.changed() => None,
                Ok(()) = sources.spreading.changed() => None,
                Ok(()) = sources.links.changed() => None,
                Ok(()) = removing.changed() => None,
                () = rerouted(&mut self.news, &indices) => Some(Due::Changed),
                due = due => Some(due),
            };
            let gone = self.note_gone(clock::now());
            look = look.into_iter().chain(gone).min();
            look = match changed {
                Some(due) => Some(due.at(look, &mut repairs)),
                None if self.asked() == self.settled => look,
                None => Some(Instant::default()),
            };
        }
    }

    /// The return paths that are asked for now; `None` until they are known.
    fn asked(&self) -> Option<Asked> {
        let Inputs { sources, removing } = &self.inputs;
        let (serving, links) = (sources.serving.borrow(), sources.links.borrow());
        let removing = *removing.borrow();
        if serving.generation == 0 && !removing {
            return None;
        }
        let none = Content::new();
        let left = self.left.as_ref().unwrap_or(&none);
        let forwarding = sources.forwarding.borrow();
        let now = clock::now();
        let stays = |ip: &IpAddr| {
            let handed = forwarding.as_ref().is_some_and(|it| it.handed.contains(ip));
            handed || self.gone.get(ip).is_none_or(|until| now < *until)
        };
        let spreading = sources.spreading.borrow();
        let wanted = if removing {
            Wanted::new()
        } else {
            plan::wanted(&serving, spreading.as_deref(), left, stays, &links)
        };
        let its = wanted.values().filter_map(|name| Some((name.clone(), links.get(name)?.clone())));
        Some(Asked { links: its.collect(), wanted, removing })
    }

    /// Notes since when addresses in the tables are not served; the next time at which one of them may go.
    fn note_gone(&mut self, now: Instant) -> Option<Instant> {
        let serving = self.inputs.sources.serving.borrow();
        if !serving.complete {
            return None;
        }
        let left = self.left.iter().flatten().map(|(ip, _)| ip);
        let gone = left.filter(|ip| !serving.vips.contains_key(*ip));
        let before = std::mem::take(&mut self.gone);
        let until = |ip: &IpAddr| before.get(ip).copied().unwrap_or(now + LINGER);
        self.gone = gone.map(|ip| (*ip, until(ip))).collect();
        self.gone.values().filter(|until| now < **until).min().copied()
    }

    /// Brings the kernel in line with what is asked for; when to look again.
    async fn settle(&mut self) -> Option<Instant> {
        self.inputs.sources.serving.mark_unchanged();
        self.inputs.sources.links.mark_unchanged();
        let mut failures = Vec::new();
        let tables = self.tables(&mut failures);
        let content = tables.get(&Part::Packets);
        if let (None, Some(table)) = (&self.left, content) {
            let content = table.as_ref().map(|table| table.content.clone());
            self.left = Some(content.unwrap_or_default());
        }
        self.note_gone(clock::now());
        let asked = self.asked()?;
        if content.is_none() {
            // Without it nothing is known of what is left, and where nothing is asked for nothing is missing.
            self.tell(
                &asked,
                Target::default(),
                (!asked.wanted.is_empty()).then(|| list(failures)),
            );
            let retry = (!asked.wanted.is_empty()).then(|| clock::now() + RETRY);
            self.settled = Some(asked);
            return retry;
        }
        if asked.wanted.is_empty() {
            failures.clear();
            self.news = None;
            self.drivers.abort_all();
        } else if let Err(error) = self.listen() {
            failures.push(error.to_string());
        }
        let again = self.settled.as_ref() == Some(&asked);
        let target = self.bring_in_line(&asked, tables, again, &mut failures).await;
        let failure = (!failures.is_empty()).then(|| list(failures));
        self.tell(&asked, target, failure.clone());
        let rest = failure.map(|_| RETRY).or((!asked.wanted.is_empty()).then_some(RESYNC));
        self.settled = Some(asked);
        let now = clock::now();
        let gone = self.note_gone(now);
        rest.map(|rest| now + rest).into_iter().chain(gone).min()
    }

    /// Publishes what is in place, and says what is to be known of it, once.
    fn tell(&self, asked: &Asked, target: Target, failure: Option<String>) {
        let view = Returned {
            applied: asked.wanted.clone(),
            without_gateway: target.without_gateway,
            removed: asked.removing && failure.is_none(),
            failure,
        };
        let before = self.returned.borrow().clone();
        if let Some(cause) = view.failure.as_ref().filter(|_| view.failure != before.failure) {
            tracing::error!(cause, "answers may leave by another interface than the address's");
        }
        for (interface, ipv6) in view.without_gateway.difference(&before.without_gateway) {
            tracing::warn!(
                %interface,
                family = if *ipv6 { "IPv6" } else { "IPv4" },
                "no route of the table main leads to a gateway on the interface: answers to hosts beyond its \
                 subnets leave by the routes of the node",
            );
        }
        if view != before {
            self.returned.send_replace(view);
        }
    }

    /// Acts; the state that the kernel is to be in.
    async fn bring_in_line(
        &mut self,
        asked: &Asked,
        tables: BTreeMap<Part, Option<Table>>,
        again: bool,
        failures: &mut Vec<String>,
    ) -> Target {
        let netlink = self.inputs.sources.netlink.clone();
        let routing = match netlink.routing().await {
            Ok(routing) => routing,
            Err(error) => {
                failures.push(error.to_string());
                return Target::default();
            }
        };
        let links = self.inputs.sources.links.borrow().clone();
        let before: BTreeMap<u32, Number> =
            tables.values().flatten().flat_map(|table| table.content.values().copied()).collect();
        let target = Target::of(&asked.wanted, &links, &before, &routing);
        if !target.without_number.is_empty() {
            let names: Vec<_> = target.without_number.iter().map(ToString::to_string).collect();
            failures.push(format!(
                "all routing tables and marks for return paths are in use by other programs or other \
                 interfaces: none for {}",
                names.join(", ")
            ));
        }
        let change = compare(&target, &routing);
        let mut changed = change != Change::default();
        let state = &self.inputs.sources.state;
        add(&netlink, &change, failures).await;
        note(failures, settings::set(&netlink, state, &links, &target.marked).await);
        changed |= self.mark(&target.content, tables, failures);
        remove(&netlink, &change, failures).await;
        let state = &self.inputs.sources.state;
        note(failures, settings::set_back(&netlink, state, &links, &target.marked).await);
        if changed && again {
            tracing::warn!(
                "routes, rules or marks of return paths were changed: setting them again"
            );
        }
        target
    }

    /// Brings the tables in line; whether anything had to be changed.
    fn mark(
        &mut self,
        content: &Content,
        mut tables: BTreeMap<Part, Option<Table>>,
        failures: &mut Vec<String>,
    ) -> bool {
        let mut changed = false;
        for part in Part::ALL {
            // One that could not be read is not touched.
            let Some(table) = tables.remove(&part) else { continue };
            let mut wanted = content.clone();
            wanted.retain(|ip, _| part.families().iter().any(|family| family.has(*ip)));
            let marked = self.connected().and_then(|connection| {
                marking::bring_in_line(&mut connection.requests, part, &wanted, table)
            });
            match marked {
                Ok(anew) => changed |= anew,
                Err(error) => {
                    if !matches!(error, NfnetlinkError::Refused(..)) {
                        self.connection = None;
                    }
                    failures.push(causes(&error));
                }
            }
        }
        if self.left.is_some() {
            self.left = Some(content.clone());
        }
        changed
    }

    /// The tables as they are now, those that could be read.
    fn tables(&mut self, failures: &mut Vec<String>) -> BTreeMap<Part, Option<Table>> {
        let mut tables = BTreeMap::new();
        for part in Part::ALL {
            let read = self
                .connected()
                .and_then(|connection| marking::read(&mut connection.requests, part));
            match read {
                Ok(table) => drop(tables.insert(part, table)),
                Err(error) => {
                    self.connection = None;
                    failures.push(causes(&error));
                }
            }
        }
        tables
    }

    fn connected(&mut self) -> Result<&mut Connection, NfnetlinkError> {
        let connection = self.connection.take().map_or_else(Connection::open, Ok)?;
        Ok(self.connection.insert(connection))
    }

    /// Listens for news of rules and routes.
    fn listen(&mut self) -> Result<(), NetlinkError> {
        if self.news.is_none() {
            let (news, driver) = RoutingNews::open()?;
            self.drivers.spawn(driver);
            self.news = Some(news);
        }
        Ok(())
    }
}

fn list(mut failures: Vec<String>) -> String {
    failures.dedup();
    failures.join("; ")
}

fn note<T, E: ToString>(failures: &mut Vec<String>, result: Result<T, E>) {
    if let Err(error) = result {
        failures.push(error.to_string());
    }
}

async fn add(netlink: &Netlink, change: &Change, failures: &mut Vec<String>) {
    for route in &change.add_routes {
        let added = netlink.add_route(route).await;
        note(failures, added.map_err(|error| format!("a route to {}: {error}", route.to)));
    }
    for rule in &change.add_rules {
        let added = netlink.add_rule(rule).await;
        note(failures, added.map_err(|error| format!("a rule: {error}")));
    }
}

async fn remove(netlink: &Netlink, change: &Change, failures: &mut Vec<String>) {
    for row in &change.remove_rules {
        let removed = netlink.delete_rule(row).await;
        note(failures, removed.map_err(|error| format!("to remove a rule: {error}")));
    }
    for route in &change.remove_routes {
        let removed = netlink.delete_route(route).await;
        note(failures, removed.map_err(|error| format!("to remove a route: {error}")));
    }
}

/// Waits until a rule of ours or a route that concerns these interfaces has changed, or may have. Our own changes are
/// among the news: a look finds them in place.
async fn rerouted(news: &mut Option<RoutingNews>, indices: &BTreeSet<u32>) {
    let Some(open) = news else { return std::future::pending().await };
    loop {
        let concerned = match open.next().await {
            None => {
                // It is opened anew by the look.
                *news = None;
                return;
            }
            Some(Changed::Rule { .. } | Changed::Unknown) => true,
            Some(Changed::Route { table, interfaces }) => {
                is_table(table)
                    || table == SOURCE && interfaces.iter().any(|index| indices.contains(index))
            }
        };
        if concerned {
            return;
        }
    }
}
