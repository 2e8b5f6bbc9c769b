//! Webhooks that are called for each write of a lease: they add their time to each renewal and takeover,
//! and where they fail closed, nobody can take anything while they are away.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::SelectorExt as _;
use kube::{Api, Resource, ResourceExt};
use leasehold_crds::selector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::connect::Cluster;
use super::super::error::PluginError;
use super::super::read::list;
use super::finding::{Finding, skip};

const CHECK: &str = "webhooks";

/// A webhook, of either kind (admissionregistration.k8s.io/v1).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Webhook {
    name: String,
    rules: Vec<RuleWithOperations>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
    failure_policy: Option<String>,
    timeout_seconds: Option<i32>,
    match_conditions: Vec<Value>,
}

/// The objects that the check reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Webhooks {
    /// Webhooks, each with the name of its configuration.
    hooks: Vec<(String, Webhook)>,
    /// The labels of the namespaces of our leases; none where they are not known.
    namespaces: Vec<BTreeMap<String, String>>,
    /// The reasons for which some of it may not be read.
    unread: Vec<String>,
}

pub(super) async fn read(cluster: &Cluster) -> Result<Webhooks, PluginError> {
    let client = || cluster.client.clone();
    let mut read = Webhooks::default();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client());
    match skip(list(cluster, validating).await)? {
        Ok(configurations) => read.hooks.extend(webhooks(&configurations)?),
        Err(why) => read.unread.push(why),
    }
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client());
    match skip(list(cluster, mutating).await)? {
        Ok(configurations) => read.hooks.extend(webhooks(&configurations)?),
        Err(why) => read.unread.push(why),
    }
    let all: Api<Namespace> = Api::all(client());
    for name in [&cluster.system, &cluster.sessions] {
        let found = cluster.call(format!("read namespace {name}"), all.get_opt(name)).await;
        match skip(found)? {
            Ok(found) => read.namespaces.extend(found.map(|it| it.labels().clone())),
            Err(why) => read.unread.push(why),
        }
    }
    Ok(read)
}

/// The webhooks of configurations of either kind.
fn webhooks<K: Resource + Serialize>(
    configurations: &[K],
) -> Result<Vec<(String, Webhook)>, PluginError> {
    let error = |error: serde_json::Error| PluginError::Format(error.to_string());
    let mut all = Vec::new();
    for configuration in configurations {
        let value = serde_json::to_value(configuration).map_err(error)?;
        let hooks = value.get("webhooks").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
        let hooks: Vec<Webhook> = serde_json::from_value(hooks).map_err(error)?;
        all.extend(hooks.into_iter().map(|hook| (configuration.name_any(), hook)));
    }
    Ok(all)
}

/// Finds webhooks that are called for our Leases.
pub(super) fn check(read: &Webhooks) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (configuration, hook) in &read.hooks {
        if !hook.is_called(&read.namespaces) {
            continue;
        }
        let seconds = hook.timeout_seconds.unwrap_or(10);
        let name = format!("{configuration} ({})", hook.name);
        let fix = "exclude the namespaces of the Leases with its namespaceSelector, or Leases with its rules";
        let perhaps = !hook.match_conditions.is_empty();
        let ignores = hook.failure_policy.as_deref() == Some("Ignore");
        findings.push(if ignores || perhaps {
            let perhaps = if perhaps { ", unless its matchConditions exclude it" } else { "" };
            let text = format!(
                "{name} is called for every write of a Lease{perhaps}: each write may take up to \
                 {seconds} s longer"
            );
            Finding::warn(CHECK, text, fix)
        } else {
            let text = format!(
                "{name} is called for every write of a Lease and fails closed: while it is unavailable, no \
                 address moves, and each write may take up to {seconds} s longer"
            );
            Finding::fail(CHECK, text, fix)
        });
    }
    findings.extend(read.unread.iter().map(|why| Finding::skipped(CHECK, why)));
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no webhook is called for Leases"));
    }
    findings
}

