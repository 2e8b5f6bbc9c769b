//! The detector on a segment that is simulated.

mod asking;
mod lateness;
mod properties;
mod silence;
mod world;
