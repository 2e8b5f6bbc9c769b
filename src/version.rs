//! Which build this is: the version of the release, and what the build's environment said of itself.
//!
//! `LEASEHOLD_COMMIT` and `LEASEHOLD_DATE` are read when this crate is compiled (`deploy/image/binaries`
//! sets both from the commit, so that the same commit gives the same binary). A build that was told
//! neither says the version alone.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The version of the release: `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that it was built from.
const COMMIT: Option<&str> = option_env!("LEASEHOLD_COMMIT");
/// The day of that commit: `2026-11-22`.
const DATE: Option<&str> = option_env!("LEASEHOLD_DATE");

/// The text of `--version` after the name: `0.1.0 (53f2220c01ab, 2026-11-22)`.
pub fn line() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| describe(COMMIT, DATE));
    &LINE
}

fn describe(commit: Option<&str>, date: Option<&str>) -> String {
    let told: Vec<&str> =
        [commit, date].into_iter().flatten().filter(|text| !text.is_empty()).collect();
    if told.is_empty() { VERSION.to_owned() } else { format!("{VERSION} ({})", told.join(", ")) }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: &'static str,
}

/// Registers `build_info`: 1, with the version and the commit as labels.
pub fn register(registry: &mut Registry) {
    let info = Family::<Build, Gauge>::default();
    let build = Build { version: VERSION, commit: COMMIT.unwrap_or_default() };
    info.get_or_create(&build).set(1);
    registry.register("build_info", "1; the labels say which build this is", info);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_says_what_its_environment_told() {
        assert_eq!(describe(None, None), VERSION);
        assert_eq!(describe(Some(""), Some("")), VERSION);
        assert_eq!(
            describe(Some("53f2220c01ab"), Some("2026-11-22")),
            format!("{VERSION} (53f2220c01ab, 2026-11-22)")
        );
    }
}
