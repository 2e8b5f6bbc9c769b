//! The state folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use leasehold_crds::names::InterfaceName;
use serde::Serialize;

use super::error::HostError;
use crate::net::rtnl::sysctl::ArpSettings;
use leasehold_core::election::OwnRecord;

pub(super) const HOST: &str = "host.json";
pub(super) const RECORD: &str = "speaker.json";
const ARP: &str = "arp.json";
const SOURCE_MARKS: &str = "source-marks.json";
const LOCK: &str = "speaker.lock";

/// The folder that outlives the process: the identity of the host, the record, ARP settings, the lock.
#[derive(Clone, Debug)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    /// Opens the folder, creating it where it is missing.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        fs::create_dir_all(path)
            .map_err(|source| HostError::State { path: path.to_owned(), source })?;
        Ok(Self(path.to_owned()))
    }

    /// Reads the record of the former process; `None` if there is none that can be read, and then no address is
    /// kept alive before the state of the cluster is known.
    pub fn read(&self) -> Option<OwnRecord> {
        let path = self.0.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the record cannot be read");
                return None;
            }
        };
        match serde_json::from_str(&text) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the record cannot be read");
                None
            }
        }
    }

    /// The id that tells this host from others; `None` if none was kept yet, or it cannot be read.
    pub(super) fn host(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join(HOST)).ok()?;
        serde_json::from_str(&text).ok().filter(|host: &String| !host.is_empty())
    }

    /// Keeps the id that tells this host from others.
    pub(super) fn keep_host(&self, host: &str) -> Result<(), HostError> {
        self.replace(HOST, host)
    }

    /// The ARP settings before they were changed; empty if they cannot be read.
    pub fn arp_settings(&self) -> BTreeMap<InterfaceName, ArpSettings> {
        let text = fs::read_to_string(self.0.join(ARP)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps the former ARP settings.
    pub fn keep_arp_settings(
        &self,
        former: &BTreeMap<InterfaceName, ArpSettings>,
    ) -> Result<(), HostError> {
        self.replace(ARP, former)
    }

    /// Forgets the former ARP settings, which are in place again.
    pub fn forget_arp_settings(&self) {
        if let Err(error) = fs::remove_file(self.0.join(ARP))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of ARP settings cannot be removed");
        }
    }

    /// The interfaces on which `src_valid_mark` was set, and was not before; none if they cannot be read.
    pub fn source_marks(&self) -> BTreeSet<InterfaceName> {
        let text = fs::read_to_string(self.0.join(SOURCE_MARKS)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps these interfaces.
    pub fn keep_source_marks(&self, set: &BTreeSet<InterfaceName>) -> Result<(), HostError> {
        self.replace(SOURCE_MARKS, set)
    }

    /// Replaces the record; a reader sees the old one or the new one.
    pub fn write(&self, record: &OwnRecord) -> Result<(), HostError> {
        self.replace(RECORD, record)
    }

    /// The file that a speaker has locked for as long as it lives.
    pub(super) fn open_lock(&self) -> Result<fs::File, HostError> {
        let path = self.0.join(LOCK);
        let opened =
            fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        opened.map_err(|source| HostError::State { path, source })
    }

    fn replace(&self, name: &str, record: &(impl Serialize + ?Sized)) -> Result<(), HostError> {
        let path = self.0.join(name);
        let error = |source| HostError::State { path: path.clone(), source };
        let new = path.with_extension("new");
        let text = serde_json::to_vec(record).map_err(|e| error(e.into()))?;
        let mut file = fs::File::create(&new).map_err(error)?;
        file.write_all(&text).map_err(error)?;
        fs::rename(&new, &path).map_err(error)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_crds::lease::Incarnation;

    use super::*;

    #[test]
    fn a_record_reads_back_and_a_damaged_one_reads_as_none() {
        let path = std::env::temp_dir().join(format!("leasehold-host-{}", std::process::id()));
        let folder = StateFolder::open(&path).unwrap();
        assert_eq!(folder.read(), None);
        let record = OwnRecord {
            node: "node-1".parse().unwrap(),
            incarnation: Incarnation::new("machine", "boot"),
            session: Some("6f1c/7".parse().unwrap()),
            transitions: 3,
            claims: BTreeMap::new(),
        };
        folder.write(&record).unwrap();
        assert_eq!(folder.read(), Some(record));
        fs::write(path.join(RECORD), "{").unwrap();
        assert_eq!(folder.read(), None);
        fs::remove_dir_all(path).unwrap();
    }
}
