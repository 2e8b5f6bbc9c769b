//! kube-proxy in IPVS mode has all addresses on one device of every node: without `strictARP` nodes that
//! run no speaker answer for them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde::Deserialize;

use super::super::connect::Cluster;
use super::super::error::PluginError;
use super::finding::{Finding, skip};

const CHECK: &str = "kube-proxy";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-proxy";
/// The keys under which kubeadm and others keep the configuration.
const KEYS: [&str; 2] = ["config.conf", "config"];

/// The part of its configuration that is read (kubeproxy.config.k8s.io/v1alpha1, `KubeProxyConfiguration`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Configuration {
    mode: Option<String>,
    ipvs: Option<Ipvs>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ipvs {
    #[serde(rename = "strictARP")]
    strict_arp: Option<bool>,
}

/// The configuration as text, nothing, or the reason for which it may not be read.
pub(super) type Found = Result<Option<String>, String>;

pub(super) async fn configuration(cluster: &Cluster) -> Result<Found, PluginError> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let read = cluster.call("read the ConfigMap of kube-proxy", maps.get_opt(NAME)).await;
    Ok(skip(read)?.map(|map| {
        let mut data = map?.data?;
        KEYS.iter().find_map(|key| data.remove(*key))
    }))
}

/// Checks whether its mode lets nodes answer for addresses that they do not own.
pub(super) fn check(found: &Found) -> Vec<Finding> {
    let text = match found {
        Err(why) => return vec![Finding::skipped(CHECK, why)],
        Ok(None) => {
            let text = format!("no ConfigMap {NAME} in {NAMESPACE}: the mode is unknown");
            return vec![Finding::skipped(CHECK, text)];
        }
        Ok(Some(text)) => text,
    };
    let configuration = match serde_yaml_ng::from_str::<Option<Configuration>>(text) {
        Ok(configuration) => configuration.unwrap_or_default(),
        Err(error) => {
            let text = format!("the configuration is invalid: {error}");
            return vec![Finding::skipped(CHECK, text)];
        }
    };
    let mode = configuration.mode.as_deref().filter(|mode| !mode.is_empty());
    let strict = configuration.ipvs.and_then(|ipvs| ipvs.strict_arp).unwrap_or(false);
    if mode == Some("ipvs") && !strict {
        return vec![Finding::fail(
            CHECK,
            "mode ipvs without strictARP: nodes without a speaker answer for all addresses",
            format!(
                "kubectl edit configmap -n {NAMESPACE} {NAME}: ipvs.strictARP: true; then restart \
                 kube-proxy"
            ),
        )];
    }
    let strict = if mode == Some("ipvs") { " with strictARP" } else { "" };
    let text = match mode {
        Some(mode) => format!("mode {mode}{strict}"),
        None => "default mode of the platform".to_owned(),
    };
    vec![Finding::ok(CHECK, text)]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn ipvs_needs_strict_arp() {
        let found = |text: &str| Ok(Some(text.to_owned()));
        for (read, level) in [
            (found("mode: ipvs\nipvs:\n  strictARP: false\n"), Level::Fail),
            (found("mode: ipvs\n"), Level::Fail),
            (found("mode: ipvs\nipvs: {strictARP: true}\n"), Level::Ok),
            (found("mode: iptables\nipvs: {strictARP: false}\n"), Level::Ok),
            (found("mode: \"\"\nipvs: null\n"), Level::Ok),
            (found(""), Level::Ok),
            (found("mode: [\n"), Level::Skipped),
            (Ok(None), Level::Skipped),
            (Err("forbidden".to_owned()), Level::Skipped),
        ] {
            assert_eq!(check(&read)[0].level, level, "{read:?}");
        }
    }
}
