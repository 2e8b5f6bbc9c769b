//! The host: its identity, the lock against a second speaker, what is allowed, and the record that
//! outlives the process.

mod lock;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use leasehold_crds::lease::Incarnation;
use leasehold_crds::names::InterfaceName;
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::lease::OwnRecord;
use crate::net::rtnl::sysctl::ArpSettings;

pub use lock::{HostLock, lock};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Gives another random id each time (random(4)).
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";
const HOST: &str = "host.json";
const RECORD: &str = "speaker.json";
const ARP: &str = "arp.json";
const LOCK: &str = "speaker.lock";

/// Why the host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A capability is missing.
    #[error(
        "the speaker lacks {}: grant CAP_NET_ADMIN (addresses, nftables) and CAP_NET_RAW (ARP and NDP), \
         in a pod by securityContext.capabilities.add",
        .0.join(" and ")
    )]
    Capabilities(Vec<&'static str>),
    /// The capabilities cannot be read.
    #[error("cannot read the capabilities of the process")]
    Unreadable(#[source] rustix::io::Errno),
    /// What tells the host or boot from others cannot be read.
    #[error("cannot read `{path}`, which tells this host and boot from others: mount /proc")]
    Identity {
        /// The file.
        path: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The state folder cannot be used.
    #[error("cannot use the state folder `{path}` (--state-dir)")]
    State {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The lock cannot be taken for another reason than that it is held.
    #[error("cannot lock the host against a second speaker")]
    Lock(#[source] std::io::Error),
}

/// Checks that the process may do what it is for.
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
    state.replace(HOST, &host)?;
    Ok(Incarnation::new(&host, &boot))
}

fn read_id(path: &'static str) -> Result<String, HostError> {
    let text = fs::read_to_string(path).map_err(|source| HostError::Identity { path, source })?;
    Ok(text.trim().to_owned())
}

/// The folder for the record.
#[derive(Clone, Debug)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    /// Opens the folder, creating it where it is missing.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        fs::create_dir_all(path)
            .map_err(|source| HostError::State { path: path.to_owned(), source })?;
        Ok(Self(path.to_owned()))
    }

    /// What the former process left; `None` where there is nothing that can be read: then nothing
    /// is kept alive before the cluster's state is known.
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

    /// The id that tells this host from others; nothing where none was kept yet, or that cannot be read.
    fn host(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join(HOST)).ok()?;
        serde_json::from_str(&text).ok().filter(|host: &String| !host.is_empty())
    }

    /// How ARP settings were before they were changed; nothing where that cannot be read.
    pub fn arp_settings(&self) -> BTreeMap<InterfaceName, ArpSettings> {
        let text = fs::read_to_string(self.0.join(ARP)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps how ARP settings were.
    pub fn keep_arp_settings(
        &self,
        former: &BTreeMap<InterfaceName, ArpSettings>,
    ) -> Result<(), HostError> {
        self.replace(ARP, former)
    }

    /// They are as they were.
    pub fn forget_arp_settings(&self) {
        if let Err(error) = fs::remove_file(self.0.join(ARP))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of ARP settings cannot be removed");
        }
    }

    /// Replaces the record; a reader sees the old one or the new one.
    pub fn write(&self, record: &OwnRecord) -> Result<(), HostError> {
        self.replace(RECORD, record)
    }

    /// The file that a speaker has locked for as long as it lives.
    fn open_lock(&self) -> Result<fs::File, HostError> {
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

/// Writes the record beside the main task, the latest only: a disk may take its time, and addresses
/// may not.
#[derive(Debug)]
pub struct Recorder {
    latest: watch::Sender<Option<OwnRecord>>,
    tasks: JoinSet<()>,
}

impl Recorder {
    /// Begins to write what [`Recorder::keep`] is given into `folder`.
    pub fn start(folder: StateFolder) -> Self {
        let (latest, mut changes) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(record) = changes.borrow_and_update().clone() else { continue };
                let folder = folder.clone();
                let write = tokio::task::spawn_blocking(move || folder.write(&record));
                let failure = match write.await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => crate::api::causes(&error),
                    Err(error) => crate::api::causes(&error),
                };
                tracing::error!(error = failure, "the record for the next process was not written");
            }
        });
        Self { latest, tasks }
    }

    /// Has `record` written soon.
    pub fn keep(&self, record: OwnRecord) {
        self.latest.send_replace(Some(record));
    }

    /// Returns when the last record is written.
    pub async fn finish(self) {
        drop(self.latest);
        self.tasks.join_all().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

    #[tokio::test]
    async fn the_last_record_is_written_when_the_recorder_is_finished() {
        let path = std::env::temp_dir().join(format!("leasehold-recorder-{}", std::process::id()));
        let folder = StateFolder::open(&path).unwrap();
        let recorder = Recorder::start(folder.clone());
        let record = |transitions| OwnRecord {
            node: "node-1".parse().unwrap(),
            incarnation: Incarnation::new("machine", "boot"),
            session: None,
            transitions,
            claims: BTreeMap::new(),
        };
        for transitions in 1..=100 {
            recorder.keep(record(transitions));
        }
        recorder.finish().await;
        assert_eq!(folder.read(), Some(record(100)));
        fs::remove_dir_all(path).unwrap();
    }
}
