//! Links, addresses and routes by rtnetlink.
//!
//! ```text
//! follow (task) ──► netlink ──► table (pure) ──► row, links        read: dumps and events to Links
//!      └──────────► ways ─────► netlink                            ask: which link leads to a subnet
//! change, by its callers ──► netlink ──► addresses ──► mark        write: addresses with our mark
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`links`] | links, their addresses and gateways: plain types |
//! | [`uplinks`] | which links lead out of the node |
//! | [`row`] | an address in an event or a dump |
//! | [`table`] | messages to [`links::Links`]; pure |
//! | [`mark`] | the attributes by which addresses are known as ours |
//! | [`addresses`] | changes of addresses with a lifetime and our mark |
//! | [`netlink`] | the connection: requests, dumps, events |
//! | [`kept`] | which mark this kernel keeps |
//! | `ways` | by which link the kernel reaches the hosts of a subnet |
//! | `follow` | the task that keeps the links current |
//! | [`sysctl`] | settings of an interface that carries VIPs |
//! | [`routing`] | routing rules, and routes of all tables |
//! | [`error`] | refusals of the kernel |

pub mod addresses;
pub mod error;
pub(super) mod follow;
pub mod kept;
pub mod links;
pub mod mark;
pub mod netlink;
pub mod routing;
pub mod row;
pub mod sysctl;
pub mod table;
pub mod uplinks;
mod ways;
