//! What a step changes.

use crate::action::Action;
use crate::lease::{Claim, History, Record, Session, Standing};
use crate::names::{ClaimName, Node, Object};
use crate::request::{Purpose, Request, Write};
use crate::rules::Rules;
use crate::speaker::{Process, Tenure};
use crate::state::{Breach, Operator, State};

impl State {
    /// The state after `action`.
    pub fn after(&self, rules: &Rules, action: Action) -> Self {
        let mut next = self.clone();
        next.step(rules, action);
        if matches!(action, Action::CarryOut(_)) {
            next.breach = next.breach.or(self.claim_breach(&next, action));
        }
        next.breach = next.breach.or(self.state_breach(&next));
        next.tidy();
        next
    }

    fn step(&mut self, rules: &Rules, action: Action) {
        match action {
            Action::Send(request) => self.send(request),
            Action::CarryOut(request) => {
                self.drop_request(request);
                self.carry_out(rules, request);
            }
            Action::Lose(request) => self.drop_request(request),
            Action::Deliver(node, lease) => {
                self.deliver(node, lease);
                self.settle(rules, node);
            }
            Action::Read(node, lease) => {
                self.read(node, lease);
                self.settle(rules, node);
            }
            Action::Adopt(node) => {
                if let Some(known) = self.known_session(node, node) {
                    self.speakers[node].hold(known.id());
                }
                self.speakers[node].process = Process::Running;
                self.settle(rules, node);
            }
            Action::Leave(node, claim) => self.speakers[node].tenures[claim].leaving = true,
            Action::Left(node, claim) => self.speakers[node].tenures[claim] = Tenure::default(),
            Action::EndYield(node, claim) => self.speakers[node].tenures[claim].yielding = None,
            Action::Remove(node) | Action::Lapse(node) => self.speakers[node].has_address = false,
            Action::Crash(node) => {
                self.left.crashes -= 1;
                self.speakers[node].crash();
            }
            Action::Start(node) => self.start(rules, node),
            Action::Unlist(claim) => {
                self.operator = Operator::Unlisted;
                self.list(rules, claim, false);
            }
            Action::Record(claim) => {
                self.left.reassignments -= 1;
                let lists = rules.only_the_operator_lists;
                self.operator = if lists { Operator::Recorded } else { Operator::Idle };
                self.service.replace(claim);
            }
            Action::List(claim) => {
                self.operator = Operator::Idle;
                self.list(rules, claim, true);
            }
            Action::Delete(lease) => self.delete(lease),
            Action::Edit(lease, transitions) => self.edit(rules, lease, transitions),
        }
    }

    fn send(&mut self, request: Request) {
        if let (Purpose::Name, Write::Claim(claim, record)) = (request.purpose, request.write) {
            self.left.moves -= 1;
            let successor = record.successor.map(|(node, _)| node);
            self.speakers[request.from].tenures[claim].handover = successor;
        }
        // On an older version: refused, and nothing came of it.
        self.requests.push(request);
    }

    fn drop_request(&mut self, request: Request) {
        if let Some(at) = self.requests.iter().position(|other| *other == request) {
            self.requests.remove(at);
        }
    }

    fn start(&mut self, rules: &Rules, node: Node) {
        let me = &mut self.speakers[node];
        let Process::Crashed(record, highest) = me.process else { return };
        me.process = Process::Starting(record);
        if rules.numbers_outlive_a_restart {
            me.highest_session = highest;
        }
        self.read_all(node);
        self.settle(rules, node);
    }

    fn delete(&mut self, lease: Object) {
        self.left.deletions -= 1;
        match lease {
            Object::Session(of) => self.sessions[of].delete(),
            Object::Claim(claim) => self.claims[claim].delete(),
            Object::Service => {}
        }
        self.outdate(lease);
    }

    fn edit(&mut self, rules: &Rules, lease: Object, transitions: u8) {
        self.left.edits -= 1;
        match lease {
            Object::Session(of) => {
                if let Some(now) = self.sessions[of].now() {
                    self.sessions[of].replace(Session { transitions, ..now.record });
                }
            }
            Object::Claim(claim) => {
                if let Some(now) = self.claims[claim].now() {
                    let record = Claim { transitions, ..now.record };
                    self.claims[claim].replace(record);
                }
            }
            Object::Service => {}
        }
        self.outdate(lease);
        self.drop_hopeless(rules);
    }

