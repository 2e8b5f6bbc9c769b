//! The whole: the store, the speakers, and the writes on their way.

use crate::lease::{Claim, History, Session, SessionId, Standing, Stored};
use crate::names::{ClaimName, Node, Object, PerClaim, PerNode, Renaming};
use crate::request::{Request, Write};
use crate::rules::{Bounds, Rules};
use crate::speaker::{Owner, Process, Speaker, Tenure};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The session leases.
    pub sessions: PerNode<History<Session>>,
    /// The claim leases.
    pub claims: PerClaim<History<Claim>>,
    /// The Service.
    pub service: History<ClaimName>,
    /// How far the operator is with giving the address to the other claim.
    pub operator: Operator,
    /// The speakers.
    pub speakers: PerNode<Speaker>,
    /// Writes that were sent and not carried out, in no order.
    pub requests: Vec<Request>,
    /// What may still happen.
    pub left: Left,
    /// What happened that must not.
    pub breach: Option<Breach>,
}

/// The steps by which the operator gives the address to the other claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// Nothing is to be changed.
    Idle,
    /// The old claim does not list the address any more.
    Unlisted,
    /// The other claim is on record.
    Recorded,
}

/// How often more each thing may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left {
    /// Changes of the claim that governs the address.
    pub reassignments: u8,
    /// Planned moves.
    pub moves: u8,
    /// Crashes.
    pub crashes: u8,
    /// Deletions by hand.
    pub deletions: u8,
    /// Edits by hand.
    pub edits: u8,
}

/// A step that the protocol rules out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breach {
    /// A claim that was not valid became valid although nobody took it.
    Revived,
    /// A valid claim changed its owner without fence, release, handover or silence.
    Stolen,
    /// A speaker whose session was fenced has a new one, and the address still.
    AcquiredBeforeRemoval,
    /// A replacement has created a lease that was deleted.
    Recreated,
    /// A claim has gone from one state to another in a way that the table of the core does not contain.
    Unexpected,
}

impl State {
    /// A cluster in peace: all speakers run, the first owns the claim and serves the address, and
    /// everybody knows.
    pub fn initial(bounds: &Bounds) -> Self {
        let present = |node: Node| Node::ALL.iter().take(bounds.speakers).any(|n| *n == node);
        let mut state = Self {
            sessions: PerNode::from_fn(|_| History::default()),
            claims: PerClaim::from_fn(|_| History::default()),
            speakers: PerNode::from_fn(|_| Speaker::absent()),
            requests: Vec::new(),
            service: History::default(),
            operator: Operator::Idle,
            left: Left {
                reassignments: bounds.reassignments,
                moves: bounds.moves,
                crashes: bounds.crashes,
                deletions: bounds.deletions,
                edits: bounds.edits,
            },
            breach: None,
        };
        let session = SessionId { uid: 0, transitions: 1 };
        for node in Node::ALL.into_iter().filter(|node| present(*node)) {
            state.sessions[node].create(Session { transitions: 1, standing: Standing::Live });
            let speaker = &mut state.speakers[node];
            speaker.process = Process::Running;
            speaker.hold(session);
        }
        let held = Some((Node::A, session));
        let owned = Claim { transitions: 1, held, successor: None, lists: true };
        state.claims[ClaimName::First].create(owned);
        state.service.create(ClaimName::First);
        state.speakers[Node::A].tenures[ClaimName::First].mine = true;
        state.speakers[Node::A].has_address = true;
        for node in Node::ALL.into_iter().filter(|node| present(*node)) {
            state.read_all(node);
        }
        state.tidy();
        state
    }

    /// The owner of a claim whose session lives. What was set back by hand counts as over until its
    /// node has put it right.
    pub fn valid_owner(&self, claim: ClaimName) -> Option<Node> {
        let (node, session) = self.claims[claim].now()?.record.held?;
        let stored = self.sessions[node].now()?;
        let edited = self.sessions[node].is_set_back() || self.claims[claim].is_set_back();
        (stored.is_live() && stored.id() == session && !edited).then_some(node)
    }

    /// The owner of the address, if `claim` is valid and lists it.
    pub fn address_owner(&self, claim: ClaimName) -> Option<Node> {
        let lists = self.claims[claim].now().is_some_and(|stored| stored.record.lists);
        self.valid_owner(claim).filter(|_| lists)
    }

    /// Whether `speaker` knows that `claim` governs the address.
    pub fn is_asked_for(&self, speaker: Node, claim: ClaimName) -> bool {
        let known = self.service.at(self.speakers[speaker].service);
        known.is_some_and(|known| known.record == claim)
    }

    /// Whether the address is to be in the kernel of `speaker`.
    pub fn serves(&self, speaker: Node) -> bool {
        ClaimName::ALL.into_iter().any(|claim| {
            let tenure = &self.speakers[speaker].tenures[claim];
            let lists = |claim| self.known_claim(speaker, claim).map(|known| known.record.lists);
            // What was listed before somebody deleted the lease is served until another lease lists it.
            let may = lists(claim).unwrap_or(true) || !lists(claim.other()).unwrap_or(false);
            let mine = tenure.mine && !tenure.leaving && may;
            self.is_asked_for(speaker, claim) && (mine || tenure.yielding.is_some())
        })
    }

