//! Finds the mark that this kernel keeps.
//!
//! A kernel accepts an attribute that it does not know and drops it (`nlmsg_parse_deprecated` in its
//! `inet_rtm_newaddr`), so support has to be tried.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope, CacheInfo};

use crate::net::rtnl::addresses::full_prefix;
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::mark::Mark;
use crate::net::rtnl::netlink::Netlink;

/// Address for the trial, on the loopback device, which has all of 127.0.0.0/8 anyway.
const TRIAL: Ipv4Addr = Ipv4Addr::new(127, 76, 72, 76);
/// Lifetime of that address in seconds, if it is not deleted.
const TRIAL_LASTS: u32 = 1;
/// The loopback device is the first of each network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

/// A kernel that cannot mark addresses.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The kernel keeps neither.
    #[error(
        "this kernel (Linux {0}) cannot mark addresses as ours: update it to Linux 5.10 or later, or run no speaker \
         here (nodeSelector of the DaemonSet)"
    )]
    Neither(String),
    /// The kernel does not keep the one that was asked for.
    #[error(
        "--address-mark asks for {1}, which this kernel (Linux {0}) does not keep (IFA_PROTO needs Linux 5.18, \
         IFA_RT_PRIORITY 4.18): leave the flag away"
    )]
    Not(String, Mark),
    /// The kernel does not say.
    #[error("cannot find out how this kernel marks addresses")]
    Unknown(#[from] NetlinkError),
}

/// The marks that a kernel keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    protocol: bool,
    metric: bool,
}

impl Kept {
    /// The marks that one row of a dump has.
    fn shown_by(row: &AddressMessage) -> Self {
        let has = |wanted: fn(&AddressAttribute) -> bool| row.attributes.iter().any(wanted);
        Self {
            protocol: has(|attribute| matches!(attribute, AddressAttribute::Protocol(_))),
            metric: has(|attribute| matches!(attribute, AddressAttribute::RoutePriority(_))),
        }
    }

    /// The mark to write: the wanted one, or the better one.
    fn choose(self, wanted: Option<Mark>) -> Result<Mark, MarkError> {
        match (wanted, self) {
            (Some(Mark::Protocol) | None, Self { protocol: true, .. }) => Ok(Mark::Protocol),
            (Some(Mark::Metric) | None, Self { metric: true, .. }) => Ok(Mark::Metric),
            (None, _) => Err(MarkError::Neither(release())),
            (Some(wanted), _) => Err(MarkError::Not(release(), wanted)),
        }
    }
}

/// Finds the mark to write in the namespace of `netlink`: `wanted`, or else the best that this kernel keeps.
pub(crate) async fn find(netlink: &Netlink, wanted: Option<Mark>) -> Result<Mark, MarkError> {
    // Where IFA_PROTO is, the kernel marks addresses that it makes itself by it: those of the loopback device
    // and link-local ones.
    let rows = netlink.address_messages().await?;
    let told = rows.iter().any(|row| Kept::shown_by(row).protocol);
    let kept = if told { Kept { protocol: true, metric: true } } else { tried(netlink).await? };
    kept.choose(wanted)
}

/// Adds an address with both marks, and returns those that the kernel keeps.
async fn tried(netlink: &Netlink) -> Result<Kept, NetlinkError> {
    let added = match netlink.add(trial()).await {
        Ok(()) => true,
        // Left by a process that was killed here.
        Err(NetlinkError::Exists) => false,
        Err(error) => return Err(error),
    };
    let rows = netlink.address_messages().await;
    if added {
        match netlink.delete(trial()).await {
            Ok(()) | Err(NetlinkError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let wanted = AddressAttribute::Local(TRIAL.into());
    let row = rows?.into_iter().find(|row| row.attributes.contains(&wanted));
    let missing = || NetlinkError::Unexpected(format!("{TRIAL} was added and is not there"));
    row.as_ref().map(Kept::shown_by).ok_or_else(missing)
}

fn trial() -> AddressMessage {
    let ip = IpAddr::V4(TRIAL);
    let mut message = AddressMessage::default();
    message.header.family = netlink_packet_route::AddressFamily::Inet;
    message.header.prefix_len = full_prefix(ip);
    message.header.scope = AddressScope::Host;
    message.header.index = LOOPBACK;
    let mut lifetimes = CacheInfo::default();
    lifetimes.ifa_valid = TRIAL_LASTS;
    message.attributes = vec![
        AddressAttribute::Local(ip),
        AddressAttribute::Address(ip),
        AddressAttribute::CacheInfo(lifetimes),
        Mark::Protocol.attribute(),
        Mark::Metric.attribute(),
    ];
    message
}

/// The release of the running kernel, as `uname -r` says it.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Kept = Kept { protocol: true, metric: true };
    /// Linux 5.10, for one.
    const OLD: Kept = Kept { protocol: false, metric: true };

    #[test]
    fn the_best_mark_that_the_kernel_keeps_is_taken_or_the_one_that_is_asked_for() {
        let neither = Kept::default();
        let rows = [
            (BOTH, None, Some(Mark::Protocol)),
            (BOTH, Some(Mark::Protocol), Some(Mark::Protocol)),
            (BOTH, Some(Mark::Metric), Some(Mark::Metric)),
            (OLD, None, Some(Mark::Metric)),
            (OLD, Some(Mark::Metric), Some(Mark::Metric)),
            (OLD, Some(Mark::Protocol), None),
            (neither, None, None),
            (neither, Some(Mark::Metric), None),
        ];
        for (kept, wanted, expected) in rows {
            let chosen = kept.choose(wanted);
            assert_eq!(chosen.as_ref().ok(), expected.as_ref(), "{kept:?}, {wanted:?}: {chosen:?}");
            let Err(error) = chosen else { continue };
            assert!(error.to_string().contains("Linux"), "{error}");
        }
    }

    #[test]
    fn what_a_kernel_keeps_is_seen_by_what_it_shows() {
        let all = trial();
        assert_eq!(Kept::shown_by(&all), BOTH);
        let without = |forgotten: &[Mark]| {
            let mut row = trial();
            row.attributes.retain(|kept| forgotten.iter().all(|mark| *kept != mark.attribute()));
            Kept::shown_by(&row)
        };
        assert_eq!(without(&[Mark::Protocol]), OLD);
        assert_eq!(without(&[Mark::Protocol, Mark::Metric]), Kept::default());
    }
}
