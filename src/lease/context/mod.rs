//! Facts that all rooms decide on, and questions about them.

pub(in crate::lease) mod api;
pub(in crate::lease) mod candidates;
pub(in crate::lease) mod eligibility;
pub(in crate::lease) mod facts;
pub(in crate::lease) mod kernel;
pub(in crate::lease) mod links;
pub(in crate::lease) mod manual;
pub(in crate::lease) mod node_addresses;
pub(in crate::lease) mod own_links;
pub(in crate::lease) mod owner;
pub(in crate::lease) mod pace;
pub(in crate::lease) mod proxy;
pub(in crate::lease) mod readiness;
pub(in crate::lease) mod requests;
pub(in crate::lease) mod segments;
pub(in crate::lease) mod session_reads;
pub(in crate::lease) mod speakers;
pub(in crate::lease) mod state;
pub(in crate::lease) mod unlisted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Session, SessionInterface};
use leasehold_crds::names::{InterfaceName, InterfacePattern, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::Desired;
use crate::lease::context::state::api::Api;
use crate::lease::context::state::proxy::Proxy;
use crate::lease::context::state::readiness::NotReady;
use crate::lease::context::state::requests::Pending;
use crate::lease::context::state::segments::Forsaken;
use crate::lease::context::state::segments::WatchChanges;
use crate::lease::context::state::session_reads::SessionReads;
use crate::lease::context::state::speakers::Speakers;
use crate::lease::context::unlisted::Unlisted;
use crate::lease::io::checkpoint::OwnRecord;
use crate::lease::io::config::Config;
use crate::lease::io::event::Interface;
use crate::lease::io::event::RequestId;
use crate::lease::io::probes::Voices;
use crate::lease::io::serving::KernelView;
use crate::lease::io::serving::Serving;
use crate::lease::output::state::rows::Published;
use crate::lease::session::state::own::OwnSession;
use crate::lease::store::cache::Cache;

/// Facts that all rooms decide on.
#[derive(Debug)]
pub(in crate::lease) struct Context {
    config: Config,
    own_name: LeaseName,
    sessions: Cache<Session>,
    claims: Cache<Claim>,
    /// What the cluster asks for; none until it is known.
    desired: Option<Arc<Desired>>,
    /// All that the node has, …
    all_interfaces: BTreeMap<InterfaceName, Interface>,
    /// … and those of them that matter: with an address, or named by a policy.
    interfaces: BTreeMap<InterfaceName, Interface>,
    /// What policies name for any claim.
    named: BTreeSet<Vec<InterfacePattern>>,
    /// Those of them that can announce, as the own session says it.
    links: Vec<SessionInterface>,
    /// When the addresses or the default routes of an interface changed, until that has lasted.
    readdressed: Option<Instant>,
    /// Those that have lost all their addresses since, as they were.
    bared: BTreeMap<InterfaceName, Interface>,
    hearing: BTreeMap<InterfaceName, Instant>,
    /// When it was last asked whether anybody answers.
    asked_around: BTreeMap<InterfaceName, Instant>,
    kernel: KernelView,
    own: OwnSession,
    speakers: Speakers,
    unlisted: Unlisted,
    voices: Voices,
    watch: WatchChanges,
    /// The nodes with a live session that no longer answer on some segment.
    silent: BTreeSet<NodeName>,
    /// Valid claims whose owner is silent and that are taken without a fence, since when.
    forsaken: BTreeMap<LeaseName, Forsaken>,
    /// The MAC addresses of speakers that were heard, ever.
    heard_speakers: BTreeSet<MacAddr>,
    reads: SessionReads,
    api: Api,
    requests: BTreeMap<RequestId, Pending>,
    not_ready: NotReady,
    proxy: Proxy,
    /// What a former process left; obeyed until the cluster's state is known.
    adopted: Option<OwnRecord>,
    serving: Serving,
    published: Published,
    next_request: u64,
    /// When the last event was taken: all that was due by then has had its turn.
    seen: Instant,
}

impl Context {
    pub(in crate::lease) fn new(now: Instant, config: Config, record: Option<OwnRecord>) -> Self {
        let adopted = record.filter(|record| {
            record.incarnation == config.incarnation && record.node == config.node
        });
        let own_name = LeaseName::session(&config.node);
        let mut sessions = Cache::default();
        if let Some(record) = &adopted {
            sessions.remember(now, own_name.clone(), record.transitions);
        }
        Self {
            own_name,
            sessions,
            claims: Cache::default(),
            desired: None,
            all_interfaces: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            named: BTreeSet::new(),
            links: Vec::new(),
            readdressed: None,
            bared: BTreeMap::new(),
            hearing: BTreeMap::new(),
            asked_around: BTreeMap::new(),
            kernel: KernelView::default(),
            own: OwnSession::new(
                now,
                adopted.as_ref().and_then(|record| record.session.clone()),
                &config,
            ),
            speakers: Speakers::default(),
            unlisted: Unlisted::default(),
            voices: Voices::default(),
            watch: WatchChanges::default(),
            silent: BTreeSet::new(),
            forsaken: BTreeMap::new(),
            heard_speakers: BTreeSet::new(),
            reads: SessionReads::default(),
            api: Api::new(now),
            requests: BTreeMap::new(),
            not_ready: NotReady::default(),
            proxy: Proxy::default(),
            serving: Serving::default(),
            published: Published::new(adopted.clone()),
            next_request: 0,
            seen: now,
            adopted,
            config,
        }
    }
}

impl Context {
    /// What a former process left; obeyed until the cluster's state is known.
    pub(in crate::lease) fn adopted(&self) -> Option<&OwnRecord> {
        self.adopted.as_ref()
    }

    pub(in crate::lease) const fn adopted_mut(&mut self) -> &mut Option<OwnRecord> {
        &mut self.adopted
    }

    /// All that the node has, …
    pub(in crate::lease) const fn all_interfaces(&self) -> &BTreeMap<InterfaceName, Interface> {
        &self.all_interfaces
    }

    pub(in crate::lease) const fn all_interfaces_mut(
        &mut self,
    ) -> &mut BTreeMap<InterfaceName, Interface> {
        &mut self.all_interfaces
    }

    pub(in crate::lease) const fn api(&self) -> &Api {
        &self.api
    }

    pub(in crate::lease) const fn api_mut(&mut self) -> &mut Api {
        &mut self.api
    }

    /// Those that have lost all their addresses since, as they were.
    pub(in crate::lease) const fn bared(&self) -> &BTreeMap<InterfaceName, Interface> {
        &self.bared
    }

    pub(in crate::lease) const fn bared_mut(&mut self) -> &mut BTreeMap<InterfaceName, Interface> {
        &mut self.bared
    }

    pub(in crate::lease) const fn claims(&self) -> &Cache<Claim> {
        &self.claims
    }

    pub(in crate::lease) const fn claims_mut(&mut self) -> &mut Cache<Claim> {
        &mut self.claims
    }

    pub(in crate::lease) const fn config(&self) -> &Config {
        &self.config
    }

    /// What the cluster asks for; none until it is known.
    pub(in crate::lease) fn desired(&self) -> Option<&Desired> {
        self.desired.as_deref()
    }

    pub(in crate::lease) const fn desired_mut(&mut self) -> &mut Option<Arc<Desired>> {
        &mut self.desired
    }

    /// Valid claims whose owner is silent and that are taken without a fence, since when.
    pub(in crate::lease) const fn forsaken(&self) -> &BTreeMap<LeaseName, Forsaken> {
        &self.forsaken
    }

    pub(in crate::lease) const fn forsaken_mut(&mut self) -> &mut BTreeMap<LeaseName, Forsaken> {
        &mut self.forsaken
    }

    /// The MAC addresses of speakers that were heard, ever.
    pub(in crate::lease) const fn heard_speakers(&self) -> &BTreeSet<MacAddr> {
        &self.heard_speakers
    }

    pub(in crate::lease) const fn heard_speakers_mut(&mut self) -> &mut BTreeSet<MacAddr> {
        &mut self.heard_speakers
    }

    pub(in crate::lease) const fn hearing(&self) -> &BTreeMap<InterfaceName, Instant> {
        &self.hearing
    }

    pub(in crate::lease) const fn hearing_mut(&mut self) -> &mut BTreeMap<InterfaceName, Instant> {
        &mut self.hearing
    }

    /// … and those of them that matter: with an address, or named by a policy.
    pub(in crate::lease) const fn own_interfaces(&self) -> &BTreeMap<InterfaceName, Interface> {
        &self.interfaces
    }

    pub(in crate::lease) const fn own_interfaces_mut(
        &mut self,
    ) -> &mut BTreeMap<InterfaceName, Interface> {
        &mut self.interfaces
    }

    pub(in crate::lease) const fn kernel(&self) -> &KernelView {
        &self.kernel
    }

    pub(in crate::lease) const fn kernel_mut(&mut self) -> &mut KernelView {
        &mut self.kernel
    }

    /// Those of them that can announce, as the own session says it.
    pub(in crate::lease) const fn links(&self) -> &Vec<SessionInterface> {
        &self.links
    }

    pub(in crate::lease) const fn links_mut(&mut self) -> &mut Vec<SessionInterface> {
        &mut self.links
    }

    /// What policies name for any claim.
    pub(in crate::lease) const fn named(&self) -> &BTreeSet<Vec<InterfacePattern>> {
        &self.named
    }

    pub(in crate::lease) const fn named_mut(&mut self) -> &mut BTreeSet<Vec<InterfacePattern>> {
        &mut self.named
    }

    pub(in crate::lease) const fn not_ready(&self) -> &NotReady {
        &self.not_ready
    }

    pub(in crate::lease) const fn not_ready_mut(&mut self) -> &mut NotReady {
        &mut self.not_ready
    }

    pub(in crate::lease) const fn own(&self) -> &OwnSession {
        &self.own
    }

    pub(in crate::lease) const fn own_mut(&mut self) -> &mut OwnSession {
        &mut self.own
    }

    pub(in crate::lease) const fn own_name(&self) -> &LeaseName {
        &self.own_name
    }

    pub(in crate::lease) const fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    pub(in crate::lease) const fn proxy_mut(&mut self) -> &mut Proxy {
        &mut self.proxy
    }

    pub(in crate::lease) const fn published(&self) -> &Published {
        &self.published
    }

    pub(in crate::lease) const fn published_mut(&mut self) -> &mut Published {
        &mut self.published
    }

    /// When the addresses or the default routes of an interface changed, until that has lasted.
    pub(in crate::lease) const fn readdressed(&self) -> Option<Instant> {
        self.readdressed
    }

    pub(in crate::lease) const fn readdressed_mut(&mut self) -> &mut Option<Instant> {
        &mut self.readdressed
    }

    pub(in crate::lease) const fn reads(&self) -> &SessionReads {
        &self.reads
    }

    pub(in crate::lease) const fn reads_mut(&mut self) -> &mut SessionReads {
        &mut self.reads
    }

    pub(in crate::lease) const fn requests(&self) -> &BTreeMap<RequestId, Pending> {
        &self.requests
    }

    pub(in crate::lease) const fn requests_mut(&mut self) -> &mut BTreeMap<RequestId, Pending> {
        &mut self.requests
    }

    pub(in crate::lease) const fn seen_mut(&mut self) -> &mut Instant {
        &mut self.seen
    }

    pub(in crate::lease) const fn serving_mut(&mut self) -> &mut Serving {
        &mut self.serving
    }

    pub(in crate::lease) const fn sessions(&self) -> &Cache<Session> {
        &self.sessions
    }

    pub(in crate::lease) const fn sessions_mut(&mut self) -> &mut Cache<Session> {
        &mut self.sessions
    }

    /// The nodes with a live session that no longer answer on some segment.
    pub(in crate::lease) const fn silent(&self) -> &BTreeSet<NodeName> {
        &self.silent
    }

    pub(in crate::lease) const fn silent_mut(&mut self) -> &mut BTreeSet<NodeName> {
        &mut self.silent
    }

    pub(in crate::lease) const fn unlisted_mut(&mut self) -> &mut Unlisted {
        &mut self.unlisted
    }

    pub(in crate::lease) const fn voices(&self) -> &Voices {
        &self.voices
    }

    pub(in crate::lease) const fn voices_mut(&mut self) -> &mut Voices {
        &mut self.voices
    }

    pub(in crate::lease) const fn watch_mut(&mut self) -> &mut WatchChanges {
        &mut self.watch
    }

    pub(in crate::lease) fn shared_desired(&self) -> Option<Arc<Desired>> {
        self.desired.clone()
    }
}