    /// A session as `speaker` knows it.
    pub fn known_session(&self, speaker: Node, of: Node) -> Option<Stored<Session>> {
        self.sessions[of].at(self.speakers[speaker].sessions[of])
    }

    /// A claim as `speaker` knows it.
    pub fn known_claim(&self, speaker: Node, claim: ClaimName) -> Option<Stored<Claim>> {
        self.claims[claim].at(self.speakers[speaker].claims[claim])
    }

    /// Whether `speaker` knows the present state of `lease`.
    pub fn is_current(&self, speaker: Node, lease: Object) -> bool {
        self.behind(speaker, lease) == 0
    }

    /// How many states `speaker` is behind.
    pub fn behind(&self, speaker: Node, lease: Object) -> u8 {
        let me = &self.speakers[speaker];
        match lease {
            Object::Session(of) => self.sessions[of].end() - me.sessions[of],
            Object::Claim(claim) => self.claims[claim].end() - me.claims[claim],
            Object::Service => self.service.end() - me.service,
        }
    }

    /// Whether `speaker` knows the present state of everything.
    pub fn knows_everything(&self, speaker: Node) -> bool {
        Object::all().all(|lease| self.is_current(speaker, lease))
    }

    /// Who owns `claim`, as far as `speaker` knows.
    pub fn owner(&self, rules: &Rules, speaker: Node, claim: ClaimName) -> Owner {
        let me = &self.speakers[speaker];
        let Some(stored) = self.known_claim(speaker, claim) else { return Owner::Nobody };
        let Some((node, session)) = stored.record.held else { return Owner::Nobody };
        let (_, here) = me.highest_here[claim];
        let highest = if rules.numbers_belong_to_a_lease { here } else { me.highest_claims[claim] };
        if rules.numbers_never_fall && stored.record.transitions < highest {
            return Owner::Nobody;
        }
        if node == speaker {
            return if me.own == Some(session) { Owner::Me } else { Owner::Nobody };
        }
        match self.known_session(speaker, node) {
            Some(live) if live.is_live() && live.id() == session => Owner::Other(node),
            _ if rules.orphans_are_confirmed && !self.is_over(speaker, node, session) => {
                Owner::Other(node)
            }
            _ => Owner::Nobody,
        }
    }

    /// Whether `speaker` knows that a session of `node` has ended, and that it is not one that the
    /// watch has not delivered yet.
    fn is_over(&self, speaker: Node, node: Node, session: SessionId) -> bool {
        let later = self.known_session(speaker, node).is_some_and(|known| {
            known.uid == session.uid && known.record.transitions > session.transitions
        });
        // Otherwise it reads the session past the watch.
        later || self.is_current(speaker, Object::Session(node))
    }

    /// `speaker` lists everything.
    pub fn read_all(&mut self, speaker: Node) {
        for lease in Object::all() {
            self.read(speaker, lease);
        }
    }

    /// `speaker` reads `lease` past its watch.
    pub fn read(&mut self, speaker: Node, lease: Object) {
        let me = &mut self.speakers[speaker];
        match lease {
            Object::Session(of) => me.sessions[of] = self.sessions[of].end(),
            Object::Claim(claim) => me.claims[claim] = self.claims[claim].end(),
            Object::Service => me.service = self.service.end(),
        }
        self.remember(speaker, lease);
    }

    /// The watch of `speaker` comes to the next state of `lease`.
    pub fn deliver(&mut self, speaker: Node, lease: Object) {
        let me = &mut self.speakers[speaker];
        match lease {
            Object::Session(of) => me.sessions[of] += 1,
            Object::Claim(claim) => me.claims[claim] += 1,
            Object::Service => me.service += 1,
        }
        self.remember(speaker, lease);
    }

    fn remember(&mut self, speaker: Node, lease: Object) {
        match lease {
            Object::Session(of) if of == speaker => {
                let seen = self.known_session(speaker, of).map_or(0, |s| s.record.transitions);
                let highest = &mut self.speakers[speaker].highest_session;
                *highest = seen.max(*highest);
            }
            Object::Session(_) | Object::Service => {}
            Object::Claim(claim) => {
                let Some(known) = self.known_claim(speaker, claim) else { return };
                let seen = known.record.transitions;
                let me = &mut self.speakers[speaker];
                me.highest_claims[claim] = seen.max(me.highest_claims[claim]);
                let (uid, highest) = me.highest_here[claim];
                let here = if uid == known.uid { seen.max(highest) } else { seen };
                me.highest_here[claim] = (known.uid, here);
            }
        }
    }

