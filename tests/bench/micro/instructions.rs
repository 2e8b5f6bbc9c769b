//! The numbers of instructions of the parts that decide, counted by Callgrind: the same on a busy machine as on
//! an idle one. Each has a limit, some way above its count: a change that exceeds it has made something slower;
//! make it faster, or raise the limit and say why.
//!
//! `make instructions`

#![allow(missing_docs, reason = "gungraun's macros make functions without")]
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "what is made up here is valid")]

mod cluster;
mod fleet;

use std::hint::black_box;
use std::net::Ipv4Addr;

use cluster::{Cluster, Core};
use fleet::Fleet;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, main};
use leasehold::net::frames::arp::ArpFrame;
use leasehold_core::election::{Event, turns};
use pnet_base::MacAddr;

/// At most so many instructions: a tenth more than when this was written, with Rust 1.95.
fn most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

fn settled(services: usize) -> (Cluster, Core) {
    let cluster = Cluster::new(3, services);
    let core = cluster.settled_core();
    (cluster, core)
}

#[library_benchmark(setup = settled)]
// 17,600: at each event it is also looked whether what is being given up may stay, whether links have lost their
// addresses, whether nodes that have left are still polled, whether forwarding or spreading has changed or ends, and,
// without the API server, for owners that were never heard.
#[bench::services_100(args = (100), config = most(18_500))]
#[bench::services_1000(args = (1_000), config = most(18_500))]
fn renewal_of_another_node((cluster, mut core): (Cluster, Core)) -> (Cluster, Core) {
    core.handle(Event::Session(cluster.renewed(1, 1)));
    (cluster, core)
}

#[library_benchmark(setup = settled)]
// 43,800: it is also looked whether the claim names former owners, and nodes that it is spread over.
#[bench::services_1000(args = (1_000), config = most(46_000))]
fn refresh_of_anothers_claim((cluster, mut core): (Cluster, Core)) -> (Cluster, Core) {
    core.handle(Event::Claim(cluster.refreshed(1, 1)));
    (cluster, core)
}

#[library_benchmark(setup = settled)]
#[bench::of_100(args = (100), config = most(81_000_000))]
#[bench::of_1000(args = (1_000), config = most(1_360_000_000))]
fn taking_what_a_dead_node_had((cluster, mut core): (Cluster, Core)) -> (Cluster, Core) {
    core.handle(Event::Session(cluster.fenced(1)));
    assert!(core.take_all() > 0, "nothing was taken");
    (cluster, core)
}

fn large() -> Cluster {
    Cluster::new(500, 10_000)
}

#[library_benchmark]
#[bench::services_10000_on_500_nodes(args = (large()), config = most(910_000_000))]
fn placement(cluster: Cluster) -> Cluster {
    black_box(turns(&cluster.unowned(), &cluster.loads(), &cluster.node(0)));
    cluster
}

fn fleet(size: usize) -> Fleet {
    let (pool, first, settled, new) = fleet::SIZES[size];
    Fleet::new(pool, first, settled, new)
}

#[library_benchmark(setup = fleet)]
#[bench::one_beside_10000(args = (0), config = most(3_450_000))]
#[bench::all_of_10000(args = (1), config = most(156_000_000))]
#[bench::the_last_of_a_pool(args = (2), config = most(24_200_000))]
fn allocation(fleet: Fleet) -> Fleet {
    black_box(fleet.plan());
    fleet
}

fn announcement() -> Vec<u8> {
    ArpFrame::announcement(Ipv4Addr::new(192, 0, 2, 7), MacAddr::new(2, 0, 0x5e, 0, 0x53, 1))
        .encode()
}

#[library_benchmark]
#[bench::an_announcement(args = (announcement()), config = most(460))]
fn arp_decode(frame: Vec<u8>) -> Option<ArpFrame> {
    black_box(ArpFrame::decode(black_box(&frame)))
}

library_benchmark_group!(
    name = decisions,
    benchmarks = [
        renewal_of_another_node,
        refresh_of_anothers_claim,
        taking_what_a_dead_node_had,
        placement,
        allocation,
        arp_decode
    ]
);

main!(library_benchmark_groups = decisions);
