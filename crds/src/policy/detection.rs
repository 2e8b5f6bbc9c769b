//! How the death of an owner is told: what a policy says of it, and what that means.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::settings::{Field, Settings};

/// How the failure of an owner is detected.
///
/// A failure is detected within `interval` plus `misses` times `retryInterval`. The fast profile is
/// 50ms, 10ms, and 4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DetectionSpec {
    /// Interval of the ARP or NDP probes of an owner, such as `100ms`, the default; from 20ms to
    /// 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "interval_schema")]
    pub interval: Option<DurationText>,

    /// Time after which an unanswered probe is repeated, such as `20ms`, the default; from 5ms to
    /// 1s, and at most `interval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "retry_interval_schema")]
    pub retry_interval: Option<DurationText>,

    /// Number of consecutive unanswered probes after which an owner is suspected: 3 by default;
    /// from 2 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "misses_schema")]
    pub misses: Option<i32>,

    /// `Wire`, the default: an owner that stops answering probes is replaced immediately.
    /// `LeaseOnly`: an owner is replaced only when its session expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "mode_schema")]
    pub mode: Option<DetectionMode>,
}

impl Settings for DetectionSpec {
    const NAME: &'static str = "detection";

    fn or(self, other: Self) -> Self {
        Self {
            interval: self.interval.or(other.interval),
            retry_interval: self.retry_interval.or(other.retry_interval),
            misses: self.misses.or(other.misses),
            mode: self.mode.or(other.mode),
        }
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            INTERVAL.field(self.interval.as_ref()),
            RETRY_INTERVAL.field(self.retry_interval.as_ref()),
            Field {
                name: "misses",
                value: self.misses.map(|misses| misses.to_string()),
                default: DEFAULT_MISSES.to_string(),
            },
            Field {
                name: "mode",
                value: self.mode.map(|mode| format!("{mode:?}")),
                default: format!("{:?}", DetectionMode::default()),
            },
        ]
    }
}

/// What counts as the failure of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum DetectionMode {
    /// Unanswered probes, or the expiry of its session.
    #[default]
    Wire,
    /// The expiry of its session.
    LeaseOnly,
}

/// A duration as it was written: whole milliseconds, seconds or minutes, such as `100ms`, `1s` or `10m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl DurationText {
    /// Reads the duration; `None` where it is none.
    pub(super) fn parse(&self) -> Option<Duration> {
        let millis = [("ms", 1), ("s", 1_000), ("m", 60_000)];
        let of = |(suffix, millis)| Some((self.0.strip_suffix(suffix)?, millis));
        let (number, millis): (&str, u64) = millis.into_iter().find_map(of)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || !(1..=6).contains(&number.len()) {
            return None;
        }
        number.parse().ok().map(|number: u64| Duration::from_millis(number * millis))
    }
}

/// The shape that [`DurationText::parse`] reads, in CEL.
fn is_duration(text: &str) -> String {
    format!("{text}.matches('^[0-9]{{1,6}}(ms|s|m)$')")
}

/// A rule and the message of its failure, in CEL.
pub(super) struct CelRule {
    pub(super) rule: String,
    pub(super) message: String,
}

/// The rule that a retry comes no later than the next probe. Passes what the fields' own rules refuse.
pub(super) fn retry_fits(interval: &str, retry: &str) -> CelRule {
    let (is_retry, is_interval) = (is_duration(retry), is_duration(interval));
    CelRule {
        rule: format!(
            "!({is_retry} && {is_interval}) || duration({retry}) <= duration({interval})"
        ),
        message: format!(
            "\"retryInterval '\" + {retry} + \"' is longer than interval '\" + {interval} + \"': \
             write at most \" + {interval}"
        ),
    }
}

/// A field with a duration: its bounds, and its default, which is the example in messages.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) field: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) default: &'static str,
}

