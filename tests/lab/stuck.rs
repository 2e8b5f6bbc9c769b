//! A thread of a process that stands still while the others go on, as one that waits for a lock for ever does.

use std::fs;
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};

use crate::process::Process;

/// The thread goes on when this is dropped.
#[derive(Debug)]
pub struct Stuck {
    release: Option<mpsc::Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Stuck {
    /// Stops the thread of `process` that has this name; the first one has that of the program.
    pub fn thread(process: &Process, name: &str) -> Result<Self> {
        let thread = find(process.pid(), name)?;
        let (release, released) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        // A thread is let go by the one that stopped it.
        let tracer = thread::spawn(move || {
            let stopped = stop(thread);
            let is_stopped = stopped.is_ok();
            // Whoever waits for this is there.
            let _ = tell.send(stopped);
            if is_stopped {
                let _ = released.recv();
                let _ = request(libc::PTRACE_DETACH, thread);
            }
        });
        told.recv().context("the tracer has ended")?.context("stop the thread")?;
        Ok(Self { release: Some(release), tracer: Some(tracer) })
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(tracer) = self.tracer.take() {
            drop(tracer.join());
        }
    }
}

/// The number of the thread with this name.
fn find(process: i32, name: &str) -> Result<i32> {
    for entry in fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("comm"))?.trim_end() == name {
            let number = entry.file_name().into_string().map_err(|_| anyhow!("no number"))?;
            return Ok(number.parse()?);
        }
    }
    Err(anyhow!("process {process} has no thread `{name}`"))
}

fn stop(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread)?;
    request(libc::PTRACE_INTERRUPT, thread)?;
    wait(thread)
}

/// ptrace(2), without address and data.
#[allow(unsafe_code, reason = "no safe wrapper of ptrace(2) is among the dependencies")]
fn request(request: libc::c_uint, thread: i32) -> io::Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the requests used here reads or writes memory of this process.
    let done = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Until the thread has stopped (waitpid(2)).
#[allow(unsafe_code, reason = "no safe wrapper takes the number of a thread")]
fn wait(thread: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` lives for the call.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if waited == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
