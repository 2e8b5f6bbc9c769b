//! Output for people and scripts.

use std::io::{self, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::api::causes;
use serde::Serialize;

use super::args::Format;
use super::error::PluginError;
use super::table::Tone;

/// Writes to standard output; colours only where it is a terminal that wants them.
pub(super) fn print(text: &str) -> Result<(), PluginError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(PluginError::Output)
}

/// Says on standard error why the command was not carried out.
pub(super) fn complain(error: &PluginError) {
    let line = format!("{} {}\n", Tone::Bad.paint("error:"), causes(error));
    // There is nobody to tell that nobody can be told.
    let _: io::Result<()> = anstream::stderr().write_all(line.as_bytes());
}

/// Says something on standard error that is not the answer.
pub(super) fn note(text: &str) {
    let _: io::Result<()> = anstream::stderr().write_all(format!("{text}\n").as_bytes());
}

/// `value` as a document, or `None` where a table is wanted.
pub(super) fn document(
    value: &impl Serialize,
    format: Format,
) -> Result<Option<String>, PluginError> {
    match format {
        Format::Table => Ok(None),
        Format::Json => serde_json::to_string_pretty(value)
            .map(|text| Some(text + "\n"))
            .map_err(|error| PluginError::Format(error.to_string())),
        Format::Yaml => serde_yaml_ng::to_string(value)
            .map(Some)
            .map_err(|error| PluginError::Format(error.to_string())),
    }
}

/// Now, for people.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

/// The age of something, as kubectl writes ages.
pub(super) fn age(then: Timestamp, now: Timestamp) -> String {
    // The clocks of nodes differ.
    let seconds = Duration::try_from(now.duration_since(then)).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let both = |first: u64, unit: &str, second: u64, lesser: &str| match second {
        0 => format!("{first}{unit}"),
        _ => format!("{first}{unit}{second}{lesser}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => both(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => both(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => both(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// A list in one cell.
pub(super) fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let now = Timestamp::from_second(10_000_000).unwrap();
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (252, "4m12s"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            let then = Timestamp::from_second(10_000_000 - seconds).unwrap();
            assert_eq!(age(then, now), expected, "{seconds}");
        }
    }
}
