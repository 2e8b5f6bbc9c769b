//! Who sees which nodes down, and who has to.

use std::time::Duration;

use leasehold_core::desired::{Down, NodeState};
use leasehold_crds::lease::{LeaseName, Reason};

use super::World;
use super::laws::{Key, Law, broken};
use super::spells::Health;

/// Until a host that is well again has begun another session, and others have seen that.
const BEGUN: Duration = Duration::from_secs(1);
/// Until a session has ended by itself and was fenced: what can be known without the wire.
const KNOWN: Duration = Duration::from_secs(10);
/// Until when a node is down at least: then Kubernetes is believed, which knows nothing here.
const BELIEVED: Duration = Duration::from_secs(110);
/// How long everything must have been well.
const NOTICED: Duration = Duration::from_secs(6);
/// How long a node has to be silent before connections to its pods end.
const LOST: Duration = Duration::from_secs(2);

impl World {
    /// Nodes that are seen down and are well, and such that are not seen down.
    pub(super) fn downs(&self, active: &mut Vec<(Key, Duration)>) {
        let all = [Health::Running, Health::Api, Health::Wire, Health::Prompt];
        let well = |id| all.iter().all(|health| self.is_well_for(id, *health, NOTICED));
        for (id, host) in self.hosts.iter().enumerate() {
            if !well(id) || host.ending || host.exited || host.core.is_none() {
                continue;
            }
            for (of, other) in self.hosts.iter().enumerate().filter(|(of, _)| *of != id) {
                let seen = host.down.nodes.contains(&other.node);
                if seen && well(of) && !other.ending && !other.exited && self.has_session(of) {
                    active.push(((Law::Feigned, other.address, id, of), BEGUN));
                }
                let off = self.ill_for(of, Health::Running).is_some_and(|ill| ill < BELIEVED);
                if !seen && off && !other.powered && self.is_to_be_seen(of) {
                    active.push(((Law::Overlooked, other.address, id, of), KNOWN));
                }
            }
        }
    }

    fn has_session(&self, id: usize) -> bool {
        self.store.live(&LeaseName::session(&self.hosts[id].node)).is_some()
    }

    /// Whether the session of a host that is off says that it did not leave.
    fn is_to_be_seen(&self, id: usize) -> bool {
        let node = &self.hosts[id].node;
        // Several hosts may have been one node.
        let last = self.hosts.iter().filter(|host| host.node == *node && host.powered).count() == 0;
        let session = self.store.session(&LeaseName::session(node));
        let known = self.desired.nodes.get(node) == Some(&NodeState::Ready);
        let left = |cause: &str| !Reason::is_fence(cause);
        last && known
            && session.is_some_and(|it| {
                it.holder.is_some() && !it.restarting || it.holder.is_none() && !left(&it.cause)
            })
    }

    /// Nobody ends connections to a node that everybody hears.
    pub(super) fn check_lost(&self, id: usize, down: &Down) {
        for node in down.lost.difference(&self.hosts[id].down.lost) {
            let Some(of) = self.host_of(node) else { continue };
            let heard = [id, of].iter().all(|id| {
                self.hosts[*id].powered
                    && [Health::Wire, Health::Prompt]
                        .iter()
                        .all(|health| self.is_well_for(*id, *health, LOST))
            });
            if heard {
                let text =
                    format!("{} ends connections to {node}, which answers", self.hosts[id].name);
                broken(self.now, "down", &text);
            }
        }
    }
}
