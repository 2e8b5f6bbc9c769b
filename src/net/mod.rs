//! The kernel edge: the only folder with sockets of the network.
//!
//! ```text
//!             ┌────────────── edge (task) ──────────────┐
//! Transmit ──►│ frames out   wire, hearing (pure)       │──► Heard
//! Attention ─►│ frames in                               │──► when each interface was answered, by whom
//!             └──────▲──────────────────────▲───────────┘
//!                    │ Ethernet frames      │ Links
//!             ┌──────┴───────┐    ┌─────────┴───────────┐    ┌──────────────────┐
//!             │ frames/      │    │ rtnl/               │    │ nft/             │
//!             │ ARP, NDP,    │    │ links, addresses,   │    │ transactions,    │──► datapath/, proxy/
//!             │ AF_PACKET    │    │ routes: task, table │    │ news             │
//!             └──────────────┘    └─────────────────────┘    └──────────────────┘
//!                                           └──── datagram, buffers ────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`edge`] | the task that owns the packet sockets, and the start of the rest |
//! | [`wire`] | what is sent and heard, independent of the address family |
//! | [`hearing`] | whether a segment answers this node, and which hosts do; pure |
//! | [`frames`] | codecs for ARP and NDP, and the packet socket |
//! | [`rtnl`] | rtnetlink: links, addresses, routes |
//! | [`nft`] | nfnetlink: `nf_tables` |
//! | [`conntrack`] | ctnetlink: tracked connections |
//! | `datagram` | netlink requests that the kernel answers before their system call ends |
//! | `buffers` | sizes of socket buffers |
//!
//! The three rooms below the task import nothing of each other.

mod buffers;
pub mod conntrack;
mod datagram;
pub mod edge;
pub mod frames;
pub mod hearing;
pub mod nft;
pub mod rtnl;
pub mod wire;

pub use pnet_base::MacAddr;
