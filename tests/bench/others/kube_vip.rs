//! kube-vip: ARP, and a Lease for each Service.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use anyhow::Result;
use leasehold_lab::machines::{Machines, MachinesPlan};
use leasehold_lab::{Cluster, Node, Service, programs_of};
use serde_json::{Value, json};

use super::Ground;

/// The folder in `tests` that builds it.
const FOLDER: &str = "kube-vip";
/// The annotation by which a Service asks for an address: it allocates none by itself.
pub(crate) const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

/// The timing of its Leases, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leases {
    duration: &'static str,
    renew_deadline: &'static str,
    retry_period: &'static str,
}

impl Leases {
    /// Those of the manifest that it generates.
    pub(crate) const DEFAULT: Self =
        Self { duration: "15", renew_deadline: "10", retry_period: "2" };
    /// Those of its examples.
    pub(crate) const SHORT: Self = Self { duration: "5", renew_deadline: "3", retry_period: "1" };

    pub(super) fn name(self) -> String {
        format!("kube-vip {} s", self.duration)
    }
}

/// Installs the `DaemonSet` that it generates on machines.
pub(crate) async fn install(plan: MachinesPlan, leases: Leases) -> Result<Machines> {
    let machines = plan.images(FOLDER).start().await?;
    let text = fs::read_to_string(programs_of(FOLDER)?.join("kube-vip.yaml"))?;
    let mut objects = leasehold_lab::controlplane::documents(&text)?;
    let settings = [
        ("vip_leaseduration", leases.duration),
        ("vip_renewdeadline", leases.renew_deadline),
        ("vip_retryperiod", leases.retry_period),
    ];
    for object in &mut objects {
        let environment = object.pointer_mut("/spec/template/spec/containers/0/env");
        for variable in environment.and_then(Value::as_array_mut).into_iter().flatten() {
            let setting =
                settings.iter().find(|(name, _)| variable.get("name") == Some(&json!(name)));
            if let (Some((_, value)), Some(variable)) = (setting, variable.as_object_mut()) {
                variable.insert("value".to_owned(), json!(value));
            }
        }
    }
    machines.lab().plane().apply(&objects).await?;
    machines.rolled_out("kube-system", "kube-vip-ds").await?;
    Ok(machines)
}

/// A Service of its class that asks it for the address.
pub(super) async fn serve(cluster: &Cluster, vip: IpAddr) -> Result<Service> {
    let service = cluster.service("web").class(Some(&class(cluster.namespace())));
    service.annotation(ADDRESSES, &vip.to_string()).create().await
}

fn class(namespace: &str) -> String {
    format!("kube-vip.io/{namespace}")
}

/// As in the manifest that it generates, but for the class of one cluster.
pub(super) fn command(ground: &Ground, node: &Node, leases: Leases) -> Result<Command> {
    let program = programs_of(FOLDER)?.join("kube-vip");
    let mut command = node.namespace().command(&program.to_string_lossy());
    command
        .args(["manager", "--interface", "eth0", "--services", "--arp"])
        .args(["--servicesElection", "--leaderElection"])
        .args(["--leaseDuration", leases.duration])
        .args(["--leaseRenewDuration", leases.renew_deadline])
        .args(["--leaseRetry", leases.retry_period])
        .args(["--nodeName", node.name()])
        .args(["--lbClassOnly", "--lbClassName", &class(&ground.namespace)])
        .arg("--k8sConfigPath")
        .arg(&ground.kubeconfig);
    Ok(command)
}