pub(super) const INTERVAL: Bounds =
    Bounds { field: "interval", from: "20ms", to: "10s", default: "100ms" };
pub(super) const RETRY_INTERVAL: Bounds =
    Bounds { field: "retryInterval", from: "5ms", to: "1s", default: "20ms" };
const MISSES: RangeInclusive<i32> = 2..=10;
const DEFAULT_MISSES: i32 = 3;

impl Bounds {
    pub(super) fn schema(&self) -> Schema {
        let Self { field, from, to, default } = self;
        let is_duration = is_duration("self");
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": is_duration,
                    "messageExpression": format!(
                        "\"{field} '\" + self + \"' is not a duration: write whole milliseconds, \
                         seconds or minutes, such as {default}\""
                    ),
                },
                {
                    "rule": format!(
                        "!{is_duration} || duration(self) >= duration('{from}') \
                         && duration(self) <= duration('{to}')"
                    ),
                    "messageExpression": format!(
                        "\"{field} '\" + self + \"' is out of bounds: write {from} to {to}\""
                    ),
                },
            ],
        })
    }

    /// The schema of a field that may be absent.
    pub(super) fn optional_schema(&self) -> Schema {
        nullable(self.schema())
    }

    pub(super) fn field(&self, text: Option<&DurationText>) -> Field {
        let Self { field: name, default, .. } = *self;
        Field { name, value: text.map(|text| text.0.clone()), default: default.to_owned() }
    }

    pub(super) fn or_default(&self, text: Option<&DurationText>) -> DurationText {
        text.cloned().unwrap_or_else(|| self.default.into())
    }

    pub(super) fn read(&self, text: &DurationText) -> Result<Duration, DetectionError> {
        let Self { field, from, to, default: example } = *self;
        let written = || text.0.clone();
        let Some(duration) = text.parse() else {
            return Err(DetectionError::NotADuration { field, text: written(), example });
        };
        let limit = |limit: &str| DurationText::from(limit).parse();
        if Some(duration) < limit(from) || Some(duration) > limit(to) {
            return Err(DetectionError::OutOfBounds { field, text: written(), from, to });
        }
        Ok(duration)
    }
}

/// The same schema, by which `null` is as good as absent.
pub(super) fn nullable(mut schema: Schema) -> Schema {
    schema.insert("nullable".to_owned(), true.into());
    schema
}

fn interval_schema(_: &mut SchemaGenerator) -> Schema {
    INTERVAL.optional_schema()
}

fn retry_interval_schema(_: &mut SchemaGenerator) -> Schema {
    RETRY_INTERVAL.optional_schema()
}

fn misses_schema(_: &mut SchemaGenerator) -> Schema {
    let (least, most) = (MISSES.start(), MISSES.end());
    nullable(json_schema!({
        "type": "integer",
        "format": "int32",
        "x-kubernetes-validations": [{
            "rule": format!("self >= {least} && self <= {most}"),
            // An expression that quotes the number exceeds the API server's cost budget.
            "message": format!("misses is out of bounds: write {least} to {most}"),
        }],
    }))
}

/// Not that of `Option`, which has the description of the enum. The API server does not accept `null` for
/// enums.
fn mode_schema(generator: &mut SchemaGenerator) -> Schema {
    DetectionMode::json_schema(generator)
}

/// Why detection settings cannot be followed. Each message says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DetectionError {
    /// A text is not a duration.
    #[error(
        "{field} '{text}' is not a duration: write whole milliseconds, seconds or minutes, such as {example}"
    )]
    NotADuration {
        /// The field.
        field: &'static str,
        /// What it says.
        text: String,
        /// What it could say.
        example: &'static str,
    },
    /// A duration is too short or too long.
    #[error("{field} '{text}' is out of bounds: write {from} to {to}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// What it says.
        text: String,
        /// The shortest.
        from: &'static str,
        /// The longest.
        to: &'static str,
    },
    /// A missed poll would be repeated later than the next one is due.
    #[error(
        "retryInterval '{retry}' is longer than interval '{interval}': write at most {interval}"
    )]
    RetryTooLong {
        /// What `retryInterval` says.
        retry: String,
        /// What `interval` says.
        interval: String,
    },
    /// Too few misses, or too many.
    #[error("misses is out of bounds: write {} to {}", MISSES.start(), MISSES.end())]
    Misses,
}

