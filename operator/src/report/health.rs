//! The health of the operator: whether it can allocate, and the reason if not.

use std::collections::BTreeMap;
use std::fmt;

use tokio::sync::watch;

/// The role of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It has not spoken with the API server yet.
    #[default]
    Starting,
    /// Another replica is active.
    Standby {
        /// The active replica; none while the lease is free.
        active: Option<String>,
    },
    /// This replica is active and still reads these.
    Listing(Vec<&'static str>),
    /// This replica is active and knows everything.
    Active,
}

/// The state that `/readyz` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The role of the replica.
    pub role: Role,
    /// The present errors, by the part that reported them.
    pub troubles: BTreeMap<&'static str, String>,
}

impl Health {
    /// Whether the replica can serve: as the active one, or by taking over.
    pub fn is_ready(&self) -> bool {
        self.troubles.is_empty() && matches!(self.role, Role::Standby { .. } | Role::Active)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trouble = self.troubles.values().cloned().collect::<Vec<_>>().join("; ");
        match (Some(trouble).filter(|trouble| !trouble.is_empty()), &self.role) {
            (Some(trouble), _) => write!(f, "not ready: {trouble}"),
            (None, Role::Starting) => f.write_str("not ready: waiting for the API server"),
            (None, Role::Standby { active: Some(active) }) => {
                write!(f, "standby: {active} is active")
            }
            (None, Role::Standby { active: None }) => f.write_str("standby"),
            (None, Role::Listing(missing)) => {
                write!(f, "not ready: waiting for the list of {}", missing.join(", "))
            }
            (None, Role::Active) => f.write_str("active"),
        }
    }
}

/// Where the parts of the operator report their health; the server reads it.
#[derive(Clone, Debug)]
pub struct HealthBoard(watch::Sender<Health>);

impl Default for HealthBoard {
    fn default() -> Self {
        Self(watch::Sender::new(Health::default()))
    }
}

impl HealthBoard {
    /// Sets the role.
    pub fn role(&self, role: Role) {
        self.0.send_if_modified(|health| {
            let news = health.role != role;
            health.role = role;
            news
        });
    }

    /// Sets or clears what `source` reports to fail; tells whether that is news.
    pub fn trouble(&self, source: &'static str, trouble: Option<String>) -> bool {
        self.0.send_if_modified(|health| match trouble {
            Some(trouble) => health.troubles.insert(source, trouble.clone()) != Some(trouble),
            None => health.troubles.remove(source).is_some(),
        })
    }

    /// The present state.
    pub fn read(&self) -> Health {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_ready_when_it_serves_or_could_take_over() {
        let board = HealthBoard::default();
        assert!(!board.read().is_ready());
        board.role(Role::Standby { active: Some("other".to_owned()) });
        assert!(board.read().is_ready());
        assert_eq!(board.read().to_string(), "standby: other is active");
        board.role(Role::Listing(vec!["Services", "Nodes"]));
        assert!(!board.read().is_ready());
        assert_eq!(board.read().to_string(), "not ready: waiting for the list of Services, Nodes");
        board.role(Role::Active);
        assert!(board.read().is_ready());
        assert!(board.trouble("Nodes", Some("connection refused".to_owned())));
        assert!(!board.trouble("Nodes", Some("connection refused".to_owned())), "no news");
        assert_eq!(board.read().to_string(), "not ready: connection refused");
        assert!(board.trouble("Nodes", None));
        assert!(board.read().is_ready());
    }
}
