//! MetalLB's objects (`metallb.io/v1beta1`), as far as they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{DynamicObject, TypeMeta};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The API group of MetalLB.
pub const GROUP: &str = "metallb.io";

/// An object of MetalLB.
#[derive(Clone, Debug)]
pub struct Object<S> {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; none where a file does not say it, which fits all.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The specification.
    pub spec: S,
}

impl<S> fmt::Display for Object<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The specification of an `IPAddressPool` of MetalLB.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSpec {
    /// CIDRs and ranges.
    pub addresses: Vec<String>,
    /// Whether services that ask for nothing are served from here; true by default.
    pub auto_assign: Option<bool>,
    /// Whether addresses that end in `.0` or `.255` are left out.
    #[serde(rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// For which services it is.
    pub service_allocation: Option<AllocationSpec>,
    /// Fields that are not known.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// For which services a pool is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationSpec {
    /// The smaller comes first, 0 last.
    pub priority: i64,
    /// Namespaces by name.
    pub namespaces: Vec<String>,
    /// Namespaces by label.
    pub namespace_selectors: Vec<LabelSelector>,
    /// Services by label.
    pub service_selectors: Vec<LabelSelector>,
    /// Fields that are not known.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// The specification of an `L2Advertisement`, and the part about pools of that of a `BGPAdvertisement`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvertisementSpec {
    /// Pools by name. Neither names nor selectors: all pools.
    pub ip_address_pools: Vec<String>,
    /// Pools by label.
    pub ip_address_pool_selectors: Vec<LabelSelector>,
    /// The nodes that may announce; empty: all.
    pub node_selectors: Vec<LabelSelector>,
    /// The interfaces that answer; empty: all.
    pub interfaces: Vec<String>,
    /// The services that are announced; empty: all.
    pub service_selectors: Vec<LabelSelector>,
    /// Fields that are not known.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// A kind of which nothing is moved: its API group and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The name.
    pub kind: String,
}

/// All that the move depends on.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The pools.
    pub pools: Vec<Object<PoolSpec>>,
    /// The announcements by ARP and NDP.
    pub advertisements: Vec<Object<AdvertisementSpec>>,
    /// The announcements by BGP.
    pub bgp_advertisements: Vec<Object<AdvertisementSpec>>,
    /// The Services of type LoadBalancer.
    pub services: Vec<Service>,
    /// The names of all other objects.
    pub others: BTreeMap<OtherKind, BTreeSet<String>>,
}

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It does not say what it is.
    #[error("is not a Kubernetes object: it has no apiVersion and kind")]
    NoKind,
    /// A field has another form than its kind allows.
    #[error("{object} cannot be read")]
    Malformed {
        /// The kind, with the name where there is one.
        object: String,
        /// The error of the parser.
        source: serde_json::Error,
    },
}

impl Inputs {
    /// Takes in an object, or those of a list.
    pub fn add(&mut self, mut value: Value) -> Result<(), ObjectError> {
        let types: TypeMeta = TypeMeta::deserialize(&value).map_err(|_| ObjectError::NoKind)?;
        let group = types.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        if let Some(kind) = types.kind.strip_suffix("List")
            && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take)
        {
            return items.into_iter().try_for_each(|item| self.add(typed(item, &types, kind)));
        }
        drop_nulls(&mut value);
        match (group, types.kind.as_str()) {
            (GROUP, "IPAddressPool") => self.pools.push(object("IPAddressPool", value)?),
            (GROUP, "L2Advertisement") => {
                self.advertisements.push(object("L2Advertisement", value)?);
            }
            (GROUP, "BGPAdvertisement") => {
                self.bgp_advertisements.push(object("BGPAdvertisement", value)?);
            }
            ("", "Service") => {
                let name = named("Service", &value);
                let service: Service = serde_json::from_value(value)
                    .map_err(|source| ObjectError::Malformed { object: name, source })?;
                self.add_service(service);
            }
            (group, kind) => {
                let other = OtherKind { group: group.to_owned(), kind: kind.to_owned() };
                self.others.entry(other).or_default().insert(path(&value));
            }
        }
        Ok(())
    }

    /// Takes in an object as the API server gave it.
    pub fn add_dynamic(&mut self, object: DynamicObject) -> Result<(), ObjectError> {
        let name = object.name_any();
        let malformed = |source| ObjectError::Malformed { object: name, source };
        self.add(serde_json::to_value(object).map_err(malformed)?)
    }

    /// Takes in a Service, if it is one of type LoadBalancer.
    pub fn add_service(&mut self, service: Service) {
        let type_ = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        if type_ == Some("LoadBalancer") {
            self.services.push(service);
        }
    }
}

/// `item` of a list of `kind`. Items of a typed list need not repeat what they are.
fn typed(mut item: Value, list: &TypeMeta, kind: &str) -> Value {
    if let Value::Object(fields) = &mut item
        && !kind.is_empty()
    {
        fields.entry("apiVersion").or_insert_with(|| list.api_version.clone().into());
        fields.entry("kind").or_insert_with(|| kind.into());
    }
    item
}

/// A field that is null is one that is not there, as for the API server.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `namespace/name` of an object, or its name alone.
fn path(value: &Value) -> String {
    let field = |name: &str| value.get("metadata")?.get(name)?.as_str();
    match (field("namespace"), field("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or("(without a name)").to_owned(),
    }
}

fn named(kind: &str, value: &Value) -> String {
    format!("{kind} {}", path(value))
}

fn object<S: DeserializeOwned + Default>(
    kind: &'static str,
    value: Value,
) -> Result<Object<S>, ObjectError> {
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        namespace: Option<String>,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct Raw<S> {
        metadata: Metadata,
        spec: Option<S>,
    }
    let name = named(kind, &value);
    let raw: Raw<S> = serde_json::from_value(value)
        .map_err(|source| ObjectError::Malformed { object: name, source })?;
    let Metadata { name, namespace, labels } = raw.metadata;
    Ok(Object { kind, namespace, name, labels, spec: raw.spec.unwrap_or_default() })
}
