//! The state of the spreading of packets on this node.

use std::time::Duration;

use leasehold_crds::lease::DataPathState;

use crate::clock::Instant;
use crate::election::io::data_path::DataPathView;

/// The time for which it has to be another one before that counts: kube-proxy has answered by then, and what the
/// kernel refused for a moment is done.
pub(in crate::election) const STEADY: Duration = Duration::from_secs(5);

/// The same for a better state: a node that has given away its addresses has nothing that its kernel could refuse.
pub(in crate::election) const RECOVERED: Duration = Duration::from_secs(60);

/// The state as it is seen, and as it counts.
#[derive(Debug)]
pub(in crate::election) struct DataPath {
    pub(in crate::election::context) view: DataPathView,
    /// As it is now, and since when.
    seen: (Option<DataPathState>, Instant),
    /// As it counts, …
    counts: Option<DataPathState>,
    /// … once anything has lasted since the process began.
    known: bool,
}

impl DataPath {
    pub(in crate::election) fn new(now: Instant) -> Self {
        Self { view: DataPathView::default(), seen: (None, now), counts: None, known: false }
    }

    /// Whether it is known what counts.
    pub(in crate::election) const fn is_known(&self) -> bool {
        self.known
    }

    /// The state that counts.
    pub(in crate::election) const fn state(&self) -> Option<DataPathState> {
        self.counts
    }

    /// The time from which on what is seen counts, if that is another state.
    pub(in crate::election) fn due(&self) -> Option<Instant> {
        let (seen, since) = self.seen;
        let changed = !self.known || self.counts != seen;
        let better = self.known && seen < self.counts;
        changed.then(|| since + if better { RECOVERED } else { STEADY })
    }

    /// Judges what is seen; whether another state counts now.
    pub(in crate::election) fn advance(&mut self, now: Instant, has_kube_proxy: bool) -> bool {
        let DataPathView { slow, failing, filtered, has_replacement } = self.view;
        let found = [
            (has_replacement && !has_kube_proxy, DataPathState::Replaced),
            (failing, DataPathState::Failing),
            (filtered, DataPathState::Filtered),
            (slow, DataPathState::Slow),
        ];
        let found = found.into_iter().find_map(|(is, state)| is.then_some(state));
        if found != self.seen.0 {
            self.seen = (found, now);
        }
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        (self.counts, self.known) = (found, true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_counts_once_it_has_lasted() {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let none = DataPathView::default();
        let (slow, failing) =
            (DataPathView { slow: true, ..none }, DataPathView { failing: true, ..none });
        let replaced = DataPathView { has_replacement: true, slow: true, failing: true, ..none };
        let mut it = DataPath::new(at(0));
        let mut after = |seconds, view, has_kube_proxy| {
            it.view = view;
            (it.advance(at(seconds), has_kube_proxy), it.is_known().then(|| it.state()))
        };
        let counts = |state| (true, Some(state));
        let goes_on = |state| (false, Some(state));
        assert_eq!(after(1, replaced, false), (false, None));
        assert_eq!(after(5, replaced, true), (false, None), "kube-proxy answers: another state");
        let failed = Some(DataPathState::Failing);
        assert_eq!(after(10, replaced, true), counts(failed));
        assert_eq!(after(11, slow, true), goes_on(failed));
        assert_eq!(after(70, slow, true), goes_on(failed));
        assert_eq!(after(71, slow, true), counts(Some(DataPathState::Slow)));
        // A state that comes and goes does not count.
        assert_eq!(after(72, failing, true), goes_on(Some(DataPathState::Slow)));
        assert_eq!(after(76, slow, true), goes_on(Some(DataPathState::Slow)));
        assert_eq!(after(77, failing, true), goes_on(Some(DataPathState::Slow)));
        assert_eq!(after(82, failing, true), counts(failed));
        assert_eq!(after(90, none, true), goes_on(failed));
        assert_eq!(after(150, none, true), counts(None));
        assert_eq!(after(160, replaced, false), goes_on(None));
        assert_eq!(after(165, replaced, false), counts(Some(DataPathState::Replaced)));
    }
}
