//! The table at the end of the demo.

use std::fmt;
use std::time::Duration;

use leasehold_lab::Track;

/// The measured values: a line for each.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(String, String)>);

impl Table {
    /// Adds a line.
    pub(crate) fn add(&mut self, what: &str, measured: impl fmt::Display) {
        self.0.push((what.to_owned(), measured.to_string()));
    }

    /// Adds a line with a time.
    pub(crate) fn add_time(&mut self, what: &str, time: Duration) {
        self.add(what, milliseconds(time));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        let right = self.0.iter().map(|(_, value)| value.chars().count()).max().unwrap_or(0);
        let rule = format!("+-{}-+-{}-+", "-".repeat(left), "-".repeat(right));
        writeln!(f, "{rule}")?;
        for (what, value) in &self.0 {
            writeln!(f, "| {what:left$} | {value:>right$} |")?;
        }
        write!(f, "{rule}")
    }
}

/// The requests of a track that were never answered, of all.
pub(crate) fn lost(track: &Track) -> String {
    format!("{} of {}", track.lost(), track.count())
}

/// What became of a connection.
pub(crate) fn end(track: &Track) -> String {
    match track.broken() {
        Some(why) => format!("broken: {why}"),
        None => format!("survived, slowest answer {}", milliseconds(track.slowest())),
    }
}

/// A time as people read it.
pub(crate) fn milliseconds(time: Duration) -> String {
    if time >= Duration::from_secs(10) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} ms", time.as_millis())
}

/// KiB as MiB with one digit.
pub(crate) fn mebibytes(kib: u64) -> String {
    format!("{}.{} MiB", kib / 1024, (kib % 1024) * 10 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::default();
        table.add("a", 1);
        table.add_time("longer", Duration::from_millis(1500));
        let text = table.to_string();
        let widths: Vec<_> = text.lines().map(str::len).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{text}");
        assert!(text.contains("1500 ms"));
        assert_eq!(mebibytes(1536), "1.5 MiB");
    }
}
