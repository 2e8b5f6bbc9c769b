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
net::buffers
net::datagram
version
net::frames <- net::buffers
net::nft <- net::buffers net::datagram
net::rtnl <- clock net::buffers net::datagram
api <- clock
net::conntrack <- net::nft
datapath::packets <- net::nft
datapath::upkeep <- clock net::nft net::rtnl
datapath::tables <- clock datapath::upkeep net::nft
datapath::detour <- clock datapath::upkeep net::conntrack net::nft
datapath::gate <- net::rtnl
datapath::forward <- clock datapath::gate datapath::packets datapath::tables datapath::upkeep net::conntrack net::nft net::rtnl
datapath::spread <- clock datapath::gate datapath::packets datapath::tables datapath::upkeep net::frames net::nft net::rtnl
datapath::guard <- clock datapath::gate datapath::upkeep net::nft net::rtnl
net <- clock net::frames net::rtnl
config <- net::rtnl version
detect <- clock net
host <- api net::rtnl
datapath::return_path <- clock datapath::gate datapath::upkeep host net::nft net::rtnl
datapath::gates <- datapath::forward datapath::gate datapath::guard datapath::return_path datapath::spread net::rtnl
proxy <- api clock net::nft net::rtnl
report::health <- api
announce::layer2 <- announce::counters api clock host net
host::lock <- host report::health
announce::address <- announce::counters announce::layer2 clock datapath::gates net::rtnl
announce <- announce::address announce::counters announce::layer2 datapath::gates host net
report <- api clock config datapath::guard report::health version
report::metrics <- announce::counters datapath::detour datapath::forward datapath::guard datapath::return_path datapath::spread net report report::health version
watch <- api clock report
drive <- announce api clock datapath::detour datapath::forward datapath::guard datapath::return_path datapath::spread detect host net proxy report
run <- announce api clock config datapath::detour datapath::forward datapath::gates datapath::guard datapath::return_path datapath::spread detect drive host net proxy report version watch
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
            "net::rtnl::netlink",
            "use crate::announce::address::plan;",
            "net::rtnl::netlink imports announce::address::plan, which net::rtnl may not",
        ),
        (
            "proxy::health",
            "fn f() { crate::drive::call() }",
            "proxy::health imports drive, which proxy may not",
        ),
    ] {
        let found = found(Some((module, planted)));
        assert!(found.iter().any(|fault| fault == expected), "{planted}: {}", found.join("\n"));
    }
}
