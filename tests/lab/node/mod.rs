//! A node: a network namespace with three links, a Node object, a kube-proxy, pods and a speaker.

mod pods;
mod proxy;
mod speaker;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

pub use self::pods::Pod;
pub use self::proxy::ProxyMode;
pub use self::speaker::{Speaker, SpeakerOptions};
use crate::controlplane::ControlPlane;
use crate::metrics;
use crate::namespace::Namespace;
use crate::network::{Bridge, Direction, Network, Port};
use crate::process::Process;
use crate::shell;

/// The label by which policies and selectors tell clusters of one control plane apart.
pub const CLUSTER_LABEL: &str = "lab.leasehold.dev/cluster";

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    number: u8,
    folder: PathBuf,
    namespace: Namespace,
    network: Arc<Network>,
    plane: Arc<ControlPlane>,
    clients: Port,
    management: Port,
    pods_link: Port,
    proxy_mode: ProxyMode,
    proxy: Mutex<Option<Process>>,
    speaker: Option<Speaker>,
    next_pod: AtomicU8,
}

/// An address on a node's link, as the kernel has it.
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

/// The plan of a node.
pub(crate) struct Blueprint<'a> {
    pub(crate) name: String,
    pub(crate) cluster: &'a str,
    pub(crate) number: u8,
    /// The number of nodes of the cluster: routes lead to the pods of each.
    pub(crate) nodes: u8,
    pub(crate) folder: &'a Path,
    pub(crate) proxy: ProxyMode,
    pub(crate) start_proxy: bool,
    pub(crate) speaker: Option<SpeakerOptions>,
}

impl Node {
    /// Makes the namespace, the Node object and the processes; the speaker is not started.
    pub(crate) async fn create(
        plan: Blueprint<'_>,
        network: Arc<Network>,
        plane: Arc<ControlPlane>,
    ) -> Result<Self> {
        let folder = plan.folder.join(&plan.name);
        fs::create_dir_all(&folder)?;
        let namespace = Namespace::create(&plan.name)?;
        let number = plan.number;
        let host = number.saturating_add(10);
        let clients = network.plug(&namespace, Bridge::Clients, host)?;
        let management = network.plug(&namespace, Bridge::Management, host)?;
        let pods_link = network.plug(&namespace, Bridge::Pods, host)?;
        let speaker = plan
            .speaker
            .map(|options| Speaker::new(&plan.name, &folder, network.plan(), number, options))
            .transpose()?;
        let node = Self {
            name: plan.name,
            number,
            folder,
            namespace,
            network,
            plane,
            clients,
            management,
            pods_link,
            proxy_mode: plan.proxy,
            proxy: Mutex::default(),
            speaker,
            next_pod: AtomicU8::new(10),
        };
        node.address(plan.nodes)?;
        node.register(plan.cluster).await?;
        if plan.start_proxy {
            node.start_proxy()?;
        }
        Ok(node)
    }

