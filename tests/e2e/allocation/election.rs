//! Which replica works, and what each says of itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt};
use leasehold_lab::operator::Operator;
use leasehold_lab::{Lab, OPERATOR_ACCOUNT, OperatorOptions};
use serde_json::json;

use super::{SOON, addresses};

/// The election lease lasts 2 s; a standby reads everything before it works.
const TAKEOVER: Duration = Duration::from_secs(20);

struct Replicas {
    lab: std::sync::Arc<Lab>,
    number: u8,
}

impl Replicas {
    fn start(&mut self) -> Result<Operator> {
        self.start_with(&[])
    }

    fn start_with(&mut self, arguments: &[&str]) -> Result<Operator> {
        self.number += 1;
        let name = format!("operator-{}", self.number);
        let kubeconfig = self.lab.plane().kubeconfig(OPERATOR_ACCOUNT);
        let arguments = [&["--default-class"], arguments].concat();
        let options = OperatorOptions { arguments: &arguments, ..OperatorOptions::default() };
        Operator::start(self.lab.folder(), &name, &kubeconfig, options)
    }

    async fn is(&self, operator: &Operator, role: &str, patience: Duration) -> Result<()> {
        let what = format!("{} is {role}", operator.process().name());
        self.lab
            .eventually(&what, patience, async || {
                // An operator that is not ready answers 503: the lab makes an error of it.
                let answer = operator.http("/readyz").unwrap_or_else(|error| format!("{error:#}"));
                Ok(answer.lines().any(|line| line.starts_with(role)))
            })
            .await
    }

    /// Creates a Service.
    async fn ask(&self, name: &str) -> Result<()> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        let services: Api<Service> = Api::namespaced(self.lab.admin(), "default");
        let params = PatchParams::apply("test").force();
        services.patch(name, &params, &Patch::Apply(service)).await?;
        Ok(())
    }

    /// Creates a Service; returns how long it took to get an address.
    async fn allocation(&self, name: &str, patience: Duration) -> Result<Duration> {
        let services: Api<Service> = Api::namespaced(self.lab.admin(), "default");
        self.ask(name).await?;
        let begin = Instant::now();
        self.lab
            .eventually(&format!("{name} has an address"), patience, async || {
                Ok(!addresses(&services.get(name).await?).is_empty())
            })
            .await?;
        Ok(begin.elapsed())
    }
}

pub async fn of_several_operators_one_works_and_another_takes_over() -> Result<()> {
    let lab = Lab::start().await?;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/24"]},
    });
    lab.apply(pool).await?;
    let mut replicas = Replicas { lab, number: 0 };
    let first = replicas.start()?;
    replicas.is(&first, "active", SOON).await?;
    let second = replicas.start()?;
    replicas.is(&second, "standby: ", SOON).await?;
    ensure!(first.http("/metrics")?.contains("leasehold_operator_leader 1"));
    ensure!(second.http("/metrics")?.contains("leasehold_operator_leader 0"));
    let (page, standby) = (first.http("/")?, second.http("/")?);
    ensure!(page.contains("Owners of addresses") && standby.contains("is active"), "{standby}");
    replicas.allocation("first", SOON).await?;

    // A release hands over at once.
    let begin = Instant::now();
    ensure!(first.terminate().await?.success());
    replicas.is(&second, "active", SOON).await?;
    println!("    takeover after SIGTERM: {:?}", begin.elapsed());
    replicas.allocation("second", SOON).await?;

    // A kill is noticed when the lease is over.
    let third = replicas.start()?;
    replicas.is(&third, "standby: ", SOON).await?;
    second.process().kill().await?;
    let took = replicas.allocation("third", TAKEOVER).await?;
    replicas.is(&third, "active", SOON).await?;
    println!("    allocation after SIGKILL of the active one: {took:?}");
    Ok(())
}

pub async fn an_operator_that_was_killed_is_followed_at_once_by_the_next_in_its_pod() -> Result<()>
{
    let lab = Lab::start().await?;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/24"]},
    });
    lab.apply(pool).await?;
    let mut replicas = Replicas { lab, number: 0 };
    let pod = ["--pod-name", "operator-a"];
    let first = replicas.start_with(&pod)?;
    replicas.is(&first, "active", SOON).await?;
    let standby = replicas.start_with(&["--pod-name", "operator-b"])?;
    replicas.is(&standby, "standby: ", SOON).await?;
    replicas.allocation("first", SOON).await?;
    first.process().kill().await?;
    let next = replicas.start_with(&pod)?;
    let took = replicas.allocation("second", SOON).await?;
    replicas.is(&next, "active", SOON).await?;
    replicas.is(&standby, "standby: ", SOON).await?;
    println!("    allocation after SIGKILL and a start in the same pod: {took:?}");
    Ok(())
}

pub async fn an_operator_that_was_stopped_for_long_does_not_write_when_it_goes_on() -> Result<()> {
    use rustix::process::Signal;
    let lab = Lab::start().await?;
    let mut replicas = Replicas { lab, number: 0 };
    let frozen = replicas.start()?;
    replicas.is(&frozen, "active", SOON).await?;
    let other = replicas.start()?;
    replicas.is(&other, "standby: ", SOON).await?;
    frozen.process().signal(Signal::STOP)?;
    replicas.is(&other, "active", TAKEOVER).await?;
    frozen.process().signal(Signal::CONT)?;
    replicas.is(&frozen, "standby: ", SOON).await?;
    ensure!(other.http("/readyz")?.contains("active"));
    ensure!(frozen.http("/metrics")?.contains("leasehold_operator_leader 0"));
    Ok(())
}

