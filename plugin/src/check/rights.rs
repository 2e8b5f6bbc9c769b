//! The rights of the service accounts: each right that the roles in `deploy/base` give them is asked for by a
//! `SubjectAccessReview`.

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE};
use serde::Deserialize;

use super::super::connect::Cluster;
use super::super::error::PluginError;
use super::finding::{Finding, skip};

const CHECK: &str = "rights";
/// Number of reviews at once.
const AT_ONCE: usize = 8;

const ROLES: [(&str, &str); 2] = [
    ("leasehold-speaker", include_str!("../../../deploy/base/speaker-rbac.yaml")),
    ("leasehold-operator", include_str!("../../../deploy/base/operator-rbac.yaml")),
];

/// A role of `deploy/base`.
#[derive(Debug, Deserialize)]
struct Role {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    verb: String,
    group: String,
    resource: String,
    subresource: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
}

impl Right {
    fn text(&self) -> String {
        let sub = self.subresource.as_ref().map(|it| format!("/{it}")).unwrap_or_default();
        let place = self.namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
        format!("{} {}{sub}{place}", self.verb, self.resource)
    }
}

/// The rights that these roles give, where claims and sessions are in these namespaces.
fn rights(yaml: &str, system: &str, sessions: &str) -> Result<Vec<Right>, serde_yaml_ng::Error> {
    let mut rights = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let role = Role::deserialize(document)?;
        if !matches!(role.kind.as_str(), "Role" | "ClusterRole") {
            continue;
        }
        let namespace = role.metadata.namespace.filter(|_| role.kind == "Role");
        let namespace = namespace.map(|name| match name.as_str() {
            CLAIM_NAMESPACE => system.to_owned(),
            SESSION_NAMESPACE => sessions.to_owned(),
            _ => name,
        });
        for rule in &role.rules {
            rights.extend(of_rule(rule, namespace.as_deref()));
        }
    }
    Ok(rights)
}

fn of_rule<'a>(rule: &'a Rule, namespace: Option<&'a str>) -> impl Iterator<Item = Right> + 'a {
    let pairs = rule.api_groups.iter().flat_map(move |group| {
        let resources = rule.resources.iter();
        resources.flat_map(move |it| rule.verbs.iter().map(move |verb| (group, it, verb)))
    });
    pairs.map(move |(group, resource, verb)| {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (resource.as_str(), None),
        };
        Right {
            verb: verb.clone(),
            group: group.clone(),
            resource: resource.to_owned(),
            subresource,
            name: rule.resource_names.first().cloned(),
            namespace: namespace.map(str::to_owned),
        }
    })
}

/// Checks whether the service accounts have their rights.
pub(super) async fn check(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &cluster.system);
    let mut findings = Vec::new();
    for (account, yaml) in ROLES {
        let found = cluster.call("read service accounts", accounts.get_opt(account)).await;
        let found = match skip(found)? {
            Ok(found) => found,
            Err(why) => return Ok(vec![Finding::skipped(CHECK, why)]),
        };
        if found.is_none() {
            let text = format!(
                "service account {account} does not exist in {}: its permissions are unknown",
                cluster.system
            );
            findings.push(Finding::skipped(CHECK, text));
            continue;
        }
        let rights = rights(yaml, &cluster.system, &cluster.sessions)
            .map_err(|error| PluginError::Format(error.to_string()))?;
        let lacking = match skip(lacking(cluster, account, &rights).await)? {
            Ok(lacking) => lacking,
            Err(why) => return Ok(vec![Finding::skipped(CHECK, why)]),
        };
        findings.push(verdict(account, rights.len(), &lacking));
    }
    Ok(findings)
}

fn verdict(account: &str, all: usize, lacking: &[String]) -> Finding {
    if lacking.is_empty() {
        return Finding::ok(CHECK, format!("{account} has all {all} required permissions"));
    }
    let text = format!("{account} lacks permission to {}", lacking.join(", "));
    Finding::fail(CHECK, text, "apply the roles of deploy/base")
}

/// The rights that an account needs and lacks.
async fn lacking(
    cluster: &Cluster,
    account: &str,
    rights: &[Right],
) -> Result<Vec<String>, PluginError> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let reviews = &reviews;
    let ask = |right: &Right| {
        let review = review(&cluster.system, account, right);
        let text = right.text();
        async move {
            let params = PostParams::default();
            let call = reviews.create(&params, &review);
            let answer = cluster.call("review the rights of service accounts", call).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, PluginError>((!allowed).then_some(text))
        }
    };
    let asked: Vec<_> = rights.iter().map(ask).collect();
    let answers: Vec<Option<String>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

fn review(system: &str, account: &str, right: &Right) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{system}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{system}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                subresource: right.subresource.clone(),
                name: right.name.clone(),
                namespace: right.namespace.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_of_deploy_say_what_is_needed_and_where() {
        for (account, yaml) in ROLES {
            let rights = rights(yaml, "lb", "lb-sessions").unwrap();
            let texts: Vec<String> = rights.iter().map(Right::text).collect();
            for wanted in ["watch services", "list leases in lb", "list leases in lb-sessions"] {
                assert!(texts.iter().any(|it| it == wanted), "{account}: {wanted} in {texts:?}");
            }
            assert!(!texts.iter().any(|it| it.contains(CLAIM_NAMESPACE)), "{texts:?}");
        }
    }
}
