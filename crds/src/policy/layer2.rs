//! Layer 2 settings: the field `layer2`, and the fields beside it that it replaces.
//!
//! Before `layer2`, its three fields were fields of `spec`. They are deprecated, still accepted, and read
//! nowhere but in [`AnnouncementPolicySpec::layer2`]. The API server wrote their defaults into objects that
//! it stored, so it must not write defaults into `layer2`: these would take precedence over them.

use std::collections::BTreeSet;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::announcing::{Announcements, AnnouncementsSpec};
use super::detection::{self, Detection, DetectionError, DetectionSpec, DurationText};
use super::settings::{Field, Settings};
use super::{AnnouncementPolicySpec, PolicyInterface};
use crate::names::InterfacePattern;

/// Settings of announcements by ARP and NDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Layer2Spec {
    /// Interfaces that may carry the addresses, as names or patterns such as `eth*` or `bond?`. If
    /// several match on a node, the one whose subnet contains the address carries it. If the list
    /// is empty, the interface whose subnet contains the address (the longest prefix) carries it;
    /// if no node has such a subnet, the interface with the default route does. Bridges and veth
    /// devices of containers, tunnels, and other virtual devices without a default route are used
    /// only if they are named. Bonds, VLANs, and bridges of physical interfaces are used without
    /// being named. A shared address is carried only by interfaces that the policies of all its
    /// Services allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub interfaces: Option<Vec<PolicyInterface>>,

    /// Number and interval of announcements. For a shared address, the most frequent settings of
    /// its Services apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announcements: Option<AnnouncementsSpec>,

    /// How the failure of an owner is detected. For a shared address, the fastest settings of its
    /// Services apply, and `LeaseOnly` if any of them sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection: Option<DetectionSpec>,
}

/// A field of `spec` that a field of [`Layer2Spec`] replaces.
///
/// Its content is private: [`AnnouncementPolicySpec::layer2`] has the settings in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Deprecated<T>(Option<T>);

impl<T> Default for Deprecated<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deprecated<T> {
    pub(super) const fn is_absent(&self) -> bool {
        self.0.is_none()
    }
}

/// The Layer 2 settings of a policy that are in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer2 {
    /// The interfaces that may carry the addresses; empty: chosen by subnet.
    pub interfaces: Vec<InterfacePattern>,
    /// The frequency of announcements.
    pub announcements: Result<Announcements, InvalidSettings>,
    /// The detection of failures.
    pub detection: Result<Detection, InvalidSettings>,
}

/// Settings that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {source}")]
pub struct InvalidSettings {
    /// The field of `spec` with the invalid value.
    pub path: String,
    /// The fault.
    pub source: DetectionError,
}

impl AnnouncementPolicySpec {
    /// The Layer 2 settings in effect: each field of `layer2`, otherwise the deprecated field that it
    /// replaces, otherwise the default.
    pub fn layer2(&self) -> Layer2 {
        let Layer2Spec { interfaces, announcements, detection } =
            self.layer2.clone().unwrap_or_default();
        let interfaces = interfaces.or_else(|| self.interfaces.0.clone()).unwrap_or_default();
        Layer2 {
            interfaces: interfaces.into_iter().map(|interface| interface.0).collect(),
            announcements: Shapes::new(announcements, &self.announcements).read(),
            detection: Shapes::new(detection, &self.detection).read(),
        }
    }

    /// The deprecated fields that `layer2` overrides with another value; each entry says what to do.
    /// Former defaults are left out, because the API server wrote them.
    pub fn ignored_fields(&self) -> Vec<String> {
        let Layer2Spec { interfaces, announcements, detection } =
            self.layer2.clone().unwrap_or_default();
        let [own, old] =
            [interfaces.as_deref(), self.interfaces.0.as_deref()].map(Field::interfaces);
        let announcements = Shapes::new(announcements, &self.announcements).ignored();
        let detection = Shapes::new(detection, &self.detection).ignored();
        own.ignored("", &old).into_iter().chain(announcements).chain(detection).collect()
    }
}

/// Settings in both shapes.
struct Shapes<T> {
    /// In `layer2`.
    own: T,
    /// In the deprecated field.
    old: T,
}

impl<T: Settings> Shapes<T> {
    fn new(own: Option<T>, old: &Deprecated<T>) -> Self {
        Self { own: own.unwrap_or_default(), old: old.0.clone().unwrap_or_default() }
    }

