//! Owners that do not answer.

use std::collections::BTreeMap;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::io::event::Heard;
use crate::election::io::probes::{Silence, Voice, VoiceId, Voices};
use crate::election::wire::state::lapsed::Lapses;

/// The silences of owners.
#[derive(Debug, Default)]
pub(in crate::election) struct Silences {
    pub(in crate::election::wire) suspicions: BTreeMap<VoiceId, Suspicion>,
    /// Owners that this node polls and that have never answered it, while the API server is gone.
    pub(in crate::election::wire) unheard: BTreeMap<VoiceId, Unheard>,
}

/// An owner that is silent on one segment.
#[derive(Debug)]
pub(in crate::election) struct Suspicion {
    pub(in crate::election::wire) silence: Silence,
    /// When this node learned of it.
    pub(in crate::election::wire) since: Instant,
    /// The store confirmed it for this claim under these transitions.
    pub(in crate::election::wire) confirmed: Option<(LeaseName, i32)>,
    /// The claim that is read for that.
    pub(in crate::election::wire) asked_for: Option<LeaseName>,
    /// The session was read since then.
    pub(in crate::election::wire) read: bool,
    /// The session is to be read before another fence.
    pub(in crate::election::wire) must_read: bool,
    pub(in crate::election::wire) next: Instant,
    /// What it has let lapse beside the address that is polled, while the API server is gone.
    pub(in crate::election::wire) lapses: Lapses,
}

/// An owner that has never answered this node: since when that is so, and what it does not have.
#[derive(Debug)]
pub(in crate::election) struct Unheard {
    pub(in crate::election::wire) since: Instant,
    pub(in crate::election::wire) lapses: Lapses,
}

impl Silences {
    /// Forgets silences that have ended, and notes new ones.
    pub(in crate::election) fn follow(&mut self, now: Instant, voices: &Voices) {
        self.suspicions.retain(|id, suspicion| {
            matches!(
                voices.owners.get(id),
                Some(Voice::Silent(silence)) if silence.address == suspicion.silence.address
            )
        });
        for (id, voice) in voices.owners.iter() {
            let Voice::Silent(silence) = voice else { continue };
            let suspicion = self.suspicions.entry(id.clone()).or_insert_with(|| Suspicion {
                silence: silence.clone(),
                since: now,
                confirmed: None,
                asked_for: None,
                read: false,
                must_read: false,
                next: now,
                lapses: Lapses::default(),
            });
            suspicion.silence = silence.clone();
        }
    }

    /// Somebody answers for an address.
    pub(in crate::election) fn heard(&mut self, now: Instant, heard: &Heard) {
        let suspected = self.suspicions.iter_mut().map(|(id, it)| (id, &mut it.lapses));
        let unheard = self.unheard.iter_mut().map(|(id, it)| (id, &mut it.lapses));
        for (id, lapses) in suspected.chain(unheard) {
            if id.mac == heard.frame.mac && id.interface == heard.interface {
                lapses.heard(now, heard.frame);
            }
        }
    }
}
