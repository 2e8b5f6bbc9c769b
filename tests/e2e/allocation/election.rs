//! Which replica works, and what each says of itself.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_lab::operator::Operator;
use leasehold_lab::{Lab, OPERATOR_ACCOUNT};
use serde_json::json;

use super::{SOON, addresses};

/// The election lease lasts 15 s; a standby needs a little to notice its end.
const TAKEOVER: Duration = Duration::from_secs(20);

struct Replicas {
    lab: std::sync::Arc<Lab>,
    number: u8,
}

impl Replicas {
    fn start(&mut self) -> Result<Operator> {
        self.number += 1;
        let name = format!("operator-{}", self.number);
        let kubeconfig = self.lab.plane().kubeconfig(OPERATOR_ACCOUNT);
        Operator::start(self.lab.folder(), &name, &kubeconfig, &["--default-class"])
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

    /// Creates a Service; returns how long it took to get an address.
    async fn allocation(&self, name: &str, patience: Duration) -> Result<Duration> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        let services: Api<Service> = Api::namespaced(self.lab.admin(), "default");
        let params = PatchParams::apply("test").force();
        services.patch(name, &params, &Patch::Apply(service)).await?;
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
    replicas.allocation("first", SOON).await?;

    // A release hands over at once.
    let begin = Instant::now();
    ensure!(first.terminate().await?.success());
    replicas.is(&second, "active", SOON).await?;
    println!("takeover after SIGTERM: {:?}", begin.elapsed());
    replicas.allocation("second", SOON).await?;

    // A kill is noticed when the lease is over.
    let third = replicas.start()?;
    replicas.is(&third, "standby: ", SOON).await?;
    let begin = Instant::now();
    second.process().kill().await?;
    replicas.is(&third, "active", TAKEOVER).await?;
    println!("takeover after SIGKILL: {:?}", begin.elapsed());
    replicas.allocation("third", SOON).await?;
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
    println!("allocation after an outage of 5 s: {took:?} after the API server was ready");
    ensure!(operator.process().alive());
    Ok(())
}
