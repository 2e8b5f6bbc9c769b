//! Facts that all rooms decide on, and questions about them.

pub(in crate::election) mod api;
pub(in crate::election) mod candidates;
mod changes;
pub(in crate::election) mod data_path;
pub(in crate::election) mod eligibility;
pub(in crate::election) mod facts;
pub(in crate::election) mod fence;
pub(in crate::election) mod kernel;
pub(in crate::election) mod links;
pub(in crate::election) mod manual;
pub(in crate::election) mod node_addresses;
pub(in crate::election) mod own_links;
pub(in crate::election) mod owner;
pub(in crate::election) mod pace;
pub(in crate::election) mod proxy;
pub(in crate::election) mod readiness;
pub(in crate::election) mod requests;
pub(in crate::election) mod segments;
pub(in crate::election) mod session_reads;
pub(in crate::election) mod speakers;
pub(in crate::election) mod state;
pub(in crate::election) mod unlisted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Session, SessionInterface};
use leasehold_crds::names::{InterfaceName, InterfacePattern, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::Desired;
use crate::election::context::state::api::Api;
use crate::election::context::state::data_path::DataPath;
use crate::election::context::state::proxy::Proxy;
use crate::election::context::state::readiness::NotReady;
use crate::election::context::state::requests::Pending;
use crate::election::context::state::segments::Forsaken;
use crate::election::context::state::segments::WatchChanges;
use crate::election::context::state::session_reads::SessionReads;
use crate::election::context::state::speakers::Speakers;
use crate::election::context::unlisted::Unlisted;
use crate::election::io::checkpoint::OwnRecord;
use crate::election::io::config::Config;
use crate::election::io::event::Interface;
use crate::election::io::event::RequestId;
use crate::election::io::probes::Voices;
use crate::election::io::serving::KernelView;
use crate::election::io::serving::Serving;
use crate::election::output::state::rows::Published;
use crate::election::session::state::own::OwnSession;
use crate::election::store::cache::Cache;

/// Facts that all rooms decide on.
#[derive(Debug)]
pub(in crate::election) struct Context {
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
    data_path: DataPath,
    /// What a former process left; obeyed until the cluster's state is known.
    adopted: Option<OwnRecord>,
    forwarded_to: BTreeSet<NodeName>,
    forwarded_connections: Option<u64>,
    serving: Serving,
    published: Published,
    next_request: u64,
    /// When the last event was taken: all that was due by then has had its turn.
    seen: Instant,
}

impl Context {
    pub(in crate::election) fn new(
        now: Instant,
        config: Config,
        record: Option<OwnRecord>,
    ) -> Self {
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
            data_path: DataPath::new(now),
            serving: Serving::default(),
            published: Published::new(adopted.clone()),
            next_request: 0,
            seen: now,
            adopted,
            forwarded_to: BTreeSet::new(),
            forwarded_connections: None,
            config,
        }
    }
}

impl Context {
    /// The record of the former process; it counts until the state of the cluster is known.
    pub(in crate::election) fn adopted(&self) -> Option<&OwnRecord> {
        self.adopted.as_ref()
    }

    /// The answers of the API server.
    pub(in crate::election) const fn api(&self) -> &Api {
        &self.api
    }

    /// The same, to note answers.
    pub(in crate::election) const fn api_mut(&mut self) -> &mut Api {
        &mut self.api
    }

    /// The interfaces that have just lost all their addresses, as they were before.
    pub(in crate::election) const fn bared(&self) -> &BTreeMap<InterfaceName, Interface> {
        &self.bared
    }

    /// The claim Leases.
    pub(in crate::election) const fn claims(&self) -> &Cache<Claim> {
        &self.claims
    }

    /// The same, to note what a watch or an answer says.
    pub(in crate::election) const fn claims_mut(&mut self) -> &mut Cache<Claim> {
        &mut self.claims
    }

    /// The configuration of this process.
    pub(in crate::election) const fn config(&self) -> &Config {
        &self.config
    }

    /// The claims for which the cluster asks; `None` until they are known.
    pub(in crate::election) fn desired(&self) -> Option<&Desired> {
        self.desired.as_deref()
    }

