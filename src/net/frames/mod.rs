//! ARP and NDP frames over Ethernet.
//!
//! | module | what |
//! |---|---|
//! | [`arp`], [`ndp`], [`echo`] | packet codecs |
//! | `ethernet` | the header that both have |
//! | [`socket`] | the `AF_PACKET` socket, the one file with `unsafe` |

pub mod arp;
pub mod echo;
mod ethernet;
#[cfg(test)]
mod fixture;
pub mod ndp;
pub mod socket;
