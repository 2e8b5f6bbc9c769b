//! The order in which the rooms decide.

pub(in crate::election) mod events;
pub(in crate::election) mod frames;
pub(in crate::election) mod pass;
pub(in crate::election) mod questions;
pub(in crate::election) mod view;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::forwarding::Handovers;
use crate::election::io::checkpoint::OwnRecord;
use crate::election::io::config::Config;
use crate::election::outage::state::turn::Outage;
use crate::election::output::state::publication::Output;
use crate::election::session::Sessions;
use crate::election::spread::Spreads;
use crate::election::transfer::Transfer;
use crate::election::wire::Wire;

/// The election core of one speaker.
#[derive(Debug)]
pub struct Election {
    cx: Context,
    claims: Claims,
    transfer: Transfer,
    handovers: Handovers,
    spreads: Spreads,
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
            handovers: Handovers::default(),
            spreads: Spreads::default(),
            claims: Claims::default(),
            transfer: Transfer::default(),
            wire: Wire::default(),
            outage: Outage::default(),
            session: Sessions::default(),
            output: Output::default(),
        }
    }
}
