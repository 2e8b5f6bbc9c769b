//! Kernel settings of an interface that carries VIPs.
//!
//! `arp_ignore` makes the kernel answer ARP for an address only on the interface that has it;
//! `arp_announce` keeps VIPs out of the node's own ARP requests (kernel, `ip-sysctl`). With the defaults
//! a node with two interfaces on one segment answers with both MACs; and where kube-proxy in IPVS mode
//! keeps all addresses on one device, every node would answer for all of them.

use std::io;

use leasehold_crds::names::InterfaceName;
use serde::{Deserialize, Serialize};

/// The ARP settings of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArpSettings {
    /// `arp_ignore`.
    pub ignore: u32,
    /// `arp_announce`.
    pub announce: u32,
}

impl ArpSettings {
    /// Reads the settings of an interface, which any process may.
    pub fn of(interface: &InterfaceName) -> io::Result<Self> {
        let read = |setting| read(interface, setting);
        Ok(Self { ignore: read("arp_ignore")?, announce: read("arp_announce")? })
    }

    /// The least that an interface with VIPs needs; stricter ones are left as they are.
    #[must_use]
    pub fn confined(self) -> Self {
        Self { ignore: self.ignore.max(1), announce: self.announce.max(2) }
    }
}

/// Reads whether an interface looks up the sources of packets with their mark (`src_valid_mark`): then what is marked
/// passes reverse path filtering where a rule for the mark leads back by that interface.
pub fn source_marks(interface: &InterfaceName) -> io::Result<bool> {
    Ok(read(interface, "src_valid_mark")? != 0)
}

fn read(interface: &InterfaceName, setting: &str) -> io::Result<u32> {
    // A name is one component of a path: it has no `/`; the kernel allows neither `.` nor `..`.
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
    let value = std::fs::read_to_string(&path)?.trim().parse();
    value.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
