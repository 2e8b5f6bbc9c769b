//! The schedule of announcements.
//!
//! * In a burst of 0, 0.1, 0.5, 1 and 2 s, or as many as the policy says, after it was seen in the kernel,
//!   anew for each ownership and each time that the address comes back: a frame may be lost, a neighbour
//!   may be asleep.
//! * Each 60 s from then on, or as the policy says, for switches that forget.
//! * Once when its link's carrier comes back or its MAC changes.
//!
//! The first announcements go at once, however many; repetitions at 200 per second at most.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::net::rtnl::links::{Link, Links};
use leasehold_core::clock::Instant;
use leasehold_core::desired::{Announcement, Announcements};
use leasehold_core::election::{KernelView, ServedVip, Serving};

/// The repetitions of a burst, each counted from the one before: at 0.1, 0.5, 1 and 2 s, then each second.
const BURST: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// The pause between two repetitions, whatever the address.
const PACE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
struct Entry {
    interface: InterfaceName,
    ownership: u64,
    mac: MacAddr,
    carrier: bool,
    announcements: Announcements,
    /// The number of repetitions of the burst that are done.
    repeated: usize,
    due: Instant,
}

/// An address to announce.
struct Announced<'a> {
    ip: IpAddr,
    vip: &'a ServedVip,
    announcements: Announcements,
    link: &'a Link,
}

/// The schedule of all announcements. Pure: the announcer has them sent.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<IpAddr, Entry>,
    /// The same, by the time at which each is due.
    times: BTreeSet<(Instant, IpAddr)>,
    /// The addresses that are announced at once.
    first: BTreeSet<IpAddr>,
    /// The earliest time of the next repetition.
    pace: Instant,
}

impl Schedule {
    /// Takes over what is served, what the kernel has, and the links.
    pub fn update(&mut self, now: Instant, serving: &Serving, kernel: &KernelView, links: &Links) {
        let Self { entries, times, first, .. } = self;
        // All are in the order of addresses.
        let mut ours = kernel.ours.iter().peekable();
        let mut announced = serving
            .vips
            .iter()
            .filter_map(|(ip, vip)| {
                while ours.next_if(|(other, _)| *other < ip).is_some() {}
                let (_, address) = ours.next_if(|(other, _)| *other == ip)?;
                let Announcement::Layer2(announcements) = vip.announcement else { return None };
                let link = links.get(vip.attachment.interface()?)?;
                let here = address.interface == link.name;
                here.then_some(Announced { ip: *ip, vip, announcements, link })
            })
            .peekable();
        let mut new = Vec::new();
        entries.retain(|ip, entry| {
            while let Some(other) = announced.next_if(|other| other.ip < *ip) {
                new.push(other);
            }
            let Some(found) = announced.next_if(|other| other.ip == *ip) else {
                times.remove(&(entry.due, *ip));
                first.remove(ip);
                return false;
            };
            if entry.ownership != found.vip.ownership || entry.interface != found.link.name {
                times.remove(&(entry.due, *ip));
                new.push(found);
                return false;
            }
            let Announced { link, announcements, .. } = found;
            if link.carrier && (!entry.carrier || link.mac != entry.mac) {
                first.insert(*ip);
            }
            entry.carrier = link.carrier;
            entry.mac = link.mac;
            if entry.announcements != announcements {
                entry.announcements = announcements;
                let due = entry.due.min(now + pause(*ip, announcements, entry.repeated));
                times.remove(&(std::mem::replace(&mut entry.due, due), *ip));
                times.insert((due, *ip));
            }
            true
        });
        for Announced { ip, vip, announcements, link } in new.into_iter().chain(announced) {
            let due = now + pause(ip, announcements, 0);
            let entry = Entry {
                interface: link.name.clone(),
                ownership: vip.ownership,
                mac: link.mac,
                carrier: link.carrier,
                announcements,
                repeated: 0,
                due,
            };
            first.insert(ip);
            times.insert((due, ip));
            entries.insert(ip, entry);
        }
    }

