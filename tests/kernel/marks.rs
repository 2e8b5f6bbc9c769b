//! What addresses are marked by, and that it is found out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use leasehold::net::edge::Edge;
use leasehold::net::rtnl::mark::{METRIC, Mark, PROTOCOL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use crate::world::{Test, World};

pub const TESTS: &[Test] = &[
    ("the_mark_is_found_out_even_where_the_loopback_device_has_no_address", found_out),
    ("addresses_stay_ours_when_the_next_process_marks_otherwise", marked_otherwise),
];

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10));
const BOTH: [IpAddr; 2] = [V4, V6];
const LONG: Duration = Duration::from_secs(20);

/// The addresses of the calling thread's namespace, as the kernel says them.
async fn dump() -> Result<Vec<AddressMessage>> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::select! {
        () = connection => bail!("netlink has ended"),
        rows = handle.address().get().execute().try_collect() => Ok(rows?),
    }
}

/// `IFA_PROTO` and `IFA_RT_PRIORITY` of an address.
async fn marks_of(ip: IpAddr) -> Result<(Option<u8>, Option<u32>)> {
    let (address, local) = (AddressAttribute::Address(ip), AddressAttribute::Local(ip));
    let rows = dump().await?;
    let has = |row: &&AddressMessage| {
        row.attributes.contains(&address) || row.attributes.contains(&local)
    };
    let row = rows.iter().find(has).with_context(|| format!("there is no {ip}"))?;
    let protocol = row.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Protocol(protocol) => Some(u8::from(*protocol)),
        _ => None,
    });
    let metric = row.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::RoutePriority(metric) => Some(*metric),
        _ => None,
    });
    Ok((protocol, metric))
}

fn found_out(world: &World) -> Result<()> {
    let by_protocol = (Some(PROTOCOL), None);
    let rows = [
        (None, by_protocol),
        (Some(Mark::Protocol), by_protocol),
        (Some(Mark::Metric), (None, Some(METRIC))),
    ];
    for bare in [false, true] {
        if bare {
            // Not even an address that the kernel has made itself.
            world.node.ip("addr flush dev lo")?;
            world.node.ip("addr flush dev eth0")?;
        }
        for (wanted, expected) in rows {
            world.node.block_on(|| async move {
                let before = dump().await?;
                ensure!(before.is_empty() == bare, "{before:?}");
                let edge = Edge::start(wanted).await?;
                ensure!(dump().await? == before, "the trial was not taken away");
                drop(edge);
                let speaker = crate::world::Speaker::marking_by(wanted).await?;
                speaker.serve(&BOTH, LONG);
                speaker.have(&BOTH, true).await?;
                for ip in BOTH {
                    let marks = marks_of(ip).await?;
                    ensure!(marks == expected, "{ip}, bare: {bare}: {marks:?}");
                }
                speaker.serve(&[], Duration::ZERO);
                speaker.have(&BOTH, false).await?;
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn marked_otherwise(world: &World) -> Result<()> {
    let order = [Mark::Protocol, Mark::Metric, Mark::Protocol];
    let mut left = None;
    for mark in order {
        world.node.block_on(|| async move {
            let speaker = crate::world::Speaker::marking_by(Some(mark)).await?;
            if left.is_some() {
                let view = speaker.have(&BOTH, true).await?;
                ensure!(view.foreign.is_empty(), "{view:?}");
            }
            speaker.serve(&BOTH, LONG);
            let until = leasehold::clock::now() + LONG - Duration::from_secs(2);
            speaker
                .kernel("renewed", Duration::from_secs(5), |view| {
                    BOTH.iter().all(|ip| view.ours.get(ip).is_some_and(|vip| vip.until > until))
                })
                .await?;
            for ip in BOTH {
                let (protocol, metric) = marks_of(ip).await?;
                let marked = match mark {
                    Mark::Protocol => protocol == Some(PROTOCOL),
                    Mark::Metric => protocol.is_none() && metric == Some(METRIC),
                };
                ensure!(marked, "{ip} after {left:?} by {mark}: {protocol:?}, {metric:?}");
            }
            Ok(())
        })?;
        left = Some(mark);
    }
    Ok(())
}
