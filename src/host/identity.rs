//! Identity of the host and its boot, and the capabilities of the process.

use std::fs;

use leasehold_crds::lease::Incarnation;
use rustix::thread::{CapabilitySet, capabilities};

use super::error::HostError;
use super::state::StateFolder;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Gives another random id each time (random(4)).
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// Checks that the process has the capabilities that a speaker needs.
pub fn check_capabilities() -> Result<(), HostError> {
    let effective = capabilities(None).map_err(HostError::Unreadable)?.effective;
    let needed =
        [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")];
    let missing: Vec<_> =
        needed.iter().filter(|(set, _)| !effective.contains(*set)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(HostError::Capabilities(missing)) }
}

/// This boot of this host, by the kernel's id of the boot and an id that `state` keeps: containers may share a
/// kernel, and `/etc/machine-id` is missing on some hosts and the same on copies of one.
pub fn incarnation(state: &StateFolder) -> Result<Incarnation, HostError> {
    let boot = read_id(BOOT_ID)?;
    if let Some(host) = state.host() {
        return Ok(Incarnation::new(&host, &boot));
    }
    // A version without such an id may have been here since the boot, and have a session under this name.
    let former = state.read().and_then(|record| record.incarnation.host_at(&boot));
    let host = former.map_or_else(|| read_id(RANDOM_ID), Ok)?;
    state.keep_host(&host)?;
    Ok(Incarnation::new(&host, &boot))
}

fn read_id(path: &'static str) -> Result<String, HostError> {
    let text = fs::read_to_string(path).map_err(|source| HostError::Identity { path, source })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::host::state::{HOST, RECORD};
    use leasehold_core::election::OwnRecord;

    #[test]
    fn a_host_keeps_its_incarnation_and_no_other_host_has_it() {
        let path =
            |name| std::env::temp_dir().join(format!("leasehold-{name}-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| StateFolder::open(&path(name)).unwrap());
        let first = incarnation(&one).unwrap();
        assert_eq!(incarnation(&one).unwrap(), first);
        assert_ne!(incarnation(&other).unwrap(), first);
        // Half written by somebody.
        fs::write(path("one").join(HOST), "").unwrap();
        assert_ne!(incarnation(&one).unwrap(), first);
        for name in ["one", "other"] {
            fs::remove_dir_all(path(name)).unwrap();
        }
    }

    #[test]
    fn the_name_that_a_version_without_an_id_gave_this_boot_is_kept_and_that_of_another_is_not() {
        let boot = read_id(BOOT_ID).unwrap();
        for (boot, kept) in [(boot.as_str(), true), ("another", false)] {
            let path =
                std::env::temp_dir().join(format!("leasehold-up-{kept}-{}", std::process::id()));
            let folder = StateFolder::open(&path).unwrap();
            let former = Incarnation::new("1ea5e401d", boot);
            let record = OwnRecord {
                node: "node-1".parse().unwrap(),
                incarnation: former.clone(),
                session: None,
                transitions: 3,
                claims: BTreeMap::new(),
            };
            folder.write(&record).unwrap();
            assert_eq!(incarnation(&folder).unwrap() == former, kept);
            // Also when the record says nothing of it any more.
            fs::remove_file(path.join(RECORD)).unwrap();
            assert_eq!(incarnation(&folder).unwrap() == former, kept);
            fs::remove_dir_all(path).unwrap();
        }
    }
}
