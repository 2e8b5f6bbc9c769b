//! The order in which the rooms decide.

pub(in crate::lease) mod events;
pub(in crate::lease) mod frames;
pub(in crate::lease) mod pass;
pub(in crate::lease) mod questions;
pub(in crate::lease) mod view;

use crate::clock::Instant;
use crate::lease::claim::Claims;
use crate::lease::context::Context;
use crate::lease::io::checkpoint::OwnRecord;
use crate::lease::io::config::Config;
use crate::lease::outage::state::turn::Outage;
use crate::lease::output::state::publication::Output;
use crate::lease::session::Sessions;
use crate::lease::transfer::Transfer;
use crate::lease::wire::Wire;

/// The election core of one speaker.
#[derive(Debug)]
pub struct Election {
    cx: Context,
    claims: Claims,
    transfer: Transfer,
    wire: Wire,
    outage: Outage,
    session: Sessions,
    output: Output,
}

impl Election {
    /// The core of a speaker that starts now. `record` is what a former process of the same boot
    /// left; its addresses are kept alive until the cluster's state is known.
    pub fn new(now: Instant, config: Config, record: Option<OwnRecord>) -> Self {
        Self {
            cx: Context::new(now, config, record),
            claims: Claims::default(),
            transfer: Transfer::default(),
            wire: Wire::default(),
            outage: Outage::default(),
            session: Sessions::default(),
            output: Output::default(),
        }
    }
}