    fn ignored(&self) -> Vec<String> {
        let fields = self.own.fields().into_iter().zip(self.old.fields());
        let parent = format!("{}.", T::NAME);
        fields.filter_map(|(own, old)| own.ignored(&parent, &old)).collect()
    }

    fn read<R>(&self) -> Result<R, InvalidSettings>
    where
        R: for<'a> TryFrom<&'a T, Error = DetectionError>,
    {
        let in_effect = self.own.clone().or(self.old.clone());
        R::try_from(&in_effect).map_err(|source| {
            let about = source.fields();
            let is_own = |field: Field| field.value.is_some() && about.contains(&field.name);
            let parent = if self.own.fields().into_iter().any(is_own) { "layer2." } else { "" };
            InvalidSettings { path: format!("{parent}{}", T::NAME), source }
        })
    }
}

impl Field {
    fn interfaces(interfaces: Option<&[PolicyInterface]>) -> Self {
        let listed = |interfaces: &[PolicyInterface]| {
            let names: BTreeSet<String> =
                interfaces.iter().map(|interface| interface.0.to_string()).collect();
            format!("[{}]", names.into_iter().collect::<Vec<_>>().join(", "))
        };
        Self { name: "interfaces", value: interfaces.map(listed), default: listed(&[]) }
    }

    /// What to do if `old`, the deprecated field below `parent`, is ignored because of this one.
    fn ignored(&self, parent: &str, old: &Self) -> Option<String> {
        let (value, old_value) = (self.value.as_ref()?, old.value.as_ref()?);
        if is_same(value, old_value) || is_same(&old.default, old_value) {
            return None;
        }
        let name = format!("{parent}{}", old.name);
        Some(format!(
            "spec.{name} '{old_value}' is ignored because spec.layer2.{name} is '{value}': remove \
             spec.{name}"
        ))
    }
}

/// Whether two texts have the same meaning, such as `1s` and `1000ms`.
fn is_same(one: &str, other: &str) -> bool {
    let duration = |text: &str| DurationText::from(text).parse();
    one == other || duration(one).is_some_and(|it| Some(it) == duration(other))
}

