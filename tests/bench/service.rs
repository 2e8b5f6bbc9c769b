//! What the users of a Service notice when a node with pods of it fails: new connections that fail, second by second,
//! and lasting connections that are lost. On machines, with kubelets, images and manifests, as users have them.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use leasehold_lab::Report;
use leasehold_lab::machines::{Machine, Machines, MachinesPlan, web};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::others::{kube_vip, metallb};
use crate::record::{Book, Machine as Here, milliseconds};

/// New connections: 500 in a second.
const PERIOD: Duration = Duration::from_millis(2);
/// Lasting connections, and the time between requests on each.
const LASTING: usize = 100;
const EVERY: Duration = Duration::from_millis(200);
/// The time before a fault, and after it: longer than until a Node is not ready (50 s) and its pods leave the
/// EndpointSlices.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(80);
const NAMESPACE: &str = "default";
const WEB: &str = "web";

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Number of repeats.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Systems to measure.
    #[arg(long, value_delimiter = ',', default_values_t = System::value_variants().to_vec())]
    systems: Vec<System>,
    /// Faults to cause.
    #[arg(long, value_delimiter = ',', default_values_t = Fault::value_variants().to_vec())]
    faults: Vec<Fault>,
}

/// A load balancer, with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// As its manifests are.
    Leasehold,
    /// Layer 2, as its manual says.
    Metallb,
    /// ... with memberlist five times as quick.
    MetallbTuned,
    /// ARP, a lease per Service, as its manual says.
    KubeVip,
    /// ... with leases of 5 s, renewed each second, as its examples have it.
    KubeVipTuned,
}

/// A fault of the node that owns the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// Its power is cut.
    PowerCut,
    /// Its cables are pulled.
    CablePulled,
    /// Its processes hang; its kernel goes on.
    Frozen,
    /// It is drained, with a disruption budget.
    Drained,
    /// It is shut down without a drain, and turned on again.
    Rebooted,
}

/// The names on the command line are those in the results.
macro_rules! displayed {
    ($($name:ty),*) => { $(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = self.to_possible_value();
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )* };
}
displayed!(System, Fault);

impl System {
    const fn title(self) -> &'static str {
        match self {
            Self::Leasehold => "Leasehold",
            Self::Metallb => "MetalLB, layer 2",
            Self::MetallbTuned => "MetalLB, layer 2, fast memberlist",
            Self::KubeVip => "kube-vip, ARP, leases of 15 s",
            Self::KubeVipTuned => "kube-vip, ARP, leases of 5 s",
        }
    }
}

impl Fault {
    const fn title(self) -> &'static str {
        match self {
            Self::PowerCut => "power of the owner's node cut",
            Self::CablePulled => "cables of the owner's node pulled",
            Self::Frozen => "processes of the owner's node hang",
            Self::Drained => "owner's node drained",
            Self::Rebooted => "owner's node rebooted without a drain",
        }
    }
}

/// A system in words, by its name in the results.
pub(crate) fn system_title(name: &str) -> &'static str {
    System::from_str(name, true).map_or("unknown", System::title)
}

/// A fault in words, by its name in the results.
pub(crate) fn fault_title(name: &str) -> &'static str {
    Fault::from_str(name, true).map_or("unknown", Fault::title)
}

/// The faults and systems of which there are trials, in the order of the faults.
pub(crate) fn pairs(trials: &[Trial]) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for fault in Fault::value_variants() {
        for system in System::value_variants() {
            let (fault, system) = (fault.to_string(), system.to_string());
            let found = trials.iter().find(|it| it.fault == fault && it.system == system);
            pairs.extend(found.map(|it| (it.fault.as_str(), it.system.as_str())));
        }
    }
    pairs
}

/// One fault on one system.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Trial {
    pub(crate) system: String,
    pub(crate) fault: String,
    pub(crate) repeat: usize,
    /// For each second from the fault on: new connections that failed, and all.
    pub(crate) seconds: Vec<(usize, usize)>,
    /// From the fault to the first answer after a failure; zero where none failed.
    pub(crate) first_answer_ms: Option<f64>,
    /// From the fault to the last new connection that failed; zero where none did.
    pub(crate) last_failure_ms: f64,
    pub(crate) failed: usize,
    pub(crate) made: usize,
    /// Lasting connections that were reset, or got no answer for 10 s.
    pub(crate) lasting_lost: usize,
    pub(crate) lasting: usize,
    /// The time during which two nodes answered ARP requests for the address.
    pub(crate) two_owners_ms: f64,
    #[serde(flatten)]
    pub(crate) machine: Here,
    pub(crate) date: String,
}

pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "service.json")?;
    let mut clean = true;
    for &system in &plan.systems {
        for &fault in &plan.faults {
            for repeat in 1..=plan.repeat {
                match trial(system, fault, repeat).await {
                    Ok(trial) => {
                        println!("{}", trial.line()?);
                        book.append(&trial)?;
                    }
                    Err(error) => {
                        clean = false;
                        println!("{system} {fault}: failed: {error:#}");
                    }
                }
            }
        }
    }
    println!("\nevery trial is in {}", book.path().display());
    Ok(clean)
}

impl Trial {
    fn line(&self) -> Result<String> {
        let mut text = format!(
            "{:<15} {:<13} {:>5} of {:>5} failed, the last after {:>6.0} ms, first answer after {:>6.0} ms, \
             {:>3} of {} lasting lost; by second:",
            self.system,
            self.fault,
            self.failed,
            self.made,
            self.last_failure_ms,
            self.first_answer_ms.unwrap_or(f64::INFINITY),
            self.lasting_lost,
            self.lasting,
        );
        for (failed, _) in &self.seconds {
            write!(text, " {failed}")?;
        }
        Ok(text)
    }
}

