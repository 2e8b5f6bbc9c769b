//! From the API server to what is known of the cluster.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Resource};
use leasehold_core::explain::{Objects, SessionRow, World};
use leasehold_crds::names::NodeName;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde::de::DeserializeOwned;

use super::connect::Cluster;
use super::error::PluginError;

/// Number of objects in a page of a list: each page has to come within the timeout of one answer.
const PAGE: u32 = 500;

/// Lists all objects of a kind.
pub(super) async fn list<K>(cluster: &Cluster, api: Api<K>) -> Result<Vec<K>, PluginError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    pages(cluster, &api, ListParams::default(), &K::plural(&())).await
}

/// Lists the objects that `params` select, page by page. `plural` is what they are called.
pub(super) async fn pages<K>(
    cluster: &Cluster,
    api: &Api<K>,
    params: ListParams,
    plural: &str,
) -> Result<Vec<K>, PluginError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut objects = Vec::new();
    let mut params = params.limit(PAGE);
    loop {
        let page = cluster.call(format!("list {plural}"), api.list(&params)).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// As [`list`], of a kind of ours, which the API server may not know.
async fn list_ours<K>(
    cluster: &Cluster,
    api: Api<K>,
    kind: &'static str,
) -> Result<Vec<K>, PluginError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    list(cluster, api).await.map_err(|error| match error {
        PluginError::Refused { code: 404, .. } => PluginError::NotInstalled(kind),
        error => error,
    })
}

/// All that is asked for and owned.
pub(super) async fn objects(cluster: &Cluster) -> Result<Objects, PluginError> {
    let client = || cluster.client.clone();
    let policies: Api<AnnouncementPolicy> = Api::all(client());
    let pools: Api<IPAddressPool> = Api::all(client());
    // Boxed: together they would be a large future in each command.
    let (services, slices, nodes, policies, pools, sessions, claims) = futures::try_join!(
        list(cluster, Api::all(client())).boxed(),
        list(cluster, Api::all(client())).boxed(),
        list(cluster, Api::all(client())).boxed(),
        list_ours(cluster, policies, "AnnouncementPolicies").boxed(),
        list_ours(cluster, pools, "IPAddressPools").boxed(),
        list::<Lease>(cluster, Api::namespaced(client(), &cluster.sessions)).boxed(),
        list::<Lease>(cluster, Api::namespaced(client(), &cluster.system)).boxed(),
    )?;
    Ok(Objects { services, slices, nodes, policies, pools, sessions, claims })
}

/// The sessions, by node.
pub(super) async fn sessions(
    cluster: &Cluster,
) -> Result<BTreeMap<NodeName, SessionRow>, PluginError> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
    Ok(list(cluster, leases).await?.iter().filter_map(SessionRow::of).collect())
}

/// Reads the cluster.
pub(super) async fn world(cluster: &Cluster) -> Result<World, PluginError> {
    Ok(World::of(&objects(cluster).await?))
}
