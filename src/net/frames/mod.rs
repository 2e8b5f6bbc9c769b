//! ARP and NDP frames over Ethernet.
//!
//! | module | what |
//! |---|---|
//! | [`arp`], [`ndp`] | packet codecs |
//! | `ethernet` | the header that both have |
//! | [`socket`] | the `AF_PACKET` socket, the one file with `unsafe` |

pub mod arp;
mod ethernet;
#[cfg(test)]
mod fixture;
pub mod ndp;
pub mod socket;
