//! A series of requests and their answers, and what they say about outages.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An answer that takes longer than this is felt as an outage, though it is not lost.
const PROMPT: Duration = Duration::from_millis(50);

/// The source of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The pod.
    pub pod: String,
    /// The peer that the pod saw, where it says so: the node that forwarded, where that masquerades.
    pub via: Option<IpAddr>,
}

impl Answer {
    /// Parses `<pod> <peer>`, as pods of the lab answer.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (pod, via) = text.trim().rsplit_once(' ')?;
        Some(Self { pod: pod.rsplit(' ').next()?.to_owned(), via: Some(via.parse().ok()?) })
    }

    /// Parses the page `/hostname` of a pod: of one of the lab, or of agnhost, which says its name alone.
    pub(super) fn of_page(text: &str) -> Option<Self> {
        let pod = text.trim();
        let name = |pod: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            !pod.is_empty() && pod.chars().all(plain)
        };
        Self::parse(text).or_else(|| name(pod).then(|| Self { pod: pod.to_owned(), via: None }))
    }
}

/// One request.
#[derive(Clone, Debug)]
struct Request {
    sent: Instant,
    answered: Option<(Instant, Answer)>,
}

impl Request {
    fn prompt(&self) -> bool {
        self.answered.as_ref().is_some_and(|(at, _)| at.duration_since(self.sent) <= PROMPT)
    }
}

/// A time in which requests were not answered promptly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When the first request of it was sent.
    pub from: Instant,
    /// From there to the sending of the next request that was answered promptly, or to the last
    /// request if there was none.
    pub length: Duration,
    /// The number of its requests that were never answered.
    pub lost: usize,
}

/// All requests of one kind.
#[derive(Clone, Debug)]
pub struct Track {
    requests: Vec<Request>,
    broken: Option<(Instant, String)>,
}

impl Track {
    pub(super) fn new() -> Self {
        Self { requests: Vec::new(), broken: None }
    }

    /// Adds a request and returns its number.
    pub(super) fn sent(&mut self, at: Instant) -> usize {
        self.requests.push(Request { sent: at, answered: None });
        self.requests.len() - 1
    }

    pub(super) fn answered(&mut self, number: usize, at: Instant, answer: Answer) {
        if let Some(request) = self.requests.get_mut(number) {
            request.answered.get_or_insert((at, answer));
        }
    }

    pub(super) fn broke(&mut self, at: Instant, why: String) {
        self.broken.get_or_insert((at, why));
    }

    /// When the first request was sent.
    pub fn started(&self) -> Option<Instant> {
        self.requests.first().map(|request| request.sent)
    }

    /// The same requests, of which those that were answered later than this count as never answered.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Self {
        let in_time = |request: &Request| {
            let late = |(at, _): &(Instant, Answer)| at.duration_since(request.sent) > patience;
            Request {
                answered: request.answered.clone().filter(|answer| !late(answer)),
                ..*request
            }
        };
        Self { requests: self.requests.iter().map(in_time).collect(), broken: self.broken.clone() }
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// The number of requests that were never answered.
    pub fn lost(&self) -> usize {
        self.requests.iter().filter(|request| request.answered.is_none()).count()
    }

    /// The number of requests sent at `since` or later that were never answered.
    pub fn lost_since(&self, since: Instant) -> usize {
        let late = self.requests.iter().filter(|request| request.sent >= since);
        late.filter(|request| request.answered.is_none()).count()
    }

    /// The number of requests of each second from `since` on that were never answered, and of all.
    pub fn by_second(&self, since: Instant) -> Vec<(usize, usize)> {
        let mut seconds: Vec<(usize, usize)> = Vec::new();
        for request in self.requests.iter().filter(|request| request.sent >= since) {
            let at = usize::try_from(request.sent.duration_since(since).as_secs()).unwrap_or(0);
            if seconds.len() <= at {
                seconds.resize(at + 1, (0, 0));
            }
            if let Some((lost, all)) = seconds.get_mut(at) {
                *lost += usize::from(request.answered.is_none());
                *all += 1;
            }
        }
        seconds
    }

