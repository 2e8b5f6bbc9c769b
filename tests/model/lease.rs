//! What leases say, and the order of their versions.

use crate::names::{ClaimName, Node};

/// A tenure of a session lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Which of the objects that bore the name.
    pub uid: u8,
    /// Its number.
    pub transitions: u8,
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its node holds it.
    Live,
    /// Another speaker has ended it.
    Fenced,
    /// Its node has ended it.
    Released,
}

/// What a session lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// Acquiring, releasing and fencing each add one.
    pub transitions: u8,
    /// Whether it has a holder, and if not, why.
    pub standing: Standing,
}

/// What a claim lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Each change of owner adds one.
    pub transitions: u8,
    /// The owner and its session; none while released.
    pub held: Option<(Node, SessionId)>,
    /// To whom the owner hands over.
    pub successor: Option<(Node, SessionId)>,
    /// Whether it lists the address.
    pub lists: bool,
}

/// A lease as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stored<R> {
    /// Which of the objects that bore the name.
    pub uid: u8,
    /// What it says.
    pub record: R,
}

/// The states of one lease, from the oldest that a speaker still goes by to the present one.
///
/// A write that changes nothing but the version is not in it: see [`crate::request::Base`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct History<R> {
    /// How many objects have borne the name.
    created: u8,
    /// The greatest number that the present object ever had.
    greatest: u8,
    /// `None` where the lease did not exist.
    states: Vec<Option<Stored<R>>>,
}

/// What an object says.
pub trait Record: Copy + PartialEq {
    /// How often it has changed hands.
    fn transitions(&self) -> u8;
}

impl Record for Session {
    fn transitions(&self) -> u8 {
        self.transitions
    }
}

impl Record for Claim {
    fn transitions(&self) -> u8 {
        self.transitions
    }
}

/// The Service says which claim governs its address.
impl Record for ClaimName {
    fn transitions(&self) -> u8 {
        0
    }
}

impl Stored<Session> {
    /// The tenure that it stands for.
    pub const fn id(self) -> SessionId {
        SessionId { uid: self.uid, transitions: self.record.transitions }
    }

    /// Whether it has a holder.
    pub const fn is_live(self) -> bool {
        matches!(self.record.standing, Standing::Live)
    }
}

impl<R> Default for History<R> {
    fn default() -> Self {
        Self { created: 0, greatest: 0, states: vec![None] }
    }
}

impl<R: Record> History<R> {
    /// Where the present state is.
    pub fn end(&self) -> u8 {
        self.states.len().saturating_sub(1).try_into().unwrap_or(u8::MAX)
    }

    /// Whether somebody has set the number back.
    pub fn is_set_back(&self) -> bool {
        self.now().is_some_and(|now| now.record.transitions() < self.greatest)
    }

    /// The state at `position`.
    pub fn at(&self, position: u8) -> Option<Stored<R>> {
        self.states.get(usize::from(position)).copied().flatten()
    }

    /// The present state.
    pub fn now(&self) -> Option<Stored<R>> {
        self.states.last().copied().flatten()
    }

    /// Replaces what the lease says.
    pub fn replace(&mut self, record: R) {
        if let Some(now) = self.now()
            && now.record != record
        {
            self.greatest = self.greatest.max(record.transitions());
            self.states.push(Some(Stored { uid: now.uid, record }));
        }
    }

    /// Creates the lease anew.
    pub fn create(&mut self, record: R) {
        self.greatest = record.transitions();
        self.states.push(Some(Stored { uid: self.created, record }));
        self.created += 1;
    }

    /// Deletes it.
    pub fn delete(&mut self) {
        self.states.push(None);
    }

    /// Forgets the first `count` states.
    pub fn forget(&mut self, count: u8) {
        self.states.drain(..usize::from(count));
    }

    /// The same history with each state as `change` says.
    pub fn map(&self, change: impl Fn(&R) -> R) -> Self {
        let changed = |state: &Option<Stored<R>>| {
            state.as_ref().map(|stored| Stored { uid: stored.uid, record: change(&stored.record) })
        };
        Self {
            created: self.created,
            greatest: self.greatest,
            states: self.states.iter().map(changed).collect(),
        }
    }
}
