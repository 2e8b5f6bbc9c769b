//! Whose MAC addresses are whose: whoever announces an address by one of them is a speaker.

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::election::context::Context;

impl Context {
    /// Follows whose MAC addresses the sessions list; of two that list the same the one that lives
    /// has it.
    pub(in crate::election) fn note_speakers(&mut self) {
        let revision = self.sessions.revision();
        if self.speakers.revision.replace(revision) == Some(revision) {
            return;
        }
        let mut macs = std::mem::take(&mut self.speakers.macs);
        macs.retain(|_, node| {
            let wanted = self.desired.as_ref().is_none_or(|d| d.nodes.contains_key(node));
            wanted || self.sessions.get(&LeaseName::session(node)).is_some()
        });
        for live in [false, true] {
            let such = self.sessions.stored().filter(|s| s.record.holder.is_some() == live);
            for stored in such {
                let Ok(node) = stored.name.as_str().parse::<NodeName>() else { continue };
                let up = stored.record.interfaces.iter().map(|link| link.mac);
                let listed = up.chain(stored.record.links_down.iter().copied());
                macs.extend(listed.map(|mac| (mac, node.clone())));
            }
        }
        self.speakers.macs = macs;
        self.speakers.living = self.live_sessions().count();
    }

    /// How many speakers live.
    pub(in crate::election) fn living(&self) -> usize {
        if self.speakers.revision == Some(self.sessions.revision()) {
            self.speakers.living
        } else {
            self.live_sessions().count()
        }
    }

    /// The speaker whose session lists `mac`, or did when it was last seen with it.
    pub(in crate::election) fn speaker_with(&self, mac: MacAddr) -> Option<&NodeName> {
        self.speakers.macs.get(&mac)
    }
}
