//! The task that writes the record.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::state::StateFolder;
use leasehold_core::election::OwnRecord;

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

    /// Hands over `record` to be written.
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
    use std::fs;

    use leasehold_crds::lease::Incarnation;

    use super::*;

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