impl Webhook {
    fn is_called(&self, namespaces: &[BTreeMap<String, String>]) -> bool {
        // What cannot be read selects, to be on the safe side.
        let matches = |it: &Option<LabelSelector>, labels: &BTreeMap<String, String>| {
            it.as_ref().is_none_or(|it| selector::read(it).map_or(true, |it| it.matches(labels)))
        };
        self.rules.iter().any(is_of_leases)
            && matches(&self.object_selector, &BTreeMap::new())
            && (namespaces.is_empty()
                || namespaces.iter().any(|it| matches(&self.namespace_selector, it)))
    }
}

fn is_of_leases(rule: &RuleWithOperations) -> bool {
    let any = |list: &Option<Vec<String>>, wanted: &[&str]| {
        list.iter().flatten().any(|it| wanted.contains(&it.as_str()))
    };
    any(&rule.operations, &["*", "CREATE", "UPDATE"])
        && any(&rule.api_groups, &["*", "coordination.k8s.io"])
        && any(&rule.api_versions, &["*", "v1"])
        && any(&rule.resources, &["*", "*/*", "leases"])
        && rule.scope.as_deref() != Some("Cluster")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::fake::Answer;
    use super::super::finding::Level;
    use super::*;

    fn hook(rule: serde_json::Value) -> Webhook {
        Webhook { rules: vec![serde_json::from_value(rule).unwrap()], ..Webhook::default() }
    }

    fn rule(operation: &str, group: &str, resource: &str) -> serde_json::Value {
        json!({ "operations": [operation], "apiGroups": [group], "apiVersions": ["*"],
            "resources": [resource] })
    }

    fn level(hook: Webhook) -> Level {
        let labels = BTreeMap::from([(
            "kubernetes.io/metadata.name".to_owned(),
            "leasehold-system".to_owned(),
        )]);
        let hooks = vec![("all".to_owned(), hook)];
        let (namespaces, unread) = (vec![labels], Vec::new());
        check(&Webhooks { hooks, namespaces, unread })[0].level
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_skipped_for_itself() {
        let hook = json!({ "metadata": { "name": "all" }, "webhooks": [{
            "name": "all.things.example", "rules": [rule("*", "*", "*")], "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {},
        }] });
        let (cluster, _) = Cluster::that_says(move |asked| match asked.last() {
            "mutatingwebhookconfigurations" => Answer::list(std::slice::from_ref(&hook)),
            _ => Answer::refused(403, "forbidden"),
        });
        let found = check(&read(&cluster).await.unwrap());
        let levels: Vec<_> = found.iter().map(|it| it.level).collect();
        let skipped = Level::Skipped;
        assert_eq!(levels, [Level::Fail, skipped, skipped, skipped], "{found:?}");
    }

    #[test]
    fn only_webhooks_that_are_called_for_our_leases_are_named() {
        for (operation, group, resource, expected) in [
            ("*", "*", "*", Level::Fail),
            ("UPDATE", "coordination.k8s.io", "leases", Level::Fail),
            ("CREATE", "coordination.k8s.io", "*/*", Level::Fail),
            ("DELETE", "*", "*", Level::Ok),
            ("UPDATE", "", "pods", Level::Ok),
            ("UPDATE", "apps", "*", Level::Ok),
        ] {
            let found = level(hook(rule(operation, group, resource)));
            assert_eq!(found, expected, "{operation} {group} {resource}");
        }
        let all = || hook(rule("*", "*", "*"));
        assert_eq!(
            level(Webhook { failure_policy: Some("Ignore".to_owned()), ..all() }),
            Level::Warn
        );
        assert_eq!(level(Webhook { match_conditions: vec![json!({})], ..all() }), Level::Warn);
        let not_ours: LabelSelector = serde_json::from_value(json!({ "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "NotIn",
              "values": ["leasehold-system"] },
        ] }))
        .unwrap();
        assert_eq!(level(Webhook { namespace_selector: Some(not_ours), ..all() }), Level::Ok);
        let labelled: LabelSelector =
            serde_json::from_value(json!({ "matchLabels": { "a": "b" } })).unwrap();
        assert_eq!(level(Webhook { object_selector: Some(labelled), ..all() }), Level::Ok);
    }
}
