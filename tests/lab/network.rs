//! The network of a cluster: three bridges in a namespace of their own, and what is plugged in.
//!
//! ```text
//!            clients' segment          management            pods
//!            192.168.C.0/24            172.31.0.0/16         10.C.0.0/24
//!            fd1e:a5e:C::/64                                 fd1e:a5e:C:1::/64
//! node N     eth0  .(10+N) ::(10+N)    mgmt0 172.31.C.N      pods0 .(10+N) ::(10+N)
//! pods of N                                                  10.C.N.0/24, fd1e:a5e:C:(128+N)::/64
//! router     eth0  .1 ::1
//! client     eth0  .200 ::200, further ones .210-.241 ::210-::241
//! observer   eth0  .201 ::201
//! VIPs       .100-.199 ::100-::199
//! ```
//!
//! Faults are made at the bridges, outside of the node, all of one call in one transaction: the
//! node itself cannot tell a cut from a silent network, and keeps its carrier.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use crate::management;
use crate::namespace::Namespace;
use crate::shell;

/// One of the bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bridge {
    /// The segment that the clients are on, and the VIPs.
    Clients,
    /// The network to the API server.
    Management,
    /// The network between pods of different nodes.
    Pods,
}

impl Bridge {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Clients, Self::Management, Self::Pods];

    /// The name of a node's link to it.
    pub const fn link(self) -> &'static str {
        match self {
            Self::Clients => "eth0",
            Self::Management => "mgmt0",
            Self::Pods => "pods0",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Management => "management",
            Self::Pods => "pods",
        }
    }
}

/// Which frames a cut drops, as seen from the host behind the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The frames that the host sends.
    FromHost,
    /// The frames that are sent to the host.
    ToHost,
}

/// A port of a bridge: the far end of a host's link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    name: String,
    /// The MAC address of the host's end.
    mac: String,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Frames that are dropped at a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    /// All in one direction.
    All(Direction),
    /// Those that a host with this MAC address sends to the host behind the port.
    FromMac(String),
    /// Packets that the host behind the port sends from other addresses than these, as a hypervisor drops them.
    FromOthers(BTreeSet<IpAddr>),
}

impl Cut {
    const fn hook(&self) -> &'static str {
        match self {
            Self::All(Direction::FromHost) | Self::FromOthers(_) => "ingress",
            Self::All(Direction::ToHost) | Self::FromMac(_) => "egress",
        }
    }
}

/// The IPv6 networks of pods begin behind this one.
const PODS: u16 = 128;

/// The addresses of a cluster, by its index.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    cluster: u8,
}

impl Plan {
    /// An IPv4 address on the clients' segment.
    pub fn client_v4(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, self.cluster, host)
    }

    /// An IPv6 address on the clients' segment; the last group reads like the IPv4 host number.
    pub fn client_v6(self, host: u8) -> Ipv6Addr {
        self.v6(0, u16::from(host))
    }

    /// Both VIPs number `number` (0 to 99), free for services.
    pub fn vip(self, number: u8) -> (Ipv4Addr, Ipv6Addr) {
        let host = 100_u8.saturating_add(number);
        (self.client_v4(host), self.client_v6(host))
    }

    /// A node's addresses on the clients' segment.
    pub fn node(self, node: u8) -> (Ipv4Addr, Ipv6Addr) {
        (self.client_v4(node.saturating_add(10)), self.client_v6(node.saturating_add(10)))
    }

    /// A node's address towards the API server.
    pub fn management(self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(172, 31, self.cluster, node)
    }

    /// A node's addresses towards other nodes' pods.
    pub fn pods_link(self, node: u8) -> (Ipv4Addr, Ipv6Addr) {
        let host = node.saturating_add(10);
        (Ipv4Addr::new(10, self.cluster, 0, host), self.v6(1, u16::from(host)))
    }

    /// A pod's addresses; pod 1 is the node itself, as the pods' gateway.
    pub fn pod(self, node: u8, pod: u8) -> (Ipv4Addr, Ipv6Addr) {
        let network = PODS + u16::from(node);
        (Ipv4Addr::new(10, self.cluster, node, pod), self.v6(network, u16::from(pod)))
    }

    /// The subnets of all pods, without any client.
    pub fn pods(self) -> String {
        format!("10.0.0.0/8,{}/57", self.v6(PODS, 0))
    }

    /// The node whose link towards the pods has this address: who forwarded a masqueraded packet.
    pub fn forwarder(self, source: IpAddr) -> Option<u8> {
        (1..=100).find(|&node| {
            let (v4, v6) = self.pods_link(node);
            let (own_v4, own_v6) = self.pod(node, 1);
            [IpAddr::V4(v4), IpAddr::V6(v6), IpAddr::V4(own_v4), IpAddr::V6(own_v6)]
                .contains(&source)
        })
    }

    fn v6(self, network: u16, host: u16) -> Ipv6Addr {
        // Written in decimal digits, so that .12 and ::12 are the same host.
        let digits = u16::from_str_radix(&host.to_string(), 16).unwrap_or(host);
        let cluster = u16::from(self.cluster);
        Ipv6Addr::new(0xfd1e, 0xa5e, cluster, network, 0, 0, 0, digits)
    }
}

