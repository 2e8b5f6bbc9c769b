//! Links and served addresses that the tests of both rooms use.

use leasehold_crds::policy::Announcements;

use crate::net::rtnl::links::Links;
use crate::net::rtnl::links::testing::link;
use leasehold_core::clock::Instant;
use leasehold_core::desired::{Announcement, ReturnPath};
use leasehold_core::election::{Attachment, ServedVip};

/// Links with carrier and without addresses.
pub(super) fn links(links: &[(u32, &str)]) -> Links {
    let link = |(index, name): &(u32, &str)| link(*index, name.parse().unwrap());
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
        return_path: ReturnPath::default(),
    }
}
