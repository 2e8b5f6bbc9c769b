//! Requests through an address of a Service, and through a node port of the same Service on the same node:
//! what announcing costs those who use it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use leasehold_lab::Lab;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::failover::{Ground, Profile, Shape, System};
use crate::record::{Book, Machine, Spread, percentile};

const SHAPE: Shape = Shape { nodes: 3, services: 1 };
/// The Service's port.
const PORT: u16 = 80;

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Duration of each turn, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of turns of each path.
    #[arg(long, default_value_t = 10)]
    repeat: usize,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

/// One turn by one way.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Turn {
    /// `VIP` or `node port`.
    pub(crate) way: String,
    /// Whether each request has a connection of its own.
    pub(crate) new_connections: bool,
    pub(crate) requests_per_second: f64,
    /// From the sending of a request to its answer, in microseconds.
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

/// Asks by both ways, in turn.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "data-path.json")?;
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let system = System::Leasehold(Profile::Default);
    let ground = Ground::open(&lab, "path", SHAPE, system, |_| Ok(())).await?;
    ground.settle().await?;
    let placement = ground.owned().await?;
    let (owner, vips) = placement.first_key_value().context("nobody owns the VIP")?;
    let [address, _] = ground.cluster.node_named(owner)?.own_addresses();
    let vip = *vips.first().context("no VIP")?;
    let ways = [
        ("VIP", SocketAddr::new(vip, PORT)),
        ("node port", SocketAddr::new(address, node_port(&lab, ground.cluster.namespace()).await?)),
    ];
    let (time, connections) = (Duration::from_secs(plan.seconds), plan.connections);
    for new_connections in [false, true] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..plan.repeat {
            for ((way, server), rates) in ways.iter().zip(&mut rates) {
                let host = ground.cluster.client().namespace();
                let latencies =
                    host.within(|| ask(*server, time, connections, new_connections))??;
                let spread = |hundredth| percentile(&latencies, hundredth).copied().map(micros);
                let turn = Turn {
                    way: (*way).to_owned(),
                    new_connections,
                    requests_per_second: f64::from(u32::try_from(latencies.len())?)
                        / time.as_secs_f64(),
                    median_us: spread(50).context("no answer")?,
                    p99_us: spread(99).context("no answer")?,
                    machine: Machine::here()?,
                    date: Timestamp::now().to_string(),
                };
                rates.push(turn.requests_per_second);
                book.append(&turn)?;
            }
        }
        for ((way, _), rates) in ways.iter().zip(rates) {
            let spread = Spread::of(rates.into_iter()).context("nothing was asked")?;
            let kind = if new_connections { "a connection each" } else { "lasting connections" };
            println!("{way:<10} {kind:<20} {:>9.0} requests/s (median)", spread.median);
        }
    }
    println!("\nevery turn is in {}", book.path().display());
    Ok(true)
}

async fn node_port(lab: &Lab, namespace: &str) -> Result<u16> {
    let services: Api<ServiceObject> = Api::namespaced(lab.admin(), namespace);
    let ports = services.get("web").await?.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let port = ports.iter().find(|port| port.port == i32::from(PORT));
    let port = port.and_then(|port| port.node_port).context("the Service has no node port")?;
    Ok(u16::try_from(port)?)
}

/// Asks for so long, on the calling thread; the time of each answer, in order.
fn ask(
    server: SocketAddr,
    time: Duration,
    connections: usize,
    anew: bool,
) -> Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut latencies = runtime.block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..connections {
            clients.spawn(client(server, Instant::now() + time, anew));
        }
        let mut all = Vec::new();
        while let Some(done) = clients.join_next().await {
            all.extend(done??);
        }
        anyhow::Ok(all)
    })?;
    latencies.sort_unstable();
    Ok(latencies)
}

async fn client(server: SocketAddr, until: Instant, anew: bool) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut lasting = None;
    while Instant::now() < until {
        let begin = Instant::now();
        let mut stream = match lasting.take() {
            Some(stream) => stream,
            None => connect(server).await?,
        };
        exchange(&mut stream).await?;
        latencies.push(begin.elapsed());
        if !anew {
            lasting = Some(stream);
        }
    }
    Ok(latencies)
}

async fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // Closed by a reset: thousands of ports would wait for late segments otherwise.
    stream.set_zero_linger()?;
    Ok(stream)
}

/// One request and its answer, which is short: one line in one segment.
async fn exchange(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").await?;
    let mut buffer = [0; 1024];
    let length = stream.read(&mut buffer).await?;
    let answer = buffer.get(..length).unwrap_or_default();
    ensure!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"\n"), "no answer");
    Ok(())
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}
