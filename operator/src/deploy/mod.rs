//! The speakers, deployed by the operator: for the Operator Lifecycle Manager, whose bundles hold neither
//! `DaemonSets` nor Namespaces.
//!
//! ```text
//!  deploy/base/*.yaml ──► objects (pure) ──► server-side apply ──► Namespace, RoleBindings, DaemonSet
//!                                                 ▲
//!                     every 10 s while this replica is the active one
//! ```
//!
//! What is applied is the same each time, so the API server writes only where somebody has changed it. Fields
//! that we do not name, such as a node selector, stay as others have set them. The `DaemonSet` belongs to the
//! operator's Deployment and to the `ClusterServiceVersion` that this belongs to, and goes with the last of them: a
//! Deployment that is deleted by mistake, which the manager makes again, does not take the speakers along; nor does a
//! version that has been replaced, whose successor has the Deployment.

mod objects;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use leasehold::api::causes;
use leasehold_crds::event::Reason;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};

use crate::client::{CallError, call};
use crate::clock::{self, sleep_until};
use crate::config::Config;
use crate::report::events::{EventSink, Notice};
pub use objects::{ManifestError, Object, objects, sessions_role};

/// The operator's Deployment, which owns the speakers.
pub const DEPLOYMENT: &str = "leasehold-operator";
/// The kind of what owns the Deployment where the Operator Lifecycle Manager made it.
const VERSION: &str = "ClusterServiceVersion";
/// The field manager of what is deployed.
pub const MANAGER: &str = "leasehold-deploy";

/// For how long an edit lasts.
const PERIOD: Duration = Duration::from_secs(10);
/// The pause after the API server did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Why the operator cannot deploy speakers at all.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The pod is in the wrong namespace.
    #[error(
        "with --deploy-speakers the operator must be installed in the namespace {CLAIM_NAMESPACE}, and this \
         pod is in `{0}`: install it there"
    )]
    Pod(String),
    /// The leases are to be elsewhere than the speakers have rights.
    #[error(
        "with --deploy-speakers the leases are in {CLAIM_NAMESPACE} and {SESSION_NAMESPACE}: leave out \
         --namespace and --session-namespace"
    )]
    Leases,
    /// The manifests of the speakers cannot be read.
    #[error("cannot read what is to be deployed")]
    Manifest(#[from] ManifestError),
}

/// Why something could not be deployed.
#[derive(Debug, thiserror::Error)]
enum DeployError {
    #[error("cannot read Deployment {DEPLOYMENT}, which is to own the speakers")]
    Owner(#[source] CallError),
    #[error("Deployment {DEPLOYMENT} has no uid, or is being deleted")]
    NoOwner,
    #[error("cannot apply {kind} {name}")]
    Apply { kind: String, name: String, source: CallError },
}

impl DeployError {
    const fn pause(&self) -> Duration {
        match self {
            Self::Owner(CallError::Unknown(_))
            | Self::Apply { source: CallError::Unknown(_), .. } => PAUSE,
            _ => PERIOD,
        }
    }
}

/// Deploys the speakers.
pub struct Deployer {
    client: Client,
    events: EventSink,
    objects: Vec<Object>,
    /// The state of each object after it was last applied, by its place in `objects`.
    seen: BTreeMap<usize, Seen>,
    /// The error that was reported last.
    told: Option<String>,
}

impl Deployer {
    /// The deployer that `config` asks for, in a pod of `namespace`; none if it asks for none.
    pub fn new(
        config: &Config,
        namespace: &str,
        client: Client,
        events: EventSink,
    ) -> Result<Option<Self>, PlaceError> {
        if !config.deploy_speakers {
            return Ok(None);
        }
        if namespace != CLAIM_NAMESPACE {
            return Err(PlaceError::Pod(namespace.to_owned()));
        }
        if config.namespace != CLAIM_NAMESPACE || config.session_namespace != SESSION_NAMESPACE {
            return Err(PlaceError::Leases);
        }
        let objects = objects(config.speaker_image.as_deref())?;
        Ok(Some(Self { client, events, objects, seen: BTreeMap::new(), told: None }))
    }

    /// Applies everything, again and again.
    pub async fn keep(&mut self) -> Infallible {
        loop {
            let pause = self.deploy().await;
            sleep_until(clock::now() + pause).await;
        }
    }

