//! Label selectors, and what is wrong with those that cannot be read: the API server takes any.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector};

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator of an expression is none.
    #[error(
        "its expression about label `{key}` has the operator `{operator}`: write In, NotIn, Exists \
         or DoesNotExist"
    )]
    Operator {
        /// The label.
        key: String,
        /// What stands there.
        operator: String,
    },
    /// An expression compares with nothing.
    #[error("its expression `{operator}` about label `{key}` has no values: add at least one")]
    NoValues {
        /// The label.
        key: String,
        /// `In` or `NotIn`.
        operator: String,
    },
    /// An expression has values that mean nothing.
    #[error("its expression `{operator}` about label `{key}` has values: drop them, or write In")]
    Values {
        /// The label.
        key: String,
        /// `Exists` or `DoesNotExist`.
        operator: String,
    },
}

/// Reads a selector, by the rules of Kubernetes for its own.
pub fn read(selector: &LabelSelector) -> Result<Selector, SelectorError> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(label, value)| Ok(Expression::Equal(label.clone(), value.clone())));
    let expressions = selector.match_expressions.iter().flatten().map(expression);
    labels.chain(expressions).collect()
}

fn expression(requirement: &LabelSelectorRequirement) -> Result<Expression, SelectorError> {
    let values: BTreeSet<String> = requirement.values.iter().flatten().cloned().collect();
    let (key, operator) = (requirement.key.clone(), requirement.operator.clone());
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Expression::In(key, values)),
        ("NotIn", false) => Ok(Expression::NotIn(key, values)),
        ("Exists", true) => Ok(Expression::Exists(key)),
        ("DoesNotExist", true) => Ok(Expression::DoesNotExist(key)),
        ("In" | "NotIn", true) => Err(SelectorError::NoValues { key, operator }),
        ("Exists" | "DoesNotExist", false) => Err(SelectorError::Values { key, operator }),
        _ => Err(SelectorError::Operator { key, operator }),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_selector_is_said_with_what_to_write() {
        for (operator, values, says) in [
            ("In", json!(["blue"]), ""),
            ("NotIn", json!(["red"]), ""),
            ("Exists", json!(null), ""),
            ("Exists", json!([]), ""),
            (
                "Inn",
                json!(["blue"]),
                "its expression about label `team` has the operator `Inn`: write In, NotIn, Exists \
                 or DoesNotExist",
            ),
            (
                "In",
                json!(null),
                "its expression `In` about label `team` has no values: add at least one",
            ),
            (
                "NotIn",
                json!([]),
                "its expression `NotIn` about label `team` has no values: add at least one",
            ),
            (
                "Exists",
                json!(["blue"]),
                "its expression `Exists` about label `team` has values: drop them, or write In",
            ),
        ] {
            let expression = json!({"key": "team", "operator": operator, "values": values});
            let selector = json!({
                "matchLabels": {"tier": "edge"}, "matchExpressions": [expression],
            });
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let labels = |tier: &str| {
                let pairs = [("team", "blue"), ("tier", tier)];
                pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).into()
            };
            match read(&selector) {
                Ok(selector) => {
                    assert_eq!(says, "", "{operator} {values}");
                    assert!(selector.matches(&labels("edge")), "{operator} {values}");
                    assert!(!selector.matches(&labels("core")), "{operator} {values}");
                }
                Err(error) => assert_eq!(error.to_string(), says, "{operator} {values}"),
            }
        }
    }
}
