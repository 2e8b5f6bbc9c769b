//! The tables of a tenant that knows what it has done itself: they are read when another process may have changed them,
//! and every minute.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use crate::clock;
use crate::datapath::upkeep::{Connection, PASSES};
use crate::net::nft::connection::{Change, Nfnetlink};
use crate::net::nft::error::NfnetlinkError;
use leasehold_core::clock::Instant;
use netlink_packet_netfilter::NetfilterProtoFamily;

/// The tables are read at least this often while there is something in them, whatever the news have said.
pub(super) const RESYNC: Duration = Duration::from_secs(60);

/// A table as the kernel has it.
pub(super) trait Table: Sized {
    /// The one of a tenant's tables that it is.
    type Place: Copy + Debug + Ord;
    /// Its content, as it should be.
    type Content;
    /// A change.
    type Change: Debug;

    /// Reads it.
    fn read(requests: &mut Nfnetlink, place: Self::Place) -> Result<Option<Self>, NfnetlinkError>;

    /// Drops what has ended by itself.
    fn end(&mut self, now: Instant);

    /// Compares what is wanted with what is there.
    fn plan(
        place: Self::Place,
        wanted: &Self::Content,
        table: Option<&Self>,
    ) -> Option<Self::Change>;

    /// A change as transactions, one after the other. A packet may be under way in the table meanwhile: for it, a chain of
    /// the same transaction has no rules, and a set none of its elements (`nft_do_chain` and `nft_genmask_cur` in the kernel's
    /// `net/netfilter`: rules are those of when it came, elements those of now).
    fn steps(place: Self::Place, change: &Self::Change) -> Vec<Vec<Change>>;

    /// The table after a change to what is wanted; `None` where that is none.
    fn after(place: Self::Place, wanted: &Self::Content) -> Option<Self>;
}

/// The tables, and the connection to them.
#[derive(Debug)]
pub(super) struct Tables<T: Table> {
    /// Opened when it is first needed, and anew where it has failed.
    connection: Option<Connection>,
    /// The tables, unless another process may have changed them.
    known: BTreeMap<T::Place, Known<T>>,
}

/// A table as it was read, and as this process has changed it since.
#[derive(Debug)]
struct Known<T> {
    read: Instant,
    table: Option<T>,
}

impl<T: Table> Default for Tables<T> {
    fn default() -> Self {
        Self { connection: None, known: BTreeMap::new() }
    }
}

impl<T: Table> Tables<T> {
    /// The connection, if one is open.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Another process may have changed the tables.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// The connection has failed, and the news with it.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.forget();
    }

    /// The connection for requests.
    pub(super) fn connected(&mut self) -> Result<&mut Nfnetlink, NfnetlinkError> {
        let connection = self.connection.take().map_or_else(Connection::open, Ok)?;
        Ok(&mut self.connection.insert(connection).requests)
    }

    /// Plans and acts.
    pub(super) fn bring_in_line(
        &mut self,
        place: T::Place,
        wanted: &T::Content,
    ) -> Result<(), NfnetlinkError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Known { read, table } = self.table(place)?;
            let Some(change) = T::plan(place, wanted, table.as_ref()) else {
                self.known.insert(place, Known { read, table });
                return Ok(());
            };
            let mut steps = T::steps(place, &change).into_iter();
            let sent = self.connected();
            match sent.and_then(|requests| steps.try_for_each(|step| requests.transact(step))) {
                Ok(()) => {
                    tracing::debug!(?place, ?change, "a table of the data path changed");
                    self.known.insert(place, Known { read, table: T::after(place, wanted) });
                    return Ok(());
                }
                // Another process changed it since it was read, or an element has ended.
                Err(NfnetlinkError::Refused(what, error)) if tries < PASSES => {
                    tracing::debug!(?place, what, %error, "a change of a table was refused");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The table as it is now.
    fn table(&mut self, place: T::Place) -> Result<Known<T>, NfnetlinkError> {
        let now = clock::now();
        let known = self.known.remove(&place);
        let known = known.filter(|known| now.saturating_since(known.read) < RESYNC);
        let mut known = match known {
            Some(known) => known,
            None => Known { read: now, table: T::read(self.connected()?, place)? },
        };
        known.table.iter_mut().for_each(|table| table.end(now));
        Ok(known)
    }
}

/// The same steps, in tables of this family.
pub(super) fn of_family(family: NetfilterProtoFamily, steps: Vec<Vec<Change>>) -> Vec<Vec<Change>> {
    let of_family = |step: Vec<Change>| step.into_iter().map(|change| change.of(family)).collect();
    steps.into_iter().map(of_family).collect()
}

/// The elements of `known` to remove, and those of `wanted` to add.
pub(super) fn difference<K: Clone + Ord, V: Clone>(
    known: &BTreeMap<K, V>,
    wanted: &BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
) -> (BTreeMap<K, V>, BTreeMap<K, V>) {
    let beyond = |one: &BTreeMap<K, V>, other: &BTreeMap<K, V>| {
        let differs = |(key, value): &(&K, &V)| !other.get(key).is_some_and(|it| same(it, value));
        one.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    (beyond(known, wanted), beyond(wanted, known))
}
