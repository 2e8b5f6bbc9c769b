//! Kernel settings of an interface that carries VIPs.

use std::io;

use leasehold_crds::names::InterfaceName;

/// Makes the kernel answer ARP for an address only on the interface that has it (`arp_ignore`), and
/// keeps VIPs out of the node's own ARP requests (`arp_announce`). With the defaults a node with two
/// interfaces on one segment answers with both MACs. Stricter settings are left as they are.
///
/// Needs a writable `/proc/sys`, which a container without more than `CAP_NET_ADMIN` does not
/// have: the error is for the log, everything works without on nodes with one interface per segment.
pub fn confine_arp(interface: &InterfaceName) -> io::Result<()> {
    // A name is one component of a path: it has no `/`; the kernel allows neither `.` nor `..`.
    for (setting, least) in [("arp_ignore", 1), ("arp_announce", 2)] {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
        let present: u32 = std::fs::read_to_string(&path)?
            .trim()
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if present < least {
            std::fs::write(&path, least.to_string())?;
        }
    }
    Ok(())
}
