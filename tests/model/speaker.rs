//! What one speaker knows, believes and has in its kernel.

use leasehold_core::election::ClaimState;

use crate::lease::SessionId;
use crate::names::{Node, PerClaim, PerNode, Renaming};

/// A speaker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Speaker {
    /// Whether there is a process.
    pub process: Process,
    /// Up to which state of each session its watch has come.
    pub sessions: PerNode<u8>,
    /// Up to which state of each claim its watch has come.
    pub claims: PerClaim<u8>,
    /// Up to which state of the Service its watch has come.
    pub service: u8,
    /// The greatest number of its own session that it has seen.
    pub highest_session: u8,
    /// The greatest number of each claim that it has seen.
    pub highest_claims: PerClaim<u8>,
    /// The same, of the object that it saw last.
    pub highest_here: PerClaim<(u8, u8)>,
    /// The session that it holds, as far as it knows.
    pub own: Option<SessionId>,
    /// The last session that it held, whatever it knows of it now.
    pub held: Option<SessionId>,
    /// What it knows and does about each claim.
    pub tenures: PerClaim<Tenure>,
    /// Whether its kernel has the address.
    pub has_address: bool,
}

/// A speaker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// The node has none, and never will.
    Absent,
    /// It crashed. The record on its host names the session that it held, and the greatest number
    /// of its session that it had seen.
    Crashed(Option<SessionId>, u8),
    /// It has listed everything and has not settled whether the former process's session goes on.
    Starting(Option<SessionId>),
    /// It takes part.
    Running,
}

/// What a speaker believes about one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// It is the owner.
    pub mine: bool,
    /// It is giving the claim up.
    pub leaving: bool,
    /// Whom it has named as its successor.
    pub handover: Option<Node>,
    /// The successor that has taken the claim from it: until that one announces it goes on answering.
    pub yielding: Option<Node>,
}

/// Who owns a claim, as far as a speaker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Itself, under its present session.
    Me,
    /// Another node.
    Other(Node),
    /// Nobody.
    Nobody,
}

impl Tenure {
    /// The state of the claim. This model has no probes, no ranks and no outages.
    pub const fn state(self) -> ClaimState {
        match self {
            Self { mine: true, leaving: true, .. } => ClaimState::Releasing,
            Self { mine: true, handover: Some(_), .. } => ClaimState::HandingOver,
            Self { mine: true, .. } => ClaimState::Serving,
            Self { yielding: Some(_), .. } => ClaimState::Yielding,
            _ => ClaimState::Foreign,
        }
    }
}

impl Speaker {
    /// A node without a speaker.
    pub fn absent() -> Self {
        Self {
            process: Process::Absent,
            sessions: PerNode::default(),
            claims: PerClaim::default(),
            service: 0,
            highest_session: 0,
            highest_claims: PerClaim::default(),
            highest_here: PerClaim::default(),
            own: None,
            held: None,
            tenures: PerClaim::default(),
            has_address: false,
        }
    }

    /// Whether it has a view of the leases.
    pub const fn watches(&self) -> bool {
        matches!(self.process, Process::Starting(_) | Process::Running)
    }

    /// Whether it takes part.
    pub const fn runs(&self) -> bool {
        matches!(self.process, Process::Running)
    }

    /// It holds this session now.
    pub fn hold(&mut self, session: SessionId) {
        self.own = Some(session);
        let later =
            |held: &SessionId| held.uid == session.uid && held.transitions > session.transitions;
        self.held = self.held.filter(later).or(self.own);
    }

    /// Forgets what came with its session.
    pub fn lose_session(&mut self) {
        self.own = None;
        self.tenures = PerClaim::default();
    }

    /// The process ends. Nothing that it knew is left but its record and the kernel's address.
    pub fn crash(&mut self) {
        let process = Process::Crashed(self.own, self.highest_session);
        let (has_address, held) = (self.has_address, self.held);
        *self = Self { process, held, has_address, ..Self::absent() };
    }

    /// The same under other names.
    pub fn renamed(&self, names: &Renaming) -> Self {
        let mut renamed = self.clone();
        renamed.sessions = self.sessions.renamed(names, |position| *position);
        for claim in crate::names::ClaimName::ALL {
            let tenure = &mut renamed.tenures[claim];
            tenure.handover = tenure.handover.map(|node| names[node]);
            tenure.yielding = tenure.yielding.map(|node| names[node]);
        }
        renamed
    }
}
