//! How often an address is announced.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::detection::{Bounds, DetectionError, DurationText, nullable};
use super::settings::{Field, Settings};

/// How often a policy has an address announced (gratuitous ARP, unsolicited Neighbor Advertisement).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AnnouncementsSpec {
    /// Number of announcements after a node becomes the owner: at 0, 0.1, 0.5, 1, and 2 s, then
    /// every second; 5 by default, from 1 to 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "burst_schema")]
    pub burst: Option<i32>,

    /// Interval of further announcements, for switches that age out entries, such as `60s`, the
    /// default; from 1s to 86400s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "refresh_schema")]
    pub refresh_interval: Option<DurationText>,
}

impl Settings for AnnouncementsSpec {
    const NAME: &'static str = "announcements";

    fn or(self, other: Self) -> Self {
        Self {
            burst: self.burst.or(other.burst),
            refresh_interval: self.refresh_interval.or(other.refresh_interval),
        }
    }

    fn fields(&self) -> Vec<Field> {
        let burst = self.burst.map(|burst| burst.to_string());
        vec![
            Field { name: "burst", value: burst, default: DEFAULT_BURST.to_string() },
            REFRESH.field(self.refresh_interval.as_ref()),
        ]
    }
}

/// How often an address is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcements {
    /// How often within the first moments of an ownership.
    pub burst: usize,
    /// The pause between two of them from then on.
    pub refresh_interval: Duration,
}

impl Default for Announcements {
    /// The meaning of an [`AnnouncementsSpec`] without any field.
    fn default() -> Self {
        Self { burst: 5, refresh_interval: Duration::from_secs(60) }
    }
}

impl Announcements {
    /// As often as either asks for.
    #[must_use]
    pub fn oftener(self, other: Self) -> Self {
        Self {
            burst: self.burst.max(other.burst),
            refresh_interval: self.refresh_interval.min(other.refresh_interval),
        }
    }
}

const BURST: RangeInclusive<i32> = 1..=20;
const DEFAULT_BURST: i32 = 5;
const REFRESH: Bounds =
    Bounds { field: "refreshInterval", from: "1s", to: "86400s", default: "60s" };

fn burst_schema(_: &mut SchemaGenerator) -> Schema {
    let (least, most) = (BURST.start(), BURST.end());
    nullable(json_schema!({
        "type": "integer", "format": "int32", "minimum": least, "maximum": most,
    }))
}

fn refresh_schema(_: &mut SchemaGenerator) -> Schema {
    REFRESH.optional_schema()
}

impl TryFrom<&AnnouncementsSpec> for Announcements {
    type Error = DetectionError;

    /// Also refuses what the rules of the schema refuse: a policy may have been stored under others.
    fn try_from(spec: &AnnouncementsSpec) -> Result<Self, DetectionError> {
        let refresh_interval = REFRESH.read(&REFRESH.or_default(spec.refresh_interval.as_ref()))?;
        let given = spec.burst.unwrap_or(DEFAULT_BURST);
        let burst = usize::try_from(given).ok().filter(|_| BURST.contains(&given));
        let burst = burst.ok_or_else(|| DetectionError::OutOfBounds {
            field: "burst",
            text: given.to_string(),
            from: "1",
            to: "20",
        })?;
        Ok(Self { burst, refresh_interval })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::AnnouncementPolicy;

    #[test]
    fn settings_are_read_or_refused_with_what_to_write() {
        let out = |field: &str, text: &str, bounds: &str| {
            Err(format!("{field} '{text}' is out of bounds: write {bounds}"))
        };
        for (spec, expected) in [
            (json!({}), Ok((5, 60))),
            (json!({"burst": 1, "refreshInterval": "10s"}), Ok((1, 10))),
            (json!({"burst": 20, "refreshInterval": "86400s"}), Ok((20, 86_400))),
            (json!({"burst": 0}), out("burst", "0", "1 to 20")),
            (json!({"burst": 21}), out("burst", "21", "1 to 20")),
            (json!({"refreshInterval": "0s"}), out("refreshInterval", "0s", "1s to 86400s")),
            (
                json!({"refreshInterval": "soon"}),
                Err("refreshInterval 'soon' is not a duration: write whole milliseconds, seconds or minutes, \
                     such as 60s"
                    .to_owned()),
            ),
        ] {
            let announcements: AnnouncementsSpec = serde_json::from_value(spec.clone()).unwrap();
            let read = Announcements::try_from(&announcements)
                .map(|read| (read.burst, read.refresh_interval.as_secs()))
                .map_err(|error| error.to_string());
            assert_eq!(read, expected, "{spec}");
            for policy in
                [json!({"layer2": {"announcements": &spec}}), json!({"announcements": &spec})]
            {
                let policy = AnnouncementPolicy::new("p", serde_json::from_value(policy).unwrap());
                let accepted = policy.validate_cel().is_ok();
                // The API server itself checks the bounds of numbers.
                assert!(accepted == expected.is_ok() || spec.get("burst").is_some(), "{spec}");
            }
        }
        let default = Announcements::try_from(&AnnouncementsSpec::default());
        assert_eq!(default, Ok(Announcements::default()));
    }
}
