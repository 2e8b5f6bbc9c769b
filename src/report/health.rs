//! The readiness of the speaker, and the reason if it is not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::runtime::watcher;
use tokio::sync::watch;

use crate::api::watch_trouble;

/// A part of the cluster's state that has to be listed before the first decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Session leases.
    Sessions,
    /// Claim leases.
    Claims,
    /// Services.
    Services,
    /// EndpointSlices.
    EndpointSlices,
    /// Nodes.
    Nodes,
    /// `AnnouncementPolicies`.
    Policies,
    /// `IPAddressPools`.
    Pools,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sessions,
        Self::Claims,
        Self::Services,
        Self::EndpointSlices,
        Self::Nodes,
        Self::Policies,
        Self::Pools,
    ];

    /// One word, for a label.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Claims => "claims",
            Self::Services => "services",
            Self::EndpointSlices => "endpointslices",
            Self::Nodes => "nodes",
            Self::Policies => "announcementpolicies",
            Self::Pools => "ipaddresspools",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "session Leases",
            Self::Claims => "claim Leases",
            Self::Services => "Services",
            Self::EndpointSlices => "EndpointSlices",
            Self::Nodes => "Nodes",
            Self::Policies => "AnnouncementPolicies",
            Self::Pools => "IPAddressPools",
        }
    }
}

/// The health of this process; shown by `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    listed: BTreeSet<Part>,
    failures: BTreeMap<Part, String>,
    /// Whether another speaker has this host.
    pub host_is_taken: bool,
    /// The Node of this name does not exist.
    pub unknown_node: Option<String>,
    /// Whether the speaker holds a session.
    pub has_session: bool,
    /// Why renewals fail; none while the API server answers them.
    pub renewal_failure: Option<String>,
}

impl Health {
    /// `part` has been listed.
    pub fn listed(health: &watch::Sender<Self>, part: Part) {
        health.send_if_modified(|health| {
            let recovered = health.failures.remove(&part).is_some();
            if recovered {
                tracing::info!(what = part.name(), "the watch works again");
            }
            health.listed.insert(part) || recovered
        });
    }

    /// The watch on `part` failed; it will be tried again.
    pub fn failed(health: &watch::Sender<Self>, part: Part, error: &watcher::Error) {
        let cause = watch_trouble(error);
        health.send_if_modified(|health| {
            let before = health.failures.insert(part, cause.clone());
            if before.as_ref() != Some(&cause) {
                tracing::warn!(what = part.name(), error = cause, "cannot watch; trying again");
            }
            before.as_ref() != Some(&cause)
        });
    }

    /// Whether the speaker takes part in the election.
    pub fn is_ready(&self) -> bool {
        self.has_session && self.listed.len() == Part::ALL.len()
    }
}

impl fmt::Display for Health {
    /// `ok`, and below it what needs attention all the same; or a line for each reason why not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            writeln!(f, "ok")?;
        }
        if self.host_is_taken {
            writeln!(f, "another speaker runs on this host: waiting for it to terminate")?;
        }
        for part in Part::ALL.iter().filter(|part| !self.listed.contains(part)) {
            match self.failures.get(part) {
                Some(cause) => writeln!(f, "cannot list {}: {cause}", part.name())?,
                None => writeln!(f, "waiting for the list of {}", part.name())?,
            }
        }
        if let Some(node) = &self.unknown_node {
            writeln!(f, "Node `{node}` does not exist in the cluster: check --node-name")?;
        }
        if !self.has_session {
            writeln!(f, "no session yet")?;
        }
        if let Some(cause) = &self.renewal_failure {
            writeln!(f, "the session cannot be renewed: {cause}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_says_what_is_missing() {
        let mut health = Health::default();
        assert!(health.to_string().contains("waiting for the list of Services"));
        health.unknown_node = Some("node-9".to_owned());
        assert!(health.to_string().contains("Node `node-9` does not exist in the cluster"));
        health.unknown_node = None;
        health.listed.extend(Part::ALL);
        assert!(!health.is_ready());
        assert_eq!(health.to_string(), "no session yet\n");
        health.has_session = true;
        assert_eq!(health.to_string(), "ok\n");
    }

    #[test]
    fn what_needs_attention_stands_below_ok() {
        let health = Health {
            listed: Part::ALL.into(),
            has_session: true,
            renewal_failure: Some("throttled".to_owned()),
            ..Health::default()
        };
        assert!(health.is_ready());
        assert_eq!(health.to_string(), "ok\nthe session cannot be renewed: throttled\n");
    }
}