    /// Applies everything once, and returns how long to wait before the next time. What cannot be applied is
    /// told when it is news.
    pub async fn deploy(&mut self) -> Duration {
        let (trouble, pause) = match self.apply().await {
            Ok(()) => (None, PERIOD),
            Err(error) => (Some(causes(&error)), error.pause()),
        };
        match &trouble {
            Some(trouble) if self.told.as_ref() != Some(trouble) => self.tell(trouble).await,
            None if self.told.is_some() => tracing::info!("the speakers are deployed again"),
            _ => {}
        }
        self.told = trouble;
        pause
    }

    async fn apply(&mut self) -> Result<(), DeployError> {
        for (number, object) in self.objects.iter().enumerate() {
            // The operator's own rights are among what comes before, and need no owner.
            let fields = match object.kind.as_str() {
                "DaemonSet" => object.owned_by(&self.owners().await?),
                _ => object.fields.clone(),
            };
            let (api, params) = (api(&self.client, object), PatchParams::apply(MANAGER).force());
            let applied = call(api.patch(&object.name, &params, &Patch::Apply(&fields))).await;
            let applied = applied.map_err(|source| DeployError::Apply {
                kind: object.kind.clone(),
                name: object.name.clone(),
                source,
            })?;
            let now = Seen { uid: applied.uid(), generation: applied.metadata.generation };
            if self.seen.insert(number, now.clone()).is_some_and(|before| before != now) {
                let (kind, name) = (&object.kind, &object.name);
                tracing::info!(
                    kind,
                    name,
                    "it was edited or deleted, and is as it should be again"
                );
            }
        }
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<OwnerReference>, DeployError> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), CLAIM_NAMESPACE);
        let found = call(api.get_metadata(DEPLOYMENT)).await.map_err(DeployError::Owner)?;
        owners(found.metadata).ok_or(DeployError::NoOwner)
    }

    async fn tell(&self, trouble: &str) {
        tracing::warn!("the speakers are not deployed as they should be: {trouble}; retrying");
        let notice = Notice { reason: Reason::SpeakersNotDeployed, note: trouble.to_owned() };
        let deployment = ObjectReference {
            api_version: Some(Deployment::api_version(&()).into_owned()),
            kind: Some(Deployment::kind(&()).into_owned()),
            name: Some(DEPLOYMENT.to_owned()),
            namespace: Some(CLAIM_NAMESPACE.to_owned()),
            ..ObjectReference::default()
        };
        self.events.publish(&notice, &deployment).await;
    }
}

/// To whom the speakers belong, by the metadata of the Deployment; none where that is going.
fn owners(deployment: ObjectMeta) -> Option<Vec<OwnerReference>> {
    let uid = deployment.uid.filter(|_| deployment.deletion_timestamp.is_none())?;
    let mut owners = vec![OwnerReference {
        api_version: Deployment::api_version(&()).into_owned(),
        kind: Deployment::kind(&()).into_owned(),
        name: DEPLOYMENT.to_owned(),
        uid,
        // It would take a right on the Deployment's finalizers, and nothing here needs to be waited for.
        block_owner_deletion: Some(false),
        controller: Some(true),
    }];
    let above = deployment.owner_references.unwrap_or_default().into_iter();
    owners.extend(above.filter(|it| it.kind == VERSION).map(|it| OwnerReference {
        block_owner_deletion: Some(false),
        controller: Some(false),
        ..it
    }));
    Some(owners)
}

/// By what an edit shows.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
}

fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &object.resource),
        None => Api::all_with(client.clone(), &object.resource),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn the_speakers_belong_to_the_deployment_and_to_the_versions_that_it_belongs_to() {
        let owner = |kind: &str, uid: &str| OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let deployment = |above: Vec<OwnerReference>| ObjectMeta {
            uid: Some("1".to_owned()),
            owner_references: Some(above),
            ..ObjectMeta::default()
        };
        let uids = |above: Vec<OwnerReference>| -> Vec<(String, Option<bool>)> {
            let owners = owners(deployment(above)).unwrap();
            owners.into_iter().map(|it| (it.uid, it.controller)).collect()
        };
        let itself = || ("1".to_owned(), Some(true));
        assert_eq!(uids(Vec::new()), [itself()]);
        // An upgrade: the version before is still there.
        assert_eq!(
            uids(vec![owner(VERSION, "2"), owner("Other", "3"), owner(VERSION, "4")]),
            [itself(), ("2".to_owned(), Some(false)), ("4".to_owned(), Some(false))]
        );
        let going = ObjectMeta {
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..deployment(Vec::new())
        };
        assert_eq!(owners(going), None);
    }
}