    /// The operator replaces a claim's list.
    fn list(&mut self, rules: &Rules, claim: ClaimName, lists: bool) {
        let unowned = Claim { transitions: 0, held: None, successor: None, lists };
        let record = self.claims[claim].now().map_or(unowned, |now| Claim { lists, ..now.record });
        write(&mut self.claims[claim], record);
        self.outdate(Object::Claim(claim));
        self.drop_hopeless(rules);
    }

    /// The store takes a write, or refuses it.
    fn carry_out(&mut self, rules: &Rules, request: Request) {
        let lease = request.lease();
        let now = match lease {
            Object::Session(of) => self.sessions[of].now().map(|stored| stored.uid),
            Object::Claim(claim) => self.claims[claim].now().map(|stored| stored.uid),
            Object::Service => None,
        };
        let accepted = match (request.base, now) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(_), None) => !rules.uid_precondition,
            (Some(base), Some(uid)) => {
                let fresh = base.is_newest || !rules.version_precondition;
                fresh && (base.uid == uid || !rules.uid_precondition)
            }
        };
        if !accepted {
            return;
        }
        if request.base.is_some() && now.is_none() {
            self.breach = Some(Breach::Recreated);
        }
        match request.write {
            Write::Session(of, record) => {
                let fenced = self.sessions[of]
                    .now()
                    .is_some_and(|stored| stored.record.standing == Standing::Fenced);
                let begins = record.standing == Standing::Live;
                if fenced && begins && self.speakers[of].has_address {
                    self.breach = Some(Breach::AcquiredBeforeRemoval);
                }
                write(&mut self.sessions[of], record);
            }
            Write::Claim(claim, record) => write(&mut self.claims[claim], record),
        }
        self.outdate(lease);
        self.drop_hopeless(rules);
    }

    /// `lease` has another version: what is on its way rests on an older one.
    fn outdate(&mut self, lease: Object) {
        for request in self.requests.iter_mut().filter(|request| request.lease() == lease) {
            if let Some(base) = &mut request.base {
                base.is_newest = false;
            }
        }
    }

    /// Writes that will be refused whenever they arrive have no effect.
    fn drop_hopeless(&mut self, rules: &Rules) {
        if rules.version_precondition && rules.uid_precondition {
            self.requests.retain(|request| request.base.is_none_or(|base| base.is_newest));
        }
        self.requests.sort_unstable();
        self.requests.dedup();
    }

    /// Whether the state of a claim at a speaker has changed in a way that the table does not contain.
    fn state_breach(&self, next: &Self) -> Option<Breach> {
        let states = |state: &Self, node: Node| {
            let tenures = &state.speakers[node].tenures;
            ClaimName::ALL.map(|claim| tenures[claim].state())
        };
        let expected = |node: Node| {
            let mut pairs = states(self, node).into_iter().zip(states(next, node));
            pairs.all(|(before, now)| before.may_become(now))
        };
        (!Node::ALL.into_iter().all(expected)).then_some(Breach::Unexpected)
    }

    /// Whether a claim changed hands on the way to `next` as it must not.
    fn claim_breach(&self, next: &Self, action: Action) -> Option<Breach> {
        let Action::CarryOut(request) = action else { return None };
        for claim in ClaimName::ALL {
            let taken = request.lease() == Object::Claim(claim) && request.purpose.takes();
            match (self.valid_owner(claim), next.valid_owner(claim)) {
                (None, Some(_)) if !taken => return Some(Breach::Revived),
                (Some(old), Some(new)) if old != new => {
                    let named = self.claims[claim].now().and_then(|stored| stored.record.successor);
                    let granted = match request.purpose {
                        Purpose::TakeForsaken | Purpose::TakeBack => taken,
                        Purpose::Succeed => taken && named.is_some_and(|(node, _)| node == new),
                        _ => false,
                    };
                    if !granted {
                        return Some(Breach::Stolen);
                    }
                }
                (None | Some(_), None | Some(_)) => {}
            }
        }
        None
    }
}

fn write<R: Record>(history: &mut History<R>, record: R) {
    if history.now().is_some() {
        history.replace(record);
    } else {
        history.create(record);
    }
}
