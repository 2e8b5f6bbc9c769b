//! The architecture of the speaker, as a table: what each room may import.

use std::path::Path;

use leasehold_architecture::faults;

/// No two files import each other.
const LARGEST_CIRCLE: usize = 1;

/// The rooms in the order of imports, from the base up: see [`leasehold_architecture::rooms`].
const ROOMS: &str = "
announce::counters
clock
crate
datapath
desired
lease
net::buffers
net::datagram
version
lease::io <- clock desired
lease::outage::state <- clock
lease::store <- clock
net::frames <- net::buffers
net::nft <- net::buffers net::datagram
net::rtnl <- clock net::buffers net::datagram
api <- clock lease::io
datapath::guard <- clock desired net::nft net::rtnl
lease::context::state <- clock desired lease::io
lease::output::state <- clock lease::io
lease::placement <- desired lease::io
lease::session::state <- clock lease::io
net <- clock net::frames net::rtnl
config <- lease::session::state net::rtnl version
detect <- clock lease::io lease::placement net
host <- api lease::io net::rtnl
lease::claim::state <- clock desired lease::io lease::session::state
lease::context <- clock desired lease::context::state lease::io lease::output::state
    lease::placement lease::session::state lease::store
proxy <- api clock desired lease::io net::nft net::rtnl
report::health <- api
announce::layer2 <- announce::counters api clock desired host lease::io net
explain <- desired lease::context lease::placement
host::lock <- host report::health
lease::claim <- clock desired lease::claim::state lease::context lease::io lease::placement
    lease::session::state
lease::transfer::state <- clock desired lease::claim::state
lease::wire::state <- clock desired lease::claim::state lease::context::state lease::io
announce::address <- announce::counters announce::layer2 clock datapath::guard lease::io net::rtnl
lease::transfer <- clock desired lease::claim lease::context lease::io lease::placement
    lease::transfer::state
lease::wire <- clock desired lease::claim lease::context lease::io lease::placement
    lease::wire::state
announce <- announce::address announce::counters announce::layer2 datapath::guard host lease::io net
lease::outage <- clock desired lease::claim lease::context lease::io lease::outage::state
    lease::placement lease::wire
lease::output <- clock desired lease::claim lease::context lease::io lease::output::state
    lease::wire
lease::session <- clock desired lease::claim lease::context lease::io lease::placement
    lease::session::state lease::store lease::transfer lease::wire
lease::engine <- clock desired lease::claim lease::context lease::io lease::outage::state
    lease::output::state lease::placement lease::session lease::store lease::transfer lease::wire
report <- api clock config datapath::guard desired lease::engine lease::io report::health version
report::metrics <- announce::counters clock datapath::guard detect lease::io net report
    report::health version
watch <- api clock desired lease::io report
drive <- announce api clock datapath::guard detect host lease::engine lease::io net proxy report
run <- announce api clock config datapath::guard detect drive host lease net proxy report version
    watch
";

fn found(planted: Option<(&str, &str)>) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    faults(&root, ROOMS, LARGEST_CIRCLE, planted).expect("the sources of the speaker")
}

#[test]
fn each_room_imports_what_the_table_allows_and_no_more() {
    let found = found(None);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_import_that_the_table_does_not_allow_is_found() {
    for (module, planted, expected) in [
        (
            "lease::claim::acquire",
            "use crate::lease::wire::Wire;",
            "lease::claim::acquire imports lease::wire, which lease::claim may not",
        ),
        (
            "desired::build",
            "fn f() { crate::api::call() }",
            "desired::build imports api, which desired may not",
        ),
    ] {
        let found = found(Some((module, planted)));
        assert!(found.iter().any(|fault| fault == expected), "{planted}: {}", found.join("\n"));
    }
}
