//! Claims that wait until kube-proxy has the rules of their Services.

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::context::proxy::LATE;
use crate::election::context::state::owner::Owner;
use crate::election::io::event::{Action, Fact};

impl Claims {
    /// Notes for how long it has been silent.
    pub(in crate::election) fn advance_proxy(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let silent = cx.proxy().is_silent();
        if cx.proxy_mut().advance(now) {
            self.open.note_all();
        }
        if silent != cx.proxy().is_silent() {
            Context::report(Fact::ProxySilent { silent: !silent }, actions);
        }
    }

    /// Ends the waits that are over, and asks for what is waited for.
    pub(in crate::election) fn advance_rules(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let names: Vec<LeaseName> = cx.proxy().waiting().cloned().collect();
        for name in names {
            if self.tenures.get(&name).is_some_and(super::state::tenure::Tenure::awaits_rules) {
                if !cx.minds_rules(&name) || cx.has_rules(now, &name, LATE, actions) {
                    self.with(cx, &name, |tenure| tenure.set_awaits_rules(false));
                    cx.proxy_mut().forget(&name);
                }
            } else if !self.is_about_to_take(cx, &name) {
                cx.proxy_mut().forget(&name);
            }
        }
        if let Some(questions) = cx.proxy_mut().take_questions() {
            actions.push(Action::Look(questions));
        }
    }

    /// Whether this node has asked for a claim that nobody held, or is named as its successor.
    pub(in crate::election) fn is_about_to_take(&self, cx: &Context, name: &LeaseName) -> bool {
        let named = |stored: &Stored<Claim>| {
            let successor = stored.record.successor.as_ref();
            successor.is_some_and(|successor| successor.node == cx.config().node)
        };
        let nobodys = |stored: &Stored<Claim>| cx.owner(stored) == Owner::Nobody;
        let stored = cx.claims().get(name);
        let asked = self.tenures.get(name).is_some_and(super::state::tenure::Tenure::was_vacant);
        asked && stored.is_none_or(|stored| nobodys(stored))
            || stored.is_some_and(|stored| named(stored))
    }
}
