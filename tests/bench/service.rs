//! What the users of a Service notice when a node with pods of it fails: new connections that fail, second by second,
//! and lasting connections that are lost. On machines, with kubelets, images and manifests, as users have them.

use std::collections::BTreeSet;
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
/// An answer that comes later counts as a failure: less than the first retransmission of a SYN. And a client gives up
/// after a second one.
const PROMPT: Duration = Duration::from_millis(900);
const PATIENCE: Duration = Duration::from_millis(3_500);
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
    /// ... with a policy that says `dataPath: Spread`, and a Service with `externalTrafficPolicy: Local`.
    LeaseholdSpread,
    /// Layer 2, as its manual says.
    Metallb,
    /// ... with memberlist five times as quick.
    MetallbTuned,
    /// ARP, a lease per Service, as its manual says.
    KubeVip,
    /// ... with leases of 5 s, renewed each second, as its examples have it.
    KubeVipTuned,
}

/// A fault of the node that owns the address, or of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// Its power is cut.
    PowerCut,
    /// The power of another node is cut.
    OtherPowerCut,
    /// Its cables are pulled.
    CablePulled,
    /// Its processes hang; its kernel goes on.
    Frozen,
    /// It gets the label that excludes it from load balancers: the address moves, and nothing else.
    Excluded,
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
            Self::LeaseholdSpread => "Leasehold, `dataPath: Spread`",
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
            Self::OtherPowerCut => "power of another node cut",
            Self::CablePulled => "cables of the owner's node pulled",
            Self::Frozen => "processes of the owner's node hang",
            Self::Excluded => "owner's node excluded from load balancers",
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
    /// For each second from the fault on: new connections without an answer in 0.9 s, and all.
    pub(crate) seconds: Vec<(usize, usize)>,
    /// From the fault to the first answer after a failure; zero where none failed.
    pub(crate) first_answer_ms: Option<f64>,
    /// From the fault to the last new connection that failed; zero where none did.
    pub(crate) last_failure_ms: f64,
    pub(crate) failed: usize,
    /// Those without an answer in 3.5 s, for which a client has sent its SYN three times; not counted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given_up: Option<usize>,
    pub(crate) made: usize,
    /// Lasting connections that were reset, or got no answer for 10 s.
    pub(crate) lasting_lost: usize,
    pub(crate) lasting: usize,
    /// Of those that were lost, the ones to pods on other nodes than that of the fault; not counted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost_elsewhere: Option<usize>,
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
    /// One of which nothing is measured yet.
    fn of(system: System, fault: Fault, repeat: usize) -> Result<Self> {
        Ok(Self {
            system: system.to_string(),
            fault: fault.to_string(),
            repeat,
            seconds: Vec::new(),
            first_answer_ms: None,
            last_failure_ms: 0.0,
            failed: 0,
            given_up: None,
            made: 0,
            lasting_lost: 0,
            lasting: 0,
            lost_elsewhere: None,
            two_owners_ms: 0.0,
            machine: Here::here()?,
            date: Timestamp::now().to_string(),
        })
    }

    fn line(&self) -> Result<String> {
        let mut text = format!(
            "{:<16} {:<15} {:>5} of {:>5} failed ({} given up), the last after {:>6.0} ms, first answer after {:>6.0} ms, \
             {:>3} of {} lasting lost, {} of them to pods elsewhere; by second:",
            self.system,
            self.fault,
            self.failed,
            self.made,
            self.given_up.unwrap_or_default(),
            self.last_failure_ms,
            self.first_answer_ms.unwrap_or(f64::INFINITY),
            self.lasting_lost,
            self.lasting,
            self.lost_elsewhere.unwrap_or_default(),
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
    let victim = ground.victim(fault)?;
    let struck = ground.pods_on(victim).await?;
    let client = ground.machines.client();
    let probe = client.probe(ground.vip).tcp(80, PERIOD).patient(PATIENCE).many_sources();
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
    measured(Trial::of(system, fault, repeat)?, &report, at, &struck)
}

fn measured(
    trial: Trial,
    report: &Report,
    at: Instant,
    struck: &BTreeSet<String>,
) -> Result<Trial> {
    let all = report.tcp()?;
    let track = &all.within(PROMPT);
    ensure!(report.lasting.len() == LASTING, "{} lasting connections", report.lasting.len());
    let lost: Vec<_> = report.lasting.iter().filter(|it| it.broken().is_some()).collect();
    let elsewhere = lost.iter().filter(|it| !it.pods().iter().any(|pod| struck.contains(*pod)));
    Ok(Trial {
        seconds: track.by_second(at),
        first_answer_ms: track.answered_again_since(at).map(milliseconds),
        last_failure_ms: milliseconds(track.last_loss_since(at)),
        failed: track.lost_since(at),
        given_up: Some(all.lost_since(at)),
        made: track.by_second(at).iter().map(|(_, all)| all).sum(),
        lasting_lost: lost.len(),
        lasting: report.lasting.len(),
        lost_elsewhere: Some(elsewhere.count()),
        two_owners_ms: milliseconds(report.owners()?.two_owners()),
        ..trial
    })
}

impl Ground {
    async fn open(system: System) -> Result<Self> {
        let plan = MachinesPlan::new("bench").plain_names();
        let machines = match system {
            System::Leasehold | System::LeaseholdSpread => {
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
        if system == System::LeaseholdSpread {
            machines.lab().apply(spreading()).await?;
        }
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

    /// The names of the pods on a machine.
    async fn pods_on(&self, machine: &Machine) -> Result<BTreeSet<String>> {
        let field = format!("--field-selector=spec.nodeName={}", machine.name());
        let names = "--output=jsonpath={.items[*].metadata.name}";
        let found = self.kubectl(&["get", "pods", "--namespace", NAMESPACE, &field, names]).await?;
        Ok(found.split_whitespace().map(str::to_owned).collect())
    }

    /// The machine to which the fault happens.
    fn victim(&self, fault: Fault) -> Result<&Machine> {
        let owner = self.owner()?;
        if fault != Fault::OtherPowerCut {
            return Ok(owner);
        }
        let mut others = self.machines.on().filter(|machine| machine.name() != owner.name());
        others.next().context("no other machine")
    }

    async fn cause(&self, fault: Fault, victim: &Machine) -> Result<()> {
        match fault {
            Fault::PowerCut | Fault::OtherPowerCut => victim.power_off(),
            Fault::CablePulled => victim.cable(false),
            Fault::Frozen => victim.freeze(),
            Fault::Drained => {
                let options = ["--timeout=60s", "--ignore-daemonsets", "--delete-emptydir-data"];
                self.kubectl(&[&["drain", victim.name()][..], &options].concat()).await.map(drop)
            }
            Fault::Excluded => {
                let label = "node.kubernetes.io/exclude-from-external-load-balancers=true";
                self.kubectl(&["label", "node", victim.name(), label]).await.map(drop)
            }
            Fault::Rebooted => {
                victim.shut_down().await?;
                // As long as a quick host takes for its firmware.
                sleep(Duration::from_secs(15)).await;
                victim.power_on().await
            }
        }
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let plane = std::sync::Arc::clone(self.machines.lab().plane());
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let done = tokio::task::spawn_blocking(move || {
            plane.kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        });
        done.await?
    }
}

/// The policy that has packets spread over nodes.
fn spreading() -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1",
        "kind": "AnnouncementPolicy",
        "metadata": { "name": "spread" },
        "spec": { "dataPath": "Spread" },
    })
}

/// A Service with a pod on each node, and a disruption budget.
fn service(machines: &Machines, system: System) -> [Value; 3] {
    let [mut service, deployment] = web(NAMESPACE, WEB);
    if system == System::LeaseholdSpread
        && let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("externalTrafficPolicy".to_owned(), json!("Local"));
    }
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
