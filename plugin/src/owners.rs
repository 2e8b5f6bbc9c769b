//! `owners`: who owns which address.

use std::net::IpAddr;

use jiff::Timestamp;
use leasehold_core::explain::{State, View, outline};
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};
use serde::Serialize;

use super::args::{ClusterFlags, Format, OwnersArguments, OwnersFormat};
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone};
use super::{output, read};

/// One claim of one Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    service: String,
    addresses: Vec<IpAddr>,
    state: State,
    node: Option<NodeName>,
    interface: Option<InterfaceName>,
    mac: Option<String>,
    /// By the owner's wall clock.
    since: Option<String>,
    cause: Option<String>,
    took: Option<String>,
    transitions: Option<i32>,
    claim: LeaseName,
    policy: Option<String>,
    pool: Option<String>,
}

pub(super) async fn run(
    cluster: &Cluster,
    flags: &ClusterFlags,
    asked: OwnersArguments,
) -> Result<Outcome, PluginError> {
    let world = read::world(cluster).await?;
    let rows = rows(&View::new(&world), flags.namespace.as_deref());
    let format = match asked.output {
        OwnersFormat::Table | OwnersFormat::Wide => Format::Table,
        OwnersFormat::Json => Format::Json,
        OwnersFormat::Yaml => Format::Yaml,
    };
    let text = match output::document(&rows, format)? {
        Some(document) => document,
        None if rows.is_empty() => "No Service has an address from Leasehold.\n".to_owned(),
        None => table(&rows, asked.output == OwnersFormat::Wide, output::now()).text(),
    };
    output::print(&text)?;
    Ok(Outcome::Well)
}

/// The claims of all Services of a namespace, or of all.
pub(super) fn rows(view: &View<'_>, namespace: Option<&str>) -> Vec<Row> {
    let within = |service: &&String| {
        namespace.is_none_or(|it| service.split_once('/').is_some_and(|(of, _)| of == it))
    };
    let services = view.world().services.iter().filter(|(_, row)| row.ours).map(|(name, _)| name);
    let stories = services.filter(within).filter_map(|service| outline(view, service));
    stories
        .flat_map(|story| {
            let policy = story.policy.and_then(|governed| governed.policy);
            let (service, pool) = (story.service, story.pool);
            story.claims.into_iter().map(move |claim| {
                let owner = claim.owner;
                Row {
                    service: service.clone(),
                    addresses: claim.addresses.into_iter().collect(),
                    state: claim.state,
                    node: owner.as_ref().map(|it| it.node.clone()),
                    interface: owner.as_ref().and_then(|it| it.interface.clone()),
                    mac: owner.as_ref().and_then(|it| it.mac.clone()),
                    since: owner.as_ref().and_then(|it| it.since.clone()),
                    cause: owner.as_ref().map(|it| it.cause.clone()),
                    took: owner.as_ref().and_then(|it| it.took.clone()),
                    transitions: owner.as_ref().map(|it| it.transitions),
                    claim: claim.claim,
                    policy: policy.clone(),
                    pool: pool.clone(),
                }
            })
        })
        .collect()
}

fn table(rows: &[Row], wide: bool, now: Timestamp) -> Table {
    const FEW: [&str; 6] = ["SERVICE", "ADDRESS", "NODE", "INTERFACE", "SINCE", "CAUSE"];
    const MANY: [&str; 12] = [
        "SERVICE",
        "ADDRESS",
        "NODE",
        "INTERFACE",
        "SINCE",
        "TOOK",
        "MAC",
        "MOVES",
        "POOL",
        "POLICY",
        "CLAIM",
        "CAUSE",
    ];
    let mut table = Table::new(if wide { &MANY } else { &FEW });
    for row in rows {
        let since = row.since.as_ref().and_then(|since| since.parse().ok());
        let since = since.map_or_else(dash, |since| output::age(since, now));
        let mut cells = vec![
            Cell::from(row.service.as_str()),
            output::listed(&row.addresses).into(),
            node(row),
            text(row.interface.as_ref()).into(),
            since.into(),
        ];
        if wide {
            cells.extend([
                text(row.took.as_ref()).into(),
                text(row.mac.as_ref()).into(),
                text(row.transitions.as_ref()).into(),
                text(row.pool.as_ref()).into(),
                text(row.policy.as_ref()).into(),
                Cell::from(row.claim.as_str()),
            ]);
        }
        cells.push(text(row.cause.as_ref()).into());
        table.row(cells);
    }
    table
}

fn node(row: &Row) -> Cell {
    match (&row.node, row.state) {
        (Some(node), _) => Cell::new(node.as_str(), Tone::Good),
        (None, State::Silent) => Cell::new("<not announced>", Tone::Warning),
        (None, _) => Cell::new("<none>", Tone::Bad),
    }
}

fn text<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(dash, ToString::to_string)
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_a_line_each_and_more_columns_where_wanted() {
        let row = Row {
            service: "web/shop".to_owned(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            state: State::Owned,
            node: Some("node-2".parse().unwrap()),
            interface: Some("eth0".parse().unwrap()),
            mac: Some("02:00:5e:00:53:01".to_owned()),
            since: Some("1970-01-01T00:00:10Z".to_owned()),
            cause: Some("new service".to_owned()),
            took: None,
            transitions: Some(3),
            claim: "web.shop".parse().unwrap(),
            policy: None,
            pool: Some("lan".to_owned()),
        };
        let nobody = Row {
            service: "web/waits".to_owned(),
            state: State::Unowned,
            node: None,
            interface: None,
            since: None,
            cause: None,
            claim: "web.waits".parse().unwrap(),
            ..row.clone()
        };
        let rows = [row, nobody];
        let now = Timestamp::from_second(70).unwrap();
        let plain =
            |wide| anstream::adapter::strip_str(&table(&rows, wide, now).text()).to_string();
        assert_eq!(
            plain(false),
            "SERVICE     ADDRESS     NODE     INTERFACE   SINCE   CAUSE\n\
             web/shop    192.0.2.1   node-2   eth0        60s     new service\n\
             web/waits   192.0.2.1   <none>   -           -       -\n"
        );
        assert!(plain(true).contains("02:00:5e:00:53:01   3       lan    -        web.shop"));
    }
}
