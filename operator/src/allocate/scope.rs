//! The scope of a pool: the services that it admits, and its place in the order of pools.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::core::{Selector, SelectorExt};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// The services that a pool admits.
///
/// A service is admitted if its namespace is named or matches a selector, or neither is asked for;
/// and if it matches a selector of services, or there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The place among pools: the smaller, the earlier; 0 is last.
    pub priority: i32,
    /// Namespaces by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces by their labels.
    pub namespace_selectors: Vec<Selector>,
    /// Services by their labels.
    pub service_selectors: Vec<Selector>,
    /// Whether a selector cannot be read: then no service is admitted.
    pub closed: bool,
}

/// The decision of a pool about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It serves it.
    Admitted,
    /// It does not.
    Refused,
    /// It depends on the labels of a namespace that has not been seen yet.
    Unknown,
}

impl Scope {
    /// Whether it admits some services only.
    pub(super) fn is_pinned(&self) -> bool {
        self.closed
            || !self.namespaces.is_empty()
            || !self.namespace_selectors.is_empty()
            || !self.service_selectors.is_empty()
    }

    /// The sort key for the order in which pools are tried; equal ones go by name.
    pub(super) fn rank(&self) -> (bool, bool, i32) {
        (!self.is_pinned(), self.priority == 0, self.priority)
    }

    /// Decides about a Service with `labels` in a namespace with `namespace_labels`, if these are known.
    pub(super) fn admits(
        &self,
        namespace: &str,
        namespace_labels: Option<&Labels>,
        labels: &Labels,
    ) -> Admission {
        let matches = |selectors: &[Selector], labels| {
            selectors.iter().any(|selector: &Selector| selector.matches(labels))
        };
        if self.closed
            || !(self.service_selectors.is_empty() || matches(&self.service_selectors, labels))
        {
            return Admission::Refused;
        }
        if self.namespaces.contains(namespace)
            || (self.namespaces.is_empty() && self.namespace_selectors.is_empty())
        {
            return Admission::Admitted;
        }
        match namespace_labels {
            Some(labels) if matches(&self.namespace_selectors, labels) => Admission::Admitted,
            None if !self.namespace_selectors.is_empty() => Admission::Unknown,
            _ => Admission::Refused,
        }
    }
}

impl fmt::Display for Scope {
    /// The text after the name of the pool: `serves only Services with labels app=web in namespaces blue,
    /// green or in namespaces with labels team=web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |selectors: &[Selector]| {
            let texts: Vec<String> = selectors.iter().map(ToString::to_string).collect();
            texts.join(" or ")
        };
        if self.closed {
            return f.write_str(
                "serves no Service until the invalid selector in its serviceAllocation is corrected",
            );
        }
        f.write_str("serves only Services")?;
        if !self.service_selectors.is_empty() {
            write!(f, " with labels {}", any(&self.service_selectors))?;
        }
        let names: Vec<&str> = self.namespaces.iter().map(String::as_str).collect();
        match names.as_slice() {
            [] => {}
            [one] => write!(f, " in namespace {one}")?,
            several => write!(f, " in namespaces {}", several.join(", "))?,
        }
        if !self.namespace_selectors.is_empty() {
            let or = if names.is_empty() { "" } else { " or" };
            write!(f, "{or} in namespaces with labels {}", any(&self.namespace_selectors))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn selectors(pairs: &[(&'static str, &'static str)]) -> Vec<Selector> {
        pairs.iter().map(|pair| Selector::from_iter([*pair])).collect()
    }

    fn scope(
        namespaces: &[&str],
        namespace_selectors: &[(&'static str, &'static str)],
        service_selectors: &[(&'static str, &'static str)],
    ) -> Scope {
        Scope {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            namespace_selectors: selectors(namespace_selectors),
            service_selectors: selectors(service_selectors),
            ..Scope::default()
        }
    }

    #[test]
    fn namespaces_are_a_union_and_service_selectors_narrow_it() {
        use Admission::{Admitted, Refused, Unknown};
        let (blue, web) = (labels(&[("team", "blue")]), labels(&[("app", "web")]));
        let none = labels(&[]);
        for (scope, namespace, namespace_labels, service, expected) in [
            (scope(&[], &[], &[]), "a", Some(&none), &none, Admitted),
            (scope(&[], &[], &[]), "a", None, &none, Admitted),
            (scope(&["a", "b"], &[], &[]), "b", Some(&none), &none, Admitted),
            (scope(&["a"], &[], &[]), "c", Some(&none), &none, Refused),
            (scope(&["a"], &[], &[]), "c", None, &none, Refused),
            (scope(&[], &[("team", "blue")], &[]), "c", Some(&blue), &none, Admitted),
            (scope(&[], &[("team", "blue")], &[]), "c", Some(&none), &none, Refused),
            (scope(&[], &[("team", "blue")], &[]), "c", None, &none, Unknown),
            (scope(&["a"], &[("team", "blue")], &[]), "a", Some(&none), &none, Admitted),
            (scope(&["a"], &[("team", "blue")], &[]), "c", Some(&blue), &none, Admitted),
            (scope(&["a"], &[("team", "blue")], &[]), "c", Some(&none), &none, Refused),
            (scope(&[], &[], &[("app", "web")]), "c", Some(&none), &web, Admitted),
            (scope(&[], &[], &[("app", "web")]), "c", Some(&none), &none, Refused),
            (scope(&["a"], &[], &[("app", "web")]), "a", Some(&none), &none, Refused),
            (scope(&["a"], &[], &[("app", "web")]), "c", Some(&none), &web, Refused),
            (scope(&[], &[("team", "blue")], &[("app", "web")]), "c", None, &none, Refused),
        ] {
            let admission = scope.admits(namespace, namespace_labels, service);
            assert_eq!(
                admission, expected,
                "{scope}: {namespace} {namespace_labels:?} {service:?}"
            );
        }
        let closed = Scope { closed: true, ..Scope::default() };
        assert_eq!(closed.admits("a", Some(&none), &none), Refused);
    }

    #[test]
    fn pinned_pools_come_first_then_the_smaller_priority_and_zero_last() {
        let ranked = |scope: Scope, priority| Scope { priority, ..scope }.rank();
        let (pinned, general) = (scope(&["a"], &[], &[]), Scope::default());
        let ranks = [
            ranked(pinned.clone(), 1),
            ranked(pinned.clone(), 20),
            ranked(pinned, 0),
            ranked(general.clone(), 1),
            ranked(general.clone(), 20),
            ranked(general, 0),
        ];
        assert!(ranks.is_sorted() && ranks.windows(2).all(|pair| pair[0] != pair[1]), "{ranks:?}");
    }

    #[test]
    fn a_scope_says_whom_it_admits() {
        for (scope, text) in [
            (scope(&["a"], &[], &[]), "serves only Services in namespace a"),
            (
                scope(&["a", "b"], &[("team", "blue")], &[("app", "web"), ("app", "api")]),
                "serves only Services with labels app=web or app=api in namespaces a, b or in \
                 namespaces with labels team=blue",
            ),
            (
                scope(&[], &[("team", "blue")], &[]),
                "serves only Services in namespaces with labels team=blue",
            ),
            (
                Scope { closed: true, ..Scope::default() },
                "serves no Service until the invalid selector in its serviceAllocation is corrected",
            ),
        ] {
            assert_eq!(scope.to_string(), text);
        }
    }
}