impl DetectionError {
    /// The names of the fields that it is about.
    pub(super) fn fields(&self) -> &[&'static str] {
        match self {
            Self::NotADuration { field, .. } | Self::OutOfBounds { field, .. } => {
                std::slice::from_ref(field)
            }
            Self::RetryTooLong { .. } => &[RETRY_INTERVAL.field, INTERVAL.field],
            Self::Misses => &["misses"],
        }
    }
}

/// How the silence of an owner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Detection {
    /// From one poll to the next.
    pub interval: Duration,
    /// How long an answer may take, and from a poll that was missed to the next.
    pub retry_interval: Duration,
    /// How many polls in a row without an answer are silence.
    pub misses: u32,
    /// Whether the wire is asked at all; if not, only leases count.
    pub wire: bool,
}

impl Default for Detection {
    /// The meaning of a [`DetectionSpec`] without any field.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            retry_interval: Duration::from_millis(20),
            misses: 3,
            wire: true,
        }
    }
}

impl TryFrom<&DetectionSpec> for Detection {
    type Error = DetectionError;

    /// Also refuses what the rules of the schema refuse: a policy may have been stored under others.
    fn try_from(spec: &DetectionSpec) -> Result<Self, DetectionError> {
        let interval_text = INTERVAL.or_default(spec.interval.as_ref());
        let retry_text = RETRY_INTERVAL.or_default(spec.retry_interval.as_ref());
        let interval = INTERVAL.read(&interval_text)?;
        let retry_interval = RETRY_INTERVAL.read(&retry_text)?;
        if retry_interval > interval {
            let (retry, interval) = (retry_text.0, interval_text.0);
            return Err(DetectionError::RetryTooLong { retry, interval });
        }
        let misses = spec.misses.unwrap_or(DEFAULT_MISSES);
        let misses = u32::try_from(misses).ok().filter(|_| MISSES.contains(&misses));
        let misses = misses.ok_or(DetectionError::Misses)?;
        let wire = match spec.mode.unwrap_or_default() {
            DetectionMode::Wire => true,
            DetectionMode::LeaseOnly => false,
        };
        Ok(Self { interval, retry_interval, misses, wire })
    }
}

