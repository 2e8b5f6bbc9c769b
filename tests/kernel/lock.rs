//! Whom a speaker waits for before it takes a host.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::host::{self, HostLock, StateFolder};
use leasehold::report::health::Health;
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::world::{Namespace, Test, World};

pub const TESTS: &[Test] =
    &[("a_host_is_not_kept_from_a_speaker_by_who_is_none", only_speakers_are_waited_for)];

/// Far longer than a lock takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the socket, taken by a process without any privilege.
fn taken_by_nobody(node: &Namespace) -> Result<UnixListener> {
    node.enter(|| {
        set_thread_uid(Uid::from_raw(65534))?;
        Ok(UnixListener::bind_addr(&SocketAddr::from_abstract_name("leasehold-speaker")?)?)
    })
}

async fn locked(folder: &StateFolder, health: &watch::Sender<Health>) -> Result<HostLock> {
    Ok(timeout(PATIENCE, host::lock(folder, health)).await.context("the host is not free")??)
}

async fn waits(folder: &StateFolder, health: &watch::Sender<Health>) -> Result<()> {
    let waited = timeout(Duration::from_secs(1), host::lock(folder, health)).await;
    ensure!(waited.is_err(), "the host is free");
    ensure!(health.borrow().host_is_taken, "nothing says that it is not");
    Ok(())
}

fn only_speakers_are_waited_for(world: &World) -> Result<()> {
    let nobody = taken_by_nobody(&world.node)?;
    world.node.block_on(|| async {
        let folder = |name| StateFolder::open(Path::new("/mnt").join(name).as_path());
        let (one, other) = (folder("lock-one")?, folder("lock-other")?);
        let health = watch::Sender::new(Health::default());
        let first = locked(&one, &health).await?;
        ensure!(!health.borrow().host_is_taken, "somebody is taken for a speaker");
        waits(&one, &health).await?;
        drop(first);
        let first = locked(&one, &health).await?;
        ensure!(!health.borrow().host_is_taken, "the host is free and nothing says so");
        drop((first, nobody));

        // Speakers that keep their state in different folders.
        let first = locked(&one, &health).await?;
        waits(&other, &health).await?;
        let next = async { locked(&other, &health).await };
        let end = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(first);
        };
        let (next, ()) = tokio::join!(next, end);
        drop(next?);
        Ok(())
    })
}
