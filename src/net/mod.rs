//! The kernel edge.
//!
//! ```text
//!             ┌────────────── edge (task) ──────────────┐
//! Transmit ──►│ frames out   arp, ndp codecs   frames in│──► Heard
//! Attention ─►│ packet (AF_PACKET)   hearing (pure)     │──► when each interface was answered, by whom
//!             └─────────────────────▲───────────────────┘
//!                                   │ Links
//!             ┌──── links (task) ───┴───────────────────┐
//!             │ table (pure) ◄── netlink events, dumps  │──► Links
//!             └─────────────────────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`arp`], [`ndp`] | packet codecs |
//! | [`packet`] | the `AF_PACKET` socket, the one file with `unsafe` |
//! | [`netlink`] | requests to rtnetlink, its dumps and events |
//! | [`mark`] | by what addresses are known as ours, and which marks this kernel keeps |
//! | [`addresses`] | changes of addresses with a lifetime and our mark |
//! | `datagram` | requests that the kernel answers before their system call ends |
//! | [`nfnetlink`] | reads and transactions of `nf_tables`, and their news |
//! | [`links`] | what the kernel says of links, addresses and gateways, kept current |
//! | [`uplinks`] | which links lead out of the node |
//! | [`table`] | netlink messages to [`links::Links`] |
//! | [`hearing`] | whether a segment answers us, and which hosts do |
//! | [`wire`] | what is sent and heard, independent of the address family |
//! | [`edge`] | the task that owns the sockets, and how to start it all |
//! | [`sysctl`] | kernel settings of an interface that carries VIPs |

pub mod addresses;
pub mod arp;
mod datagram;
pub mod edge;
pub mod hearing;
pub mod links;
pub mod mark;
pub mod ndp;
pub mod netlink;
pub mod nfnetlink;
pub mod packet;
pub mod sysctl;
pub mod table;
pub mod uplinks;
mod ways;
pub mod wire;

pub use pnet_base::MacAddr;
