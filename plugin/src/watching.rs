//! `watch`: changes of ownership as they happen.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use jiff::Zoned;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use leasehold::api::watch_trouble;
use leasehold_core::explain::ClaimRow;
use leasehold_crds::lease::LeaseName;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::args::{LineFormat, WatchArguments};
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::output;
use super::table::Tone;

/// The longest wait of a change for its duration, which the owner writes: owners write one each 1.5 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// One change of ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// The time at which it was seen here.
    time: String,
    services: Vec<String>,
    addresses: Vec<String>,
    claim: String,
    from: Option<String>,
    to: Option<String>,
    took: Option<String>,
    cause: String,
}

/// The state of the claims, and the changes that wait for their durations.
#[derive(Debug, Default)]
struct Moves {
    known: BTreeMap<LeaseName, Known>,
    waiting: Vec<(Instant, LeaseName, Change)>,
}

#[derive(Debug)]
struct Known {
    holder: Option<String>,
    transitions: i32,
}

impl Moves {
    /// A claim is this now: a change of its owner waits for its duration, and one that has waited for
    /// what this says is complete.
    fn see(&mut self, now: Instant, time: &str, claim: &ClaimRow) -> Vec<Change> {
        let record = &claim.stored.record;
        let name = &claim.stored.name;
        let holder = record.holder.as_ref().map(ToString::to_string);
        let known = Known { holder: holder.clone(), transitions: record.transitions };
        let before = self.known.insert(name.clone(), known);
        let mut done = Vec::new();
        let (from, transitions) =
            before.map_or((None, None), |it| (it.holder, Some(it.transitions)));
        if from != holder {
            // What came before is over, and its duration will not come any more.
            done.extend(self.take(|(_, waiting, _)| waiting == name));
            let change = Change {
                time: time.to_owned(),
                services: record.services.clone(),
                addresses: record.addresses.iter().map(ToString::to_string).collect(),
                claim: name.to_string(),
                from,
                to: holder.clone(),
                took: None,
                cause: record.cause.clone(),
            };
            // Nobody writes how long it took to own nothing.
            let until = if holder.is_some() { now + PATIENCE } else { now };
            self.waiting.push((until, name.clone(), change));
        } else if transitions != Some(record.transitions) {
            return done;
        }
        if let Some(took) = claim.took() {
            let complete = self.take(|(_, waiting, _)| waiting == name);
            done.extend(complete.into_iter().map(|it| Change { took: Some(took.clone()), ..it }));
        }
        done
    }

    /// A claim is gone.
    fn gone(&mut self, now: Instant, time: &str, name: &LeaseName) {
        let Some(Known { holder: Some(holder), .. }) = self.known.remove(name) else { return };
        let change = Change {
            time: time.to_owned(),
            services: Vec::new(),
            addresses: Vec::new(),
            claim: name.to_string(),
            from: Some(holder),
            to: None,
            took: None,
            cause: "the claim was deleted".to_owned(),
        };
        self.waiting.push((now, name.clone(), change));
    }

    /// The changes that have waited long enough.
    fn due(&mut self, now: Instant) -> Vec<Change> {
        self.take(|(until, _, _)| *until <= now)
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|(until, _, _)| *until).min()
    }

    fn take(&mut self, which: impl Fn(&(Instant, LeaseName, Change)) -> bool) -> Vec<Change> {
        let (taken, kept) = std::mem::take(&mut self.waiting).into_iter().partition(which);
        self.waiting = kept;
        let taken: Vec<_> = taken;
        taken.into_iter().map(|(_, _, change)| change).collect()
    }
}

pub(super) async fn run(cluster: &Cluster, asked: &WatchArguments) -> Result<Outcome, PluginError> {
    let claims: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.system);
    // Says at once what is wrong: the watch would try for ever.
    cluster.call("list leases", claims.list_metadata(&ListParams::default())).await?;
    let mut events = pin!(watcher(claims, watcher::Config::default()).default_backoff());
    let mut moves = Moves::default();
    let mut left = asked.count.unwrap_or(usize::MAX);
    let mut listed = false;
    while left > 0 {
        let deadline = moves.deadline();
        let changes = tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => seen(&mut moves, &mut listed, &event),
                Some(Err(error)) => {
                    output::note(&format!("the watch is interrupted: {}", watch_trouble(&error)));
                    Vec::new()
                }
                None => return Ok(Outcome::Well),
            },
            () = async { sleep_until(deadline.unwrap_or_else(Instant::now)).await },
                if deadline.is_some() => moves.due(Instant::now()),
            _ = tokio::signal::ctrl_c() => return Ok(Outcome::Well),
        };
        for change in changes.iter().take(left) {
            output::print(&line(change, asked.output)?)?;
        }
        left = left.saturating_sub(changes.len());
    }
    Ok(Outcome::Well)
}

