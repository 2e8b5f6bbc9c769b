//! The way of packets from the client, from pods and from nodes by kube-proxy to the pods.
//!
//! | module | what |
//! |---|---|
//! | [`bare`] | the lab itself, without speakers |
//! | [`proxy`] | nodes whose kube-proxy is dead or late |
//! | [`reach`] | who reaches a Service from where, and whom its pods see, in both modes of kube-proxy |
//! | [`health`] | `healthCheckNodePort` and ping |
//! | [`ipv6`] | IPv6 addresses: usable at once, never a source, back after they were flushed |
//! | [`detour`] | pods on a node that dies |
//! | [`connections`] | open connections through an address that moves |
//! | [`spread`] | Services with `externalTrafficPolicy: Local` that are spread over nodes |
//! | [`follow`] | neighbour entries of clients follow an IPv6 address |

pub mod bare;
pub mod connections;
pub mod detour;
pub mod follow;
pub mod health;
pub mod ipv6;
pub mod proxy;
pub mod reach;
pub mod spread;
mod webs;
