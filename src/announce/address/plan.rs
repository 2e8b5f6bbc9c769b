//! The changes after which the kernel's addresses agree with those to serve.
//!
//! * An address is added only where no link has it, with a lifetime that ends by
//!   [`ServedVip::until`]. The kernel counts whole seconds and removes late, by 0.08 s in the median
//!   and 1.03 s at most.
//! * Only what bears our mark is ever refreshed or deleted.
//! * An address moves between links make before break.
//! * An IPv4 address that stands before the node's own on its link is put behind it.
//! * What is ours and not served goes, once the whole desired state is known; before that, what was
//!   yielded.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::net::rtnl::addresses::{AddressChange, Place};
use crate::net::rtnl::links::Links;
use crate::net::rtnl::row::AddressRow;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Attachment, KernelAddress, KernelView, ServedVip, Serving};

/// A lifetime is renewed once it ends this long before it should: a shorter difference cannot
/// always be mended in whole seconds.
const SHORT_BY: Duration = Duration::from_secs(1);

/// A lifetime may end this much after it should: between reading the clock and the kernel's doing
/// lies some time. A process that was stopped there for longer corrects the lifetime.
const OVERSHOOT: Duration = Duration::from_millis(50);

/// The interface on which kube-proxy in IPVS mode keeps every service's address; it answers no ARP.
const KUBE_IPVS: &str = "kube-ipvs0";

/// The end of a lifetime, between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// It does not end before this.
    pub earliest: Instant,
    /// The kernel counts until this at most (it then removes late).
    pub latest: Instant,
    /// Whether this process has set it. Another's, or one that a dump contradicts, is only
    /// estimated from whole seconds, and is renewed once the address is served.
    pub exact: bool,
}

/// An address in the kernel that bears our mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The end of its lifetime.
    pub lifetime: Lifetime,
    /// The last refresh ended after the former lifetime had run out: it may have created the
    /// address anew after the kernel had removed it.
    pub resurrected: bool,
}

/// The kernel's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Single addresses with our mark.
    pub ours: BTreeMap<Place, Ours>,
    /// All others: the node's own, and somebody else's. A link may have an address both ways, with
    /// different prefixes.
    pub foreign: BTreeSet<Place>,
    /// IPv4: of ours those that stand before the node's own on their link, and when they may be put behind it.
    /// The kernel takes the first one for the source of what the node sends, and so do programs that ask for
    /// the address of a link.
    pub ahead: BTreeMap<Place, Instant>,
}

/// An address that the kernel has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's reason.
    pub reason: String,
    /// The time of the next attempt.
    pub retry_at: Instant,
}

/// The changes to make now, and the time of the next plan if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in this order: yield first, then take, then order, then extend.
    pub ops: Vec<AddressChange>,
    /// The time of the next plan.
    pub wake: Option<Instant>,
}

/// The IPv4 addresses of ours that stand before the first one of the node's own on their link, of `rows` in the
/// kernel's order: each with whether it is ours. What is only for the link or the host does not count, nor do
/// further addresses of a subnet: the kernel puts these before or behind all others by itself.
pub fn ahead<'a>(rows: impl IntoIterator<Item = (&'a AddressRow, bool)>) -> BTreeSet<Place> {
    let mut first: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
    let mut has_own = BTreeSet::new();
    let mut ahead = BTreeSet::new();
    for (row, ours) in rows.into_iter().filter(|(row, _)| row.ip.is_ipv4() && row.primary) {
        if !ours {
            if has_own.insert(row.index) {
                ahead.extend(first.remove(&row.index).unwrap_or_default());
            }
        } else if !has_own.contains(&row.index) {
            first.entry(row.index).or_default().push((row.index, row.ip));
        }
    }
    ahead
}

