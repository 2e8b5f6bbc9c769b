//! The architecture of the operator, as a table: what each room may import.

use std::path::Path;

use leasehold_architecture::faults;

/// Files that may import each other: a module and one part of it.
const LARGEST_CIRCLE: usize = 2;

/// The rooms in the order of imports, from the base up: see [`leasehold_architecture::rooms`].
const ROOMS: &str = "
# The base: clocks, flags, calls.
crate
clock
client
config
# Metrics, events, health.
report::events <- client
report::health
report::metrics <- allocate
report::quota <- clock
report::metrics::samples <- allocate report::metrics reconcile::index
report::status <- allocate clock reconcile::index reconcile::leases
report
report::page <- status
# The allocation: pure.
allocate
allocate::scope
allocate::types
allocate::sharing <- scope types
allocate::unusable
allocate::failure <- sharing unusable
allocate::listed
allocate::pool_map <- scope types unusable
allocate::usage <- pool_map
allocate::occupancy <- pool_map types usage
allocate::state <- failure listed occupancy pool_map scope sharing types clock
allocate::decision <- failure sharing state types unusable usage
allocate::families
allocate::demand <- failure families pool_map state
allocate::applicant <- decision demand failure families scope sharing state types
allocate::space <- decision failure occupancy pool_map sharing state types usage
allocate::pick <- applicant demand failure families pool_map scope space types
allocate::retained <- applicant decision demand scope space
allocate::plan <- applicant decision demand failure pick retained space state
# The rows of each kind, and the writes to them.
reconcile::condition
reconcile::table <- allocate
reconcile::leases <- allocate table
reconcile::service::managers <- report::events
reconcile::service::rivals <- allocate clock managers
reconcile::service::conditions <- allocate condition leases managers rivals
reconcile::service::data_path <- condition conditions
reconcile::service::request <- allocate table
reconcile::service <- allocate service::conditions service::managers service::request
    service::rivals table
reconcile::service::events <- allocate condition conditions rivals report::events
reconcile::service::write <- allocate condition service conditions events rivals report::events
reconcile::pool <- allocate condition table report::events
reconcile::job <- allocate pool service
reconcile::endpoints <- allocate clock
reconcile::policy <- condition table
reconcile::watch <- client
# All that is known.
reconcile::index::foreign <- allocate
reconcile::index::tables <- allocate clock endpoints foreign leases policy pool service table
    watch
reconcile::index::governing <- allocate tables leases service
reconcile::index::owners <- clock
reconcile::index::data_path <- tables service
reconcile::index::announcing <- allocate clock data_path governing owners tables service
reconcile::index::families <- allocate clock governing tables leases service
reconcile::index::outstanding <- allocate
reconcile::index::ledger <- allocate clock outstanding service
reconcile::index::record <- allocate outstanding tables leases service
reconcile::index::news <- allocate clock outstanding record tables service
reconcile::index::quarantine <- allocate clock
reconcile::index::plan <- allocate ledger outstanding quarantine record tables service
reconcile::index::settle <- allocate clock announcing governing ledger outstanding plan record
    tables job leases service
reconcile::index <- allocate clock index::announcing index::families index::governing
    index::ledger index::news index::outstanding index::owners index::plan index::quarantine
    index::record index::settle index::tables job leases service
reconcile::index::changes <- allocate clock endpoints index news owners service watch
# From the plan to the calls.
reconcile::write <- allocate client clock job leases service table report::events
reconcile
reconcile::lists <- allocate index job leases
reconcile::jobs <- allocate clock index job leases lists service
reconcile::lead <- allocate client clock elect index job jobs service watch write report::events
    report::health report::metrics report::quota report::status
# Beside the loop.
deploy <- client clock config report::events
elect <- client clock report::health
free <- client elect reconcile::service reconcile::table reconcile::write
migrate <- allocate config reconcile::service
run <- client clock config deploy elect reconcile::lead reconcile::watch reconcile::write
    report::events report::health report::metrics
";

fn found(planted: Option<(&str, &str)>) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    faults(&root, ROOMS, LARGEST_CIRCLE, planted).expect("the sources of the operator")
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
            "reconcile::index::tables",
            "use super::ledger::Ledger;",
            "reconcile::index::tables imports reconcile::index::ledger, which \
             reconcile::index::tables may not",
        ),
        (
            "allocate::space",
            "fn f() { crate::reconcile::lead::lead() }",
            "allocate::space imports reconcile::lead, which allocate::space may not",
        ),
    ] {
        let found = found(Some((module, planted)));
        assert!(found.iter().any(|fault| fault == expected), "{planted}: {}", found.join("\n"));
    }
}