fn seen(moves: &mut Moves, listed: &mut bool, event: &Event<Lease>) -> Vec<Change> {
    let (now, time) = (Instant::now(), Zoned::now().strftime("%H:%M:%S%.3f").to_string());
    let claim = match event {
        Event::Init => return Vec::new(),
        Event::InitDone => {
            if !*listed {
                *listed = true;
                let owned = moves.known.values().filter(|it| it.holder.is_some()).count();
                output::note(&format!("watching {} claims, {owned} owned", moves.known.len()));
            }
            return Vec::new();
        }
        Event::InitApply(lease) | Event::Apply(lease) => ClaimRow::of(lease),
        Event::Delete(lease) => {
            if let Some(claim) = ClaimRow::of(lease) {
                moves.gone(now, &time, &claim.stored.name);
            }
            return Vec::new();
        }
    };
    let Some(claim) = claim else { return Vec::new() };
    if *listed {
        return moves.see(now, &time, &claim);
    }
    // What is so at the beginning is no change.
    moves.see(now, &time, &claim);
    moves.waiting.clear();
    Vec::new()
}

fn line(change: &Change, format: LineFormat) -> Result<String, PluginError> {
    if format == LineFormat::Json {
        let text = serde_json::to_string(change);
        return text.map(|it| it + "\n").map_err(|error| PluginError::Format(error.to_string()));
    }
    let end = |node: &Option<String>| node.clone().unwrap_or_else(|| "<none>".to_owned());
    let deleted = change.services.is_empty();
    let services = if deleted { change.claim.clone() } else { change.services.join(",") };
    let tone = if change.to.is_some() { Tone::Good } else { Tone::Bad };
    Ok(format!(
        "{}   {services}   {}   {} -> {}   {}   {}\n",
        change.time,
        output::listed(&change.addresses),
        end(&change.from),
        tone.paint(&end(&change.to)),
        change.took.as_deref().unwrap_or("-"),
        change.cause,
    ))
}

#[cfg(test)]
mod tests {
    use leasehold_crds::lease::{Claim, Stored};

    use super::*;

    fn claim(holder: Option<&str>, transitions: i32, took: Option<&str>) -> ClaimRow {
        let millis = |text: &str| text.strip_suffix("ms").unwrap().parse().unwrap();
        let record = Claim {
            took: took.map(|took| Duration::from_millis(millis(took))),
            holder: holder.map(|node| node.parse().unwrap()),
            transitions,
            services: vec!["web/shop".to_owned()],
            cause: format!("cause {transitions}"),
            ..Claim::default()
        };
        let stored = Stored {
            name: "web.shop".parse().unwrap(),
            uid: "u".into(),
            resource_version: "1".into(),
            acquired: None,
            record,
        };
        ClaimRow { stored }
    }

    fn says(changes: Vec<Change>) -> Vec<String> {
        let end = |node: Option<String>| node.unwrap_or_else(|| "nobody".to_owned());
        let one = |it: Change| {
            let took = it.took.unwrap_or_else(|| "-".to_owned());
            format!("{} {} > {} {took} {}", it.time, end(it.from), end(it.to), it.cause)
        };
        changes.into_iter().map(one).collect()
    }

    #[test]
    fn a_change_waits_for_its_duration_and_not_for_ever() {
        let (mut moves, now) = (Moves::default(), Instant::now());
        moves.see(now, "t0", &claim(Some("a"), 1, None));
        moves.waiting.clear();
        // A refresh is no change.
        assert!(moves.see(now, "t1", &claim(Some("a"), 1, None)).is_empty());
        assert!(moves.see(now, "t2", &claim(Some("b"), 2, None)).is_empty());
        let complete = moves.see(now, "t3", &claim(Some("b"), 2, Some("118ms")));
        assert_eq!(says(complete), ["t2 a > b 118ms cause 2"]);

        assert!(moves.see(now, "t4", &claim(Some("c"), 3, None)).is_empty());
        assert!(moves.due(now + PATIENCE / 2).is_empty());
        assert_eq!(says(moves.due(now + PATIENCE)), ["t4 b > c - cause 3"]);
        assert_eq!(moves.deadline(), None);
    }

    #[test]
    fn two_changes_in_a_row_are_both_said_in_their_order() {
        let (mut moves, now) = (Moves::default(), Instant::now());
        moves.see(now, "t0", &claim(Some("a"), 1, None));
        moves.waiting.clear();
        assert!(moves.see(now, "t1", &claim(None, 2, None)).is_empty());
        assert_eq!(
            says(moves.see(now, "t2", &claim(Some("b"), 3, None))),
            ["t1 a > nobody - cause 2"]
        );
        moves.gone(now, "t3", &"web.shop".parse().unwrap());
        let rest = moves.due(now + PATIENCE);
        assert_eq!(
            says(rest),
            ["t2 nobody > b - cause 3", "t3 b > nobody - the claim was deleted"]
        );
    }
}
