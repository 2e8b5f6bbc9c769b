//! The connection to the API server.

use std::fmt::Display;
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use leasehold::api::{causes, said};

use super::args::ClusterFlags;
use super::error::PluginError;

/// A cluster, and where in it Leasehold is.
pub(super) struct Cluster {
    pub(super) client: Client,
    /// The namespace of Services that are named without one.
    pub(super) namespace: String,
    /// The namespace of the claims.
    pub(super) system: String,
    /// The namespace of the sessions.
    pub(super) sessions: String,
    url: String,
    timeout: Duration,
}

impl Cluster {
    pub(super) async fn connect(flags: &ClusterFlags) -> Result<Self, PluginError> {
        let mut config = configuration(flags).await?;
        config.connect_timeout = Some(flags.request_timeout);
        let namespace = flags.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let url = config.cluster_url.to_string();
        let client =
            Client::try_from(config).map_err(|error| PluginError::Kubeconfig(causes(&error)))?;
        Ok(Self {
            client,
            namespace,
            system: flags.system_namespace.clone(),
            sessions: flags.session_namespace.clone(),
            url,
            timeout: flags.request_timeout,
        })
    }

    /// A cluster whose objects are where they are by default.
    #[cfg(test)]
    pub(super) fn of(client: Client) -> Self {
        Self {
            client,
            namespace: "default".to_owned(),
            system: leasehold_crds::lease::CLAIM_NAMESPACE.to_owned(),
            sessions: leasehold_crds::lease::SESSION_NAMESPACE.to_owned(),
            url: "https://192.0.2.1:6443/".to_owned(),
            timeout: Duration::from_secs(10),
        }
    }

    /// Waits for an answer.
    pub(super) async fn call<T>(
        &self,
        doing: impl Display,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, PluginError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Error::Api(status))) => Err(PluginError::Refused {
                doing: doing.to_string(),
                said: status.message.clone(),
                code: status.code,
            }),
            Ok(Err(error)) => {
                Err(PluginError::Unreachable { url: self.url.clone(), said: said(&error) })
            }
            Err(_) => Err(PluginError::Unreachable {
                url: self.url.clone(),
                said: format!("timed out after {:?}", self.timeout),
            }),
        }
    }
}

/// As kubectl finds it; in a pod without a kubeconfig, the pod's own.
async fn configuration(flags: &ClusterFlags) -> Result<Config, PluginError> {
    let options =
        KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
    let error = |error: &dyn std::error::Error| PluginError::Kubeconfig(causes(error));
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map_err(|e| error(&e))?,
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => kubeconfig,
            Err(_) if flags.context.is_none() && Config::incluster().is_ok() => {
                return Config::incluster().map_err(|e| error(&e));
            }
            Err(missing) => return Err(error(&missing)),
        },
    };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| error(&e))
}
