//! Changes of a table by other processes.

use std::io;

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use netlink_packet_netfilter::NetfilterSubsystem;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, AsyncSocketExt, TokioSocket};

use crate::net::datagram::messages;
use crate::net::nft::connection::HEADER_LENGTH;
use crate::net::nft::error::NfnetlinkError;

/// `NFNLGRP_NFTABLES` (`linux/netfilter/nfnetlink.h`).
const NEWS: u32 = 7;
/// The attribute that names the table in each kind of message, but `NEWGEN`
/// (`linux/netfilter/nf_tables.h`).
const TABLE_NAME: u16 = 1;
/// `NFT_MSG_NEWGEN`: the end of a transaction.
const NEW_GENERATION: u8 = 15;
/// The news of `nf_tables`: which tables other processes change.
pub struct News {
    socket: TokioSocket,
    /// Changes from this port are our own.
    own: u32,
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("News").field("own", &self.own).finish_non_exhaustive()
    }
}

impl News {
    /// Listens in the network namespace of the calling thread; `own` is the port whose changes are no
    /// news.
    pub fn open(own: u32) -> Result<Self, NfnetlinkError> {
        let open = || {
            let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
            socket.socket_mut().bind_auto()?;
            socket.socket_mut().add_membership(NEWS)?;
            io::Result::Ok(socket)
        };
        Ok(Self { socket: open().map_err(NfnetlinkError::Open)?, own })
    }

    /// Waits until somebody else has changed `table`, or may have: where news were lost.
    pub async fn changed(&self, table: &str) {
        loop {
            let Ok((datagram, _)) = self.socket.recv_from_full().await else { return };
            let about = |bytes| is_about(bytes, table, self.own);
            if messages(&datagram).into_iter().any(about) {
                return;
            }
        }
    }
}

/// Whether one of the kernel's messages says that somebody else changed `table`.
fn is_about(bytes: &[u8], table: &str, own: u32) -> bool {
    let Ok(message) = NetlinkBuffer::new_checked(bytes) else { return false };
    let [kind, subsystem] = message.message_type().to_le_bytes();
    let of_tables = NetfilterSubsystem::from(subsystem) == NetfilterSubsystem::NfTables;
    if !of_tables || kind == NEW_GENERATION || message.port_number() == own {
        return false;
    }
    let attributes = message.payload().get(HEADER_LENGTH..).unwrap_or_default();
    NlasIterator::new(attributes).flatten().any(|attribute| {
        let name = attribute.value().strip_suffix(b"\0").unwrap_or_default();
        attribute.kind() == TABLE_NAME && name == table.as_bytes()
    })
}
