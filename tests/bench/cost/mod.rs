//! The cost of Leasehold by the number of Services: requests to the API server, memory, processor time, frames on
//! the segment; and the time in which a node with many addresses is replaced.

mod api;
mod usage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use leasehold_lab::fleet::Fleet;
use leasehold_lab::{Cluster, Lab, Node, SYSTEM_NAMESPACE};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use self::api::Counters;
use self::usage::Usage;
use crate::logs;
use crate::record::{Book, Machine, milliseconds, resident};

/// The pool: 16,384 addresses of a network that all nodes are in.
const POOL: &str = "10.64.64.0/18";
/// The number of addresses of the node that dies, or whose speaker restarts.
const HOARD: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(600);
/// Sessions are renewed three times in that, and claims are written that were waiting.
const REST: Duration = Duration::from_secs(10);
/// A failover and what follows of it.
const FAILOVER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 5])]
    nodes: Vec<u8>,
    /// Numbers of Services.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    services: Vec<usize>,
    /// Duration of each count in an idle cluster, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of restarts and failures of a node with 1,000 addresses.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// The cost with a number of nodes and Services.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Cost {
    pub(crate) nodes: u8,
    pub(crate) services: usize,
    /// While nothing happens: requests per second by verb and resource, of all speakers and the operator.
    pub(crate) requests: BTreeMap<String, f64>,
    /// Watch events per second, to all who watch.
    pub(crate) watch_events: f64,
    /// Bytes per second by resource: bodies of requests, answers, watch events.
    pub(crate) bytes: BTreeMap<String, f64>,
    /// Of one core, by the speaker that needs most.
    pub(crate) speaker_cpu: f64,
    pub(crate) operator_cpu: f64,
    /// Resident, of the largest speaker, in MiB.
    pub(crate) speaker_mib: f64,
    pub(crate) operator_mib: f64,
    /// The frames of all nodes on the clients' segment, per second.
    pub(crate) frames: f64,
    /// The death of a node: how many claims it had, the requests that followed in 10 s beyond those of
    /// the same time before, and the time to the first and the last announcement of an address of it.
    pub(crate) moved: usize,
    pub(crate) failover_requests: f64,
    pub(crate) first_ms: Option<f64>,
    pub(crate) last_ms: Option<f64>,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

impl Cost {
    /// Writes of leases per second: creations, updates and patches.
    pub(crate) fn lease_writes(&self) -> f64 {
        let write = |text: &str| {
            ["POST ", "PUT ", "PATCH ", "DELETE "].iter().any(|it| text.starts_with(it))
        };
        let lease = |text: &str| text.ends_with(" leases");
        self.requests.iter().filter(|(it, _)| write(it) && lease(it)).map(|(_, rate)| rate).sum()
    }
}

/// Runs it all.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "cost.json")?;
    for &nodes in &plan.nodes {
        let stage = Stage::open(nodes).await?;
        start_speakers(stage.cluster.nodes())?;
        let mut made = 0;
        for &services in &plan.services {
            stage.fleet.create_many("web", made..services, &json!({})).await?;
            made = services;
            stage.all_owned(services, nodes.into()).await?;
            sleep(REST).await;
            let cost = stage.measure(services, Duration::from_secs(plan.seconds)).await?;
            println!("{}", serde_json::to_string(&cost)?);
            book.append(&cost)?;
        }
    }
    let mut hoards = Vec::new();
    for _ in 0..plan.repeat {
        hoards.push(Hoard::measure().await?);
        println!("{:?}", hoards.last());
    }
    let book = Book::open(out, "hoard.json")?;
    for hoard in &hoards {
        book.append(hoard)?;
    }
    println!("\nevery value is in {}", out.display());
    Ok(true)
}

/// Nodes without pods and without kube-proxy, in one large network.
pub(crate) struct Stage {
    pub(crate) lab: Arc<Lab>,
    pub(crate) cluster: Cluster,
    pub(crate) fleet: Fleet,
}

