//! Routes to the hosts of a subnet: the link by which the kernel reaches them, and whether it answers them.
//!
//! With two links in one subnet, or a route that leads elsewhere, what a host sends to one link is answered by
//! another; and where reverse path filtering is strict (`rp_filter` of the link or of `all` is 1, the
//! greater one counts) it is not answered at all, not even an ARP request (`arp_process` asks
//! `ip_route_input_noref`, and that `__fib_validate_source`: kernel, `net/ipv4/arp.c`, `route.c`,
//! `fib_frontend.c`). The kernel is asked and not its tables: it knows rules, metrics and dead next hops.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::lease::Detours;

use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::links::{Link, LinkAddress, Links};
use crate::net::rtnl::netlink::Netlink;

/// Number of hosts of a subnet for which the kernel is asked: a single one may have a route of its own.
const HOSTS: usize = 3;
/// Among how many of its first addresses they are looked for.
const FIRST: usize = 16;

/// Of each link, by its index, the subnets whose hosts the kernel reaches by another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways(BTreeMap<u32, Detours>);

impl Ways {
    /// Asks the kernel.
    pub(crate) async fn ask(netlink: &Netlink, links: &Links) -> Result<Self, NetlinkError> {
        let mut ways = BTreeMap::new();
        for link in links.0.values().filter(|link| may_announce(link)) {
            let mut detours = Detours::default();
            for (subnet, own) in subnets(link) {
                let (mut by_another, mut unanswered) = (Vec::new(), Vec::new());
                for host in hosts(subnet, links) {
                    // Without a route, or with one that leads nowhere, nothing is said.
                    let Some(index) = netlink.leaves_by(host).await? else { continue };
                    by_another.push(index != link.index);
                    if own.is_ipv4() {
                        unanswered.push(!netlink.would_answer(own, host, link.index).await?);
                    }
                }
                if is_true_of_all(&by_another) {
                    detours.bypassed.push(subnet);
                    if is_true_of_all(&unanswered) {
                        detours.unanswered.push(subnet);
                    }
                }
            }
            if detours != Detours::default() {
                ways.insert(link.index, detours);
            }
        }
        Ok(Self(ways))
    }

    /// Tells the links.
    pub(crate) fn tell(&self, links: &mut Links) {
        for link in links.0.values_mut() {
            link.detours = self.0.get(&link.index).cloned().unwrap_or_default();
        }
    }
}

fn is_true_of_all(said: &[bool]) -> bool {
    !said.is_empty() && said.iter().all(|it| *it)
}

fn may_announce(link: &Link) -> bool {
    link.carrier && !link.loopback && link.master.is_none() && !link.mac.is_zero()
}

/// The subnets of a link, each with an address of the node there.
fn subnets(link: &Link) -> BTreeMap<IpNet, IpAddr> {
    let net = |address: &LinkAddress| {
        IpNet::new(address.ip, address.prefix_len).ok().filter(|net| {
            let local = match net {
                IpNet::V4(net) => net.addr().is_link_local(),
                IpNet::V6(net) => net.addr().is_unicast_link_local(),
            };
            !local && net.prefix_len() < net.max_prefix_len()
        })
    };
    let nets = link.addresses.iter().filter_map(net);
    nets.map(|net| (net.trunc(), net.addr())).collect()
}

/// Some addresses of the subnet that no link of the node has.
fn hosts(subnet: IpNet, links: &Links) -> Vec<IpAddr> {
    let own = |ip: &IpAddr| {
        links.0.values().flat_map(|link| &link.addresses).any(|address| address.ip == *ip)
    };
    let free = subnet.hosts().take(FIRST).filter(|ip| *ip != subnet.network() && !own(ip));
    free.take(HOSTS).collect()
}