/// The bridges of a cluster.
#[derive(Debug)]
pub struct Network {
    plan: Plan,
    switch: Namespace,
    /// Frames that are dropped now.
    cuts: Mutex<BTreeSet<(Port, Cut)>>,
}

impl Network {
    /// Makes the network of the next cluster of this sandbox (1 to 250).
    pub fn create() -> Result<Self> {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let cluster = NUMBER.fetch_add(1, Ordering::Relaxed);
        let switch = Namespace::create(&format!("switch-{cluster}"))?;
        let mut commands = String::new();
        for bridge in Bridge::ALL {
            let name = bridge.name();
            // Without snooping, multicast (neighbour discovery) reaches every port at once.
            writeln!(commands, "link add name {name} type bridge mcast_snooping 0")?;
            writeln!(commands, "link set dev {name} up")?;
        }
        switch.ip(&commands)?;
        // The uplink: its far end is in the sandbox's own namespace, process 1's.
        let uplink = format!("cluster-{cluster}");
        switch.ip(&format!(
            "link add name uplink type veth peer name {uplink} netns 1\n\
             link set dev uplink master management up\n"
        ))?;
        management::plug(&uplink)?;
        Ok(Self { plan: Plan { cluster }, switch, cuts: Mutex::default() })
    }

    /// The addresses.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Links a namespace to a bridge. `host` is the host's number there, and in its MAC address.
    pub fn plug(&self, namespace: &Namespace, bridge: Bridge, host: u8) -> Result<Port> {
        self.plug_as(namespace, bridge, bridge.link(), host)
    }

    /// The same by a link with another name than usual.
    pub fn plug_as(
        &self,
        namespace: &Namespace,
        bridge: Bridge,
        link: &str,
        host: u8,
    ) -> Result<Port> {
        let name = bridge.name();
        let port = format!("{name}_{host}");
        let mac = self.mac(bridge, host);
        self.switch.ip(&format!(
            "link add name {port} type veth peer name {link} address {mac} netns {}\n\
             link set dev {port} master {name} up\n",
            namespace.name()
        ))?;
        Ok(Port { name: port, mac })
    }

    /// Takes a link away, with both of its ends.
    pub(crate) fn unplug(&self, port: &Port) -> Result<()> {
        self.change(|cuts| cuts.retain(|(at, _)| at != port))?;
        self.switch.ip(&format!("link delete dev {port}\n"))
    }

    /// The MAC address of a host's link.
    pub fn mac(&self, bridge: Bridge, host: u8) -> String {
        let bridge = match bridge {
            Bridge::Clients => 1,
            Bridge::Management => 2,
            Bridge::Pods => 3,
        };
        format!("02:1e:a5:{:02x}:{bridge:02x}:{host:02x}", self.plan.cluster)
    }

