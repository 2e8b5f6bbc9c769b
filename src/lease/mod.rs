//! The election core.

mod serving;

pub use serving::{KernelAddress, KernelView, ServedVip, Serving};