/// Compares what is served with what the kernel has.
pub fn plan(
    now: Instant,
    serving: &Serving,
    links: &Links,
    kernel: &Kernel,
    refused: &BTreeMap<IpAddr, Refusal>,
) -> Plan {
    let foreign = foreign(kernel, links);
    let mut deletes = Vec::new();
    let mut adds = Vec::new();
    let mut behind = Vec::new();
    let mut refreshes = Vec::new();
    let mut ends: Option<Instant> = None;
    let mut wake: Option<Instant> = None;
    let mut ahead_until: Option<Instant> = None;
    let mut may_try = |ip: IpAddr| match refused.get(&ip) {
        Some(refusal) if now < refusal.retry_at => {
            wake = Some(earlier(wake, refusal.retry_at));
            false
        }
        _ => true,
    };
    for (&place, ours) in &kernel.ours {
        let delete = match serving.vips.get(&place.1) {
            None => serving.complete || serving.yielded.contains(&place.1) || ours.resurrected,
            Some(vip) => match served_at(place.1, vip, links) {
                // Make before break: the old one goes when the new one is seen.
                Some(right) => right != place && kernel.ours.contains_key(&right),
                None => vip.attachment == Attachment::None,
            },
        };
        if delete && may_try(place.1) {
            deletes.push(AddressChange::Delete { place });
        }
    }
    for (&ip, vip) in &serving.vips {
        let Some(place) = served_at(ip, vip, links) else { continue };
        let seconds = whole_seconds(vip.until.saturating_since(now));
        match (kernel.ours.get(&place), seconds) {
            (Some(Ours { lifetime, .. }), Some(seconds)) => {
                let ahead = kernel.ahead.get(&place).copied();
                if ahead.is_some_and(|from| from <= now) && may_try(ip) {
                    behind.push(AddressChange::PutBehind { place, seconds });
                } else if is_off(lifetime, vip.until) && may_try(ip) {
                    refreshes.push(AddressChange::Refresh { place, seconds });
                }
                if let Some(from) = ahead.filter(|from| now < *from) {
                    ahead_until = Some(earlier(ahead_until, from));
                }
            }
            // Too little is left for a lifetime in whole seconds.
            (Some(Ours { lifetime, .. }), None) if lifetime.latest > vip.until + OVERSHOOT => {
                if now < vip.until {
                    ends = Some(earlier(ends, vip.until));
                } else if may_try(ip) {
                    deletes.push(AddressChange::Delete { place });
                }
            }
            (None, Some(seconds)) if !foreign.contains_key(&ip) => {
                if may_try(ip) {
                    adds.push(AddressChange::Add { place, seconds });
                }
            }
            (Some(_), None) | (None, _) => {}
        }
    }
    let wake = [wake, ends, ahead_until].into_iter().flatten().min();
    Plan { ops: [deletes, adds, behind, refreshes].concat(), wake }
}

/// The view of the kernel's addresses for the core.
///
/// `applied` is the generation of [`Serving`] that the kernel was last brought in line with, `told` the one
/// that it was last told.
pub fn view(
    (applied, told): (u64, u64),
    serving: &Serving,
    links: &Links,
    kernel: &Kernel,
    refused: &BTreeMap<IpAddr, Refusal>,
) -> KernelView {
    let mut view = KernelView { applied, told, ..KernelView::default() };
    let names = names(links);
    for (&(index, ip), ours) in &kernel.ours {
        let Some(&name) = names.get(&index) else { continue };
        let served_here =
            serving.vips.get(&ip).is_some_and(|vip| vip.attachment.interface() == Some(name));
        // While it moves, the place where it should be counts.
        if served_here || !view.ours.contains_key(&ip) {
            let until = ours.lifetime.earliest;
            let address = KernelAddress { interface: name.clone(), until };
            view.ours.insert(ip, address);
        }
    }
    let foreign = foreign(kernel, links);
    for (&ip, vip) in &serving.vips {
        if let Some(interface) = foreign.get(&ip) {
            view.foreign.insert(ip, (*interface).clone());
        }
        if let Some(interface) = vip.attachment.interface().filter(|name| links.get(name).is_none())
        {
            view.refused.insert(ip, format!("there is no interface {interface}"));
        } else if let Some(refusal) = refused.get(&ip) {
            view.refused.insert(ip, refusal.reason.clone());
        }
    }
    view
}

