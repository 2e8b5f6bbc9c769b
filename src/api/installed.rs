//! The installation at the end of a process: whether Leasehold stays, and whether another process follows.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Error};

use leasehold_core::election::Follower;

/// The timeout of the requests.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the installation when this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It stays, and this process's pod is being replaced.
    Upgrades,
    /// It stays, as far as is known. Whether another process follows is not: neither the kubelet that starts a
    /// container again nor a host that shuts down touches the pod.
    Stays,
    /// Its roles are gone: it is being uninstalled, or they are wrong.
    Barred,
    /// Its `DaemonSet` is gone.
    Gone,
}

impl Installed {
    /// The process that follows this one, as far as is known.
    pub const fn follower(self) -> Follower {
        match self {
            Self::Upgrades => Follower::Expected,
            Self::Stays | Self::Barred => Follower::Unknown,
            Self::Gone => Follower::Nobody,
        }
    }
}

/// The `DaemonSet` that runs this process, and its pod.
#[derive(Clone, Debug)]
pub struct OwnDaemonSet {
    daemon_sets: Api<DaemonSet>,
    name: String,
    pods: Api<Pod>,
    pod: Option<String>,
}

impl OwnDaemonSet {
    /// The `DaemonSet` of this name, and the pod of that name in the same namespace.
    pub fn new(client: &Client, namespace: &str, name: String, pod: Option<String>) -> Self {
        Self {
            daemon_sets: Api::namespaced(client.clone(), namespace),
            name,
            pods: Api::namespaced(client.clone(), namespace),
            pod,
        }
    }

    /// Reads the `DaemonSet` and the pod, and concludes the state of the installation.
    pub async fn look(self) -> Installed {
        let asked = tokio::time::timeout(TIMEOUT, self.daemon_sets.get_metadata_opt(&self.name));
        let (daemon_set, replaced) = tokio::join!(asked, self.is_pod_going());
        match daemon_set {
            Ok(Ok(object)) if is_going(object.as_ref()) => Installed::Gone,
            Ok(Err(Error::Api(status))) if matches!(status.code, 401 | 403) => Installed::Barred,
            Ok(Ok(_)) if replaced => Installed::Upgrades,
            Ok(_) | Err(_) => Installed::Stays,
        }
    }

    /// Whether the pod was deleted, as a roll-out does it; not where that cannot be known.
    async fn is_pod_going(&self) -> bool {
        let Some(pod) = &self.pod else { return false };
        let answer = tokio::time::timeout(TIMEOUT, self.pods.get_metadata_opt(pod)).await;
        matches!(answer, Ok(Ok(object)) if is_going(object.as_ref()))
    }
}

/// Whether an object is gone or being deleted.
fn is_going<K>(object: Option<&PartialObjectMeta<K>>) -> bool {
    object.is_none_or(|object| object.metadata.deletion_timestamp.is_some())
}
