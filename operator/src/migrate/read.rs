//! MetalLB's objects and the Services, from files and from the cluster.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Service;
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::{Api, Client, Resource};
use leasehold::api::{ApiError, client, said};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::metallb::{GROUP, Inputs, ObjectError};

/// Stands for standard input where a file is named.
const STANDARD_INPUT: &str = "-";

/// The page size of lists.
const PAGE: u32 = 500;

/// The kinds that are read from the cluster: version, kind, plural.
const KINDS: [(&str, &str, &str); 6] = [
    ("v1beta1", POOL, "ipaddresspools"),
    ("v1beta1", "L2Advertisement", "l2advertisements"),
    ("v1beta1", "BGPAdvertisement", "bgpadvertisements"),
    ("v1beta2", "BGPPeer", "bgppeers"),
    ("v1beta1", "Community", "communities"),
    ("v1beta1", "BFDProfile", "bfdprofiles"),
];

const POOL: &str = "IPAddressPool";

/// Why the input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be opened or is no text.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A document is no YAML.
    #[error("{}: document {number} is not YAML", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Which document of the file, from 1.
        number: usize,
        /// Why.
        source: serde_yaml_ng::Error,
    },
    /// A document is no object of Kubernetes, or one that cannot be read.
    #[error("{}: document {number}", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// Which document of the file, from 1.
        number: usize,
        /// Why.
        source: ObjectError,
    },
    /// There is no connection to the API server.
    #[error(transparent)]
    Connection(#[from] ApiError),
    /// The connection cannot be set up.
    #[error("cannot set up the connection to the API server")]
    Client(#[source] Box<kube::Error>),
    /// The API server does not list a kind.
    #[error("the API server does not list {kind}: {said}")]
    List {
        /// The requested kind.
        kind: String,
        /// The response of the API server.
        said: String,
    },
    /// MetalLB is not there.
    #[error(
        "the cluster knows no {POOL} of {GROUP}: MetalLB is not installed there, or is older than \
         0.13; its objects can be read from files with --file"
    )]
    NoMetalLb,
    /// An object of the cluster cannot be read.
    #[error("from the cluster")]
    Listed(#[from] ObjectError),
}

/// Reads YAML files of any number of documents; `-` is standard input.
pub fn files(paths: &[PathBuf]) -> Result<Inputs, ReadError> {
    let mut inputs = Inputs::default();
    for path in paths {
        let error = |source| ReadError::File { path: path.clone(), source };
        let mut text = String::new();
        if path.as_os_str() == STANDARD_INPUT {
            std::io::stdin().read_to_string(&mut text).map_err(error)?;
        } else {
            text = std::fs::read_to_string(path).map_err(error)?;
        }
        documents(path, &text, &mut inputs)?;
    }
    Ok(inputs)
}

/// Takes in the documents of `text`, which is from `path`.
pub fn documents(path: &Path, text: &str, inputs: &mut Inputs) -> Result<(), ReadError> {
    for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let (path, number) = (path.to_owned(), index + 1);
        let value = match Value::deserialize(document) {
            Ok(value) => value,
            Err(source) => return Err(ReadError::Yaml { path, number, source }),
        };
        if !value.is_null() {
            inputs.add(value).map_err(|source| ReadError::Object { path, number, source })?;
        }
    }
    Ok(())
}

/// Reads what the API server has.
pub async fn cluster(kubeconfig: Option<&Path>) -> Result<Inputs, ReadError> {
    let access = client::access(kubeconfig).await?;
    // A person waits: this client is patient, and speaks HTTP/1.1 through what is in between.
    let client =
        Client::try_from(access.config).map_err(|error| ReadError::Client(Box::new(error)))?;
    let mut inputs = Inputs::default();
    for (version, kind, plural) in KINDS {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: version.to_owned(),
            api_version: format!("{GROUP}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = match list(&api).await {
            Ok(objects) => objects,
            Err(kube::Error::Api(status)) if status.code == 404 && kind == POOL => {
                return Err(ReadError::NoMetalLb);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(refused(&format!("{plural}.{GROUP}"), &error)),
        };
        for object in objects {
            let types =
                TypeMeta { api_version: resource.api_version.clone(), kind: kind.to_owned() };
            inputs.add_dynamic(DynamicObject { types: Some(types), ..object })?;
        }
    }
    let services: Api<Service> = Api::all(client);
    let listed = list(&services).await;
    for service in listed.map_err(|error| refused(&Service::plural(&()), &error))? {
        inputs.add_service(service);
    }
    Ok(inputs)
}

fn refused(kind: &str, error: &kube::Error) -> ReadError {
    ReadError::List { kind: kind.to_owned(), said: said(error) }
}

/// All objects, page by page.
async fn list<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}