impl Stage {
    pub(crate) async fn open(nodes: u8) -> Result<Self> {
        let lab = Lab::start().await?;
        lab.start_operator(&["--default-class"])?;
        let plan = lab.cluster("cost").nodes(nodes).workers(0).without_proxies();
        let cluster = plan.without_speakers().start().await?;
        for node in cluster.nodes() {
            node.namespace().ip(&format!("address add 10.64.0.{}/16 dev eth0\n", node.number()))?;
        }
        lab.apply(json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
            "metadata": { "name": "lan" }, "spec": { "addresses": [POOL] },
        }))
        .await?;
        let fleet = Fleet::of(&lab);
        Ok(Self { lab, cluster, fleet })
    }

    /// Waits until there are so many claims, with so many owners at most, and all their addresses are in
    /// kernels.
    pub(crate) async fn all_owned(&self, services: usize, owners: usize) -> Result<()> {
        let settled = async || {
            let mut had = 0;
            for node in self.cluster.nodes() {
                had += addresses(node)?;
            }
            let claims = if had == services { self.claims().await? } else { BTreeMap::new() };
            let held: usize = claims.values().sum();
            Ok(held == services && claims.len() <= owners)
        };
        self.lab
            .eventually("all Services have an owner", PATIENCE, async || calmly(&settled).await)
            .await
    }

    /// The number of claims of each node.
    async fn claims(&self) -> Result<BTreeMap<String, usize>> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), SYSTEM_NAMESPACE);
        let mut claims = BTreeMap::new();
        for lease in leases.list(&ListParams::default()).await? {
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            if self.cluster.node_named(&holder).is_ok() {
                *claims.entry(holder).or_default() += 1;
            }
        }
        Ok(claims)
    }

    async fn measure(&self, services: usize, time: Duration) -> Result<Cost> {
        let (before, used) =
            (Counters::now(&self.lab).await?, Usage::now(&self.lab, &self.cluster)?);
        let began = Instant::now();
        sleep(time).await;
        let rates = used.until_now(&self.lab, &self.cluster)?;
        let quiet = Counters::now(&self.lab).await?.since(&before);
        let seconds = began.elapsed().as_secs_f64();
        let mut speaker_mib: f64 = 0.0;
        for node in self.cluster.nodes() {
            speaker_mib = speaker_mib.max(resident(&*node.speaker()?.process()?)?);
        }
        let operator_mib = resident(self.lab.operator()?.process())?;

        let claims = self.claims().await?;
        let most = claims.iter().max_by_key(|(_, count)| **count);
        let (victim, &moved) = most.context("nobody owns anything")?;
        let victim = self.cluster.node_named(victim)?;
        let before = Counters::now(&self.lab).await?;
        let struck = Timestamp::now();
        victim.dies()?;
        sleep(FAILOVER).await;
        let after = Counters::now(&self.lab).await?.since(&before);
        let per_second = |counters: &Counters| counters.requests.values().sum::<f64>() / seconds;
        let beyond =
            after.requests.values().sum::<f64>() - per_second(&quiet) * FAILOVER.as_secs_f64();
        self.all_owned_without(victim, services).await?;
        let announced = self.announced(struck, victim)?;
        victim.heal()?;
        self.all_owned(services, self.cluster.nodes().len()).await?;
        let rate = |value: &f64| value / seconds;
        let rates_of = |counted: &BTreeMap<String, f64>| -> BTreeMap<String, f64> {
            counted.iter().map(|(name, count)| (name.clone(), rate(count))).collect()
        };
        Ok(Cost {
            nodes: u8::try_from(self.cluster.nodes().len())?,
            services,
            requests: rates_of(&quiet.requests),
            watch_events: rate(&quiet.events),
            bytes: rates_of(&quiet.bytes),
            speaker_cpu: rates.speaker_cpu,
            operator_cpu: rates.operator_cpu,
            speaker_mib,
            operator_mib,
            frames: rates.frames,
            moved,
            failover_requests: beyond,
            first_ms: announced.iter().copied().reduce(f64::min),
            last_ms: announced.iter().copied().reduce(f64::max),
            machine: Machine::here()?,
            date: Timestamp::now().to_string(),
        })
    }

    /// Waits until the others have all addresses.
    async fn all_owned_without(&self, dead: &Node, services: usize) -> Result<()> {
        let others = || self.cluster.nodes().iter().filter(|node| node.name() != dead.name());
        let taken = async || {
            let counts = others().map(addresses).collect::<Result<Vec<_>>>()?;
            Ok(counts.iter().sum::<usize>() == services)
        };
        let what = "the survivors have all addresses";
        self.lab.eventually(what, PATIENCE, async || calmly(&taken).await).await
    }

    /// When each address was announced by others than `dead`, in milliseconds since `struck`.
    fn announced(&self, struck: Timestamp, dead: &Node) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        for node in self.cluster.nodes().iter().filter(|node| node.name() != dead.name()) {
            let log = node.speaker()?.log();
            let lines = logs::since(&log, struck).into_iter();
            let such = lines.filter(|line| line.fields.message == "announced");
            all.extend(such.map(|line| line.timestamp.duration_since(struck).as_secs_f64() * 1e3));
        }
        Ok(all)
    }
}

