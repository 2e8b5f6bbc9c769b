//! What can happen next.

use std::fmt;

use crate::lease::{Claim, Session, SessionId, Standing, Stored};
use crate::names::{ClaimName, Node, Object};
use crate::request::{Base, Purpose, Request, Write};
use crate::rules::{Bounds, Rules};
use crate::speaker::{Owner, Process};
use crate::state::{Operator, State, is_edit};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A speaker sends a write.
    Send(Request),
    /// The store carries out a write, whatever has become of its sender.
    CarryOut(Request),
    /// A write is lost.
    Lose(Request),
    /// The watch of a speaker delivers the next state of a lease, which is not yet the present one.
    Deliver(Node, Object),
    /// A speaker learns the present state of a lease: by its watch, a read, or the answer to its
    /// own write.
    Read(Node, Object),
    /// A speaker without a session renews the one that the store says is its own.
    Adopt(Node),
    /// A speaker decides to give a claim up: no carrier, no permission, nothing asks for it.
    Leave(Node, ClaimName),
    /// The release of a claim was answered.
    Left(Node, ClaimName),
    /// An old owner hears the new one, or nobody, and ends a planned move.
    EndYield(Node, ClaimName),
    /// The kernel follows: the address goes.
    Remove(Node),
    /// The lifetime of an address without a speaker ends.
    Lapse(Node),
    /// The process ends without a word.
    Crash(Node),
    /// A new process has listed everything.
    Start(Node),
    /// The operator takes the address off the list of a claim that is not valid.
    Unlist(ClaimName),
    /// The operator records which claim governs the address.
    Record(ClaimName),
    /// The operator puts the address on the list of the claim that governs it.
    List(ClaimName),
    /// Somebody deletes a lease.
    Delete(Object),
    /// Somebody sets the transitions of a lease to an older value.
    Edit(Object, u8),
}

impl Action {
    /// What happens, for the list of what did.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "a write is sent",
            Self::CarryOut(request) => match request.purpose {
                Purpose::Renew => "session renewed",
                Purpose::Acquire => "session acquired",
                Purpose::Repair => "session repaired",
                Purpose::ReleaseSession => "session released",
                Purpose::Fence => "session fenced",
                Purpose::TakeOrphan => "orphan taken",
                Purpose::TakeForsaken => "forsaken claim taken",
                Purpose::Succeed => "claim taken by its successor",
                Purpose::TakeBack => "claim taken back",
                Purpose::Retake => "claim retaken",
                Purpose::Refresh => "claim refreshed",
                Purpose::Name => "successor named",
                Purpose::Release => "claim released",
            },
            Self::Lose(_) => "a write is lost",
            Self::Deliver(..) => "the watch delivers",
            Self::Read(..) => "the newest is known",
            Self::Adopt(_) => "session adopted",
            Self::Leave(..) => "claim to be given up",
            Self::Left(..) => "release answered",
            Self::EndYield(..) => "planned move over",
            Self::Remove(_) => "address removed",
            Self::Lapse(_) => "address lapsed",
            Self::Crash(_) => "speaker crashed",
            Self::Start(_) => "speaker started",
            Self::Unlist(_) => "address taken off a list",
            Self::Record(_) => "other claim recorded",
            Self::List(_) => "address listed",
            Self::Delete(_) => "lease deleted by hand",
            Self::Edit(..) => "lease edited by hand",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(request) => write!(f, "{request} is sent"),
            Self::CarryOut(request) => write!(f, "{request} arrives"),
            Self::Lose(request) => write!(f, "{request} is lost"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Collects what can happen next.
pub struct Options<'a> {
    rules: &'a Rules,
    bounds: &'a Bounds,
    state: &'a State,
    actions: &'a mut Vec<Action>,
}

impl<'a> Options<'a> {
    /// Of `state`.
    pub const fn new(
        rules: &'a Rules,
        bounds: &'a Bounds,
        state: &'a State,
        actions: &'a mut Vec<Action>,
    ) -> Self {
        Self { rules, bounds, state, actions }
    }

    /// All of them.
    pub fn collect(mut self) {
        for request in &self.state.requests {
            self.actions.push(Action::CarryOut(*request));
            self.actions.push(Action::Lose(*request));
        }
        self.faults();
        self.operator();
        for node in Node::ALL {
            let me = &self.state.speakers[node];
            match me.process {
                Process::Absent => {}
                Process::Crashed(..) => {
                    self.actions.push(Action::Start(node));
                    if me.has_address {
                        self.actions.push(Action::Lapse(node));
                    }
                }
                Process::Starting(_) => {
                    self.knowledge(node);
                    self.session(node);
                    self.crash(node);
                }
                Process::Running => {
                    self.knowledge(node);
                    self.session(node);
                    self.fences(node);
                    for claim in ClaimName::ALL.into_iter().take(self.bounds.claims) {
                        self.claim(node, claim);
                    }
                    self.kernel(node);
                    self.crash(node);
                }
            }
        }
    }

