//! Open connections through an address that moves.

use std::time::Duration;

use schemars::{Schema, SchemaGenerator};

use super::detection::{Bounds, DetectionError, DurationText};

const HANDOVER: Bounds =
    Bounds { field: "connectionHandover", from: "0s", to: "60m", default: "10m" };

/// The time for which the connections of a former owner are forwarded to it, where no policy says another.
pub const DEFAULT_HANDOVER: Duration = Duration::from_secs(600);

pub(super) fn default_handover() -> DurationText {
    HANDOVER.default.into()
}

pub(super) fn handover_schema(_: &mut SchemaGenerator) -> Schema {
    HANDOVER.schema()
}

/// Reads the value of a policy.
pub(super) fn handover(text: &DurationText) -> Result<Duration, DetectionError> {
    HANDOVER.read(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_the_schema_says_and_minutes_are_read() {
        assert_eq!(handover(&default_handover()), Ok(DEFAULT_HANDOVER));
        assert_eq!(handover(&"0s".into()), Ok(Duration::ZERO));
        assert_eq!(handover(&"90s".into()), Ok(Duration::from_secs(90)));
        for refused in ["61m", "3601s", "1h", "m", "-1m"] {
            assert!(handover(&refused.into()).is_err(), "{refused}");
        }
    }
}