    /// The announcements that are due now, each with its interface.
    pub fn due(&mut self, now: Instant) -> Vec<(IpAddr, InterfaceName)> {
        let mut due = Vec::new();
        for ip in std::mem::take(&mut self.first) {
            due.extend(self.entries.get(&ip).map(|entry| (ip, entry.interface.clone())));
        }
        while self.pace <= now
            && let Some(&(at, ip)) = self.times.first()
            && at <= now
        {
            self.times.pop_first();
            let Some(entry) = self.entries.get_mut(&ip) else { continue };
            // What was not sent in time is not caught up.
            self.pace = now.max(self.pace) + PACE;
            due.push((ip, entry.interface.clone()));
            entry.repeated = entry.repeated.saturating_add(1);
            entry.due = now + pause(ip, entry.announcements, entry.repeated);
            self.times.insert((entry.due, ip));
        }
        due
    }

    /// The time at which [`Schedule::due`] has to be called next.
    pub fn next(&self) -> Option<Instant> {
        if !self.first.is_empty() {
            return Some(Instant::default());
        }
        self.times.first().map(|(due, _)| (*due).max(self.pace))
    }
}

/// The pause before the next announcement; after the burst shifted by up to a tenth per address, so that
/// many addresses do not stay together.
fn pause(ip: IpAddr, announcements: Announcements, repeated: usize) -> Duration {
    if repeated + 1 < announcements.burst {
        return BURST.get(repeated).copied().unwrap_or(Duration::from_secs(1));
    }
    let refresh = announcements.refresh_interval;
    refresh + refresh * u32::from(shift(ip)) / 2_560
}

