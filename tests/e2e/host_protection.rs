//! By an address on a node's interface nothing of the node can be reached but its Service.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Lab, Node, ProxyMode, Service};
use serde_json::{Value, json};

use crate::scene::{Scene, UDP, cordon};

const SSH: u16 = 22;
/// Somebody's own service beside it.
const BESIDE: u16 = 8_443;
/// Somebody's own server of datagrams.
const DNS: u16 = 53;

/// Listens as sshd does, on all addresses of the node; until it is dropped.
fn listen(node: &Node, port: u16) -> Result<TcpListener> {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listener = node.namespace().within(|| TcpListener::bind(everywhere))?;
    listener.with_context(|| format!("listen on port {port} of {}", node.name()))
}

/// Answers datagrams as name servers do, which listen on each address; until it is dropped.
struct Echo(Arc<AtomicBool>);

impl Echo {
    fn start(node: &Node, ip: IpAddr) -> Result<Self> {
        let socket = node.namespace().within(|| UdpSocket::bind((ip, DNS)))?;
        let socket = socket.with_context(|| format!("bind to {ip} on {}", node.name()))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        thread::spawn(move || {
            let mut buffer = [0; 128];
            while !ended.load(Ordering::Relaxed) {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
                drop(socket.send_to(buffer.get(..length).unwrap_or_default(), peer));
            }
        });
        Ok(Self(end))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The TCP and the UDP ports of the nodes that the cluster itself opens for a Service.
pub async fn node_ports(service: &Service) -> Result<(Vec<u16>, Vec<u16>)> {
    let spec = service.get().await?.spec.context("no spec")?;
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    for port in spec.ports.iter().flatten() {
        let ports = if port.protocol.as_deref() == Some("UDP") { &mut udp } else { &mut tcp };
        ports.extend(port.node_port.map(u16::try_from).transpose()?);
    }
    tcp.extend(spec.health_check_node_port.map(u16::try_from).transpose()?);
    Ok((tcp, udp))
}

/// The rules of a node that are ours.
fn table(node: &Node) -> Result<Option<String>> {
    let listed =
        node.namespace().command("nft").args(["list", "table", "inet", "leasehold"]).output()?;
    Ok(listed.status.success().then(|| String::from_utf8_lossy(&listed.stdout).into_owned()))
}

pub async fn a_port_scan_of_an_address_finds_the_ports_of_its_service_and_nothing_else()
-> Result<()> {
    scan(ProxyMode::Nftables).await
}

pub async fn a_port_scan_finds_no_more_where_kube_proxy_runs_iptables() -> Result<()> {
    scan(ProxyMode::Iptables).await
}

async fn scan(mode: ProxyMode) -> Result<()> {
    let plan = Lab::shared().await?.cluster(&format!("scan-{}", mode.name())).proxy_mode(mode);
    let scene = Scene::of(plan).await?;
    let nodes: Vec<&Node> = scene.cluster.nodes().iter().collect();
    let service = scene.cluster.service("edge").dual_stack().vip(1).local().pods_on(&nodes);
    let service = service.create().await?;
    let (_, owner) = scene.cluster.ready(&service).await?;
    let _listeners = (listen(owner, SSH)?, listen(owner, BESIDE)?);
    let (tcp, udp) = node_ports(&service).await?;
    ensure!(tcp.len() == 2 && udp.len() == 1, "node ports and a health check: {tcp:?}, {udp:?}");
    let of_node = [[SSH, BESIDE].as_slice(), &tcp].concat();
    let of_node_udp = [[DNS].as_slice(), &udp].concat();
    let known = [[80].as_slice(), &of_node].concat();
    let known_udp = [[UDP].as_slice(), &of_node_udp].concat();

    let client = scene.cluster.client();
    let everything: Vec<u16> = (1..=u16::MAX).collect();
    for (vip, own) in service.addresses().await?.into_iter().zip(owner.own_addresses()) {
        ensure!(vip.is_ipv4() == own.is_ipv4());
        let _servers = (Echo::start(owner, own)?, Echo::start(owner, vip)?);
        scene
            .until(
                &format!("{own}, the node's own address, leads to all of the node"),
                async || {
                    let found = client.open_ports(own, &known)?;
                    let answers = client.answering_ports(own, &known_udp)?;
                    Ok(found == of_node && answers == of_node_udp)
                },
            )
            .await?;
        let found = client.open_ports(vip, &everything)?;
        println!("    of 65,535 TCP ports of {vip}: {found:?}");
        ensure!(found == [80], "by {vip} the client finds {found:?}");
        let found = client.answering_ports(vip, &known_udp)?;
        ensure!(found == [UDP], "by {vip} datagrams of {found:?} are answered");
        ensure!(client.pings(vip)? && client.pings(own)?, "{vip} or {own} does not answer");
        client.get(vip, 80, "/").with_context(|| format!("{vip} does not answer"))?;
    }
    Ok(())
}

pub async fn protection_follows_the_service_the_policy_and_the_address() -> Result<()> {
    let scene = Scene::open("shield").await?;
    let (vip, client) = (scene.vip, scene.cluster.client());
    let owner = scene.owner().await?;
    let _listeners = (listen(owner, SSH)?, listen(owner, BESIDE)?);
    let _server = Echo::start(owner, vip)?;
    let (tcp, udp) = node_ports(&scene.service).await?;
    let known = [[80, SSH, BESIDE].as_slice(), &tcp].concat();
    let known_udp = [[UDP, DNS].as_slice(), &udp].concat();
    ensure!(known.len() == 4 && known_udp.len() == 3, "node ports: {tcp:?}, {udp:?}");
    let finds = async |what: &str, expected: &[u16]| {
        let (mut found, what) = (Vec::new(), format!("{what}: the client finds {expected:?}"));
        let found = async || {
            found = client.open_ports(vip, &known)?;
            Ok(found == expected)
        };
        scene.until(&what, found).await
    };
    finds("at first", &[80]).await?;
    ensure!(client.answering_ports(vip, &known_udp)? == [UDP], "datagrams");

    owner.speaker()?.kill().await?;
    ensure!(client.open_ports(vip, &known)? == [80], "without a speaker");
    owner.start_speaker()?;
    for _ in 0..5 {
        ensure!(client.open_ports(vip, &known)? == [80], "while the speaker starts");
    }
    scene.until("the speaker is ready", async || Ok(owner.speaker_http("/readyz").is_ok())).await?;
    ensure!(client.open_ports(vip, &known)? == [80], "after a restart of the speaker");

    let protection = |setting: &str| json!({ "hostProtection": setting });
    scene.cluster.policy_with(protection("Disabled")).await?;
    finds("unprotected", &known).await?;
    ensure!(client.answering_ports(vip, &known_udp)? == known_udp, "datagrams, unprotected");
    ensure!(table(owner)?.is_none(), "left behind: {:?}", table(owner)?);
    scene.cluster.policy_with(protection("Enabled")).await?;
    finds("protected again", &[80]).await?;

    let named = |name: &str, port: u16| -> Value {
        json!({ "name": name, "port": port, "targetPort": 8080, "protocol": "TCP" })
    };
    let ports = json!([named("http", 80), named("more", BESIDE)]);
    scene.service.patch(json!({ "spec": { "ports": ports } })).await?;
    finds("with a port more", &[80, BESIDE]).await?;
    scene.service.patch(json!({ "spec": { "ports": [named("http", 80)] } })).await?;
    finds("with a port less", &[80]).await?;

    // Another node has it, and the former one nothing of it.
    cordon(owner, true).await?;
    let next = scene.moved_from(owner).await?;
    let _elsewhere = listen(next, SSH)?;
    finds("elsewhere", &[80]).await?;
    scene.until("the former owner has no rules", async || Ok(table(owner)?.is_none())).await?;
    ensure!(table(next)?.is_some_and(|rules| rules.contains(&vip.to_string())));

    scene.service.delete().await?;
    scene
        .until("nothing is left of a deleted Service", async || {
            Ok(scene.holders()?.is_empty() && table(next)?.is_none())
        })
        .await?;
    // The protection of one address is nothing to another one of the node.
    for own in next.own_addresses() {
        ensure!(client.open_ports(own, &[SSH])? == [SSH], "{own} is cut off");
    }
    Ok(())
}

pub async fn by_a_shared_address_the_ports_of_all_its_services_are_reached() -> Result<()> {
    const SHARED_ADDRESS: &str = "leasehold.dev/shared-address";
    let scene = Scene::open("sharers").await?;
    let (cluster, client) = (&scene.cluster, scene.cluster.client());
    scene.service.patch(json!({"metadata": {"annotations": {SHARED_ADDRESS: "key"}}})).await?;
    let other = cluster.service("other").tcp(8080).udp(5006).annotation(SHARED_ADDRESS, "key");
    let other = other.vip(0).pods_of(&scene.service).create().await?;
    let (vip, owner) = cluster.ready(&other).await?;
    ensure!(vip == scene.vip, "{} has {vip}", other.name());
    let _listener = listen(owner, SSH)?;
    let _server = Echo::start(owner, vip)?;
    let (mut known, mut known_udp) = (vec![SSH, 80, 8080], vec![DNS, UDP, 5006]);
    for service in [&scene.service, &other] {
        let (tcp, udp) = node_ports(service).await?;
        known.extend(tcp);
        known_udp.extend(udp);
    }
    ensure!(known.len() == 5 && known_udp.len() == 5, "node ports: {known:?}, {known_udp:?}");
    let finds = async |what: &str, tcp: &[u16], udp: &[u16]| {
        let reached = async || {
            let found = client.open_ports(vip, &known)?;
            Ok(found == tcp && client.answering_ports(vip, &known_udp)? == udp)
        };
        scene.until(&format!("{what}: the client finds {tcp:?} and {udp:?}"), reached).await
    };
    finds("both", &[80, 8080], &[UDP, 5006]).await?;
    scene.service.delete().await?;
    finds("one of them", &[8080], &[5006]).await
}