    /// The time from `since` to the sending of the last request that was never answered; zero without one.
    pub fn last_loss_since(&self, since: Instant) -> Duration {
        let lost = self.requests.iter().rev().find(|request| request.answered.is_none());
        lost.map(|request| request.sent.saturating_duration_since(since)).unwrap_or_default()
    }

    /// The time from `since` to the first answer of a request that was sent after one that was never answered: how long
    /// nobody got an answer. Zero where all were answered.
    pub fn answered_again_since(&self, since: Instant) -> Option<Duration> {
        let mut late = self.requests.iter().filter(|request| request.sent >= since);
        if !late.any(|request| request.answered.is_none()) {
            return Some(Duration::ZERO);
        }
        let answers = late.filter_map(|request| Some(request.answered.as_ref()?.0));
        answers.min().map(|at| at.saturating_duration_since(since))
    }

    /// Whether a request that was sent at `since` or later was answered promptly.
    pub fn answered_since(&self, since: Instant) -> bool {
        let late = self.requests.iter().rev().take_while(|request| request.sent >= since);
        late.into_iter().any(Request::prompt)
    }

    /// Why the connection ended, for a track of one connection that did.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_ref().map(|(_, why)| why.as_str())
    }

    /// When it ended.
    pub fn broken_at(&self) -> Option<Instant> {
        self.broken.as_ref().map(|(at, _)| *at)
    }

    /// The pods that have answered.
    pub fn pods(&self) -> BTreeSet<&str> {
        let answers = self.requests.iter().filter_map(|request| request.answered.as_ref());
        answers.map(|(_, answer)| answer.pod.as_str()).collect()
    }

    /// The outages, in order.
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages = Vec::new();
        let mut current: Option<Outage> = None;
        for request in &self.requests {
            if let Some(outage) = &mut current {
                outage.length = request.sent.duration_since(outage.from);
            }
            if request.prompt() {
                outages.extend(current.take());
                continue;
            }
            let outage = current.get_or_insert(Outage {
                from: request.sent,
                length: Duration::ZERO,
                lost: 0,
            });
            outage.lost += usize::from(request.answered.is_none());
        }
        outages.extend(current);
        outages
    }

    /// The length of the longest outage; zero without one.
    pub fn longest_outage(&self) -> Duration {
        self.outages().iter().map(|outage| outage.length).max().unwrap_or_default()
    }

    /// The longest outage that ended after `since`.
    pub fn outage_since(&self, since: Instant) -> Option<Outage> {
        let outages =
            self.outages().into_iter().filter(|outage| outage.from + outage.length > since);
        outages.max_by_key(|outage| outage.length)
    }

    /// The length of the longest outage that ended after `since`; zero without one.
    pub fn longest_outage_since(&self, since: Instant) -> Duration {
        self.outage_since(since).map(|outage| outage.length).unwrap_or_default()
    }

    /// The longest time that an answer took.
    pub fn slowest(&self) -> Duration {
        self.requests
            .iter()
            .filter_map(|request| Some(request.answered.as_ref()?.0.duration_since(request.sent)))
            .max()
            .unwrap_or_default()
    }

    /// The source of answers over time: one entry for each change.
    pub fn answered_by(&self) -> Vec<(Instant, Answer)> {
        let mut changes: Vec<(Instant, Answer)> = Vec::new();
        for request in &self.requests {
            let Some((_, answer)) = &request.answered else { continue };
            if changes.last().is_none_or(|(_, last)| last != answer) {
                changes.push((request.sent, answer.clone()));
            }
        }
        changes
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sent, {} lost, longest outage {} ms",
            self.count(),
            self.lost(),
            self.longest_outage().as_millis()
        )?;
        if let Some(why) = self.broken() {
            write!(f, ", broken: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(answers: &[Option<u64>]) -> Track {
        let start = Instant::now();
        let mut track = Track::new();
        for (number, delay) in answers.iter().enumerate() {
            let sent = start + Duration::from_millis(5) * u32::try_from(number).unwrap();
            let number = track.sent(sent);
            if let Some(delay) = delay {
                let answer = Answer::parse("7 web-1 10.1.0.11").unwrap();
                track.answered(number, sent + Duration::from_millis(*delay), answer);
            }
        }
        track
    }

    #[test]
    fn an_outage_lasts_from_the_first_unanswered_request_to_the_next_answered_one() {
        let track = track(&[Some(1), None, None, Some(1), Some(1), None, Some(1)]);
        let lengths: Vec<_> = track.outages().iter().map(|o| o.length.as_millis()).collect();
        assert_eq!(lengths, [10, 5]);
        assert_eq!((track.count(), track.lost()), (7, 3));
        assert_eq!(track.longest_outage(), Duration::from_millis(10));
    }

    #[test]
    fn a_late_answer_is_felt_but_not_lost() {
        let track = track(&[Some(1), Some(400), Some(1)]);
        assert_eq!(track.lost(), 0);
        assert_eq!(track.longest_outage(), Duration::from_millis(5));
    }

    #[test]
    fn an_answer_that_comes_too_late_counts_as_none() {
        let track = track(&[Some(1), Some(1_100), None]);
        assert_eq!((track.lost(), track.within(Duration::from_secs(1)).lost()), (1, 2));
    }

    #[test]
    fn what_was_before_a_moment_does_not_count_after_it() {
        let track = track(&[None, None, Some(1), Some(1), None, Some(1)]);
        let since = track.started().unwrap() + Duration::from_millis(15);
        assert_eq!(track.longest_outage(), Duration::from_millis(10));
        assert_eq!(track.longest_outage_since(since), Duration::from_millis(5));
        assert_eq!((track.lost(), track.lost_since(since)), (3, 1));
        assert!(track.answered_since(since));
        assert!(!track.answered_since(since + Duration::from_millis(15)));
    }

    #[test]
    fn an_outage_that_does_not_end_counts_to_the_last_request() {
        let track = track(&[Some(1), None, None, None]);
        assert_eq!(track.longest_outage(), Duration::from_millis(10));
    }

    #[test]
    fn losses_are_counted_by_the_second_and_to_the_last() {
        // A request every 5 ms: the first 200 are of the first second.
        let answers: Vec<_> =
            (0..300).map(|number| (!(100..=250).contains(&number)).then_some(1)).collect();
        let track = track(&answers);
        let start = track.started().unwrap();
        assert_eq!(track.by_second(start), [(100, 200), (51, 100)]);
        assert_eq!(track.last_loss_since(start), Duration::from_millis(1250));
        assert_eq!(track.answered_again_since(start), Some(Duration::from_millis(1256)));
        let late = start + Duration::from_millis(1300);
        assert_eq!(track.answered_again_since(late), Some(Duration::ZERO));
    }

    #[test]
    fn a_page_of_agnhost_names_the_pod_alone() {
        let answer = Answer::of_page("web-6d4cf56db6-x2x7k").unwrap();
        assert_eq!((answer.pod.as_str(), answer.via), ("web-6d4cf56db6-x2x7k", None));
        assert_eq!(Answer::of_page("web-1 10.1.0.11\n").unwrap().pod, "web-1");
        assert_eq!(Answer::of_page("<html>"), None);
    }

    #[test]
    fn an_answer_names_pod_and_peer() {
        let answer = Answer::parse("12 web-1 fd1e:a5e:1:1::11\n").unwrap();
        assert_eq!(answer.pod, "web-1");
        assert_eq!(answer.via.unwrap().to_string(), "fd1e:a5e:1:1::11");
    }
}
