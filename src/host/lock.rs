//! The lock against a second speaker.
//!
//! Two things are locked, both freed by the kernel with the process:
//!
//! * a file in the state folder, which only root can open;
//! * an abstract Unix socket's name (unix(7)), which belongs to the network namespace, as the addresses do: there
//!   may be two state folders, and older speakers lock nothing else. Any process on the host can take a
//!   name: only those of root and of this speaker's own user are believed.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::error::HostError;
use super::state::StateFolder;
use crate::report::health::Health;

const NAME: &str = "leasehold-speaker";
/// Interval between attempts to take a host that another speaker has.
const RETRY: Duration = Duration::from_millis(200);
/// Number of further attempts while a process that does not listen has the name.
const LOOKS: u32 = 2;

/// Excludes a second speaker on the same host for as long as it lives.
#[derive(Debug)]
pub struct HostLock {
    _file: File,
    /// None if a process that is no speaker has the name.
    _socket: Option<UnixListener>,
}

/// Waits until no other speaker has this host. Cancel safe.
pub async fn lock(
    state: &StateFolder,
    health: &watch::Sender<Health>,
) -> Result<HostLock, HostError> {
    let file = state.open_lock()?;
    while !is_locked(&file)? {
        note_taken(health);
        sleep(RETRY).await;
    }
    // A speaker that has just taken the name is about to listen.
    let mut looks = 0..LOOKS;
    let socket = loop {
        if let Some(socket) = name().map_err(HostError::Lock)? {
            break Some(socket);
        }
        if let Some(holder) = speaker().await {
            note_taken(health);
            // Ends when the holder does, for it never accepts nor sends anything.
            let _ = holder.readable().await;
            looks = 0..LOOKS;
        } else if looks.next().is_some() {
            sleep(RETRY).await;
        } else {
            tracing::warn!(
                name = NAME,
                "the abstract socket that speakers lock is taken by a process that is none: going on without it"
            );
            break None;
        }
    };
    health.send_modify(|health| health.host_is_taken = false);
    Ok(HostLock { _file: file, _socket: socket })
}

fn note_taken(health: &watch::Sender<Health>) {
    health.send_if_modified(|health| {
        if !health.host_is_taken {
            tracing::warn!("another speaker runs on this host: waiting for it to terminate");
        }
        !std::mem::replace(&mut health.host_is_taken, true)
    });
}

fn is_locked(file: &File) -> Result<bool, HostError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(HostError::Lock(error)),
    }
}

/// Takes the name; `None` if it is taken.
fn name() -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connection to the process that has the name, if that may be a speaker: it listens, accepts, and belongs to
/// root or to this user (`SO_PEERCRED`, unix(7)).
async fn speaker() -> Option<UnixStream> {
    let stream = UnixStream::connect(format!("\0{NAME}")).await.ok()?;
    let user = stream.peer_cred().ok()?.uid();
    (user == 0 || user == geteuid().as_raw()).then_some(stream)
}
