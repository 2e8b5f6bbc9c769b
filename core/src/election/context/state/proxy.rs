//! The kube-proxy of this node, as it was last seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::io::proxy::{ProxyHealth, ProxyView, Rules, RulesQuestion, RulesWatch};

/// For how long it does not answer before the node takes only what no other can: a restart takes less.
pub(in crate::election) const SILENT: Duration = Duration::from_secs(3);

/// ... and before the node gives away what it has: a new version has been pulled by then.
pub(in crate::election) const LASTS: Duration = Duration::from_secs(15);

/// What this node knows of its service proxy.
#[derive(Debug, Default)]
pub(in crate::election) struct Proxy {
    pub(in crate::election::context) view: ProxyView,
    /// The claims whose rules are waited for.
    pub(in crate::election::context) waits: BTreeMap<LeaseName, Wait>,
    /// They are others than was last asked for.
    stale: bool,
    /// How many questions there were.
    questions: u64,
    silent: bool,
    /// Whether that has lasted.
    pub(in crate::election::context) lasts: bool,
}

#[derive(Debug)]
pub(in crate::election) struct Wait {
    pub(in crate::election::context) since: Instant,
    pub(in crate::election::context) question: Arc<RulesQuestion>,
    /// It did not end in time, which was said.
    pub(in crate::election::context) given_up: bool,
}

impl Proxy {
    /// Whether the session is to say that it is silent.
    pub(in crate::election) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// What is known of the rules for a claim that was asked for.
    pub(in crate::election) fn rules(&self, name: &LeaseName) -> Option<Rules> {
        let (number, rules) = *self.view.rules.get(name)?;
        self.waits.get(name).filter(|wait| wait.question.number == number).map(|_| rules)
    }

    pub(in crate::election) fn ask(&mut self, claim: &DesiredClaim) -> Arc<RulesQuestion> {
        self.stale = true;
        self.questions += 1;
        Arc::new(RulesQuestion::of(self.questions, claim))
    }

    pub(in crate::election) fn forget(&mut self, name: &LeaseName) {
        self.stale |= self.waits.remove(name).is_some();
    }

    /// Judges for how long it has been silent; whether that says something else now.
    pub(in crate::election) fn advance(&mut self, now: Instant) -> bool {
        let since = self.silent_since();
        let for_long = |duration| since.is_some_and(|since| now >= since + duration);
        let judged = (for_long(SILENT), for_long(LASTS));
        let changes = judged != (self.silent, self.lasts);
        (self.silent, self.lasts) = judged;
        changes
    }

    /// The claims whose rules are waited for.
    pub(in crate::election) fn waiting(&self) -> impl Iterator<Item = &LeaseName> {
        self.waits.keys()
    }

    /// What is asked about them, if that has changed since it was taken.
    pub(in crate::election) fn take_questions(&mut self) -> Option<RulesWatch> {
        let asked = |(name, wait): (&LeaseName, &Wait)| (name.clone(), Arc::clone(&wait.question));
        std::mem::take(&mut self.stale).then(|| self.waits.iter().map(asked).collect())
    }

    pub(in crate::election) fn silent_since(&self) -> Option<Instant> {
        match self.view.health {
            ProxyHealth::Silent { since } => Some(since),
            ProxyHealth::Unknown | ProxyHealth::Answers => None,
        }
    }
}
