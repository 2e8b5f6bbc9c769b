//! The pods that clients have: those that are noted and are not among the endpoints of a detour are forgotten.

use std::net::IpAddr;

use netlink_packet_netfilter::nftables::NfTablesMessage;

use crate::datapath::detour::ruleset::{TABLE, clients};
use crate::net::nft::connection::{Change, Nfnetlink};
use crate::net::nft::elements::{Found, element, for_each, messages, question, read_port};
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::{Family, split};
use leasehold_core::desired::Detours;

/// Forgets the pods of clients that are not among the endpoints.
pub(super) fn forget(requests: &mut Nfnetlink, detours: &Detours) -> Result<(), NfnetlinkError> {
    for family in Family::ALL {
        if !detours.ports.iter().any(|((ip, _), detour)| family.has(*ip) && detour.affine) {
            continue;
        }
        let rows = requests.dump_attributes("a set", question(TABLE, clients(family)))?;
        let mut stale = Vec::new();
        for row in &rows {
            for_each(row, |found| {
                if is_stale(family, &found, detours) {
                    stale.push(found.key);
                }
            });
        }
        // One by one: each may have ended by itself meanwhile.
        for key in stale {
            let deleted = messages(TABLE, clients(family), [element(key)]).into_iter();
            let delete =
                |message| Change::delete("elements", NfTablesMessage::DeleteSetElement(message));
            match requests.transact(deleted.map(delete).collect()) {
                Ok(()) | Err(NfnetlinkError::Refused(..)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether a client has a pod that is not among the endpoints of the port that it asked for.
fn is_stale(family: Family, found: &Found, detours: &Detours) -> bool {
    let client = split(family, &found.key);
    let Some(port) = client.and_then(|(_, asked)| read_port(family, asked)) else { return false };
    let Some(detour) = detours.ports.get(&port).filter(|detour| detour.affine) else {
        return false;
    };
    !pod(family, &found.value).is_some_and(|pod| detour.to.contains(&pod))
}

fn pod(family: Family, value: &[u8]) -> Option<(IpAddr, u16)> {
    let (ip, port) = split(family, value)?;
    let [high, low, ..] = *port else { return None };
    Some((ip, u16::from_be_bytes([high, low])))
}