    /// The MAC address of a node's link to the clients' segment.
    pub(crate) fn node_mac(&self, number: u8) -> String {
        self.mac(Bridge::Clients, number.saturating_add(10))
    }

    /// Drops frames at these ports, in addition to what is dropped already.
    pub fn cut(&self, ports: &[&Port], directions: &[Direction]) -> Result<()> {
        self.change(|cuts| {
            for port in ports {
                cuts.extend(directions.iter().map(|&way| ((*port).clone(), Cut::All(way))));
            }
        })
    }

    /// Lets all frames pass at these ports again.
    pub fn heal(&self, ports: &[&Port]) -> Result<()> {
        self.change(|cuts| cuts.retain(|(port, _)| !ports.contains(&port)))
    }

    /// Parts a bridge in two: what one half sends does not reach the other.
    pub fn part(&self, one: &[&Port], other: &[&Port]) -> Result<()> {
        self.change(|cuts| {
            for (here, there) in [(one, other), (other, one)] {
                for port in here {
                    let from = there.iter().map(|far| Cut::FromMac(far.mac.clone()));
                    cuts.extend(from.map(|cut| ((*port).clone(), cut)));
                }
            }
        })
    }

    /// Joins what was parted.
    pub fn join(&self) -> Result<()> {
        self.change(|cuts| cuts.retain(|(_, cut)| matches!(cut, Cut::All(_))))
    }

    /// Drops packets that these hosts send from other addresses than these and link-local ones, as a hypervisor with port
    /// security does.
    pub fn bind_sources(
        &self,
        port: &Port,
        allowed: impl IntoIterator<Item = IpAddr>,
    ) -> Result<()> {
        let cut = Cut::FromOthers(allowed.into_iter().collect());
        self.change(|cuts| cuts.extend([(port.clone(), cut)]))
    }

    /// Sets port isolation: isolated ports reach those that are not, and not each other.
    pub fn isolate(&self, ports: &[&Port], on: bool) -> Result<()> {
        let on = if on { "on" } else { "off" };
        let commands = ports.iter().fold(String::new(), |commands, port| {
            format!("{commands}link set dev {port} type bridge_slave isolated {on}\n")
        });
        self.switch.ip(&commands)
    }

    /// Sets the port up or down: the host behind it has a carrier or has none.
    pub fn carrier(&self, port: &Port, on: bool) -> Result<()> {
        self.switch.ip(&format!("link set dev {port} {}\n", if on { "up" } else { "down" }))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<(Port, Cut)>)) -> Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut cuts);
        let mut chains: BTreeMap<(&Port, &str), Vec<&Cut>> = BTreeMap::new();
        for (port, cut) in cuts.iter() {
            chains.entry((port, cut.hook())).or_default().push(cut);
        }
        // `table` makes the delete succeed the first time; nft commits all of it at once.
        let mut rules = "table netdev cuts {}\ndelete table netdev cuts\n".to_owned();
        rules.push_str("table netdev cuts {\n");
        for ((port, hook), cuts) in chains {
            write!(
                rules,
                "chain {port}_{hook} {{ type filter hook {hook} device \"{port}\" priority 0; "
            )?;
            for cut in cuts {
                match cut {
                    Cut::All(_) => rules.push_str("drop; "),
                    Cut::FromMac(mac) => write!(rules, "ether saddr {mac} drop; ")?,
                    Cut::FromOthers(allowed) => {
                        for ip in allowed {
                            let family = if ip.is_ipv4() { "ip" } else { "ip6" };
                            write!(rules, "{family} saddr {ip} accept; ")?;
                        }
                        rules.push_str(
                            "ip6 saddr { ::, fe80::/10 } accept; meta protocol { ip, ip6 } drop; ",
                        );
                    }
                }
            }
            rules.push_str("}\n");
        }
        rules.push_str("}\n");
        shell::feed(self.switch.command("nft").args(["-f", "-"]), &rules)
    }
}
