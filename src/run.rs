//! The wiring: what is started, in which order, and what it is connected to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::api::client;
use crate::api::installed::OwnDaemonSet;
use crate::api::leases::Leases;
use crate::clock;
use crate::config::Config;
use crate::datapath::detour::Detour;
use crate::datapath::forward::Forward;
use crate::datapath::gates::Gates;
use crate::datapath::guard::Guard;
use crate::datapath::return_path::{ReturnPaths, Sources};
use crate::datapath::spread::Spread;
use crate::detect::listener::Listener;
use crate::drive::{Connections, Driver, Outlets};
use crate::host::{self, Recorder, StateFolder};
use crate::net::edge::Edge;
use crate::proxy::Proxy;
use crate::report::ask;
use crate::report::facts::Reports;
use crate::report::gauges::{Delivered, Gauges};
use crate::report::health::Health;
use crate::report::heartbeat::{BEAT, Heartbeats};
use crate::report::log::Log;
use crate::report::metrics::Metrics;
use crate::report::page;
use crate::report::server::{self, Readiness};
use crate::watch::Around;
use crate::{announce, version, watch as watches};
use leasehold_core::desired::Down;
use leasehold_core::election::{self, Election, KernelView, Serving};

/// Timeout of a request on a Lease.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time for which the addresses of a speaker stay while its pod is replaced.
const RESTART_GRACE: Duration = Duration::from_secs(30);
/// Events of the watches that wait for the core.
const EVENTS: usize = 1024;

/// A runtime with a thread of its own, on which it runs what is spawned on the handle. Whatever else the
/// process is busy with, addresses are renewed there, and announced.
fn thread(name: &str) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let work = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(handle)
}

/// Shows that the thread turns on which it runs.
async fn beat(heartbeats: Arc<Heartbeats>) {
    loop {
        heartbeats.kernel.beat(clock::now());
        tokio::time::sleep(BEAT).await;
    }
}

/// The inputs of the return path.
fn return_sources(
    served: &watch::Receiver<Serving>,
    forward: &Forward,
    spread: &Spread,
    edge: &Edge,
    state: &StateFolder,
) -> Sources {
    Sources {
        serving: served.clone(),
        forwarding: forward.wanted.subscribe(),
        spreading: spread.wanted.subscribe(),
        links: edge.links.clone(),
        netlink: edge.netlink.clone(),
        state: state.clone(),
    }
}

/// Runs the speaker until it is asked to end.
pub async fn run(config: Config, log: Log) -> anyhow::Result<()> {
    host::check_capabilities()?;
    // From here on a signal is an event, not the end.
    let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let state = StateFolder::open(&config.state_dir)?;
    let api = client::access(config.kubeconfig.as_deref()).await?.directly(&config.api_server);
    let lease_client = client::connect(&api, None)?;
    let client = client::connect(&api, None)?;

    let metrics = Metrics::default();
    let mut registry = Registry::default();
    let delivered = Arc::new(Delivered::default());
    let (view, kernel) = watch::channel(KernelView::default());
    metrics.register(&mut registry, Gauges { delivered: Arc::clone(&delivered), kernel });
    let (health, health_seen) = watch::channel(Health::default());
    // Many readers delay one another there, and nothing else.
    let page_thread = thread("page")?;
    let listener = page_thread.spawn(server::listen(config.metrics_bind_address)).await??;
    let heartbeats = Arc::new(Heartbeats::default());
    let mut background = JoinSet::new();
    let readiness = move || {
        let health = health_seen.borrow();
        Readiness { ready: health.is_ready(), text: health.to_string() }
    };
    let (asker, questions) = ask::questions();
    let page = page::routes(asker, readiness.clone());
    let beating = Arc::clone(&heartbeats);
    let liveness = move || beating.liveness(clock::now());
    let serve = server::serve(listener, liveness, readiness, registry, page);
    background.spawn_on(serve, &page_thread);

    let [terminate, interrupt] = &mut signals;
    let _lock = tokio::select! {
        lock = host::lock(&state, &health) => lock?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let incarnation = host::incarnation(&state)?;
    let kernel_thread = thread("kernel")?;
    background.spawn_on(beat(Arc::clone(&heartbeats)), &kernel_thread);
    let edge = kernel_thread.spawn(Edge::start(config.address_mark.wanted())).await??;
    let listener = Listener::start(edge.witnesses.clone(), edge.links.clone()).await?;
    let (serving, served) = watch::channel(Serving::default());
    let (guard, gate) = Guard::start()?;
    let (detour, detours) = Detour::start()?;
    let (forward, forward_gate) = Forward::start(edge.links.clone())?;
    let (spread, spread_gate) = Spread::start(edge.links.clone())?;
    let (return_paths, return_gate) =
        ReturnPaths::start(return_sources(&served, &forward, &spread, &edge, &state))?;
    let gates =
        Gates { guard: gate, forward: forward_gate, spread: spread_gate, return_path: return_gate };
    let start = announce::start(served, view, &edge, gates, state.clone());
    let announcement = kernel_thread.spawn(start).await?;
    let proxy = Proxy::start(config.kube_proxy_health_address, edge.links.clone())?;
    let (sender, events) = mpsc::channel(EVENTS);
    let leases =
        Leases::new(&lease_client, &config.session_namespace, &config.namespace, REQUEST_TIMEOUT);
    let (down, seen) = watch::channel(Down::default());
    let around = Around::new(seen, detours);
    let ignores = config.ignore_exclude_label;
    let watches = watches::start(&client, &leases, &sender, around, &health, &delivered, ignores);
    let daemon_set = config
        .daemon_set
        .map(|name| OwnDaemonSet::new(&client, &config.namespace, name, config.pod_name));
    let (reports, recorder) = Reports::new(client, &config.node_name);
    background.spawn(recorder);

    let settings = election::Config {
        node: config.node_name,
        incarnation,
        lease_duration: config.lease_duration,
        request_timeout: REQUEST_TIMEOUT,
        restart_grace: RESTART_GRACE,
        ignores_exclude_label: config.ignore_exclude_label,
    };
    tracing::info!(node = %settings.node, version = version::line(), "speaker started");
    let connections = Connections {
        election: Election::new(clock::now(), settings, state.read()),
        leases,
        daemon_set,
        watches,
        events,
        edge,
        listener,
        serving,
        announcement,
        guard,
        forward,
        spread,
        down,
        detour,
        return_paths,
        proxy,
        signals,
        record: Recorder::start(state.clone()),
        state,
        heartbeats,
    };
    let outlets = Outlets { health, metrics, reports, questions, delivered, log };
    Driver::new(connections, outlets).run().await?;
    tracing::info!("speaker ended");
    Ok(())
}
