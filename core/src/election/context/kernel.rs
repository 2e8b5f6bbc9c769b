//! Questions about the addresses that the kernel has.

use std::net::IpAddr;

use crate::election::context::Context;

impl Context {
    /// Whether the kernel is known to hold `address` no longer since it was last published without.
    pub(in crate::election) fn is_removed(&self, address: IpAddr) -> bool {
        !self.serving.vips.contains_key(&address)
            && self.kernel.applied >= self.serving.generation
            && !self.kernel.ours.contains_key(&address)
    }

    /// Whether the kernel holds none of our addresses, and is to hold none.
    pub(in crate::election) fn is_kernel_clear(&self) -> bool {
        self.serving.vips.is_empty()
            && self.serving.complete
            && self.kernel.applied >= self.serving.generation
            && self.kernel.ours.is_empty()
    }

    pub(in crate::election) fn is_served(&self, address: IpAddr) -> bool {
        self.serving.vips.contains_key(&address)
    }
}
