//! From the answers to health checks to whether a service proxy is silent.

use leasehold_core::clock::Instant;
use leasehold_core::election::ProxyHealth;

/// The result of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// It is well.
    Well,
    /// It has not written for a minute or longer what it was told.
    Ill,
    /// No answer, or one that no service proxy gives.
    Silent,
}

/// The health after `check`, which was sent at `sent`; `before` is the health until then.
pub(super) const fn after(before: ProxyHealth, sent: Instant, check: Check) -> ProxyHealth {
    match (before, check) {
        (_, Check::Well) => ProxyHealth::Answers,
        (ProxyHealth::Unknown, Check::Silent) => ProxyHealth::Unknown,
        (ProxyHealth::Silent { since }, _) => ProxyHealth::Silent { since },
        (ProxyHealth::Answers, _) | (ProxyHealth::Unknown, Check::Ill) => {
            ProxyHealth::Silent { since: sent }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(second))
    }

    #[test]
    fn only_who_answered_before_is_silent_and_since_the_first_check_without_an_answer() {
        let silent = |second| ProxyHealth::Silent { since: at(second) };
        let mut state = ProxyHealth::Unknown;
        for (second, check, expected) in [
            (1, Check::Silent, ProxyHealth::Unknown),
            (2, Check::Well, ProxyHealth::Answers),
            (3, Check::Silent, silent(3)),
            (4, Check::Ill, silent(3)),
            (5, Check::Silent, silent(3)),
            (6, Check::Well, ProxyHealth::Answers),
            (7, Check::Ill, silent(7)),
        ] {
            state = after(state, at(second), check);
            assert_eq!(state, expected, "{second}");
        }
        assert_eq!(after(ProxyHealth::Unknown, at(1), Check::Ill), silent(1));
    }
}