/// A cluster with the system, and a Service with a pod on each node.
struct Ground {
    machines: Machines,
    vip: IpAddr,
}

async fn trial(system: System, fault: Fault, repeat: usize) -> Result<Trial> {
    let ground = Ground::open(system).await?;
    let victim = ground.owner()?;
    let client = ground.machines.client();
    let probe = client.probe(ground.vip).tcp(80, PERIOD).many_sources();
    let probe = probe.lasting(80, LASTING, EVERY).owners().start()?;
    sleep(BEFORE).await;
    let at = Instant::now();
    ground.cause(fault, victim).await?;
    sleep(AFTER.saturating_sub(at.elapsed())).await;
    let report = probe.stop().await?;
    if fault == Fault::Frozen {
        // What is frozen cannot end.
        victim.thaw()?;
    }
    measured(system, fault, repeat, &report, at)
}

fn measured(
    system: System,
    fault: Fault,
    repeat: usize,
    report: &Report,
    at: Instant,
) -> Result<Trial> {
    let track = report.tcp()?;
    ensure!(report.lasting.len() == LASTING, "{} lasting connections", report.lasting.len());
    Ok(Trial {
        system: system.to_string(),
        fault: fault.to_string(),
        repeat,
        seconds: track.by_second(at),
        first_answer_ms: track.answered_again_since(at).map(milliseconds),
        last_failure_ms: milliseconds(track.last_loss_since(at)),
        failed: track.lost_since(at),
        made: track.by_second(at).iter().map(|(_, all)| all).sum(),
        lasting_lost: report.lasting.iter().filter(|it| it.broken().is_some()).count(),
        lasting: report.lasting.len(),
        two_owners_ms: milliseconds(report.owners()?.two_owners()),
        machine: Here::here()?,
        date: Timestamp::now().to_string(),
    })
}

impl Ground {
    async fn open(system: System) -> Result<Self> {
        let plan = MachinesPlan::new("bench").plain_names();
        let machines = match system {
            System::Leasehold => {
                let machines = plan.start().await?;
                machines.install().await?;
                machines.pool().await?;
                machines
            }
            System::Metallb => metallb::install(plan, metallb::Settings::Default).await?,
            System::MetallbTuned => metallb::install(plan, metallb::Settings::Fast).await?,
            System::KubeVip => kube_vip::install(plan, kube_vip::Leases::DEFAULT).await?,
            System::KubeVipTuned => kube_vip::install(plan, kube_vip::Leases::SHORT).await?,
        };
        for object in service(&machines, system) {
            machines.lab().apply(object).await?;
        }
        machines.deployed(NAMESPACE, WEB).await?;
        let mut vip = None;
        machines
            .eventually("the Service has an address, and answers by it", async || {
                vip = machines.service_addresses(NAMESPACE, WEB).await?.first().copied();
                let Some(vip) = vip else { return Ok(false) };
                Ok(machines.client().get(vip, 80, "/hostname").is_ok())
            })
            .await?;
        // Until all is as it is on other days.
        sleep(Duration::from_secs(10)).await;
        Ok(Self { machines, vip: vip.context("no address")? })
    }

    /// The machine that answers ARP requests for the address, which is all that a client knows.
    fn owner(&self) -> Result<&Machine> {
        self.machines.client().get(self.vip, 80, "/hostname")?;
        let mac = self.machines.client().neighbour(self.vip)?.context("nobody has the address")?;
        let mut on = self.machines.on();
        let owner = on.find(|machine| machine.mac() == mac.to_string());
        owner.with_context(|| format!("no machine has the MAC address {mac}"))
    }

    async fn cause(&self, fault: Fault, victim: &Machine) -> Result<()> {
        match fault {
            Fault::PowerCut => victim.power_off(),
            Fault::CablePulled => victim.cable(false),
            Fault::Frozen => victim.freeze(),
            Fault::Drained => {
                let plane = std::sync::Arc::clone(self.machines.lab().plane());
                let name = victim.name().to_owned();
                let drained = tokio::task::spawn_blocking(move || {
                    let options = ["--ignore-daemonsets", "--delete-emptydir-data"];
                    plane.kubectl(&[&["drain", &name, "--timeout=60s"][..], &options].concat())
                });
                drained.await?.map(|_| ())
            }
            Fault::Rebooted => {
                victim.shut_down().await?;
                // As long as a quick host takes for its firmware.
                sleep(Duration::from_secs(15)).await;
                victim.power_on().await
            }
        }
    }
}

/// A Service with a pod on each node, and a disruption budget.
fn service(machines: &Machines, system: System) -> [Value; 3] {
    let [mut service, deployment] = web(NAMESPACE, WEB);
    if matches!(system, System::KubeVip | System::KubeVipTuned)
        && let Some(metadata) = service.get_mut("metadata").and_then(Value::as_object_mut)
    {
        // It allocates no addresses by itself.
        let address = machines.addresses().vip(0).0.to_string();
        metadata.insert("annotations".to_owned(), json!({ kube_vip::ADDRESSES: address }));
    }
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": WEB, "namespace": NAMESPACE },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": WEB } } },
    });
    [service, budget, deployment]
}
