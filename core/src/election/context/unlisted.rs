//! Links that a session listed and lists no longer.
//!
//! A node that loses a link says so in its session, and gives up what the link carried by other writes. If it
//! dies in between, what it owns there is valid and nobody says that it is silent but those who go on
//! listening to it: so each speaker remembers the link for as long as the session lasts.

use std::collections::BTreeMap;

use leasehold_crds::lease::{Session, SessionId, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::election::context::state::facts::{id_of, is_under};

/// By node: its session, and the links as it listed them last.
#[derive(Debug, Default)]
pub(in crate::election) struct Unlisted(
    pub(in crate::election::context) BTreeMap<NodeName, (SessionId, Vec<SessionInterface>)>,
);

impl Unlisted {
    /// A session that was `before` is `now`.
    pub(in crate::election) fn note(
        &mut self,
        before: &Stored<Session>,
        now: Option<&Stored<Session>>,
    ) {
        let Some(node) = &before.record.holder else { return };
        let id = id_of(before);
        let goes_on =
            |now: &&Stored<Session>| now.record.holder.as_ref() == Some(node) && is_under(now, &id);
        let Some(now) = now.filter(goes_on) else {
            self.0.remove(node);
            return;
        };
        if now.record.interfaces == before.record.interfaces {
            return;
        }
        let (_, known) = self.0.remove(node).unwrap_or_else(|| (id.clone(), Vec::new()));
        let listed = |link: &SessionInterface| {
            now.record.interfaces.iter().any(|other| other.name == link.name)
        };
        let links = before.record.interfaces.iter().cloned().chain(known);
        let links: Vec<SessionInterface> = links.filter(|link| !listed(link)).collect();
        if !links.is_empty() {
            self.0.insert(node.clone(), (id, links));
        }
    }

    /// The link of this name that `session` listed before.
    pub(in crate::election) fn get(
        &self,
        session: &Stored<Session>,
        name: &InterfaceName,
    ) -> Option<&SessionInterface> {
        let (id, links) = self.0.get(session.record.holder.as_ref()?)?;
        links.iter().find(|link| link.name == *name).filter(|_| is_under(session, id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_crds::lease::{DefaultRoutes, Detours};
    use pnet_base::MacAddr;

    use super::*;

    fn session(transitions: i32, links: &[(&str, u8)]) -> Stored<Session> {
        let link = |(name, mac): &(&str, u8)| SessionInterface {
            name: name.parse().unwrap(),
            mac: MacAddr::new(2, 0, 0, 0, 0, *mac),
            mtu: None,
            addresses: Vec::new(),
            link_local: None,
            default_routes: DefaultRoutes::default(),
            detours: Detours::default(),
            only_if_named: false,
        };
        let record = Session {
            holder: Some("a".parse().unwrap()),
            transitions,
            interfaces: links.iter().map(link).collect(),
            ..Session::default()
        };
        let name = "a".parse().unwrap();
        Stored { name, uid: "u".into(), resource_version: Arc::from("1"), acquired: None, record }
    }

    #[test]
    fn a_link_is_remembered_as_it_was_listed_last_until_it_is_back_or_the_session_is_over() {
        let (eth0, eth1) = ("eth0".parse().unwrap(), "eth1".parse().unwrap());
        let both = session(1, &[("eth0", 1), ("eth1", 2)]);
        let one = session(1, &[("eth0", 3)]);
        let none = session(1, &[]);
        let mac = |unlisted: &Unlisted, now: &Stored<Session>, name: &InterfaceName| {
            unlisted.get(now, name).map(|link| link.mac.5)
        };
        let mut unlisted = Unlisted::default();
        unlisted.note(&both, Some(&one));
        assert_eq!(mac(&unlisted, &one, &eth1), Some(2));
        assert_eq!(mac(&unlisted, &one, &eth0), None);
        unlisted.note(&one, Some(&none));
        assert_eq!(
            (mac(&unlisted, &none, &eth0), mac(&unlisted, &none, &eth1)),
            (Some(3), Some(2))
        );
        unlisted.note(&none, Some(&one));
        assert_eq!((mac(&unlisted, &one, &eth0), mac(&unlisted, &one, &eth1)), (None, Some(2)));
        let next = session(2, &[]);
        assert_eq!(mac(&unlisted, &next, &eth1), None);
        unlisted.note(&one, Some(&next));
        assert_eq!(mac(&unlisted, &one, &eth1), None, "it is forgotten");
        unlisted.note(&both, Some(&one));
        unlisted.note(&one, None);
        assert_eq!(mac(&unlisted, &one, &eth1), None);
    }
}