    /// Does what a speaker does about what it has learned before anything else.
    pub fn settle(&mut self, rules: &Rules, speaker: Node) {
        let known = self.known_session(speaker, speaker);
        let live = known.filter(|known| known.is_live());
        let me = &mut self.speakers[speaker];
        if let Process::Starting(record) = me.process {
            match live {
                // The former process's session goes on.
                Some(live) if record == Some(live.id()) => me.hold(live.id()),
                Some(_) => return,
                None => {}
            }
            me.process = Process::Running;
        }
        if !me.runs() {
            return;
        }
        if let (Some(own), Some(known)) = (me.own, known) {
            if known.is_live() {
                let fell =
                    rules.numbers_never_fall && known.record.transitions < me.highest_session;
                if !fell {
                    me.hold(known.id());
                }
            } else if !is_edit(rules, own, known) && rules.a_fence_is_obeyed {
                me.lose_session();
            }
        }
        for claim in ClaimName::ALL {
            self.settle_claim(rules, speaker, claim);
        }
        // The address is added at once, and removed at any time after it should be.
        self.speakers[speaker].has_address |= self.serves(speaker);
    }

    fn settle_claim(&mut self, rules: &Rules, speaker: Node, claim: ClaimName) {
        let owner = self.owner(rules, speaker, claim);
        let asked = self.is_asked_for(speaker, claim);
        let me = &mut self.speakers[speaker];
        let live = me.own.is_some();
        let tenure = &mut me.tenures[claim];
        match owner {
            Owner::Me if !tenure.mine => *tenure = Tenure { mine: true, ..Tenure::default() },
            Owner::Other(node) if tenure.mine && rules.a_taken_claim_is_yielded => {
                let yielding = (tenure.handover == Some(node)).then_some(node);
                *tenure = Tenure { yielding, ..Tenure::default() };
            }
            Owner::Nobody if tenure.mine && !(live && asked) => *tenure = Tenure::default(),
            Owner::Me | Owner::Other(_) | Owner::Nobody => {}
        }
        if !asked {
            tenure.yielding = None;
        }
    }

    /// Forgets what can make no difference any more.
    pub fn tidy(&mut self) {
        for node in Node::ALL {
            let watching = Node::ALL.into_iter().filter(|s| self.speakers[*s].watches());
            let oldest = watching.map(|s| self.speakers[s].sessions[node]).min();
            let count = oldest.unwrap_or(self.sessions[node].end());
            self.sessions[node].forget(count);
            for speaker in Node::ALL.into_iter().filter(|_| count > 0) {
                let position = &mut self.speakers[speaker].sessions[node];
                *position = position.saturating_sub(count);
            }
        }
        for claim in ClaimName::ALL {
            let watching = Node::ALL.into_iter().filter(|s| self.speakers[*s].watches());
            let oldest = watching.map(|s| self.speakers[s].claims[claim]).min();
            let count = oldest.unwrap_or(self.claims[claim].end());
            self.claims[claim].forget(count);
            for speaker in Node::ALL.into_iter().filter(|_| count > 0) {
                let position = &mut self.speakers[speaker].claims[claim];
                *position = position.saturating_sub(count);
            }
        }
        let watching = self.speakers.iter().filter(|speaker| speaker.watches());
        let oldest = watching.map(|speaker| speaker.service).min();
        let count = oldest.unwrap_or(self.service.end());
        self.service.forget(count);
        for speaker in self.speakers.iter_mut().filter(|_| count > 0) {
            speaker.service = speaker.service.saturating_sub(count);
        }
        self.requests.sort_unstable();
    }

    /// The same state under other names of the nodes.
    pub fn renamed(&self, names: &Renaming) -> Self {
        let held = |held: Option<(Node, SessionId)>| held.map(|(node, id)| (names[node], id));
        let claim = |claim: &Claim| Claim {
            transitions: claim.transitions,
            held: held(claim.held),
            successor: held(claim.successor),
            lists: claim.lists,
        };
        let mut requests: Vec<Request> = self
            .requests
            .iter()
            .map(|request| Request {
                from: names[request.from],
                write: match request.write {
                    Write::Session(node, session) => Write::Session(names[node], session),
                    Write::Claim(name, record) => Write::Claim(name, claim(&record)),
                },
                ..*request
            })
            .collect();
        requests.sort_unstable();
        Self {
            sessions: self.sessions.renamed(names, History::clone),
            claims: PerClaim::from_fn(|name| self.claims[name].map(claim)),
            service: self.service.clone(),
            operator: self.operator,
            speakers: self.speakers.renamed(names, |speaker| speaker.renamed(names)),
            requests,
            left: self.left,
            breach: self.breach,
        }
    }
}

/// Whether a session that has ended was edited: whoever fences one adds one and says so, and who
/// released its own knows that from the answer.
pub const fn is_edit(rules: &Rules, own: SessionId, known: Stored<Session>) -> bool {
    let ended = match known.record.standing {
        Standing::Live => false,
        Standing::Fenced => rules.fences_are_named,
        Standing::Released => true,
    };
    known.uid == own.uid && known.record.transitions <= own.transitions && !ended
}