    fn crash(&mut self, node: Node) {
        if self.state.left.crashes > 0 {
            self.actions.push(Action::Crash(node));
        }
    }

    fn faults(&mut self) {
        for lease in Object::all() {
            let transitions = match lease {
                // An edit of a session that has ended would only hide that from its owner.
                Object::Session(of) => self.state.sessions[of]
                    .now()
                    .map(|stored| if stored.is_live() { stored.record.transitions } else { 0 }),
                Object::Claim(claim) => {
                    self.state.claims[claim].now().map(|stored| stored.record.transitions)
                }
                Object::Service => None,
            };
            let Some(transitions) = transitions else { continue };
            if self.state.left.deletions > 0 {
                self.actions.push(Action::Delete(lease));
            }
            if self.state.left.edits > 0 {
                self.actions.extend((1..transitions).map(|older| Action::Edit(lease, older)));
            }
        }
    }

    /// Gives the address to the other claim: off the list of the old one, which must not be valid;
    /// on record; on the list of the new one. Lists it again where somebody deleted the lease.
    fn operator(&mut self) {
        let state = self.state;
        let Some(recorded) = state.service.now().map(|stored| stored.record) else { return };
        let over = state.address_owner(recorded).is_none();
        let lists = |claim: ClaimName| state.claims[claim].now().is_some_and(|c| c.record.lists);
        let missing = !lists(recorded) && !lists(recorded.other());
        if state.operator == Operator::Idle && missing && self.rules.only_the_operator_lists {
            self.actions.push(Action::List(recorded));
        }
        match state.operator {
            Operator::Idle if state.left.reassignments == 0 || !over => {}
            Operator::Idle if self.rules.only_the_operator_lists => {
                self.actions.push(Action::Unlist(recorded));
            }
            Operator::Idle | Operator::Unlisted => {
                self.actions.push(Action::Record(recorded.other()));
            }
            Operator::Recorded => self.actions.push(Action::List(recorded)),
        }
    }

    fn knowledge(&mut self, node: Node) {
        for lease in Object::all() {
            if !self.state.is_current(node, lease) {
                self.actions.push(Action::Read(node, lease));
                if self.state.behind(node, lease) > 1 {
                    self.actions.push(Action::Deliver(node, lease));
                }
            }
        }
    }

    fn kernel(&mut self, node: Node) {
        if self.state.speakers[node].has_address && !self.state.serves(node) {
            self.actions.push(Action::Remove(node));
        }
    }

    fn send(&mut self, from: Node, base: Option<Base>, write: Write, purpose: Purpose) {
        let request = Request { from, base, write, purpose };
        let kind = |other: &&Request| {
            let same = match (other.write, write) {
                (Write::Session(..), Write::Session(..)) => true,
                (Write::Claim(one, _), Write::Claim(another, _)) => one == another,
                (Write::Session(..), Write::Claim(..)) | (Write::Claim(..), Write::Session(..)) => {
                    false
                }
            };
            other.from == from && same
        };
        let unanswered = self.state.requests.iter().filter(kind).count();
        let bound = match write {
            Write::Session(_, record) => record.transitions <= self.bounds.session_transitions,
            Write::Claim(_, record) => record.transitions <= self.bounds.claim_transitions,
        };
        // On an older version it will be refused, whenever it arrives.
        let checked = self.rules.version_precondition && self.rules.uid_precondition;
        if checked && base.is_some_and(|base| !base.is_newest) {
            return;
        }
        // The same write twice is one write: the second rests on a version that is gone.
        if bound && unanswered < self.bounds.in_flight && !self.state.requests.contains(&request) {
            self.actions.push(Action::Send(request));
        }
    }

    fn base<R>(&self, node: Node, lease: Object, known: Option<Stored<R>>) -> Option<Base> {
        let is_newest = self.state.is_current(node, lease);
        known.map(|known| Base { uid: known.uid, is_newest })
    }

    fn put_session(&mut self, node: Node, record: Session, purpose: Purpose) {
        let known = self.state.known_session(node, node);
        let base = self.base(node, Object::Session(node), known);
        self.send(node, base, Write::Session(node, record), purpose);
    }

    fn session(&mut self, node: Node) {
        let me = &self.state.speakers[node];
        let known = self.state.known_session(node, node);
        let next = me.highest_session + 1;
        let begin = Session { transitions: next, standing: Standing::Live };
        let fell = self.rules.numbers_never_fall
            && known.is_some_and(|known| known.record.transitions < me.highest_session);
        match (me.own, known) {
            (Some(_), None) => self.put_session(node, begin, Purpose::Repair),
            (Some(own), Some(known)) if known.is_live() => {
                if own == known.id() {
                    self.hold_session(node, known);
                } else if fell {
                    self.put_session(node, begin, Purpose::Repair);
                }
            }
            (Some(own), Some(known)) => {
                if is_edit(self.rules, own, known) {
                    self.put_session(node, begin, Purpose::Repair);
                }
            }
            (None, Some(known)) if known.is_live() => {
                if fell {
                    self.put_session(node, begin, Purpose::Repair);
                } else if self.state.is_current(node, Object::Session(node)) {
                    self.actions.push(Action::Adopt(node));
                }
            }
            (None, _) => {
                let clear = !me.has_address || !self.rules.remove_before_acquire;
                if me.runs() && clear {
                    let transitions =
                        if self.rules.sessions_add_one { next } else { me.highest_session };
                    let record = Session { transitions, ..begin };
                    self.put_session(node, record, Purpose::Acquire);
                }
            }
        }
    }

