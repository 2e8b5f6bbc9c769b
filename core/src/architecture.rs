//! The architecture of the deciding code, as a table: what each room may import.

use std::path::Path;

use leasehold_architecture::faults;

/// No two files import each other.
const LARGEST_CIRCLE: usize = 1;

/// The rooms in the order of imports, from the base up: see [`leasehold_architecture::rooms`].
const ROOMS: &str = "
crate
clock
bgp::message
bgp
bfd::packet
bfd::session <- bfd::packet clock
bfd
desired
election
election::io <- clock desired
election::outage::state <- clock
election::store <- clock
election::context::state <- clock desired election::io
election::output::state <- clock election::io
election::placement <- desired election::io
detect <- clock election::io election::placement
election::session::state <- clock election::io
election::claim::state <- clock desired election::io election::session::state
election::context <- clock desired election::context::state election::io election::output::state
    election::placement election::session::state election::store
election::spread::table <- election::io election::placement
explain <- desired election::context election::io election::placement election::spread::table
election::claim <- clock desired election::claim::state election::context election::io
    election::placement
election::transfer::state <- clock desired election::claim::state
election::wire::state <- clock desired election::claim::state election::context::state election::io
election::transfer <- clock desired election::claim election::context election::io
    election::placement election::transfer::state
election::wire <- clock desired election::claim election::context election::io election::placement
    election::wire::state
election::outage <- clock desired election::claim election::context election::io
    election::outage::state election::placement election::wire
election::forwarding <- clock election::claim election::context election::io election::wire
election::spread <- clock desired election::claim election::context election::io
    election::spread::table election::wire
election::output <- clock desired election::claim election::context election::io
    election::output::state election::wire
election::session <- clock desired election::claim election::context election::io
    election::placement election::session::state election::store election::transfer election::wire
election::engine <- clock desired election::claim election::context election::forwarding election::io
    election::outage::state election::output::state election::placement election::session
    election::spread election::store election::transfer election::wire
";

fn found(planted: Option<(&str, &str)>) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    faults(&root, ROOMS, LARGEST_CIRCLE, planted).expect("the sources of the core")
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
            "election::claim::acquire",
            "use crate::election::wire::Wire;",
            "election::claim::acquire imports election::wire, which election::claim may not",
        ),
        (
            "desired::build",
            "fn f() { crate::election::weight() }",
            "desired::build imports election::placement::rank, which desired may not",
        ),
    ] {
        let found = found(Some((module, planted)));
        assert!(found.iter().any(|fault| fault == expected), "{planted}: {}", found.join("\n"));
    }
}
