//! Errors of commands.

use std::io;
use std::path::PathBuf;

/// A command that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something that does not exist was named.
    #[error("{kind} {name} does not exist{}", hint(.nearest.as_deref()))]
    Unknown {
        /// The kind of the object.
        kind: &'static str,
        /// Its name as it was written.
        name: String,
        /// The nearest name that exists.
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
        /// The address of the API server.
        url: String,
        /// The failure.
        said: String,
    },
    /// The API server refuses.
    #[error("cannot {doing}: {said}")]
    Refused {
        /// The request.
        doing: String,
        /// The answer of the API server.
        said: String,
        /// The HTTP status.
        code: u16,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
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