    fn hold_session(&mut self, node: Node, known: Stored<Session>) {
        if self.bounds.renewals {
            self.put_session(node, known.record, Purpose::Renew);
        }
        if self.bounds.releases {
            let highest = self.state.speakers[node].highest_session;
            let transitions = highest + u8::from(self.rules.sessions_add_one);
            let record = Session { transitions, standing: Standing::Released };
            self.put_session(node, record, Purpose::ReleaseSession);
        }
    }

    fn fences(&mut self, node: Node) {
        if self.state.speakers[node].own.is_none() {
            return;
        }
        for of in Node::ALL.into_iter().filter(|of| *of != node) {
            let Some(known) = self.state.known_session(node, of).filter(|known| known.is_live())
            else {
                continue;
            };
            let transitions = known.record.transitions + u8::from(self.rules.fences_add_one);
            let record = Session { transitions, standing: Standing::Fenced };
            let base = self.base(node, Object::Session(of), Some(known));
            self.send(node, base, Write::Session(of, record), Purpose::Fence);
        }
    }

    fn put_claim(&mut self, node: Node, claim: ClaimName, record: Claim, purpose: Purpose) {
        let known = self.state.known_claim(node, claim);
        let base = self.base(node, Object::Claim(claim), known);
        self.send(node, base, Write::Claim(claim, record), purpose);
    }

    fn claim(&mut self, node: Node, claim: ClaimName) {
        let me = &self.state.speakers[node];
        let tenure = me.tenures[claim];
        if tenure.yielding.is_some() {
            self.actions.push(Action::EndYield(node, claim));
        }
        let Some(own) = me.own else { return };
        let asked = self.state.is_asked_for(node, claim);
        let known = self.state.known_claim(node, claim);
        let owner = self.state.owner(self.rules, node, claim);
        let held = Some((node, own));
        let transitions = me.highest_claims[claim] + 1;
        let listed = known.is_some_and(|known| known.record.lists);
        let lists = listed || !self.rules.only_the_operator_lists;
        let taken = Claim { transitions, held, successor: None, lists };
        if tenure.mine {
            match (owner, known) {
                (Owner::Me, Some(known)) => self.hold_claim(node, claim, known.record),
                _ if !asked => {}
                _ => self.put_claim(node, claim, taken, Purpose::Retake),
            }
            if tenure.leaving && known.is_some_and(|known| known.record.held.is_none()) {
                self.actions.push(Action::Left(node, claim));
            }
        } else if !asked {
        } else if tenure.yielding.is_some() {
            self.put_claim(node, claim, taken, Purpose::TakeBack);
        } else if owner == Owner::Nobody {
            if lists {
                self.put_claim(node, claim, taken, Purpose::TakeOrphan);
            }
        } else if let Some(known) = known {
            if !self.rules.fence_before_take {
                self.put_claim(node, claim, taken, Purpose::TakeOrphan);
            }
            if self.bounds.forsaken {
                self.put_claim(node, claim, taken, Purpose::TakeForsaken);
            }
            if known.record.successor == held {
                self.put_claim(node, claim, taken, Purpose::Succeed);
            }
        }
    }

    fn hold_claim(&mut self, node: Node, claim: ClaimName, known: Claim) {
        let me = &self.state.speakers[node];
        if me.tenures[claim].leaving {
            if !me.has_address {
                let transitions = me.highest_claims[claim] + 1;
                let lists = known.lists && self.rules.only_the_operator_lists;
                let record = Claim { transitions, held: None, successor: None, lists };
                self.put_claim(node, claim, record, Purpose::Release);
            }
            return;
        }
        if self.bounds.renewals {
            self.put_claim(node, claim, known, Purpose::Refresh);
        }
        if self.bounds.releases || !self.state.is_asked_for(node, claim) {
            self.actions.push(Action::Leave(node, claim));
        }
        if self.state.left.moves > 0 {
            for to in Node::ALL.into_iter().filter(|to| *to != node) {
                let live = self.state.known_session(node, to).filter(|known| known.is_live());
                if let Some(live) = live {
                    let successor: Option<(Node, SessionId)> = Some((to, live.id()));
                    let record = Claim { successor, ..known };
                    self.put_claim(node, claim, record, Purpose::Name);
                }
            }
        }
    }
}