/// The rules on fields of which some may be in `layer2` and others be deprecated ones.
pub(super) fn rules() -> serde_json::Value {
    let own = |field: &str| {
        let path = "self.layer2.detection";
        (
            format!("has(self.layer2) && has({path}) && has({path}.{field})"),
            format!("{path}.{field}"),
        )
    };
    let old = |field: &str| {
        let path = "self.detection";
        (format!("has({path}) && has({path}.{field})"), format!("{path}.{field}"))
    };
    let fields = [detection::INTERVAL, detection::RETRY_INTERVAL];
    let is_own = fields.map(|field| format!("({})", own(field.field).0)).join(" || ");
    let [old_interval, old_retry] = fields.map(|field| {
        let (has, value) = old(field.field);
        format!("({has} ? {value} : '{}')", field.default)
    });
    let [interval, retry] = fields.map(|field| {
        let ((has, value), (has_old, old_value)) = (own(field.field), old(field.field));
        format!("({has} ? {value} : {has_old} ? {old_value} : '{}')", field.default)
    });
    let in_layer2 = detection::retry_fits(&interval, &retry);
    let in_deprecated = detection::retry_fits(&old_interval, &old_retry);
    json!([
        {
            "rule": format!("!({is_own}) || {}", in_layer2.rule),
            "messageExpression": in_layer2.message,
            "fieldPath": ".layer2.detection",
        },
        {
            "rule": format!("{is_own} || {}", in_deprecated.rule),
            "messageExpression": in_deprecated.message,
            "fieldPath": ".detection",
        },
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::CustomResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::{AnnouncementPolicy, Policy};

    fn spec(spec: &Value) -> AnnouncementPolicySpec {
        serde_json::from_value(spec.clone()).unwrap()
    }

    /// The settings in effect, as text: those of a policy that says nothing are left out.
    fn in_effect(policy: &Value) -> Vec<String> {
        let Layer2 { interfaces, announcements, detection } = spec(policy).layer2();
        let (announcements, detection) = (announcements.unwrap(), detection.unwrap());
        let (often, found) = (Announcements::default(), Detection::default());
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let interfaces: Vec<_> = interfaces.iter().map(ToString::to_string).collect();
        [
            (interfaces.join(","), String::new()),
            (format!("burst {}", announcements.burst), format!("burst {}", often.burst)),
            (
                format!("refresh {}", ms(announcements.refresh_interval)),
                format!("refresh {}", ms(often.refresh_interval)),
            ),
            (
                format!("interval {}", ms(detection.interval)),
                format!("interval {}", ms(found.interval)),
            ),
            (
                format!("retry {}", ms(detection.retry_interval)),
                format!("retry {}", ms(found.retry_interval)),
            ),
            (format!("misses {}", detection.misses), format!("misses {}", found.misses)),
            (format!("wire {}", detection.wire), format!("wire {}", found.wire)),
        ]
        .into_iter()
        .filter_map(|(now, default)| (now != default).then_some(now))
        .collect()
    }

    /// The fields that the API server has written into stored objects before there was `layer2`.
    fn stored(mut policy: Value) -> Value {
        for (field, defaults) in [
            ("announcements", json!({"burst": 5, "refreshInterval": "60s"})),
            (
                "detection",
                json!({"interval": "100ms", "retryInterval": "20ms", "misses": 3, "mode": "Wire"}),
            ),
        ] {
            let fields = policy.as_object_mut().unwrap().entry(field).or_insert(json!({}));
            for (name, value) in defaults.as_object().unwrap() {
                fields.as_object_mut().unwrap().entry(name).or_insert(value.clone());
            }
        }
        policy
    }

    #[test]
    fn both_shapes_mean_the_same() {
        for (settings, expected) in [
            (json!({}), vec![]),
            (json!({"interfaces": ["eth1", "bond*"]}), vec!["eth1,bond*"]),
            (json!({"interfaces": []}), vec![]),
            (json!({"announcements": {"burst": 7}}), vec!["burst 7"]),
            (
                json!({"announcements": {"burst": 1, "refreshInterval": "10s"}}),
                vec!["burst 1", "refresh 10000ms"],
            ),
            (
                json!({"detection": {"interval": "50ms", "retryInterval": "10ms", "misses": 4}}),
                vec!["interval 50ms", "retry 10ms", "misses 4"],
            ),
            (json!({"detection": {"mode": "LeaseOnly"}}), vec!["wire false"]),
            (
                json!({"interfaces": ["eth0"], "announcements": {}, "detection": {"misses": 2}}),
                vec!["eth0", "misses 2"],
            ),
            (json!({"interfaces": null, "announcements": null, "detection": null}), vec![]),
        ] {
            assert_eq!(in_effect(&settings), expected, "{settings}");
            assert_eq!(in_effect(&json!({"layer2": settings})), expected, "{settings}");
            let null = json!({"layer2": null});
            assert_eq!(in_effect(&null), Vec::<String>::new());
        }
    }

    #[test]
    fn what_layer2_sets_takes_precedence_field_by_field() {
        for (flat, layer2, expected, ignored) in [
            // The defaults that the API server has stored are no settings of somebody.
            (stored(json!({})), json!({}), vec![], vec![]),
            (
                stored(json!({})),
                json!({"interfaces": ["eth1"], "detection": {"interval": "50ms", "mode": "LeaseOnly"}}),
                vec!["eth1", "interval 50ms", "wire false"],
                vec![],
            ),
            // The same in both.
            (
                stored(json!({"interfaces": ["a", "b"], "detection": {"interval": "1s"}})),
                json!({"interfaces": ["b", "a"], "detection": {"interval": "1000ms"}}),
                vec!["b,a", "interval 1000ms"],
                vec![],
            ),
            // One field here, another there.
            (
                stored(json!({"interfaces": ["eth1"], "detection": {"mode": "LeaseOnly"}})),
                json!({"announcements": {"burst": 1}, "detection": {"misses": 5}}),
                vec!["eth1", "burst 1", "misses 5", "wire false"],
                vec![],
            ),
            (
                stored(json!({"announcements": {"burst": 9}})),
                json!({"announcements": {"refreshInterval": "5s"}}),
                vec!["burst 9", "refresh 5000ms"],
                vec![],
            ),
            // Also back to the default.
            (
                stored(json!({"interfaces": ["eth1"], "announcements": {"burst": 9}})),
                json!({"interfaces": [], "announcements": {"burst": 5}}),
                vec![],
                vec![
                    "spec.interfaces '[eth1]' is ignored because spec.layer2.interfaces is '[]': remove \
                     spec.interfaces",
                    "spec.announcements.burst '9' is ignored because spec.layer2.announcements.burst is \
                     '5': remove spec.announcements.burst",
                ],
            ),
            (
                stored(json!({"detection": {
                    "interval": "1s", "retryInterval": "30ms", "misses": 4, "mode": "LeaseOnly",
                }})),
                json!({"detection": {"interval": "50ms", "misses": 5, "mode": "Wire"}}),
                vec!["interval 50ms", "retry 30ms", "misses 5"],
                vec![
                    "spec.detection.interval '1s' is ignored because spec.layer2.detection.interval is \
                     '50ms': remove spec.detection.interval",
                    "spec.detection.misses '4' is ignored because spec.layer2.detection.misses is '5': \
                     remove spec.detection.misses",
                    "spec.detection.mode 'LeaseOnly' is ignored because spec.layer2.detection.mode is \
                     'Wire': remove spec.detection.mode",
                ],
            ),
        ] {
            let mut both = flat;
            both["layer2"] = layer2;
            assert_eq!(in_effect(&both), expected, "{both}");
            assert_eq!(spec(&both).ignored_fields(), ignored, "{both}");
            let policy = AnnouncementPolicy::new("p", spec(&both));
            assert!(policy.validate_cel().is_ok() && Policy::parse(&policy).is_ok(), "{both}");
        }
    }

    #[test]
    fn an_error_is_said_of_the_field_that_has_it() {
        for (flat, layer2, path) in [
            (json!({"misses": 1}), json!({}), "detection"),
            (json!({}), json!({"misses": 1}), "layer2.detection"),
            (json!({"misses": 1}), json!({"interval": "1s"}), "detection"),
            (json!({"misses": 3}), json!({"misses": 11}), "layer2.detection"),
            (json!({"interval": "soon"}), json!({"retryInterval": "5ms"}), "detection"),
            (json!({"retryInterval": "5ms"}), json!({"interval": "soon"}), "layer2.detection"),
            (json!({"retryInterval": "500ms"}), json!({}), "detection"),
            (json!({"retryInterval": "500ms"}), json!({"misses": 4}), "detection"),
            (json!({"retryInterval": "500ms"}), json!({"interval": "200ms"}), "layer2.detection"),
        ] {
            let policy = json!({"detection": flat, "layer2": {"detection": layer2}});
            let error = spec(&policy).layer2().detection.unwrap_err();
            assert_eq!(error.path, path, "{policy}: {error}");
        }
    }

    #[test]
    fn the_rules_and_the_conversion_agree_on_intervals_in_both_shapes() {
        let intervals = [None, Some("20ms"), Some("1s")];
        let retries = [None, Some("15ms"), Some("500ms")];
        let mut refused = 0;
        for number in 0..81 {
            let [old, own] = [number % 3, number / 3 % 3].map(|it| intervals[it]);
            let [old_retry, own_retry] = [number / 9 % 3, number / 27].map(|it| retries[it]);
            let detection = |interval: Option<&str>, retry: Option<&str>| {
                let fields = [("interval", interval), ("retryInterval", retry)];
                let set = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
                json!(set.collect::<std::collections::BTreeMap<_, _>>())
            };
            let policy = json!({
                "detection": detection(old, old_retry),
                "layer2": {"detection": detection(own, own_retry)},
            });
            let read = spec(&policy)
                .layer2()
                .detection
                .map_err(|error| format!("spec.{}: {}", error.path, error.source));
            let rules =
                AnnouncementPolicy::new("p", spec(&policy)).validate_cel().map_err(|errors| {
                    let texts: Vec<String> =
                        errors.into_iter().map(|error| error.to_string()).collect();
                    texts.join("; ")
                });
            refused += usize::from(rules.is_err());
            assert_eq!(rules.err(), read.err(), "{policy}");
        }
        assert!((10..70).contains(&refused), "{refused} of 81");
    }

    #[test]
    fn the_api_server_writes_no_default_of_layer_2() {
        fn defaults(path: &str, schema: &Value) -> Vec<String> {
            let own = schema.get("default").map(|_| path.to_owned());
            let properties = schema.get("properties").and_then(Value::as_object);
            let below = properties.into_iter().flatten();
            let below = below.flat_map(|(name, field)| defaults(&format!("{path}.{name}"), field));
            own.into_iter().chain(below).collect()
        }
        let definition = serde_json::to_value(AnnouncementPolicy::crd()).unwrap();
        let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let fields = definition.pointer(fields).unwrap();
        for field in ["layer2", "interfaces", "announcements", "detection"] {
            assert_eq!(defaults(field, &fields[field]), [""; 0]);
        }
        assert_eq!(defaults("mode", &fields["mode"]), ["mode"]);
    }
}
