//! Links and served addresses that the tests of both rooms use.

use leasehold_crds::lease::{DefaultRoutes, Detours};
use leasehold_crds::policy::Announcements;
use pnet_base::MacAddr;

use crate::net::rtnl::links::{Link, Links};
use leasehold_core::clock::Instant;
use leasehold_core::desired::Announcement;
use leasehold_core::election::{Attachment, ServedVip};

/// Links with carrier and without addresses.
pub(super) fn links(links: &[(u32, &str)]) -> Links {
    let link = |(index, name): &(u32, &str)| Link {
        index: *index,
        name: name.parse().unwrap(),
        mac: MacAddr(2, 0, 0, 0, 0, 1),
        mtu: 1500,
        carrier: true,
        kind: None,
        master: None,
        lower: None,
        loopback: false,
        addresses: Vec::new(),
        gateways: Vec::new(),
        default_routes: DefaultRoutes::NONE,
        detours: Detours::default(),
    };
    Links(links.iter().map(link).map(|link| (link.name.clone(), link)).collect())
}

/// An announced address of the claim `default.web`.
pub(super) fn served(interface: &str, until: Instant) -> ServedVip {
    ServedVip {
        claim: "default.web".parse().unwrap(),
        attachment: Attachment::OnLink { interface: interface.parse().unwrap() },
        until,
        ownership: 1,
        announcement: Announcement::Layer2(Announcements::default()),
    }
}
