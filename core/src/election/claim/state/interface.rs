//! The cause of a release after a link was lost.

/// Why what an interface without a carrier carried is given up.
pub(in crate::election) const CARRIER_LOST: &str = "carrier lost";
