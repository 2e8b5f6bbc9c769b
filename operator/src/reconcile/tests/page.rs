//! The page of the cluster, of what the index knows.

use std::collections::BTreeMap;

use leasehold::report::page::Snapshot as _;

use super::*;
use crate::report::status::{ClusterStatus, Moves};

/// The section of Services of the page.
fn services(index: &Index) -> String {
    let role = "active".to_owned();
    let status = ClusterStatus::of(index, &BTreeMap::new(), &Moves::default(), role, START);
    let sections = status.sections();
    sections.into_iter().find(|section| section.id == "services").unwrap().body
}

#[test]
fn the_nodes_over_which_a_service_is_spread_stand_below_its_owner() {
    let mut index = a_service_and_a_pool();
    let (_, patch, _) = service_jobs(&index).remove(0);
    index.apply(Change::Service(applied(patched(service("shop", 7), &patch, 8))), START);
    own(&mut index, "web.shop", "10.0.0.0", 9, START);
    let page = services(&index);
    assert!(page.contains("10.0.0.0") && page.contains("<td data-label=\"Node\">node-1</td>"));
    let says = json!({
        "leasehold.dev/addresses": "10.0.0.0", "leasehold.dev/session": "uid of node-1/3",
        "leasehold.dev/members": "node-2,node-3=3",
    });
    let spread = lease("web.shop", 10, Some("node-1"), 1, &says);
    index.apply(Change::Claim(applied(spread)), START);
    let page = services(&index);
    let shown = "node-1<br><small>spread over: node-2 25 %, node-3 75 %</small></td>";
    assert!(page.contains(shown), "{page}");
}
