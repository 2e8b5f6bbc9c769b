//! A node whose kubelet is not ready, or not heard of.
//!
//! Its addresses answer: kube-proxy and the speaker go on. But its pods are about to go, and so may the
//! node; it gives its addresses to nodes that are ready, make before break. An API server that was away
//! makes all kubelets late at once, though, and they come back one after another, within some ten
//! seconds: so nothing moves while less than half of the nodes are ready, nor in the first ten seconds.

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::readiness::LASTS;

impl Context {
    pub(in crate::election) fn not_ready_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.not_ready.since.map(|since| since + LASTS))
    }
}
