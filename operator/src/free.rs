//! The subcommand that takes back what Leasehold wrote to Services, after it was uninstalled.
//!
//! Uninstalling leaves the addresses in the statuses of Services: whoever installs Leasehold again, or another
//! version of it, has them as they were. Whoever goes elsewhere frees them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use leasehold::api::client;

use crate::client::{CallError, call};
use crate::elect;
use crate::reconcile::service::ServiceRow;
use crate::reconcile::service::write::ServiceWrite;
use crate::reconcile::table::Row;
use crate::reconcile::write;

/// The page size of a list of Services.
const PAGE: u32 = 500;
/// The number of attempts of a write that gets a conflict.
const TRIES: u32 = 5;

/// Takes addresses, conditions and annotations of Leasehold from all Services, and prints which.
///
/// # Errors
/// If an operator is active, which would give them anew; if the API server refuses or does not answer.
/// Services that were freed until then stay so; it can be called again.
pub async fn run(kubeconfig: Option<&Path>, namespace: &str) -> anyhow::Result<()> {
    let client = client::connect(&client::access(kubeconfig).await?, None)?;
    let election: Api<Lease> = Api::namespaced(client.clone(), namespace);
    if let Some(identity) = active(&election).await? {
        bail!(
            "the operator replica {identity} is active and would allocate the addresses again: \
             uninstall Leasehold first, or scale its Deployment to 0 (kubectl scale deployment \
             leasehold-operator -n {namespace} --replicas=0)"
        );
    }
    let services: Api<Service> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    let (mut freed, mut failed) = (0_u32, 0_u32);
    loop {
        let list = services.list(&page).await.context("cannot list Services")?;
        for service in list.items {
            let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
            match free(&client, service).await {
                Ok(None) => {}
                Ok(Some(addresses)) => {
                    freed += 1;
                    println!("{namespace}/{name}: {addresses}");
                }
                Err(error) => {
                    failed += 1;
                    eprintln!("{namespace}/{name}: {error}");
                }
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => break,
        }
    }
    println!("Services freed: {freed}");
    ensure!(failed == 0, "Services not freed: {failed}; run the command again");
    Ok(())
}

/// The replica that is active: one whose lease is renewed while it is watched. No clock of another host
/// has a say in it.
async fn active(election: &Api<Lease>) -> anyhow::Result<Option<String>> {
    let read = async || -> anyhow::Result<Option<Lease>> {
        let lease = election.get_opt(elect::LEASE).await;
        lease.with_context(|| format!("cannot read the lease {}", elect::LEASE))
    };
    let holder = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        holder.filter(|holder| !holder.is_empty())
    };
    let Some(before) = read().await?.filter(|lease| holder(lease).is_some()) else {
        return Ok(None);
    };
    tokio::time::sleep(elect::DURATION + Duration::from_secs(1)).await;
    let now = read().await?.filter(|now| now.resource_version() != before.resource_version());
    Ok(now.as_ref().and_then(holder))
}

/// Removes the addresses, conditions and annotations of Leasehold from `service`; returns a description of them, or
/// `None` if there are none.
async fn free(client: &Client, mut service: Service) -> Result<Option<String>, CallError> {
    let mut tries = 1;
    loop {
        let Some((had, write)) = release(&service) else { return Ok(None) };
        let api = Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
        match call(write::service_status(&api, &service.name_any(), &write.body)).await {
            Ok(_) => return Ok(Some(had)),
            Err(CallError::Conflict) if tries < TRIES => {
                tries += 1;
                match call(api.get_opt(&service.name_any())).await? {
                    Some(now) => service = now,
                    None => return Ok(None),
                }
            }
            Err(CallError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The write that takes everything back, and what it takes.
fn release(service: &Service) -> Option<(String, ServiceWrite)> {
    let row = ServiceRow::read(service)?;
    let key = ServiceRow::key(&service.metadata)?;
    let version = service.resource_version()?.parse().ok()?;
    let write = row.take_back(&key, version)?;
    let had: Vec<String> = row.present.iter().map(ToString::to_string).collect();
    Some((
        if had.is_empty() { "conditions and annotations only".to_owned() } else { had.join(", ") },
        write,
    ))
}
