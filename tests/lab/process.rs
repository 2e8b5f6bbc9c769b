//! Processes of the lab: each with a log file, signals, and an end with this value.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// A running (or ended) process.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: Pid,
    child: Mutex<Child>,
}

impl Process {
    /// Starts a command in a process group of its own; its output is appended to `log`.
    pub fn spawn(name: &str, log: &Path, command: &mut Command) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        // As in a container: with it each error costs the time of a stack trace.
        command.env_remove("RUST_BACKTRACE");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}: {command:?}"))?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| anyhow!("{name} has no process id"))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), pid, child: Mutex::new(child) })
    }

    /// The name of the process, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id within the sandbox.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exit status, if the process has ended.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }

    /// Whether it runs.
    pub fn alive(&self) -> bool {
        matches!(self.ended(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock keeps the process from being reaped, so its id cannot be another's by now.
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            bail!("{} has already ended ({status})", self.name);
        }
        kill_process(self.pid, signal).with_context(|| format!("signal {}", self.name))?;
        // Its threads run on until each has seen it.
        let begin = Instant::now();
        while signal == Signal::STOP && !self.is_stopped() {
            ensure!(begin.elapsed() < Duration::from_secs(10), "{} does not stop", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether all its threads are stopped (proc(5): state `T`).
    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        threads.into_iter().flatten().flatten().all(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:\tT"))
        })
    }

    /// Waits for its end.
    pub async fn wait(&self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} still runs after {patience:?}\n{}", self.name, self.tail(20));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// SIGTERM, and the end that follows.
    pub async fn terminate(&self, patience: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(patience).await
    }

    /// The only child of the process: the one that `unshare` or `nsenter` has for a new PID namespace.
    pub(crate) fn only_child(&self) -> Result<i32> {
        let pid = self.pid();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(&path).with_context(|| format!("{} ended", self.name))?;
        let child = children.split_whitespace().next();
        Ok(child.with_context(|| format!("{} has no child", self.name))?.parse()?)
    }

    /// Sends a signal to that child.
    pub(crate) fn signal_only_child(&self, signal: Signal) -> Result<()> {
        let child = Pid::from_raw(self.only_child()?).context("no process has the id 0")?;
        kill_process(child, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Sends a signal to its process group: to it and to its children.
    pub fn signal_group(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            bail!("{} has already ended ({status})", self.name);
        }
        Ok(kill_process_group(self.pid, signal)?)
    }

    /// SIGKILL to its process group.
    pub async fn kill_group(&self) -> Result<()> {
        self.signal_group(Signal::KILL)?;
        self.wait(Duration::from_secs(10)).await.map(|_| ())
    }

    /// SIGKILL.
    pub async fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(10)).await.map(|_| ())
    }

    /// Resident memory in KiB (`VmRSS` in proc(5)).
    pub fn resident_kib(&self) -> Result<u64> {
        self.memory_kib("VmRSS")
    }

    /// The most that was resident at any time, in KiB (`VmHWM` in proc(5)).
    pub fn peak_kib(&self) -> Result<u64> {
        self.memory_kib("VmHWM")
    }

    fn memory_kib(&self, what: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .with_context(|| format!("{} has ended", self.name))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))
            .and_then(|value| value.split_whitespace().next())
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| anyhow!("no {what} for {}", self.name))
    }

    /// Processor time that it has used, in user and in kernel mode (proc(5): `utime`, `stime`).
    pub fn cpu_time(&self) -> Result<(Duration, Duration)> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .with_context(|| format!("{} has ended", self.name))?;
        // The second field, in parentheses, may have blanks in it; the third follows.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u32>);
        let per_second = rustix::param::clock_ticks_per_second();
        let mut time = || -> Result<Duration> {
            let ticks = ticks.next().with_context(|| format!("no times of {}", self.name))??;
            Ok(Duration::from_secs(1) * ticks / u32::try_from(per_second)?)
        };
        Ok((time()?, time()?))
    }

    /// The whole log.
    pub fn output(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// The last lines of its log, with a heading.
    pub fn tail(&self, lines: usize) -> String {
        let text = self.output();
        let all: Vec<&str> = text.lines().collect();
        let last = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
        format!("--- {} ({})\n{}\n", self.name, self.log.display(), last.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child();
        drop(child.kill());
        drop(child.wait());
    }
}
