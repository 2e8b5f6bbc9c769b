//! Why a command cannot be carried out.

use std::io;
use std::path::PathBuf;

/// Why a command cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something that does not exist was named.
    #[error("{kind} {name} does not exist{}", hint(.nearest.as_deref()))]
    Unknown {
        /// What it would be.
        kind: &'static str,
        /// Its name as it was written.
        name: String,
        /// What was meant, perhaps.
        nearest: Option<String>,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig: {0}")]
    Kubeconfig(String),
    /// Leasehold's API is not there.
    #[error(
        "the cluster has no CRD for {0}: install Leasehold first (kubectl apply -f crds/generated)"
    )]
    NotInstalled(&'static str),
    /// The API server does not answer.
    #[error("no answer from the API server {url}: {said}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What happened.
        said: String,
    },
    /// The API server refuses.
    #[error("cannot {doing}: {said}")]
    Refused {
        /// What was asked of it.
        doing: String,
        /// What it says.
        said: String,
        /// The HTTP status.
        code: u16,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The answer cannot be written as JSON or YAML.
    #[error("cannot write the output: {0}")]
    Format(String),
}

impl PluginError {
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Unknown { .. } | Self::Kubeconfig(_) => 2,
            Self::NotInstalled(_)
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::File { .. }
            | Self::Output(_)
            | Self::Format(_) => 3,
        }
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(": did you mean {name}?")).unwrap_or_default()
}