/// The addresses by which clients of Services reach this node: served ones and those left in the kernel.
/// By one that is present without our mark they reach the node itself.
pub fn exposing(serving: &Serving, links: &Links, kernel: &Kernel) -> BTreeSet<IpAddr> {
    let left = kernel.ours.keys().map(|(_, ip)| ip);
    let all = serving.vips.keys().chain(left).copied();
    let foreign = foreign(kernel, links);
    all.filter(|ip| !foreign.contains_key(ip)).collect()
}

fn served_at(ip: IpAddr, vip: &ServedVip, links: &Links) -> Option<Place> {
    links.get(vip.attachment.interface()?).map(|link| (link.index, ip))
}

/// The addresses without our mark, each with the first link that has it.
fn foreign<'a>(kernel: &Kernel, links: &'a Links) -> BTreeMap<IpAddr, &'a InterfaceName> {
    let names = names(links);
    let mut foreign: BTreeMap<IpAddr, &InterfaceName> = BTreeMap::new();
    for (index, ip) in &kernel.foreign {
        let Some(name) = names.get(index).filter(|name| name.as_str() != KUBE_IPVS) else {
            continue;
        };
        let first = foreign.entry(*ip).or_insert(name);
        *first = (*first).min(name);
    }
    foreign
}

/// The links' names by their indices, as addresses have them: a node has a link for each of its pods.
fn names(links: &Links) -> BTreeMap<u32, &InterfaceName> {
    links.0.values().map(|link| (link.index, &link.name)).collect()
}

fn is_off(lifetime: &Lifetime, until: Instant) -> bool {
    !lifetime.exact
        || lifetime.latest > until + OVERSHOOT
        || until.saturating_since(lifetime.earliest) >= SHORT_BY
}

fn whole_seconds(duration: Duration) -> Option<NonZeroU32> {
    // The greatest value means forever.
    let most = u64::from(u32::MAX - 1);
    u32::try_from(duration.as_secs().min(most)).ok().and_then(NonZeroU32::new)
}

