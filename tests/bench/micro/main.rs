//! The durations of the parts that decide, without a network: the core's passes, placement, allocation, frames.
//!
//! `make bench-micro`

#![allow(missing_docs, reason = "criterion's macros make functions without")]
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "what is made up here is valid")]

mod cluster;
mod fleet;

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use cluster::{Cluster, Core};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fleet::Fleet;
use leasehold::net::frames::arp::ArpFrame;
use leasehold::net::frames::ndp::NdpFrame;
use leasehold_core::election::{Event, turns};
use pnet_base::MacAddr;

/// The placement of all addresses when all claims are unowned.
fn placement(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("placement");
    for (services, nodes) in [(1_000, 3), (10_000, 3), (10_000, 500)] {
        let cluster = Cluster::new(nodes, services);
        let loads = cluster.loads();
        let node = cluster.node(0);
        let unowned = cluster.unowned();
        group.bench_function(format!("{services} services on {nodes} nodes"), |bench| {
            bench.iter(|| black_box(turns(&unowned, &loads, &node)));
        });
    }
    group.finish();
}

/// A pass of the core of one of the nodes, all of whose claims are settled but for what is said of it.
fn handle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handle");
    for (services, nodes) in [(100, 3), (1_000, 3), (10_000, 3), (10_000, 500)] {
        let cluster = Cluster::new(nodes, services);
        let size = format!("{services} services on {nodes} nodes");
        let mut steady = cluster.settled_core();
        let mut round = 0;
        group.bench_function(format!("renewal of another node, {size}"), |bench| {
            bench.iter_batched(
                || {
                    round += 1;
                    cluster.renewed(1, round)
                },
                |session| steady.handle(Event::Session(session)),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("refresh of another's claim, {size}"), |bench| {
            bench.iter_batched(
                || {
                    round += 1;
                    cluster.refreshed(1, round)
                },
                |claim| steady.handle(Event::Claim(claim)),
                BatchSize::SmallInput,
            );
        });
        let mut ended = |what: &str, seconds, then: fn(&mut Core)| {
            group.sample_size(10).measurement_time(Duration::from_secs(seconds));
            group.bench_function(format!("{what}, {size}"), |bench| {
                bench.iter_batched(
                    || cluster.settled_core(),
                    |mut core| {
                        core.handle(Event::Session(cluster.fenced(1)));
                        then(&mut core);
                        core
                    },
                    BatchSize::PerIteration,
                );
            });
        };
        // Of hundreds of nodes each takes a few: what one takes there, which is alone, are the turns of all. Of
        // ten thousand claims the lab measures it, with all that belongs to it.
        if nodes == 3 && services <= 1_000 {
            ended("taking what a dead node had", 10, |core| {
                assert!(core.take_all() > 0, "nothing was taken");
            });
        }
        ended("end of another's session", 2, |_| {});
    }
    group.finish();
}

/// Addresses for new Services, beside those that have one.
fn allocation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocation");
    for (pool, first, settled, new) in fleet::SIZES {
        let fleet = Fleet::new(pool, first, settled, new);
        group.bench_function(format!("{new} beside {settled} of {pool}"), |bench| {
            bench.iter(|| black_box(fleet.plan()));
        });
    }
    group.finish();
}

/// Frames as they come and go.
fn frames(criterion: &mut Criterion) {
    let mac = MacAddr::new(2, 0, 0x5e, 0, 0x53, 1);
    let arp = ArpFrame::announcement(Ipv4Addr::new(192, 0, 2, 7), mac);
    let ndp = NdpFrame::announcement(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7), mac);
    let (arp_bytes, ndp_bytes) = (arp.encode(), ndp.encode());
    let mut group = criterion.benchmark_group("frames");
    group.bench_function("ARP announcement, encode", |bench| {
        bench.iter(|| black_box(&arp).encode());
    });
    group.bench_function("ARP announcement, decode", |bench| {
        bench.iter(|| ArpFrame::decode(black_box(&arp_bytes)));
    });
    group.bench_function("neighbor advertisement, encode", |bench| {
        bench.iter(|| black_box(&ndp).encode());
    });
    group.bench_function("neighbor advertisement, decode", |bench| {
        bench.iter(|| NdpFrame::decode(black_box(&ndp_bytes)));
    });
    group.finish();
}

/// Shorter than criterion's own: the spread stays far below what anybody would act on.
fn brief() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = brief();
    targets = placement, handle, allocation, frames
}
criterion_main!(benches);
