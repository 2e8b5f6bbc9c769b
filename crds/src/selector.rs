//! Label selectors, and what is wrong with those that cannot be read. The API server would take any: rules in the
//! definitions refuse them, and what was stored before these or is read by another version is read with care.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector};
use schemars::{JsonSchema as _, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// The error in a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator of an expression is none.
    #[error(
        "the expression for label `{key}` has the invalid operator `{operator}`: use In, NotIn, \
         Exists, or DoesNotExist"
    )]
    Operator {
        /// The label.
        key: String,
        /// The operator as written.
        operator: String,
    },
    /// An expression compares with nothing.
    #[error("the expression `{operator}` for label `{key}` has no values: add at least one")]
    NoValues {
        /// The label.
        key: String,
        /// `In` or `NotIn`.
        operator: String,
    },
    /// An expression has values that mean nothing.
    #[error(
        "the expression `{operator}` for label `{key}` must not have values: remove them, or use In"
    )]
    Values {
        /// The label.
        key: String,
        /// `Exists` or `DoesNotExist`.
        operator: String,
    },
}

/// The greatest number of expressions in a selector, and the greatest lengths of their keys (prefix, `/` and name)
/// and operators: the API server asks for bounds before it takes a rule.
const EXPRESSIONS: usize = 64;
const KEY: usize = 317;
const OPERATOR: usize = 64;

/// The schema of a selector that the API server checks, too, by the rules of [`read`].
pub(crate) fn one(generator: &mut SchemaGenerator) -> Schema {
    let about = "\"the expression for label '\" + self.key + \"'";
    let rules = json!([
        {
            "rule": "self.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist']",
            "messageExpression": format!(
                "{about} has the invalid operator '\" + self.operator + \"': use In, NotIn, Exists, \
                 or DoesNotExist\""
            ),
        },
        {
            "rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            "messageExpression": format!("{about} has no values: add at least one\""),
        },
        {
            "rule": "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) \
                     || self.values.size() == 0",
            "messageExpression": format!("{about} must not have values: remove them, or use In\""),
        },
    ]);
    let mut schema = LabelSelector::json_schema(generator);
    let mut set = |at: &str, name: &str, value: Value| {
        if let Some(Value::Object(fields)) = schema.pointer_mut(at) {
            fields.insert(name.to_owned(), value);
        }
    };
    let expressions = "/properties/matchExpressions";
    let expression = format!("{expressions}/items");
    set(expressions, "maxItems", json!(EXPRESSIONS));
    set(&format!("{expression}/properties/key"), "maxLength", json!(KEY));
    set(&format!("{expression}/properties/operator"), "maxLength", json!(OPERATOR));
    set(&expression, "x-kubernetes-validations", rules);
    schema
}

/// The schema of up to 64 selectors.
pub(crate) fn up_to_64(generator: &mut SchemaGenerator) -> Schema {
    several(generator, 64)
}

/// The schema of up to 16 selectors, of which each change is one of all.
pub(crate) fn up_to_16(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = several(generator, 16);
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
    schema
}

fn several(generator: &mut SchemaGenerator, most: usize) -> Schema {
    let one = one(generator);
    schemars::json_schema!({ "type": "array", "maxItems": most, "items": one })
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
                "the expression for label `team` has the invalid operator `Inn`: use In, NotIn, \
                 Exists, or DoesNotExist",
            ),
            (
                "In",
                json!(null),
                "the expression `In` for label `team` has no values: add at least one",
            ),
            (
                "NotIn",
                json!([]),
                "the expression `NotIn` for label `team` has no values: add at least one",
            ),
            (
                "Exists",
                json!(["blue"]),
                "the expression `Exists` for label `team` must not have values: remove them, or use \
                 In",
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