fn earlier(wake: Option<Instant>, at: Instant) -> Instant {
    wake.map_or(at, |wake| wake.min(at))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::announce::fixture::{self, served};

    const ETH0: u32 = 2;
    const ETH1: u32 = 3;
    const IPVS: u32 = 4;

    fn seconds(seconds: f64) -> Instant {
        Instant::from_boot(Duration::from_secs_f64(seconds))
    }

    fn vip(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn links() -> Links {
        fixture::links(&[(ETH0, "eth0"), (ETH1, "eth1"), (IPVS, KUBE_IPVS)])
    }

    fn serving(complete: bool, vips: &[(IpAddr, &str, f64)]) -> Serving {
        let vips = vips.iter().map(|(ip, name, until)| (*ip, served(name, seconds(*until))));
        Serving { generation: 1, vips: vips.collect(), complete, ..Serving::default() }
    }

    fn ours(earliest: f64) -> Ours {
        let lifetime = Lifetime {
            earliest: seconds(earliest),
            latest: seconds(earliest + 0.001),
            exact: true,
        };
        Ours { lifetime, resurrected: false }
    }

    fn kernel(ours: &[(Place, Ours)], foreign: &[Place]) -> Kernel {
        Kernel {
            ours: ours.iter().copied().collect(),
            foreign: foreign.iter().copied().collect(),
            ahead: BTreeMap::new(),
        }
    }

    fn add(index: u32, ip: IpAddr, seconds: u32) -> AddressChange {
        AddressChange::Add { place: (index, ip), seconds: NonZeroU32::new(seconds).unwrap() }
    }

    fn refresh(index: u32, ip: IpAddr, seconds: u32) -> AddressChange {
        AddressChange::Refresh { place: (index, ip), seconds: NonZeroU32::new(seconds).unwrap() }
    }

    fn put_behind(index: u32, ip: IpAddr, seconds: u32) -> AddressChange {
        AddressChange::PutBehind { place: (index, ip), seconds: NonZeroU32::new(seconds).unwrap() }
    }

    fn delete(index: u32, ip: IpAddr) -> AddressChange {
        AddressChange::Delete { place: (index, ip) }
    }

    #[test]
    fn an_address_that_no_interface_is_to_carry_leaves_the_one_that_does() {
        let mut serving = serving(true, &[(vip(1), "eth0", 5.0), (vip(2), "eth0", 5.0)]);
        serving.vips.get_mut(&vip(1)).unwrap().attachment = Attachment::None;
        let kernel = kernel(&[((ETH0, vip(1)), ours(5.0))], &[]);
        let plan = plan(seconds(1.0), &serving, &links(), &kernel, &BTreeMap::new());
        assert_eq!(plan.ops, [delete(ETH0, vip(1)), add(ETH0, vip(2), 4)]);
        let view = view((1, 1), &serving, &links(), &kernel, &BTreeMap::new());
        assert!(view.refused.is_empty(), "{:?}", view.refused);
    }

    #[test]
    fn what_is_served_or_left_exposes_the_node_and_its_own_address_does_not() {
        let serving = serving(true, &[(vip(1), "eth0", 105.0), (vip(2), "eth0", 105.0)]);
        let kernel = kernel(
            &[((ETH0, vip(1)), ours(105.0)), ((ETH0, vip(3)), ours(105.0))],
            &[(ETH1, vip(2)), (ETH0, vip(4)), (IPVS, vip(1))],
        );
        assert_eq!(exposing(&serving, &links(), &kernel), BTreeSet::from([vip(1), vip(3)]));
    }

    /// All rows are planned at 100 s after the boot.
    #[test]
    fn rows() {
        let adopted = Ours {
            lifetime: Lifetime { exact: false, ..ours(105.0).lifetime },
            resurrected: false,
        };
        let resurrected = Ours { resurrected: true, ..ours(105.0) };
        let one = vip(1);
        let here = (ETH0, one);
        let at = |until| serving(true, &[(one, "eth0", until)]);
        let nothing = serving(true, &[]);
        let unknown = serving(false, &[]);
        let none = kernel(&[], &[]);
        let rows: Vec<(&str, Serving, Kernel, Vec<AddressChange>)> = vec![
            ("missing: added, rounded down", at(106.9), none.clone(), vec![add(ETH0, one, 6)]),
            ("less than a second left: not added", at(100.9), none.clone(), vec![]),
            ("its time is over: not added", at(99.0), none.clone(), vec![]),
            ("no such interface", serving(true, &[(one, "eth9", 106.0)]), none, vec![]),
            ("as it should be", at(106.9), kernel(&[(here, ours(106.0))], &[]), vec![]),
            (
                "the end moved on: refreshed",
                at(108.5),
                kernel(&[(here, ours(106.0))], &[]),
                vec![refresh(ETH0, one, 8)],
            ),
            (
                "the end was drawn in: shortened",
                at(103.5),
                kernel(&[(here, ours(106.0))], &[]),
                vec![refresh(ETH0, one, 3)],
            ),
            (
                "left by another process: refreshed to what is known",
                at(105.5),
                kernel(&[(here, adopted)], &[]),
                vec![refresh(ETH0, one, 5)],
            ),
            (
                "beyond its end: deleted",
                at(99.5),
                kernel(&[(here, ours(103.0))], &[]),
                vec![delete(ETH0, one)],
            ),
            (
                "beyond its end soon: left until then",
                at(100.5),
                kernel(&[(here, ours(103.0))], &[]),
                vec![],
            ),
            (
                "no longer served: deleted",
                nothing.clone(),
                kernel(&[(here, ours(106.0))], &[]),
                vec![delete(ETH0, one)],
            ),
            (
                "not served, but not everything is known",
                unknown.clone(),
                kernel(&[(here, ours(106.0))], &[]),
                vec![],
            ),
            (
                "not served and created anew by a late refresh",
                unknown,
                kernel(&[(here, resurrected)], &[]),
                vec![delete(ETH0, one)],
            ),
            ("somebody else's and not served", nothing, kernel(&[], &[here]), vec![]),
            ("somebody else's and served: never touched", at(106.0), kernel(&[], &[here]), vec![]),
            (
                "somebody else's on another link: not added",
                at(106.0),
                kernel(&[], &[(ETH1, one)]),
                vec![],
            ),
            (
                "on kube-proxy's IPVS device: added all the same",
                at(106.0),
                kernel(&[], &[(IPVS, one)]),
                vec![add(ETH0, one, 6)],
            ),
            (
                "to another link: first added there",
                at(106.0),
                kernel(&[((ETH1, one), ours(106.0))], &[]),
                vec![add(ETH0, one, 6)],
            ),
            (
                "to another link: then deleted here",
                at(106.0),
                kernel(&[((ETH1, one), ours(106.0)), (here, ours(106.0))], &[]),
                vec![delete(ETH1, one)],
            ),
        ];
        for (name, serving, kernel, expected) in rows {
            let plan = plan(seconds(100.0), &serving, &links(), &kernel, &BTreeMap::new());
            assert_eq!(plan.ops, expected, "{name}");
        }
    }

    #[test]
    fn what_is_lost_is_yielded_before_anything_is_taken() {
        let kernel = kernel(&[((ETH0, vip(9)), ours(106.0)), ((ETH0, vip(5)), ours(104.0))], &[]);
        let serving = serving(true, &[(vip(1), "eth0", 106.0), (vip(5), "eth0", 106.0)]);
        let plan = plan(seconds(100.0), &serving, &links(), &kernel, &BTreeMap::new());
        let expected = [delete(ETH0, vip(9)), add(ETH0, vip(1), 6), refresh(ETH0, vip(5), 6)];
        assert_eq!(plan.ops, expected);
    }

    #[test]
    fn a_refused_address_is_tried_again_when_it_is_time() {
        let serving = serving(true, &[(vip(1), "eth0", 106.0)]);
        let refusal = Refusal { reason: "no".to_owned(), retry_at: seconds(101.0) };
        let refused = BTreeMap::from([(vip(1), refusal)]);
        let kernel = Kernel::default();
        let early = plan(seconds(100.5), &serving, &links(), &kernel, &refused);
        assert_eq!(early, Plan { ops: vec![], wake: Some(seconds(101.0)) });
        let due = plan(seconds(101.0), &serving, &links(), &kernel, &refused);
        assert_eq!(due.ops, [add(ETH0, vip(1), 5)]);
    }

    #[test]
    fn the_view_tells_what_stands_in_the_way() {
        let serving = serving(
            true,
            &[(vip(1), "eth0", 106.0), (vip(2), "eth9", 106.0), (vip(3), "eth0", 106.0)],
        );
        let kernel = kernel(&[((ETH0, vip(3)), ours(106.0))], &[(ETH1, vip(1))]);
        let view = view((7, 6), &serving, &links(), &kernel, &BTreeMap::new());
        assert_eq!(view.applied, 7);
        assert_eq!(view.foreign, BTreeMap::from([(vip(1), "eth1".parse().unwrap())]));
        assert_eq!(view.refused.keys().collect::<Vec<_>>(), [&vip(2)]);
        assert_eq!(view.ours.keys().collect::<Vec<_>>(), [&vip(3)]);
        assert_eq!(view.ours[&vip(3)].until, seconds(106.0));
    }

    #[test]
    fn what_stands_before_the_nodes_own_address_is_put_behind_it_when_that_may_be() {
        let serving = serving(true, &[(vip(1), "eth0", 106.0), (vip(2), "eth0", 106.0)]);
        let all = [((ETH0, vip(1)), ours(105.5)), ((ETH0, vip(2)), ours(105.5))];
        let mut kernel = kernel(&all, &[(ETH0, vip(9))]);
        let planned = |kernel: &Kernel, now| {
            let plan = plan(seconds(now), &serving, &links(), kernel, &BTreeMap::new());
            (plan.ops, plan.wake)
        };
        assert_eq!(planned(&kernel, 100.0), (vec![], None));
        kernel.ahead = BTreeMap::from([((ETH0, vip(1)), seconds(100.0))]);
        assert_eq!(planned(&kernel, 100.0), (vec![put_behind(ETH0, vip(1), 6)], None));
        assert_eq!(planned(&kernel, 99.9), (vec![], Some(seconds(100.0))));
        // It need not be renewed as well.
        kernel.ours.insert((ETH0, vip(1)), ours(101.0));
        assert_eq!(planned(&kernel, 100.0).0, [put_behind(ETH0, vip(1), 6)]);
        // What ends before a whole second is over stays where it is.
        assert_eq!(planned(&kernel, 105.5).0, []);
    }

    #[test]
    fn only_what_stands_before_the_first_own_address_of_its_link_is_ahead() {
        /// Link, last octet, whether it is primary.
        type Address = (u32, u8, bool);

        let row = |index, last, primary| AddressRow {
            index,
            ip: vip(last),
            prefix_len: 32,
            ours: false,
            valid: None,
            tentative: false,
            primary,
        };
        // Numbers below 10 are ours.
        let rows: [(&str, &[Address], &[Place]); 7] = [
            ("behind", &[(ETH0, 11, true), (ETH0, 1, true)], &[]),
            (
                "before",
                &[(ETH0, 1, true), (ETH0, 2, true), (ETH0, 11, true), (ETH0, 3, true)],
                &[(ETH0, vip(1)), (ETH0, vip(2))],
            ),
            ("between", &[(ETH0, 11, true), (ETH0, 1, true), (ETH0, 12, true)], &[]),
            ("alone", &[(ETH0, 1, true), (ETH0, 2, true)], &[]),
            ("before one of the same subnet", &[(ETH0, 1, true), (ETH0, 11, false)], &[]),
            (
                "behind one for the link only",
                &[(ETH0, 10, false), (ETH0, 1, true), (ETH0, 11, true)],
                &[(ETH0, vip(1))],
            ),
            ("on another link", &[(ETH0, 1, true), (ETH1, 11, true)], &[]),
        ];
        for (name, rows, expected) in rows {
            let rows: Vec<_> =
                rows.iter().map(|(index, last, primary)| row(*index, *last, *primary)).collect();
            let ours = |row: &AddressRow| row.ip < vip(10);
            let found = ahead(rows.iter().map(|row| (row, ours(row))));
            assert_eq!(found, expected.iter().copied().collect(), "{name}");
        }
    }

    prop_compose! {
        fn a_place()(index in ETH0..=IPVS, last in 0..6_u8) -> Place {
            (index, vip(last))
        }
    }

    prop_compose! {
        fn some_kernel()(
            ours in prop::collection::btree_map(
                a_place(),
                (95_000..112_000_u64, 0..3_000_u64, any::<bool>(), any::<bool>()),
                0..8,
            ),
            foreign in prop::collection::btree_set(a_place(), 0..4),
            ahead in prop::collection::btree_map(a_place(), 99_000..102_000_u64, 0..4),
        ) -> Kernel {
            let ours = ours.into_iter().map(|(place, (earliest, more, exact, resurrected))| {
                let earliest = Instant::from_boot(Duration::from_millis(earliest));
                let latest = earliest + Duration::from_millis(more);
                (place, Ours { lifetime: Lifetime { earliest, latest, exact }, resurrected })
            });
            let ours: BTreeMap<_, _> = ours.collect();
            let ahead = ahead.into_iter().filter(|(place, _)| ours.contains_key(place));
            let from = |millis| Instant::from_boot(Duration::from_millis(millis));
            let ahead = ahead.map(|(place, millis)| (place, from(millis))).collect();
            Kernel { ours, foreign, ahead }
        }
    }

    prop_compose! {
        fn some_serving()(
            vips in prop::collection::btree_map(0..6_u8, (0..4_u8, 95_000..112_000_u64), 0..6),
            complete: bool,
            yielded in prop::collection::btree_set((0..6_u8).prop_map(vip), 0..3),
        ) -> Serving {
            let vips = vips.into_iter().map(|(last, (interface, until))| {
                let until = Instant::from_boot(Duration::from_millis(until));
                (vip(last), served(&format!("eth{interface}"), until))
            });
            Serving { generation: 1, vips: vips.collect(), complete, yielded }
        }
    }

    /// The kernel after `ops`, which it carries out at `now`.
    fn carry_out(kernel: &mut Kernel, now: Instant, ops: &[AddressChange]) {
        for op in ops {
            match *op {
                AddressChange::Add { place, seconds }
                | AddressChange::Refresh { place, seconds }
                | AddressChange::PutBehind { place, seconds } => {
                    if matches!(op, AddressChange::PutBehind { .. }) {
                        kernel.ahead.remove(&place);
                    }
                    let end = now + Duration::from_secs(seconds.get().into());
                    let lifetime = Lifetime { earliest: end, latest: end, exact: true };
                    kernel.ours.insert(place, Ours { lifetime, resurrected: false });
                }
                AddressChange::Delete { place } => {
                    kernel.ours.remove(&place);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn plans_are_safe_and_come_to_an_end(
            mut kernel in some_kernel(), serving in some_serving(),
        ) {
            let now = seconds(100.0);
            let links = links();
            for pass in 0.. {
                let plan = plan(now, &serving, &links, &kernel, &BTreeMap::new());
                for op in &plan.ops {
                    let place = op.place();
                    match op {
                        AddressChange::Add { seconds, .. } => {
                            prop_assert!(!kernel.ours.contains_key(&place));
                            prop_assert!(!kernel.foreign.contains(&place));
                            let until = serving.vips[&place.1].until;
                            prop_assert!(now + Duration::from_secs(seconds.get().into()) <= until);
                        }
                        AddressChange::Refresh { seconds, .. }
                        | AddressChange::PutBehind { seconds, .. } => {
                            prop_assert!(kernel.ours.contains_key(&place));
                            let until = serving.vips[&place.1].until;
                            prop_assert!(now + Duration::from_secs(seconds.get().into()) <= until);
                        }
                        AddressChange::Delete { .. } => {
                            prop_assert!(kernel.ours.contains_key(&place));
                        }
                    }
                }
                if plan.ops.is_empty() {
                    break;
                }
                prop_assert!(pass < 3, "a third plan: {:?}", plan);
                carry_out(&mut kernel, now, &plan.ops);
            }
            // What should be there is, and for as long as whole seconds allow.
            for (ip, vip) in &serving.vips {
                let Some(link) = vip.attachment.interface().and_then(|name| links.get(name)) else {
                    continue;
                };
                let foreign = foreign(&kernel, &links).contains_key(ip);
                match kernel.ours.get(&(link.index, *ip)) {
                    Some(ours) if vip.until >= now + SHORT_BY => {
                        prop_assert!(ours.lifetime.latest <= vip.until + OVERSHOOT);
                        prop_assert!(ours.lifetime.earliest + SHORT_BY > vip.until);
                    }
                    Some(_) => {}
                    None => prop_assert!(foreign || vip.until < now + SHORT_BY),
                }
            }
            for (_, ip) in kernel.ours.keys() {
                let stays = !serving.complete && !serving.yielded.contains(ip);
                prop_assert!(stays || serving.vips.contains_key(ip));
            }
        }
    }
}
