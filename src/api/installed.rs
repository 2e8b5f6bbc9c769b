//! Whether Leasehold stays when this process is asked to end.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client, Error};

/// How long the answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What becomes of Leasehold when this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It stays, as far as is known: another process follows.
    Stays,
    /// Its roles are gone: it is being uninstalled, or they are wrong.
    Barred,
    /// Its `DaemonSet` is gone.
    Gone,
}

/// The `DaemonSet` that runs this process.
#[derive(Clone, Debug)]
pub struct OwnDaemonSet {
    api: Api<DaemonSet>,
    name: String,
}

impl OwnDaemonSet {
    /// The `DaemonSet` of this name.
    pub fn new(client: Client, namespace: &str, name: String) -> Self {
        Self { api: Api::namespaced(client, namespace), name }
    }

    /// Whether it is there, and is to stay.
    pub async fn look(self) -> Installed {
        let answer = tokio::time::timeout(TIMEOUT, self.api.get_metadata_opt(&self.name)).await;
        match answer {
            Ok(Ok(None)) => Installed::Gone,
            Ok(Ok(Some(object))) if object.metadata.deletion_timestamp.is_some() => Installed::Gone,
            Ok(Err(Error::Api(status))) if matches!(status.code, 401 | 403) => Installed::Barred,
            Ok(_) | Err(_) => Installed::Stays,
        }
    }
}
