//! Where the time of a failover goes, by what the speakers log: the lines that people read too.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ground::Ground;
use crate::logs::{Line, since};
use crate::record::milliseconds;

/// The log options of speakers that this reads: the usual level, and a line for each address that is added to the
/// kernel.
pub(crate) const ARGUMENTS: [&str; 4] =
    ["--log", "info,leasehold::announce::address::apply=debug", "--log-format", "json"];

/// One failover, in milliseconds from step to step.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Phases {
    /// From the fault to the first poll that is not answered.
    pub(crate) notice: f64,
    /// ... to silence: as many polls as the policy says, and nobody else who answers.
    pub(crate) confirm: f64,
    /// ... to the answer to the write that fences.
    pub(crate) fence: f64,
    /// ... to the answer to the write that claims, on the node that takes over.
    pub(crate) claim: f64,
    /// ... to the address in its kernel.
    pub(crate) address: f64,
    /// ... to the announcement.
    pub(crate) announce: f64,
    /// ... to the sending of the first request that the client finds answered.
    pub(crate) client: f64,
}

/// The failover of `vip` after a fault at `struck`, whose client was answered again after `switched`; `None`
/// where the address did not move by silence and fence.
pub(crate) fn read(
    ground: &Ground,
    vip: IpAddr,
    struck: Timestamp,
    switched: Duration,
) -> Result<Option<Phases>> {
    let mut logs = Vec::new();
    for node in ground.cluster.nodes() {
        logs.push(since(&node.speaker()?.log(), struck));
    }
    Ok(found(&logs, vip, struck, switched))
}

/// Whether a list such as `[192.0.2.1, 192.0.2.10]` names this address.
fn names(list: &str, vip: IpAddr) -> bool {
    let inside = list.trim_start_matches('[').trim_end_matches(']');
    inside.split(", ").any(|address| address.parse() == Ok(vip))
}

fn found(logs: &[Vec<Line>], vip: IpAddr, struck: Timestamp, switched: Duration) -> Option<Phases> {
    let moment = |line: &Line| Duration::try_from(line.timestamp.duration_since(struck)).ok();
    let first = |message: &str| {
        let such = |line: &&Line| line.fields.message == message;
        logs.iter().flatten().filter(such).min_by_key(|line| line.timestamp)
    };
    let silent = first("an owner fell silent")?;
    let (silence, fenced) = (moment(silent)?, moment(first("fenced")?)?);
    let noticed = silence.checked_sub(duration(&silent.fields.after)?)?;

    // Who announced it, and what came before on that node.
    let (taker, announced) = logs.iter().find_map(|log| {
        let serves =
            |line: &Line| line.fields.message == "announced" && names(&line.fields.addresses, vip);
        log.iter().position(serves).map(|at| (log, at))
    })?;
    let before = taker.get(..announced)?;
    let last = |such: &dyn Fn(&Line) -> bool| before.iter().rfind(|line| such(line));
    let claimed = moment(last(&|line| line.fields.message == "claimed")?)?;
    let added =
        last(&|line| line.fields.message == "address added" && line.fields.ip.parse() == Ok(vip))?;
    let (added, announced) = (moment(added)?, moment(taker.get(announced)?)?);
    let step = |from: Duration, to: Duration| milliseconds(to.saturating_sub(from));
    Some(Phases {
        notice: milliseconds(noticed),
        confirm: step(noticed, silence),
        fence: step(silence, fenced),
        claim: step(fenced, claimed),
        address: step(claimed, added),
        announce: step(added, announced),
        client: step(announced, switched),
    })
}

/// As Rust prints one: `41.2ms`.
fn duration(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match text.get(number.len()..)? {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(struck: Timestamp, lines: &[(u64, &str)]) -> Vec<Line> {
        let text = lines.iter().map(|(after, fields)| {
            let at = struck + Duration::from_millis(*after);
            format!("{{\"timestamp\":\"{at}\",\"level\":\"INFO\",\"fields\":{{{fields}}}}}\n")
        });
        since(&text.collect::<String>(), struck + Duration::from_millis(1))
    }

    #[test]
    fn each_step_begins_where_the_one_before_ends() {
        let struck: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let poller = log(
            struck,
            &[
                (0, r#""message":"an owner fell silent","after":"1s""#),
                (100, r#""message":"an owner fell silent","after":"60.5ms""#),
                (104, r#""message":"fenced","after":"64ms""#),
            ],
        );
        let taker = log(
            struck,
            &[
                (107, r#""message":"claimed","after":"Some(67ms)""#),
                (108, r#""message":"address added","ip":"192.0.2.1""#),
                (110, r#""message":"announced","addresses":"[192.0.2.1]""#),
            ],
        );
        let vip = "192.0.2.1".parse().unwrap();
        let phases = found(&[poller, taker], vip, struck, Duration::from_millis(113)).unwrap();
        let all = serde_json::to_value(phases).unwrap();
        let expected = serde_json::json!({
            "notice": 39.5, "confirm": 60.5, "fence": 4.0, "claim": 3.0, "address": 1.0,
            "announce": 2.0, "client": 3.0,
        });
        assert_eq!(all, expected);
    }

    #[test]
    fn durations_are_read_as_they_are_printed() {
        for nanos in [999, 1_500, 41_234_000, 5_000_000_000] {
            let length = Duration::from_nanos(nanos);
            assert_eq!(duration(&format!("{length:?}")), Some(length));
        }
        assert_eq!(duration("soon"), None);
    }
}