    /// The valid claims that are taken without a fence, as clients do not reach their owner.
    pub(in crate::election) const fn forsaken(&self) -> &BTreeMap<LeaseName, Forsaken> {
        &self.forsaken
    }

    /// The MAC addresses of all speakers that this process ever received a frame from.
    pub(in crate::election) const fn heard_speakers(&self) -> &BTreeSet<MacAddr> {
        &self.heard_speakers
    }

    /// The last time at which a frame of another host was received on each interface.
    pub(in crate::election) const fn hearing(&self) -> &BTreeMap<InterfaceName, Instant> {
        &self.hearing
    }

    /// The interfaces of this node that matter: those with an address, and those that a policy names.
    pub(in crate::election) const fn own_interfaces(&self) -> &BTreeMap<InterfaceName, Interface> {
        &self.interfaces
    }

    /// The addresses in the kernel.
    pub(in crate::election) const fn kernel(&self) -> &KernelView {
        &self.kernel
    }

    /// The interfaces that can announce, as the own session lists them.
    pub(in crate::election) const fn links(&self) -> &Vec<SessionInterface> {
        &self.links
    }

    /// The kubelet's statements about this node.
    pub(in crate::election) const fn not_ready(&self) -> &NotReady {
        &self.not_ready
    }

    /// The same, to note one.
    pub(in crate::election) const fn not_ready_mut(&mut self) -> &mut NotReady {
        &mut self.not_ready
    }

    /// The own session.
    pub(in crate::election) const fn own(&self) -> &OwnSession {
        &self.own
    }

    /// The same, to change it.
    pub(in crate::election) const fn own_mut(&mut self) -> &mut OwnSession {
        &mut self.own
    }

    /// The name of the own session Lease.
    pub(in crate::election) const fn own_name(&self) -> &LeaseName {
        &self.own_name
    }

    /// The state of the kube-proxy of this node.
    pub(in crate::election) const fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The same, to note what it answers.
    pub(in crate::election) const fn proxy_mut(&mut self) -> &mut Proxy {
        &mut self.proxy
    }

    /// The rows that are published.
    pub(in crate::election) const fn published(&self) -> &Published {
        &self.published
    }

    /// The same, to change them.
    pub(in crate::election) const fn published_mut(&mut self) -> &mut Published {
        &mut self.published
    }

    /// The time at which an address or a default route of an interface changed, until that has lasted.
    pub(in crate::election) const fn readdressed(&self) -> Option<Instant> {
        self.readdressed
    }

    /// The reads of session Leases.
    pub(in crate::election) const fn reads(&self) -> &SessionReads {
        &self.reads
    }

    /// The same, to note one.
    pub(in crate::election) const fn reads_mut(&mut self) -> &mut SessionReads {
        &mut self.reads
    }

    /// The requests to the API server that are not answered.
    pub(in crate::election) const fn requests(&self) -> &BTreeMap<RequestId, Pending> {
        &self.requests
    }

    /// The session Leases.
    pub(in crate::election) const fn sessions(&self) -> &Cache<Session> {
        &self.sessions
    }

    /// The same, to note what a watch or an answer says.
    pub(in crate::election) const fn sessions_mut(&mut self) -> &mut Cache<Session> {
        &mut self.sessions
    }

    /// The nodes with a valid session that do not answer on some segment.
    pub(in crate::election) const fn silent(&self) -> &BTreeSet<NodeName> {
        &self.silent
    }

    /// The objects that a list did not contain.
    pub(in crate::election) const fn unlisted_mut(&mut self) -> &mut Unlisted {
        &mut self.unlisted
    }

    /// The owners and addresses to which the listener listens.
    pub(in crate::election) const fn voices(&self) -> &Voices {
        &self.voices
    }

    /// The changes of the watchlist that are not applied yet.
    pub(in crate::election) const fn watch_mut(&mut self) -> &mut WatchChanges {
        &mut self.watch
    }

    /// The same, shared.
    pub(in crate::election) fn shared_desired(&self) -> Option<Arc<Desired>> {
        self.desired.clone()
    }
}
