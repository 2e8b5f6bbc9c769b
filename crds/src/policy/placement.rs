//! Which nodes are preferred, and what goes to another node while its owner lives.

use std::ops::RangeInclusive;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::detection::{Bounds, DetectionError, DurationText};

/// Nodes that are preferred to others, and their weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreferredNodes {
    /// Weight of this entry: from 1 to 100. The weights of all entries that select a node are
    /// added.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// Label selector of the nodes.
    #[schemars(schema_with = "crate::selector::one")]
    pub node_selector: LabelSelector,
}

/// Distribution of the addresses of one Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Spread {
    /// One node owns all of them: the Service has one claim.
    #[default]
    PerService,
    /// Each address has its own claim, on a different node if there is one.
    PerAddress,
}

/// Addresses that move to another node while their owner is alive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(inline)]
pub enum FailbackMode {
    /// None: every owner keeps its addresses.
    #[default]
    Never,
    /// Addresses whose owner is less preferred than another node.
    Preferred,
    /// As `Preferred`, and addresses of a node that has at least two more than another node.
    Balance,
}

/// What goes to another node although its owner lives, when, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failback {
    /// What.
    pub mode: FailbackMode,
    /// For how long the other node has to have been there.
    pub delay: Duration,
    /// At most so many within a minute, in the whole cluster.
    pub moves_per_minute: usize,
}

impl Default for Failback {
    fn default() -> Self {
        Self { mode: FailbackMode::Never, delay: Duration::from_secs(60), moves_per_minute: 30 }
    }
}

impl Failback {
    /// What both allow.
    #[must_use]
    pub fn gentler(self, other: Self) -> Self {
        Self {
            mode: self.mode.min(other.mode),
            delay: self.delay.max(other.delay),
            moves_per_minute: self.moves_per_minute.min(other.moves_per_minute),
        }
    }
}

const DELAY: Bounds = Bounds { field: "failbackDelay", from: "0s", to: "86400s", default: "60s" };
const MOVES: RangeInclusive<i32> = 1..=600;

pub(super) fn default_delay() -> DurationText {
    DELAY.default.into()
}

pub(super) const fn default_moves() -> i32 {
    30
}

pub(super) fn delay_schema(_: &mut SchemaGenerator) -> Schema {
    DELAY.schema()
}

impl Failback {
    /// Reads what a policy says.
    pub(super) fn read(
        mode: FailbackMode,
        delay: &DurationText,
        moves: i32,
    ) -> Result<Self, DetectionError> {
        let delay = DELAY.read(delay)?;
        if !MOVES.contains(&moves) {
            let (from, to) = ("1", "600");
            let text = moves.to_string();
            return Err(DetectionError::OutOfBounds { field: "maxMovesPerMinute", text, from, to });
        }
        let moves_per_minute = usize::try_from(moves).unwrap_or(1);
        Ok(Self { mode, delay, moves_per_minute })
    }
}