/// A byte that differs between neighbouring addresses (FNV-1a).
fn shift(ip: IpAddr) -> u8 {
    let hash = |octets: &[u8]| {
        octets.iter().fold(0x811c_9dc5_u32, |hash, octet| {
            (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193)
        })
    };
    let [_, byte, ..] = match ip {
        IpAddr::V4(ip) => hash(&ip.octets()),
        IpAddr::V6(ip) => hash(&ip.octets()),
    }
    .to_be_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::announce::fixture::{links, served};
    use leasehold_core::election::{Attachment, KernelAddress};

    fn vip(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    const NEVER: [u64; 0] = [];

    type Change = fn(&mut World);

    /// The inputs of the schedule, for addresses 1 to `count`.
    struct World {
        serving: Serving,
        kernel: KernelView,
        links: Links,
    }

    impl World {
        fn new(count: u8) -> Self {
            let interface: InterfaceName = "eth0".parse().unwrap();
            let mut serving = Serving { complete: true, ..Serving::default() };
            let mut kernel = KernelView::default();
            for last in 1..=count {
                serving.vips.insert(vip(last), served("eth0", at(60_000)));
                let address = KernelAddress { interface: interface.clone(), until: at(60_000) };
                kernel.ours.insert(vip(last), address);
            }
            Self { serving, kernel, links: links(&[(2, "eth0")]) }
        }

        fn served(&mut self) -> &mut ServedVip {
            self.serving.vips.get_mut(&vip(1)).unwrap()
        }

        fn link(&mut self) -> &mut Link {
            self.links.0.values_mut().next().unwrap()
        }

        fn tell(&self, schedule: &mut Schedule, millis: u64) {
            schedule.update(at(millis), &self.serving, &self.kernel, &self.links);
        }
    }

    /// The times at which address 1 is announced, each looked at when the schedule says so.
    fn times(schedule: &mut Schedule, from: u64, to: u64) -> Vec<u64> {
        let mut times = Vec::new();
        let mut now = at(from);
        loop {
            for (ip, _) in schedule.due(now) {
                if ip == vip(1) {
                    let millis = now.saturating_since(at(0)).as_millis();
                    times.push(u64::try_from(millis).unwrap());
                }
            }
            match schedule.next() {
                Some(next) if next <= at(to) => now = now.max(next),
                _ => return times,
            }
        }
    }

    #[test]
    fn a_burst_then_a_slow_refresh() {
        let mut schedule = Schedule::default();
        World::new(1).tell(&mut schedule, 0);
        let announced = times(&mut schedule, 0, 140_000);
        assert_eq!(announced[..5], [0, 100, 500, 1_000, 2_000]);
        assert_eq!(announced.len(), 7);
        for pause in [announced[5] - announced[4], announced[6] - announced[5]] {
            assert!((60_000..=66_000).contains(&pause), "{pause} ms");
        }
    }

    #[test]
    fn bursts_and_refreshes_as_the_policy_says() {
        let seconds = Duration::from_secs;
        for (burst, refresh, expected) in [
            (1, 10, vec![0, 10, 20]),
            (2, 10, vec![0, 0, 10, 20]),
            (7, 100, vec![0, 0, 0, 1, 2, 3, 4]),
        ] {
            let mut schedule = Schedule::default();
            let mut world = World::new(1);
            let announcements = Announcements { burst, refresh_interval: seconds(refresh) };
            world.served().announcement = Announcement::Layer2(announcements);
            world.tell(&mut schedule, 0);
            let announced = times(&mut schedule, 0, 24_000);
            let announced: Vec<_> = announced.iter().map(|at| at / 1000).collect();
            // Refreshes are shifted by up to a tenth.
            let near =
                announced.iter().zip(&expected).all(|(at, due)| (0..=2).contains(&(at - due)));
            assert!(near && announced.len() == expected.len(), "{burst} {refresh}: {announced:?}");
        }
        // A shorter pause counts at once.
        let mut schedule = Schedule::default();
        let mut world = World::new(1);
        world.tell(&mut schedule, 0);
        assert_eq!(times(&mut schedule, 0, 10_000).len(), 5);
        let announcements = Announcements { burst: 5, refresh_interval: seconds(10) };
        world.served().announcement = Announcement::Layer2(announcements);
        world.tell(&mut schedule, 10_000);
        assert_eq!(times(&mut schedule, 10_000, 22_000).len(), 1);
    }

    #[test]
    fn only_what_the_kernel_has_and_is_to_be_announced() {
        let changes: [(&str, Change); 6] = [
            ("not in the kernel", |world| world.kernel.ours.clear()),
            ("not served", |world| world.serving.vips.clear()),
            ("silent", |world| world.served().announcement = Announcement::Silent),
            ("on no interface", |world| world.served().attachment = Attachment::None),
            ("still on another interface", |world| {
                world.served().attachment =
                    Attachment::OnLink { interface: "eth1".parse().unwrap() };
            }),
            ("the link is gone", |world| world.links.0.clear()),
        ];
        for (name, change) in changes {
            let mut schedule = Schedule::default();
            let mut world = World::new(1);
            world.tell(&mut schedule, 0);
            assert_eq!(times(&mut schedule, 0, 50), [0], "{name}: before");
            change(&mut world);
            world.tell(&mut schedule, 50);
            assert_eq!(times(&mut schedule, 50, 140_000), NEVER, "{name}: after");
        }
    }

    #[test]
    fn what_starts_a_burst_anew_and_what_is_announced_once() {
        let changes: [(&str, Change, Change, usize); 5] = [
            ("owned anew", |_| {}, |world| world.served().ownership = 2, 5),
            (
                "lost and added again",
                |world| world.kernel.ours.clear(),
                |world| {
                    world.kernel = World::new(1).kernel;
                },
                5,
            ),
            (
                "carrier back",
                |world| world.link().carrier = false,
                |world| {
                    world.link().carrier = true;
                },
                1,
            ),
            ("another MAC", |_| {}, |world| world.link().mac = MacAddr(2, 0, 0, 0, 0, 9), 1),
            ("the lifetime moved on", |_| {}, |world| world.served().until = at(70_000), 0),
        ];
        for (name, first, second, expected) in changes {
            let mut schedule = Schedule::default();
            let mut world = World::new(1);
            world.tell(&mut schedule, 0);
            assert_eq!(times(&mut schedule, 0, 9_000).len(), 5, "{name}: the first burst");
            first(&mut world);
            world.tell(&mut schedule, 10_000);
            assert_eq!(times(&mut schedule, 10_000, 10_500), NEVER, "{name}");
            second(&mut world);
            world.tell(&mut schedule, 11_000);
            assert_eq!(times(&mut schedule, 11_000, 20_000).len(), expected, "{name}");
        }
    }

    #[test]
    fn of_many_the_first_go_at_once_and_repetitions_are_paced() {
        let mut schedule = Schedule::default();
        World::new(200).tell(&mut schedule, 0);
        assert_eq!(schedule.due(at(0)).len(), 200);
        let mut sent = Vec::new();
        let mut now = at(0);
        while now < at(10_000) {
            let due = schedule.due(now);
            sent.extend(due.iter().map(|_| now));
            now = schedule.next().unwrap().max(now);
        }
        assert_eq!(sent.len(), 200 * 4, "each has its whole burst");
        for window in sent.windows(201) {
            let spread = window[200].saturating_since(window[0]);
            assert!(spread >= Duration::from_secs(1), "201 repetitions in {spread:?}");
        }
    }
}
