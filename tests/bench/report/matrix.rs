//! The table of versions of Kubernetes and modes of kube-proxy.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::tables::origins;
use crate::matrix::{Cell, Check, Outcome};

/// A row for each version and mode; below it, why there is something else than ✓.
pub(super) fn table(cells: &[Cell]) -> Result<String> {
    let titles = Check::ALL.map(Check::title);
    let mut text = format!("| Kubernetes | kube-proxy | {} |\n", titles.join(" | "));
    writeln!(text, "|---|---|{}", "---|".repeat(titles.len()))?;
    let mut reasons: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for cell in cells {
        let version = cell.machine.kubernetes.trim_start_matches('v');
        let mode = cell.mode.name();
        write!(text, "| {version} | `{mode}` |")?;
        for (check, outcome) in &cell.checks {
            let (mark, what, why) = match outcome {
                Outcome::Passed => {
                    write!(text, " ✓ |")?;
                    continue;
                }
                Outcome::Failed(why) => ("✗", format!("✗ {} with `{mode}`", check.title()), why),
                Outcome::NotTried(why) => ("not tried", format!("Not tried with `{mode}`"), why),
            };
            write!(text, " {mark} |")?;
            let versions = reasons.entry((what, why)).or_default();
            if versions.last() != Some(&version) {
                versions.push(version);
            }
        }
        writeln!(text)?;
    }
    writeln!(text)?;
    for ((what, why), versions) in reasons {
        // Within a code span there is none.
        let why = why.replace('`', "'");
        writeln!(text, "- {what} ({}): `{why}`", versions.join(", "))?;
    }
    text.push_str(&origins(cells.iter().map(|cell| &cell.machine)));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use leasehold_lab::ProxyMode;

    use super::*;
    use crate::matrix::tests::cell;

    #[test]
    fn a_row_has_a_mark_for_each_check_and_what_did_not_pass_has_its_reason() {
        let not_tried = Check::ALL.map(|it| (it, Outcome::NotTried("no `ip_vs`".to_owned())));
        let failed = [(Check::Drain, Outcome::Failed("3 failed".to_owned()))];
        let text = table(&[
            cell("v1.33.2", ProxyMode::Nftables, &failed),
            cell("v1.33.2", ProxyMode::Ipvs, &not_tried),
            cell("v1.34.1", ProxyMode::Ipvs, &not_tried),
        ])
        .unwrap();
        for line in [
            "| 1.33.2 | `nftables` | ✓ | ✓ | ✓ | ✓ | ✗ | ✓ | ✓ |",
            "- Not tried with `ipvs` (1.33.2, 1.34.1): `no 'ip_vs'`",
            "- ✗ drain with `nftables` (1.33.2): `3 failed`",
            "Commit abc on Linux 6.1.",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