    fn address(&self, nodes: u8) -> Result<()> {
        // As a distribution with systemd sets a router up (rp_filter 2 is its loose mode). ARP is
        // left at the kernel's defaults: a speaker has to cope with those.
        self.namespace.sysctl(&[
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.rp_filter", "2"),
            ("net.ipv4.conf.default.rp_filter", "2"),
        ])?;
        let plan = self.network.plan();
        let (pods_v4, pods_v6) = plan.pods_link(self.number);
        let (gateway_v4, gateway_v6) = plan.pod(self.number, 1);
        let management = plan.management(self.number);
        let mut commands = format!(
            "link add name cni0 type bridge\n\
             link set dev cni0 up\n\
             link set dev eth0 up\n\
             link set dev mgmt0 up\n\
             link set dev pods0 up\n\
             address add {management}/16 dev mgmt0\n\
             address add {pods_v4}/24 dev pods0\n\
             address add {pods_v6}/64 dev pods0 nodad\n\
             address add {gateway_v4}/24 dev cni0\n\
             address add {gateway_v6}/64 dev cni0 nodad\n"
        );
        for other in (1..=nodes).filter(|&other| other != self.number) {
            let (via_v4, via_v6) = plan.pods_link(other);
            let (net_v4, net_v6) = plan.pod(other, 0);
            writeln!(commands, "route add {net_v4}/24 via {via_v4}")?;
            writeln!(commands, "route add {net_v6}/64 via {via_v6}")?;
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

    async fn register(&self, cluster: &str) -> Result<()> {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                    CLUSTER_LABEL: cluster,
                },
            },
        });
        self.plane.apply(&[node]).await?;
        let (v4, v6) = self.network.plan().node(self.number);
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let status = json!({
            "status": {
                // All fields are required.
                "nodeInfo": {
                    "kernelVersion": kernel.trim(), "osImage": "Lab", "operatingSystem": "linux",
                    "architecture": env::consts::ARCH, "containerRuntimeVersion": "",
                    "kubeletVersion": "", "kubeProxyVersion": "", "bootID": "", "machineID": "",
                    "systemUUID": "",
                },
                "addresses": [
                    { "type": "InternalIP", "address": v4 },
                    { "type": "InternalIP", "address": v6 },
                    { "type": "Hostname", "address": self.name },
                ],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Lab", "message": "",
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                }],
            },
        });
        self.objects()
            .patch_status(&self.name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    fn objects(&self) -> Api<NodeObject> {
        Api::all(self.plane.admin())
    }

    /// The name of the Node object, and of the network namespace.
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
        self.network.mac(Bridge::Clients, self.number.saturating_add(10))
    }

    /// Its own addresses on the clients' segment.
    pub fn own_addresses(&self) -> [IpAddr; 2] {
        let (v4, v6) = self.network.plan().node(self.number);
        [v4.into(), v6.into()]
    }

    /// Its speaker.
    ///
    /// # Errors
    /// If it is a node without one.
    pub fn speaker(&self) -> Result<&Speaker> {
        self.speaker.as_ref().with_context(|| format!("{} has no speaker", self.name))
    }

    /// Starts its speaker.
    pub fn start_speaker(&self) -> Result<()> {
        self.speaker()?.start(&self.namespace, &self.plane)
    }

    /// Starts a second speaker beside it, as somebody who installs Leasehold twice does.
    pub fn start_second_speaker(&self) -> Result<Process> {
        let metrics = speaker::METRICS + 1;
        self.speaker()?.spawn(&self.namespace, &self.plane, "second-speaker.log", metrics)
    }

    /// The answer of the second speaker's HTTP server to `GET path`.
    pub fn second_speaker_http(&self, path: &str) -> Result<String> {
        metrics::get(&self.namespace, speaker::METRICS + 1, path)
    }

    /// The answer of its speaker's HTTP server to `GET path`: `/metrics`, `/readyz`, ….
    pub fn speaker_http(&self, path: &str) -> Result<String> {
        self.speaker()?;
        metrics::get(&self.namespace, speaker::METRICS, path)
    }

    /// Where its speaker's HTTP server is, as the API server's machine reaches it.
    pub fn speaker_socket(&self) -> SocketAddr {
        SocketAddr::from((self.network.plan().management(self.number), speaker::METRICS))
    }

    /// Patches the Node object (a strategic merge): `{"spec": {"unschedulable": true}}` cordons it.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        let patch = Patch::Strategic(patch);
        self.objects().patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
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

    /// The VIP as this node's kernel has it, if it does.
    pub fn has_address(&self, vip: IpAddr) -> Result<Option<KernelAddress>> {
        Ok(self.addresses()?.into_iter().find(|address| address.address.addr() == vip))
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

    /// Drops all frames on the link to the API server; the carrier stays.
    pub fn cut_management(&self) -> Result<()> {
        self.network.cut(&[&self.management], &[Direction::FromHost, Direction::ToHost])
    }

    /// The node is dead to everybody from one moment on: nothing comes out of it any more and
    /// nothing gets in. Its kernel and processes go on, unheard.
    pub fn dies(&self) -> Result<()> {
        self.network.cut(&self.ports(), &[Direction::FromHost, Direction::ToHost])
    }

    /// Drops ARP from these nodes in this node's kernel, as a firewall between nodes does; other
    /// hosts are answered. An empty list lifts it.
    pub fn filter_arp_of(&self, nodes: &[&Node]) -> Result<()> {
        let mut rules = "table arp guard {}\ndelete table arp guard\n".to_owned();
        if !nodes.is_empty() {
            let macs: Vec<_> = nodes.iter().map(|node| node.mac()).collect();
            writeln!(
                rules,
                "table arp guard {{ chain input {{ type filter hook input priority 0; \
                 arp saddr ether {{ {} }} drop; }}; }}",
                macs.join(", ")
            )?;
        }
        shell::feed(self.namespace.command("nft").args(["-f", "-"]), &rules)
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

    /// The state of this node, for a failed test.
    pub fn dump(&self) -> String {
        let mut command = self.namespace.command("ip");
        let addresses = shell::output(command.args(["-brief", "address", "show"]));
        let mut text = format!("=== node {}\n{}", self.name, addresses.unwrap_or_default());
        if let Some(speaker) = &self.speaker {
            text.push_str(&speaker.tail(15));
        }
        text
    }

    fn proxy_slot(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod_number(&self) -> u8 {
        self.next_pod.fetch_add(1, Ordering::Relaxed)
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