impl Detection {
    /// By how much each candidate for an unowned claim waits for the ones before it: as long as one that
    /// has died takes to be found out.
    pub fn rank_step(&self) -> Duration {
        self.interval + self.retry_interval * self.misses + Duration::from_millis(20)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::AnnouncementPolicy;

    fn spec(detection: &serde_json::Value) -> DetectionSpec {
        serde_json::from_value(detection.clone()).unwrap()
    }

    /// The messages of the rules, the same for the field of `layer2` and for the deprecated one.
    fn refusals(detection: &serde_json::Value) -> Vec<String> {
        let refused = |spec: serde_json::Value, path: &str| -> Vec<String> {
            let spec = serde_json::from_value(spec).unwrap();
            let refused = AnnouncementPolicy::new("p", spec).validate_cel().err();
            let refused: Vec<_> = refused.into_iter().flatten().collect();
            assert!(refused.iter().all(|it| it.field_path.starts_with(path)), "{refused:?}");
            refused.into_iter().map(|error| error.message).collect()
        };
        let messages =
            refused(json!({"layer2": {"detection": detection}}), "spec.layer2.detection");
        assert_eq!(refused(json!({"detection": detection}), "spec.detection"), messages);
        messages
    }

    #[test]
    fn settings_within_the_bounds_pass_and_are_read() {
        for (detection, ms, misses, wire) in [
            (json!({}), [100, 20], 3, true),
            (json!({"interval": "50ms", "retryInterval": "10ms", "misses": 4}), [50, 10], 4, true),
            (json!({"interval": "20ms", "misses": 2}), [20, 20], 2, true),
            (
                json!({"interval": "10s", "retryInterval": "1s", "misses": 10}),
                [10_000, 1000],
                10,
                true,
            ),
            (json!({"interval": "0100ms", "retryInterval": "5ms"}), [100, 5], 3, true),
            (json!({"mode": "LeaseOnly"}), [100, 20], 3, false),
            (json!({"mode": "Wire"}), [100, 20], 3, true),
        ] {
            assert_eq!(refusals(&detection), [""; 0], "{detection}");
            let [interval, retry_interval] = ms.map(Duration::from_millis);
            let read = Detection { interval, retry_interval, misses, wire };
            assert_eq!(Detection::try_from(&spec(&detection)), Ok(read), "{detection}");
        }
        assert_eq!(Detection::try_from(&DetectionSpec::default()), Ok(Detection::default()));
    }

    #[test]
    fn the_rules_and_the_reader_refuse_the_same_and_say_what_to_write() {
        let shape = "is not a duration: write whole milliseconds, seconds or minutes, such as";
        for (detection, message) in [
            (json!({"interval": "100"}), format!("interval '100' {shape} 100ms")),
            (json!({"interval": ""}), format!("interval '' {shape} 100ms")),
            (json!({"interval": "soon"}), format!("interval 'soon' {shape} 100ms")),
            (json!({"interval": "ms"}), format!("interval 'ms' {shape} 100ms")),
            (json!({"interval": "-100ms"}), format!("interval '-100ms' {shape} 100ms")),
            (json!({"interval": "0.1s"}), format!("interval '0.1s' {shape} 100ms")),
            (json!({"interval": "100 ms"}), format!("interval '100 ms' {shape} 100ms")),
            (json!({"interval": "1s100ms"}), format!("interval '1s100ms' {shape} 100ms")),
            (json!({"interval": "1h"}), format!("interval '1h' {shape} 100ms")),
            (json!({"interval": "0000100ms"}), format!("interval '0000100ms' {shape} 100ms")),
            (json!({"retryInterval": "20us"}), format!("retryInterval '20us' {shape} 20ms")),
            (
                json!({"interval": "19ms", "retryInterval": "5ms"}),
                "interval '19ms' is out of bounds: write 20ms to 10s".to_owned(),
            ),
            (
                json!({"interval": "10001ms"}),
                "interval '10001ms' is out of bounds: write 20ms to 10s".to_owned(),
            ),
            (
                json!({"interval": "999999s"}),
                "interval '999999s' is out of bounds: write 20ms to 10s".to_owned(),
            ),
            (
                json!({"retryInterval": "4ms"}),
                "retryInterval '4ms' is out of bounds: write 5ms to 1s".to_owned(),
            ),
            (
                json!({"interval": "2s", "retryInterval": "1001ms"}),
                "retryInterval '1001ms' is out of bounds: write 5ms to 1s".to_owned(),
            ),
            (
                json!({"retryInterval": "101ms"}),
                "retryInterval '101ms' is longer than interval '100ms': write at most 100ms"
                    .to_owned(),
            ),
            (json!({"misses": 1}), "misses is out of bounds: write 2 to 10".to_owned()),
            (json!({"misses": 11}), "misses is out of bounds: write 2 to 10".to_owned()),
            (json!({"misses": -3}), "misses is out of bounds: write 2 to 10".to_owned()),
        ] {
            assert_eq!(refusals(&detection), [message.as_str()], "{detection}");
            let read = Detection::try_from(&spec(&detection)).map_err(|error| error.to_string());
            assert_eq!(read, Err(message), "{detection}");
        }
    }
}
