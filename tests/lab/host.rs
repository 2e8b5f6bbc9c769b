//! A host with three links: to the clients, to the API server, and to the pods of others. Nodes that are played and
//! machines are such hosts.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use ipnet::IpNet;
use serde_json::Value;

use crate::namespace::Namespace;
use crate::network::{Bridge, Direction, Network, Port};
use crate::shell;

/// The plan of a host.
#[derive(Debug)]
pub(crate) struct HostPlan<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: u8,
    /// The number of hosts of its cluster: routes lead to the pods of each.
    pub(crate) hosts: u8,
    /// The folder of its cluster.
    pub(crate) folder: &'a Path,
}

/// A network namespace with its links, addresses and routes.
#[derive(Debug)]
pub struct Host {
    name: String,
    number: u8,
    hosts: u8,
    folder: PathBuf,
    namespace: Namespace,
    network: Arc<Network>,
    clients: Port,
    management: Port,
    pods_link: Port,
}

/// An address on a host's link, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAddress {
    /// The link.
    pub interface: String,
    /// The address and its prefix length.
    pub address: IpNet,
    /// The seconds that it has left; `None` is for ever.
    pub valid_seconds: Option<u64>,
    /// `IFA_PROTO`, if it is set.
    pub protocol: Option<String>,
    /// IPv6: it is in use without duplicate address detection.
    pub nodad: bool,
    /// It is not chosen as the source of anything.
    pub deprecated: bool,
}

impl Host {
    /// Makes the namespace, plugs it in, and gives it addresses and routes.
    pub(crate) fn create(plan: &HostPlan<'_>, network: Arc<Network>) -> Result<Self> {
        let folder = plan.folder.join(plan.name);
        fs::create_dir_all(&folder)?;
        let namespace = Namespace::create(plan.name)?;
        let number = plan.number;
        let end = number.saturating_add(10);
        let clients = network.plug(&namespace, Bridge::Clients, end)?;
        let management = network.plug(&namespace, Bridge::Management, end)?;
        let pods_link = network.plug(&namespace, Bridge::Pods, end)?;
        let (name, hosts) = (plan.name.to_owned(), plan.hosts);
        let host = Self {
            name,
            number,
            hosts,
            folder,
            namespace,
            network,
            clients,
            management,
            pods_link,
        };
        host.address()?;
        Ok(host)
    }

    fn address(&self) -> Result<()> {
        // As a distribution with systemd sets a router up (rp_filter 2 is its loose mode). ARP is
        // left at the kernel's defaults: a speaker has to cope with those.
        self.namespace.sysctl(&[
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.rp_filter", "2"),
            ("net.ipv4.conf.default.rp_filter", "2"),
        ])?;
        self.restore()
    }

    /// Gives its links their addresses and routes, as the node's network configuration does each time that they
    /// come up.
    pub(crate) fn restore(&self) -> Result<()> {
        let plan = self.network.plan();
        let (pods_v4, pods_v6) = plan.pods_link(self.number);
        let management = plan.management(self.number);
        let mut commands = format!(
            "link set dev eth0 up\n\
             link set dev mgmt0 up\n\
             link set dev pods0 up\n\
             address replace {management}/16 dev mgmt0\n\
             address replace {pods_v4}/24 dev pods0\n\
             address replace {pods_v6}/64 dev pods0 nodad\n"
        );
        for other in (1..=self.hosts).filter(|&other| other != self.number) {
            let (via_v4, via_v6) = plan.pods_link(other);
            let (net_v4, net_v6) = plan.pod(other, 0);
            writeln!(commands, "route replace {net_v4}/24 via {via_v4}")?;
            writeln!(commands, "route replace {net_v6}/64 via {via_v6}")?;
        }
        self.namespace.ip(&commands)?;
        self.configure(Bridge::Clients.link())
    }

    /// Gives the link to the clients' segment, whatever it is called by now, its addresses and the
    /// default routes, as the node's network configuration does each time that the link comes up.
    pub fn configure(&self, link: &str) -> Result<()> {
        let plan = self.network.plan();
        let (v4, v6) = plan.node(self.number);
        let (router_v4, router_v6) = (plan.client_v4(1), plan.client_v6(1));
        self.namespace.ip(&format!(
            "address replace {v4}/24 dev {link}\n\
             address replace {v6}/64 dev {link} nodad\n\
             route replace default via {router_v4}\n\
             route replace default via {router_v6}\n"
        ))
    }

    /// Plugs another link of it into the clients' segment, without addresses, and returns its MAC
    /// address.
    pub fn plug_in(&self, link: &str) -> Result<String> {
        // Behind those of nodes, and before those of VIPs.
        let host = self.number.saturating_add(60);
        self.network.plug_as(&self.namespace, Bridge::Clients, link, host)?;
        self.namespace.ip(&format!("link set dev {link} up\n"))?;
        Ok(self.network.mac(Bridge::Clients, host))
    }

