//! Carrying out one job.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use leasehold_crds::lease::{LeaseName, new_lease};
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};

use super::job::{Job, ListWrite, Revision};
use super::leases::SessionRow;
use super::service::write::Body;
use super::table::Row;
use crate::allocate::ServiceKey;
use crate::client::{CallError, call};
use crate::clock::time_of_day;
use crate::report::events::CONTROLLER;

/// Where to write.
#[derive(Clone)]
pub struct Writer {
    /// The API server.
    pub client: Client,
    /// The namespace of the claims.
    pub claims: String,
    /// The namespace of the sessions.
    pub sessions: String,
}

/// A job that has ended.
#[derive(Debug)]
pub struct Done {
    /// The job.
    pub job: Job,
    /// Its result.
    pub result: Result<(), CallError>,
    /// The Service as last seen: in the answer, or read after a failure.
    pub service: Option<Box<Service>>,
    /// The claim in the answer.
    pub claim: Option<Box<Lease>>,
}

impl Writer {
    /// Carries out `job`, with one try.
    pub async fn carry_out(self, job: Job) -> Done {
        let (mut service, mut claim) = (None, None);
        let result = match &job {
            Job::Service { key, write, .. } => {
                let (result, seen) = self.service(key, &write.body).await;
                service = seen.map(Box::new);
                result
            }
            Job::Pool(name, write) => {
                let api: Api<IPAddressPool> = Api::all(self.client.clone());
                call(api.patch_status(name, &apply(), &Patch::Apply(&write.patch))).await.map(drop)
            }
            Job::Policy(name, patch) => {
                let api: Api<AnnouncementPolicy> = Api::all(self.client.clone());
                call(api.patch_status(name, &apply(), &Patch::Apply(patch))).await.map(drop)
            }
            Job::List(name, write) => {
                self.list(name, write).await.map(|lease| claim = Some(Box::new(lease)))
            }
            Job::DeleteClaim(name, revision) => self.delete(&self.claims, name, revision).await,
            Job::DeleteSession(name, revision) => self.delete_session(name, revision).await,
        };
        Done { job, result, service, claim }
    }

    async fn service(
        &self,
        key: &ServiceKey,
        body: &Body,
    ) -> (Result<(), CallError>, Option<Service>) {
        let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        match call(service_status(&api, &key.name, body)).await {
            Ok(service) => (Ok(()), Some(service)),
            Err(error @ (CallError::Conflict | CallError::Unknown(_))) => {
                let seen = call(api.get_opt(&key.name)).await.ok().flatten();
                (Err(error), seen)
            }
            Err(error) => (Err(error), None),
        }
    }

    async fn list(&self, name: &LeaseName, write: &ListWrite) -> Result<Lease, CallError> {
        if let Some((session, id)) = &write.over {
            // A session that is over stays over: its numbers never fall. And the claim has not changed
            // since it was held under that session, or the write is refused.
            let sessions: Api<Lease> = Api::namespaced(self.client.clone(), &self.sessions);
            let read = call(sessions.get_opt(session.as_str())).await?;
            let read = read.as_ref().and_then(SessionRow::read);
            if read.is_some_and(|row| row.live.as_ref() == Some(id)) {
                return Err(CallError::Conflict);
            }
        }
        let claims: Api<Lease> = Api::namespaced(self.client.clone(), &self.claims);
        let (params, wall) = (PostParams::default(), time_of_day());
        if let Some(base) = &write.base {
            let lease = base.replace_with(&write.record, &self.claims, wall);
            call(claims.replace(name.as_str(), &params, &lease)).await
        } else {
            let lease = new_lease(name, &write.record, &self.claims, wall);
            call(claims.create(&params, &lease)).await
        }
    }

    async fn delete_session(&self, name: &LeaseName, revision: &Revision) -> Result<(), CallError> {
        // A Node that is only missing from the cache still needs its session.
        let nodes: Api<Node> = Api::all(self.client.clone());
        match call(nodes.get_metadata_opt(name.as_str())).await? {
            Some(_) => Ok(()),
            None => self.delete(&self.sessions, name, revision).await,
        }
    }

    async fn delete(
        &self,
        namespace: &str,
        name: &LeaseName,
        revision: &Revision,
    ) -> Result<(), CallError> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let only = DeleteParams::default().preconditions(Preconditions {
            uid: Some(revision.uid.to_string()),
            resource_version: Some(revision.version.to_string()),
        });
        match call(leases.delete(name.as_str(), &only)).await {
            Ok(_) => {
                tracing::info!(%name, namespace, "deleted a lease that has had its day");
                Ok(())
            }
            Err(CallError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Applies `body` to the status of a Service in our name: what it leaves out is removed where it was ours.
pub async fn service_status(
    api: &Api<Service>,
    name: &str,
    body: &Body,
) -> Result<Service, kube::Error> {
    api.patch_status(name, &apply(), &Patch::Apply(body)).await
}

/// Server-side apply in our name. Forced: addresses, our condition and our annotations are ours.
fn apply() -> PatchParams {
    PatchParams::apply(CONTROLLER).force()
}