fn start_speakers<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Result<()> {
    nodes.into_iter().try_for_each(|node| {
        // To be read by `announced`.
        let arguments = ["--log-format", "json"].map(str::to_owned);
        node.speaker()?.reconfigure(|options| options.arguments = arguments.to_vec());
        node.start_speaker()
    })
}

/// Looks, and rests ten times as long as that took: on a machine of two cores it would take from what is
/// measured.
async fn calmly(look: impl AsyncFnOnce() -> Result<bool>) -> Result<bool> {
    let began = Instant::now();
    let found = look().await;
    sleep((began.elapsed() * 10).max(Duration::from_millis(300))).await;
    found
}

/// The number of addresses of the pool in a node's kernel.
fn addresses(node: &Node) -> Result<usize> {
    let pool: ipnet::Ipv4Net = POOL.parse()?;
    let such = |address: &leasehold_lab::host::KernelAddress| match address.address {
        ipnet::IpNet::V4(net) => pool.contains(&net.addr()),
        ipnet::IpNet::V6(_) => false,
    };
    Ok(node.addresses()?.iter().filter(|address| such(address)).count())
}

/// A node with 1,000 addresses.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Hoard {
    pub(crate) addresses: usize,
    /// From the start of a process to its readiness, after SIGTERM: it adopts the addresses.
    pub(crate) adopted_ms: f64,
    /// From its death to the first and the last announcement by the two others.
    pub(crate) first_ms: f64,
    pub(crate) last_ms: f64,
    /// Kernel time of adding them with `ip -batch`, and of removing them.
    pub(crate) kernel_add_ms: f64,
    pub(crate) kernel_remove_ms: f64,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

impl Hoard {
    async fn measure() -> Result<Self> {
        let stage = Stage::open(3).await?;
        let (first, others) = stage.cluster.nodes().split_first().context("no nodes")?;
        let (kernel_add_ms, kernel_remove_ms) = kernel(first)?;
        start_speakers([first])?;
        stage.fleet.create_many("web", 0..HOARD, &json!({})).await?;
        stage.all_owned(HOARD, 1).await?;
        start_speakers(others)?;
        sleep(REST).await;

        first.speaker()?.terminate().await?;
        let began = Instant::now();
        first.start_speaker()?;
        while first.speaker_http("/readyz").is_err() {
            sleep(Duration::from_millis(2)).await;
        }
        let adopted_ms = milliseconds(began.elapsed());
        stage.all_owned(HOARD, 1).await?;
        sleep(REST).await;

        let struck = Timestamp::now();
        first.dies()?;
        stage.all_owned_without(first, HOARD).await?;
        let announced = stage.announced(struck, first)?;
        Ok(Self {
            addresses: HOARD,
            adopted_ms,
            first_ms: announced.iter().copied().reduce(f64::min).context("none was announced")?,
            last_ms: announced.iter().copied().reduce(f64::max).context("none was announced")?,
            kernel_add_ms,
            kernel_remove_ms,
            machine: Machine::here()?,
            date: Timestamp::now().to_string(),
        })
    }
}

/// The time that the kernel takes to add so many addresses with lifetimes, and to remove them.
fn kernel(node: &Node) -> Result<(f64, f64)> {
    let commands = |verb: &str, tail: &str| {
        let line = |n: usize| {
            format!("address {verb} 10.64.{}.{}/32 dev eth0{tail}\n", 64 + n / 250, 1 + n % 250)
        };
        (0..HOARD).map(line).collect::<String>()
    };
    let timed = |commands: String| -> Result<f64> {
        let began = Instant::now();
        node.namespace().ip(&commands)?;
        Ok(milliseconds(began.elapsed()))
    };
    let added = timed(commands("add", " valid_lft 60 preferred_lft 0"))?;
    Ok((added, timed(commands("del", ""))?))
}
