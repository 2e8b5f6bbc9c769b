//! The state of the node's data path, as the core is told of it.

/// The state of the spreading of packets on this node, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing of the node")]
pub struct DataPathView {
    /// Packets take the slow path.
    pub slow: bool,
    /// The kernel refuses the rules.
    pub failing: bool,
    /// The network drops packets that the node sends for others.
    pub filtered: bool,
    /// The node has an interface of a CNI that can replace kube-proxy.
    pub has_replacement: bool,
}
