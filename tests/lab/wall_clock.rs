//! A process's wall clock, set back and forward: the machine's own belongs to everybody on it, and
//! no namespace has one. `libfaketime` (Debian: `faketime`) stands between a process and its C
//! library and shifts `CLOCK_REALTIME` by what a file says; clocks that cannot be set are left.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where Debian and its kin have it, below the folder of each architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The wall clock of the processes that get its [`Self::environment`].
#[derive(Clone, Debug)]
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// One that is right, with its file in `folder`.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let folders = fs::read_dir(LIBRARIES)?.flatten().map(|entry| entry.path());
        let mut libraries = folders.chain([LIBRARIES.into()]).map(|folder| folder.join(LIBRARY));
        let library = libraries
            .find(|path| path.exists())
            .context("libfaketime is not installed (Debian: faketime)")?;
        let clock = Self { library, file: folder.join(format!("{name}.clock")) };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it so many seconds before (negative) or after the machine's.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Renamed into place: who reads it meanwhile reads one value or the other.
        let fresh = self.file.with_extension("fresh");
        fs::write(&fresh, format!("{seconds:+}\n"))?;
        Ok(fs::rename(fresh, &self.file)?)
    }

    /// The environment of a process with this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        let library = self.library.display().to_string();
        [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}
