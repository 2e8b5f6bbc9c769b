//! The common parts of the threads that own a table: their start, their connection, and how soon they put right what
//! others have changed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_netfilter::nftables::NfTablesMessage;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::clock::sleep_until;
use crate::net::nft::connection::{Change, Nfnetlink};
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::news::News;
use crate::net::nft::rules as nft;
use crate::net::rtnl::links::Links;
use leasehold_core::clock::Instant;

/// Interval between attempts after a failure.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// At most once in this time the table is read because of somebody else's change: it may be one of
/// many.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// Number of attempts of a transaction in a row: the table may have changed since it was read.
pub(super) const PASSES: usize = 2;

/// Reads of the table because of changes by other processes.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Another process has changed it since it was last read.
    changed: bool,
    /// The earliest time of the next read because of that.
    next: Instant,
}

impl Repairs {
    /// Notes a change by another process and returns the time of the read. Any number of changes before it lead
    /// to one read.
    pub(super) fn changed(&mut self, now: Instant) -> Instant {
        self.changed = true;
        self.next.max(now)
    }

    /// It is read now.
    pub(super) fn read(&mut self, now: Instant) {
        if std::mem::take(&mut self.changed) {
            self.next = now + REPAIR_PAUSE;
        }
    }
}

/// A connection for requests, and the news of what others change.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) requests: Nfnetlink,
    pub(super) news: News,
}

impl Connection {
    pub(super) fn open() -> Result<Self, NfnetlinkError> {
        let requests = Nfnetlink::open()?;
        let news = News::open(requests.port())?;
        Ok(Self { requests, news })
    }
}

const STACK: usize = 512 * 1024;

/// Starts a thread that does `work`, in the network namespace of the calling one; its end is that of the task.
///
/// It is a thread of its own because the kernel may let a transaction wait for those of others.
pub(super) fn start(
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> io::Result<JoinSet<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel::<()>();
    let work = move || {
        runtime.block_on(work);
        drop(end);
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(ended.await) });
    Ok(tasks)
}

/// The cause of a look at the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Its time has come.
    Time,
    /// Another process has changed it.
    Changed,
}

/// Waits until the table is to be looked at, be it because another process has changed it.
pub(super) async fn due(
    connection: Option<&Connection>,
    table: &str,
    look: Option<Instant>,
) -> Due {
    let news = async {
        match connection {
            Some(connection) => connection.news.changed(table).await,
            None => std::future::pending().await,
        }
    };
    let timer = async {
        match look {
            Some(look) => sleep_until(look).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = news => Due::Changed,
        () = timer => Due::Time,
    }
}

impl Due {
    /// The time of the look: at once, or after a pause where others change the table often.
    pub(super) fn at(self, look: Option<Instant>, repairs: &mut Repairs) -> Instant {
        match self {
            Self::Time => Instant::default(),
            Self::Changed => {
                let at = repairs.changed(clock::now());
                look.map_or(at, |look| look.min(at))
            }
        }
    }
}

/// The input of a thread: the wanted state, once it is known, and the links.
#[derive(Debug)]
pub(super) struct Told<W> {
    pub(super) wanted: watch::Receiver<Option<Arc<W>>>,
    pub(super) links: watch::Receiver<Links>,
}

/// The work of a thread that is told what is wanted, and the links.
pub(super) trait Work {
    /// The wanted state.
    type Wanted;

    /// The name of the tables that it owns.
    const TABLE: &'static str;

    /// The connection, if one is open.
    fn connection(&self) -> Option<&Connection>;

    /// Another process has changed the tables.
    fn forget(&mut self);

    /// Brings the tables in line with what is wanted; when to look again.
    fn settle(
        &mut self,
        wanted: Arc<Self::Wanted>,
        links: &mut watch::Receiver<Links>,
    ) -> Option<Instant>;
}

/// Works until nobody says any more what is wanted. What a former process left stays until it is known what is.
pub(super) async fn run<W: Work>(mut work: W, mut told: Told<W::Wanted>) {
    let mut look: Option<Instant> = None;
    let mut repairs = Repairs::default();
    loop {
        let now = clock::now();
        if look.is_some_and(|look| look <= now) {
            repairs.read(now);
            let wanted = told.wanted.borrow_and_update().clone();
            look = wanted.and_then(|wanted| work.settle(wanted, &mut told.links));
        }
        let due = due(work.connection(), W::TABLE, look);
        look = tokio::select! {
            changed = told.wanted.changed() => match changed {
                Ok(()) => Some(Instant::default()),
                Err(_) => return,
            },
            Ok(()) = told.links.changed() => Some(Instant::default()),
            due = due => {
                if due == Due::Changed {
                    work.forget();
                }
                Some(due.at(look, &mut repairs))
            }
        };
    }
}

/// Changes a view; its readers hear of it where it is another then.
pub(super) fn publish<V: Clone + PartialEq>(view: &watch::Sender<V>, change: impl FnOnce(&mut V)) {
    view.send_if_modified(|view| {
        let before = view.clone();
        change(view);
        *view != before
    });
}

/// Deletes a table.
pub(super) fn delete(table: &str) -> Change {
    Change::delete("the table", NfTablesMessage::DeleteTable(nft::table(table)))
}

/// Makes a table anew, whether it is there or not.
pub(super) fn anew(table: &str) -> [Change; 3] {
    let create = || Change::add("the table", NfTablesMessage::NewTable(nft::table(table)));
    [create(), delete(table), create()]
}

/// An error with its source.
pub(super) fn causes(error: &NfnetlinkError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    #[test]
    fn many_changes_at_once_delay_the_repair_of_the_next_by_one_pause() {
        let mut repairs = Repairs::default();
        assert_eq!(repairs.changed(at(0)), at(0));
        repairs.read(at(0));
        for change in 1..100 {
            assert_eq!(repairs.changed(at(change)), at(1_000));
        }
        // Read meanwhile for something else, it is read again no sooner.
        repairs.read(at(500));
        assert_eq!(repairs.changed(at(600)), at(1_500));
        repairs.read(at(1_500));
        repairs.read(at(2_000));
        assert_eq!(repairs.changed(at(5_000)), at(5_000));
    }
}