    /// The name of its Node object, and of the network namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in the cluster, from 1.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its namespace, for commands of a test's own.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The MAC address of its link to the clients' segment.
    pub fn mac(&self) -> String {
        self.network.node_mac(self.number)
    }

    /// Its own addresses on the clients' segment.
    pub fn own_addresses(&self) -> [IpAddr; 2] {
        let (v4, v6) = self.network.plan().node(self.number);
        [v4.into(), v6.into()]
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The network that it is plugged into.
    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// All addresses on its links.
    pub fn addresses(&self) -> Result<Vec<KernelAddress>> {
        let mut command = self.namespace.command("ip");
        let text = shell::output(command.args(["-json", "address", "show"]))?;
        let links: Vec<Value> = serde_json::from_str(&text)?;
        let mut all = Vec::new();
        for link in &links {
            let infos = link.get("addr_info").and_then(Value::as_array);
            for info in infos.into_iter().flatten() {
                all.extend(KernelAddress::parse(link, info));
            }
        }
        Ok(all)
    }

    /// The VIP as its kernel has it, if it does.
    pub fn has_address(&self, vip: IpAddr) -> Result<Option<KernelAddress>> {
        // Where kube-proxy in IPVS mode has the addresses of all Services, on all nodes.
        let mut all = self.addresses()?.into_iter().filter(|it| it.interface != "kube-ipvs0");
        Ok(all.find(|address| address.address.addr() == vip))
    }

    pub(crate) fn ports(&self) -> [&Port; 3] {
        [&self.clients, &self.management, &self.pods_link]
    }

    pub(crate) fn clients_port(&self) -> &Port {
        &self.clients
    }

    // === faults ===

    /// Takes the carrier of the link to the clients' segment away, as a pulled cable does.
    pub fn clients_link_down(&self) -> Result<()> {
        self.network.carrier(&self.clients, false)
    }

    /// Gives it back.
    pub fn clients_link_up(&self) -> Result<()> {
        self.network.carrier(&self.clients, true)
    }

    /// Drops all frames on the link to the clients' segment; the carrier stays.
    pub fn cut_clients(&self) -> Result<()> {
        self.network.cut(&[&self.clients], &[Direction::FromHost, Direction::ToHost])
    }

    /// Drops frames on the link to the clients' segment in one direction.
    pub fn cut_clients_one_way(&self, direction: Direction) -> Result<()> {
        self.network.cut(&[&self.clients], &[direction])
    }

    /// Drops packets that it sends to the clients' segment from other addresses than its own and these, as a hypervisor
    /// with port security does.
    pub fn bind_sources(&self, others: impl IntoIterator<Item = IpAddr>) -> Result<()> {
        let (v4, v6) = self.network.plan().node(self.number);
        let own = [IpAddr::V4(v4), IpAddr::V6(v6)];
        self.network.bind_sources(&self.clients, others.into_iter().chain(own))
    }

    /// Drops all frames on the link to the API server; the carrier stays.
    pub fn cut_management(&self) -> Result<()> {
        self.network.cut(&[&self.management], &[Direction::FromHost, Direction::ToHost])
    }

    /// It is dead to everybody from one moment on: nothing comes out of it any more and
    /// nothing gets in. Its kernel and processes go on, unheard.
    pub fn dies(&self) -> Result<()> {
        self.network.cut(&self.ports(), &[Direction::FromHost, Direction::ToHost])
    }

    /// Undoes every fault of its links.
    pub fn heal(&self) -> Result<()> {
        let ports = self.ports();
        self.network.heal(&ports)?;
        ports.into_iter().try_for_each(|port| self.network.carrier(port, true))
    }

    /// Undoes the cut towards the API server alone.
    pub fn heal_management(&self) -> Result<()> {
        self.network.heal(&[&self.management])
    }
}

impl KernelAddress {
    fn parse(link: &Value, info: &Value) -> Option<Self> {
        let address: IpAddr = info.get("local")?.as_str()?.parse().ok()?;
        let prefix = u8::try_from(info.get("prefixlen")?.as_u64()?).ok()?;
        let valid = info.get("valid_life_time")?.as_u64()?;
        let flag = |name: &str| info.get(name).and_then(Value::as_bool).unwrap_or(false);
        Some(Self {
            interface: link.get("ifname")?.as_str()?.to_owned(),
            address: IpNet::new(address, prefix).ok()?,
            // iproute2 prints the kernel's INFINITY_LIFE_TIME as it is.
            valid_seconds: (valid != u64::from(u32::MAX)).then_some(valid),
            protocol: info.get("protocol").and_then(Value::as_str).map(str::to_owned),
            nodad: flag("nodad"),
            deprecated: flag("deprecated"),
        })
    }
}