pub async fn an_operator_without_an_api_server_waits_and_says_so() -> Result<()> {
    let lab = Lab::start().await?;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/24"]},
    });
    lab.apply(pool).await?;
    lab.plane().stop_api_server().await?;
    let mut replicas = Replicas { lab, number: 0 };
    let operator = replicas.start()?;
    replicas
        .is(&operator, "not ready: cannot use Lease leasehold-system/leasehold-operator", SOON)
        .await?;
    ensure!(operator.http("/livez")?.contains("ok"));
    replicas.lab.plane().start_api_server().await?;
    replicas.allocation("after-the-start", SOON).await?;
    replicas.is(&operator, "active", SOON * 2).await?;

    // Away for a while: what is asked for meanwhile is served soon after.
    replicas.lab.plane().stop_api_server().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    replicas.lab.plane().start_api_server().await?;
    let took = replicas.allocation("after-the-outage", SOON).await?;
    println!("    allocation after an outage of 5 s: {took:?} after the API server was ready");

    // An API server that hangs: the tenure ends while a call waits, and nobody spins until it fails.
    let ends = |log: String| log.matches("is no longer the active one").count();
    let before = ends(operator.process().output());
    replicas.lab.plane().freeze_api_server()?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    replicas.lab.plane().thaw_api_server()?;
    replicas.allocation("after-the-freeze", SOON).await?;
    let ended = ends(operator.process().output()) - before;
    ensure!((1..=3).contains(&ended), "the tenure ended {ended} times");
    ensure!(operator.process().alive());
    Ok(())
}

/// What was seen of all Services, without a gap.
#[derive(Debug, Default)]
struct Seen {
    /// The addresses that each has.
    now: BTreeMap<String, Vec<String>>,
    /// How often each was given other addresses than it had.
    moves: BTreeMap<String, usize>,
    /// What must not be.
    doubles: Vec<String>,
}

impl Seen {
    fn take_in(&mut self, service: &Service) {
        let (name, has) = (service.name_any(), addresses(service));
        for (other, others) in &self.now {
            if *other != name && has.iter().any(|address| others.contains(address)) {
                self.doubles.push(format!("{name} and {other} have {has:?}"));
            }
        }
        let had = self.now.insert(name.clone(), has.clone()).unwrap_or_default();
        if !had.is_empty() && had != has {
            *self.moves.entry(name).or_default() += 1;
        }
    }
}

pub async fn operators_that_run_beside_each_other_never_give_an_address_twice() -> Result<()> {
    use rustix::process::Signal;
    let lab = Lab::start().await?;
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/26"]},
    });
    lab.apply(pool).await?;
    let services: Api<Service> = Api::namespaced(lab.admin(), "default");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (watched, notes) = (services.clone(), Arc::clone(&seen));
    let watching = tokio::task::spawn(async move {
        let mut events = std::pin::pin!(watcher(watched, Config::default()).default_backoff());
        while let Some(event) = events.try_next().await.unwrap_or(None) {
            let mut seen = notes.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Apply(service) | Event::InitApply(service) => seen.take_in(&service),
                Event::Delete(service) => drop(seen.now.remove(&service.name_any())),
                Event::Init => seen.now.clear(),
                Event::InitDone => {}
            }
        }
    });
    let mut replicas = Replicas { lab, number: 0 };
    let mut active = replicas.start()?;
    replicas.is(&active, "active", SOON).await?;
    let mut standby = replicas.start()?;
    replicas.is(&standby, "standby: ", SOON).await?;
    // Each time the active one is disturbed while it is at work.
    for round in 0..3 {
        let names: Vec<_> = (0..20).map(|number| format!("web-{round}-{number}")).collect();
        for name in &names {
            replicas.ask(name).await?;
        }
        for name in names.iter().step_by(3) {
            services.delete(name, &DeleteParams::default()).await?;
        }
        match round {
            0 => {
                active.process().signal(Signal::STOP)?;
                replicas.is(&standby, "active", TAKEOVER).await?;
                active.process().signal(Signal::CONT)?;
                replicas.is(&active, "standby: ", SOON).await?;
                std::mem::swap(&mut active, &mut standby);
            }
            1 => {
                ensure!(active.terminate().await?.success());
                replicas.is(&standby, "active", SOON).await?;
                // Only now: either could take what was released.
                active = std::mem::replace(&mut standby, replicas.start()?);
            }
            _ => {
                replicas.is(&standby, "standby: ", SOON).await?;
                active.process().kill().await?;
                replicas.is(&standby, "active", TAKEOVER).await?;
            }
        }
        replicas
            .lab
            .eventually("all have an address", SOON * 2, async || {
                let all = services.list(&kube::api::ListParams::default()).await?;
                let balancers = all.iter().filter(|service| {
                    let spec = service.spec.as_ref();
                    spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
                });
                Ok(balancers.filter(|service| addresses(service).is_empty()).count() == 0)
            })
            .await?;
        for name in &names {
            services.delete(name, &DeleteParams::default()).await.ok();
        }
    }
    watching.abort();
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(seen.doubles.is_empty(), "{:?}", seen.doubles);
    ensure!(seen.moves.is_empty(), "addresses that changed: {:?}", seen.moves);
    Ok(())
}
