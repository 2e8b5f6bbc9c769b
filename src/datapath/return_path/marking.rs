//! The tables of `nf_tables`: reads and transactions.

use netlink_packet_netfilter::nftables::{NfTablesMessage, SetElementMessage};

use crate::datapath::return_path::elements;
use crate::datapath::return_path::plan::{Content, Marking, Table, marking};
use crate::datapath::return_path::ruleset::{
    self, Part, TABLE, answering, answering_chain, coming, coming_chain, own,
};
use crate::datapath::upkeep::{self, PASSES};
use crate::net::nft::connection::{Change, Message, Nfnetlink};
use crate::net::nft::elements as nft_elements;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::rules as nft;

/// The table as the kernel has it.
pub(super) fn read(requests: &mut Nfnetlink, part: Part) -> Result<Option<Table>, NfnetlinkError> {
    let about = |question| Message::of(part.tables(), question);
    let Some(answer) = requests.get("tables", about(nft::table_question(TABLE)))? else {
        return Ok(None);
    };
    let chains = ruleset::chain_questions(part);
    let chains: Vec<_> = chains
        .into_iter()
        .map(|question| requests.get("a chain", about(question)))
        .collect::<Result<_, _>>()?;
    let rules = requests.dump("rules", about(nft::rules_question(TABLE)))?;
    let intact = ruleset::is_intact(part, &answer, &chains, &rules);
    let mut table = Table { intact, ..Table::default() };
    let mut rows =
        |map| requests.dump_attributes("a map", about(nft_elements::question(TABLE, map)));
    for family in part.families() {
        elements::read_coming(*family, &rows(coming(*family))?, &mut table);
        if part == Part::Packets {
            let pods = rows(answering(*family))?;
            elements::compare(*family, &pods, answering_chain, &mut table);
            elements::compare(*family, &rows(own(*family))?, coming_chain, &mut table);
        }
    }
    Ok(Some(table))
}

/// Brings a table, which was read as `table`, in line with `wanted`; whether anything had to be changed.
pub(super) fn bring_in_line(
    requests: &mut Nfnetlink,
    part: Part,
    wanted: &Content,
    mut table: Option<Table>,
) -> Result<bool, NfnetlinkError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let Some(change) = marking(wanted, table.as_ref()) else { return Ok(tries > 1) };
        match requests.transact(messages(part, &change)) {
            Ok(()) => {
                tracing::debug!(?part, ?change, "marks of the return path changed");
                return Ok(true);
            }
            // Somebody changed it since it was read.
            Err(NfnetlinkError::Refused(what, error)) if tries < PASSES => {
                tracing::debug!(?part, what, %error, "a change of marks was refused");
                table = read(requests, part)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A change as a transaction.
fn messages(part: Part, change: &Marking) -> Vec<Change> {
    let add = |message: SetElementMessage| {
        Change::add("elements", NfTablesMessage::NewSetElement(message))
    };
    let delete = |message: SetElementMessage| {
        Change::delete("elements", NfTablesMessage::DeleteSetElement(message))
    };
    let changes: Vec<_> = match change {
        Marking::Delete => vec![upkeep::delete(TABLE)],
        Marking::Replace(content) => {
            let skeleton = ruleset::skeleton(part).into_iter();
            let made = skeleton.map(|(what, message)| Change::add(what, message));
            let added = elements::messages(part, content).into_iter().map(add);
            upkeep::anew(TABLE).into_iter().chain(made).chain(added).collect()
        }
        Marking::Update { remove, add: added } => {
            let removed = elements::messages(part, remove).into_iter().map(delete);
            removed.chain(elements::messages(part, added).into_iter().map(add)).collect()
        }
    };
    changes.into_iter().map(|change| change.of(part.tables())).collect()
}
