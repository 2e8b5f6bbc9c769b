//! Open connections through addresses that a node has handed over.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use leasehold_core::explain::SessionRow;
use leasehold_crds::names::NodeName;
use tokio::time::{Instant, sleep};

use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::output;
use super::table::Tone;

/// Interval of reads of the session; it is renewed each 1.5 s.
const INTERVAL: Duration = Duration::from_millis(500);
/// Renewals of the session after which its number counts connections through all that was handed over before.
const CURRENT: usize = 2;
/// Renewals of the session without a number after which none is to come: counting takes a few seconds.
const NEVER: usize = 12;

/// Waits until no connection through an address that `node` has handed over is open, for `limit` at most; `moved`
/// says whether it has just handed over any.
pub(super) async fn wait(
    cluster: &Cluster,
    node: &NodeName,
    limit: Duration,
    moved: bool,
) -> Result<Outcome, PluginError> {
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
    let until = Instant::now() + limit;
    let mut progress = Progress::default();
    loop {
        let lease = cluster.call(format!("read lease {node}"), api.get_opt(node.as_str())).await?;
        let session = lease.as_ref().and_then(SessionRow::of);
        let Some((_, session)) = session.filter(|(_, session)| session.is_live()) else {
            output::note(&format!("the speaker of {node} does not run: nobody counts connections"));
            return Ok(Outcome::Negative);
        };
        let (version, count) =
            (&session.stored.resource_version, session.stored.record.forwarded_connections);
        let left = until.saturating_duration_since(Instant::now());
        match progress.see(version, count) {
            Seen::Nothing => {}
            Seen::None if moved => {
                output::note(&format!(
                    "the speaker of {node} does not count connections: `connectionHandover` is 0s, or it is of \
                     an earlier version"
                ));
                return Ok(Outcome::Negative);
            }
            Seen::None | Seen::Connections(0) => {
                output::print(&format!("no open connection is left on {node}\n"))?;
                return Ok(Outcome::Well);
            }
            Seen::Connections(count) => {
                let seconds = left.as_secs();
                output::print(&format!("{} on {node}, waiting for {seconds}s\n", open(count)))?;
            }
        }
        if left.is_zero() {
            let what = progress.told.map_or_else(|| "an unknown number".to_owned(), open);
            let late = Tone::Warning.paint("connections left");
            output::print(&format!("{late}: {what} on {node} after {}s\n", limit.as_secs()))?;
            return Ok(Outcome::Negative);
        }
        sleep(INTERVAL.min(left)).await;
    }
}

fn open(count: u64) -> String {
    format!("{count} open connection{}", if count == 1 { "" } else { "s" })
}

/// The news that a state of the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// None, or not yet.
    Nothing,
    /// There is no number, and none is to be expected.
    None,
    /// The number has changed.
    Connections(u64),
}

#[derive(Debug, Default)]
struct Progress {
    version: Option<Arc<str>>,
    renewals: usize,
    told: Option<u64>,
}

impl Progress {
    fn see(&mut self, version: &Arc<str>, count: Option<u64>) -> Seen {
        let before = self.version.replace(Arc::clone(version));
        if before.is_some_and(|before| before != *version) {
            self.renewals += 1;
        }
        match count {
            _ if self.renewals < CURRENT => Seen::Nothing,
            None if self.renewals < NEVER || self.told.is_some() => Seen::Nothing,
            None => Seen::None,
            Some(count) if self.told.replace(count) == Some(count) => Seen::Nothing,
            Some(count) => Seen::Connections(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_when_the_session_was_renewed_twice_and_is_told_when_it_changes() {
        let mut progress = Progress::default();
        let mut see = |version: u32, count| progress.see(&version.to_string().into(), count);
        assert_eq!(see(1, Some(0)), Seen::Nothing, "of what was handed over before");
        assert_eq!(see(1, Some(0)), Seen::Nothing);
        assert_eq!(see(2, None), Seen::Nothing);
        assert_eq!(see(3, None), Seen::Nothing, "not counted yet");
        assert_eq!(see(4, Some(7)), Seen::Connections(7));
        assert_eq!(see(5, Some(7)), Seen::Nothing);
        assert_eq!(see(6, Some(0)), Seen::Connections(0));
    }

    #[test]
    fn a_speaker_that_counts_nothing_is_not_waited_for() {
        let mut progress = Progress::default();
        let seen = (1..=20).map(|version: u32| progress.see(&version.to_string().into(), None));
        assert_eq!(seen.filter(|seen| *seen == Seen::None).count(), 8);
    }
}
