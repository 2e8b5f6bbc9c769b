//! The nodes and the claims, and tables by them.

use std::ops::{Index, IndexMut};

/// A node, and its speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The first.
    A,
    /// The second.
    B,
    /// The third, where there are three.
    C,
}

/// The claim leases that list the one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimName {
    /// The only one, where there is one.
    First,
    /// The other one.
    Second,
}

/// What speakers watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The Service, on which the operator records which claim governs its address.
    Service,
    /// The session of a node.
    Session(Node),
    /// A claim.
    Claim(ClaimName),
}

/// One of something for each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerNode<T>([T; 3]);

/// One of something for each claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerClaim<T>([T; 2]);

/// Other names for the nodes: what was called by the key is called by the value.
pub type Renaming = PerNode<Node>;

impl Node {
    /// All that there can be.
    pub const ALL: [Self; 3] = [Self::A, Self::B, Self::C];
}

impl ClaimName {
    /// All that there can be.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl Object {
    /// All that there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        let sessions = Node::ALL.into_iter().map(Self::Session);
        let claims = ClaimName::ALL.into_iter().map(Self::Claim);
        sessions.chain(claims).chain([Self::Service])
    }
}

impl<T> PerNode<T> {
    /// The same for every node.
    pub fn from_fn(make: impl FnMut(Node) -> T) -> Self {
        Self(Node::ALL.map(make))
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// All, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// The same table under other names; `rename` is to rename the nodes inside.
    pub fn renamed(&self, names: &Renaming, mut rename: impl FnMut(&T) -> T) -> Self {
        Self::from_fn(|new| {
            let [a, b, c] = &self.0;
            rename(match new {
                new if names[Node::A] == new => a,
                new if names[Node::B] == new => b,
                _ => c,
            })
        })
    }
}

impl Renaming {
    /// All ways to rename the first `nodes` nodes, but for the one that changes nothing.
    pub fn all(nodes: usize) -> Vec<Self> {
        use Node::{A, B, C};
        if nodes == 2 {
            return vec![PerNode([B, A, C])];
        }
        [[A, C, B], [B, A, C], [B, C, A], [C, A, B], [C, B, A]].map(PerNode).to_vec()
    }
}

impl<T> PerClaim<T> {
    /// What `make` says of each claim.
    pub fn from_fn(make: impl FnMut(ClaimName) -> T) -> Self {
        Self(ClaimName::ALL.map(make))
    }
}

impl<T> Index<Node> for PerNode<T> {
    type Output = T;

    fn index(&self, node: Node) -> &T {
        let [a, b, c] = &self.0;
        match node {
            Node::A => a,
            Node::B => b,
            Node::C => c,
        }
    }
}

impl<T> IndexMut<Node> for PerNode<T> {
    fn index_mut(&mut self, node: Node) -> &mut T {
        let [a, b, c] = &mut self.0;
        match node {
            Node::A => a,
            Node::B => b,
            Node::C => c,
        }
    }
}

impl<T> Index<ClaimName> for PerClaim<T> {
    type Output = T;

    fn index(&self, claim: ClaimName) -> &T {
        let [first, second] = &self.0;
        match claim {
            ClaimName::First => first,
            ClaimName::Second => second,
        }
    }
}

impl<T> IndexMut<ClaimName> for PerClaim<T> {
    fn index_mut(&mut self, claim: ClaimName) -> &mut T {
        let [first, second] = &mut self.0;
        match claim {
            ClaimName::First => first,
            ClaimName::Second => second,
        }
    }
}
