//! Wiring.
//!
//! Everything runs in one task on one thread: health and metrics, the election, and, while this
//! replica is the active one, the work. On SIGTERM or SIGINT the work stops first; the lease is
//! released once the outcome of each write is known, so that the next replica, which reads
//! everything anew, reads all of them.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context as _;
use leasehold::api::client;
use leasehold::report::log::Log;
use leasehold::report::server::{self, Readiness};
use leasehold::report::{ask, page};
use leasehold::version;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};

use crate::client::CALL_TIMEOUT;
use crate::clock::{self, sleep_until};
use crate::config::Config;
use crate::deploy::Deployer;
use crate::elect::{Acquisition, Elector, Identity, Tenure};
use crate::reconcile::lead::{Context, lead};
use crate::reconcile::watch::Kind;
use crate::reconcile::write::Writer;
use crate::report::events::EventSink;
use crate::report::health::HealthBoard;
use crate::report::metrics::Metrics;

/// Runs until a signal says to stop.
pub async fn run(config: Config, log: Log) -> anyhow::Result<()> {
    let (health, metrics, mut registry) =
        (HealthBoard::default(), Metrics::default(), Registry::default());
    metrics.register(&mut registry);
    let listener = server::listen(config.metrics_bind_address).await?;
    let api = client::access(config.kubeconfig.as_deref()).await?;
    let client = client::connect(&api, Some(CALL_TIMEOUT))?;
    let identity = identity(config.pod_name.as_deref());
    let name = identity.name().to_owned();
    tracing::info!(
        identity = name,
        version = version::line(),
        namespace = config.namespace,
        "contending for the election lease"
    );
    let mut elector =
        Elector::new(client.clone(), &config.namespace, identity, health.clone(), log);
    let (asker, questions) = ask::questions();
    let events = EventSink::new(client.clone(), name);
    let place = config.pod_namespace.as_deref().unwrap_or(&api.config.default_namespace);
    let mut deployer = Deployer::new(&config, place, client.clone(), events.clone())?;
    let context = Context {
        events,
        writer: Writer { client, claims: config.namespace, sessions: config.session_namespace },
        default_class: config.default_class,
        metrics,
        health: health.clone(),
        questions: Arc::new(Mutex::new(questions)),
    };
    let stop = watch::Sender::new(false);
    let (tenure, stopped) = (elector.tenure(), stop.subscribe());
    let readiness = move || {
        let health = health.read();
        Readiness { ready: health.is_ready(), text: format!("{health}\n") }
    };
    // All decisions are made on the thread that answers: an answer shows that it is not stuck.
    let liveness = || Ok(());
    let page = page::routes(asker, readiness.clone());
    let clean = tokio::select! {
        () = server::serve(listener, liveness, readiness, registry, page) => false,
        error = stop_on_signal(&stop) => return Err(error).context("cannot listen for signals"),
        () = elector.contend() => false,
        clean = work(&context, deployer.as_mut(), tenure, stopped) => clean,
    };
    if clean {
        elector.release().await;
    }
    Ok(())
}

/// Works whenever this replica is the active one; returns when it was told to stop, with whether the
/// outcome of each write is known.
async fn work(
    context: &Context,
    mut deployer: Option<&mut Deployer>,
    mut tenure: watch::Receiver<Tenure>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let mut last: Option<(Acquisition, _)> = None;
    loop {
        let active = tenure.wait_for(|tenure| tenure.lasts(clock::now()));
        let present = tokio::select! {
            present = active => present.map(|tenure| tenure.clone()),
            _ = stop.wait_for(|stop| *stop) => return true,
        };
        let Ok(Tenure::Active { term, acquisition, .. }) = present else {
            return true;
        };
        tracing::info!("this replica is now the active one");
        context.metrics.leader.set(1);
        let mut told = stop.clone();
        let end = async {
            tokio::select! {
                _ = told.wait_for(|stop| *stop) => {}
                () = lapse(tenure.clone(), term) => {}
            }
        };
        if let Some(deployer) = &mut deployer {
            // Among it are the operator's own rights on sessions. Where that takes long, or is refused, the
            // work begins all the same.
            let _ = tokio::time::timeout(CALL_TIMEOUT, deployer.deploy()).await;
        }
        let same = last.take().filter(|(before, _)| *before == acquisition);
        let recollection = same.map(|(_, recollection)| recollection).unwrap_or_default();
        // Beside the work, so that neither waits for the other. A call that is cut off at the end does no
        // harm: each replica would apply the same.
        let ended = tokio::select! {
            ended = lead(context, term, recollection, &tenure, end) => ended,
            never = keep_deployed(deployer.as_deref_mut()) => match never {},
        };
        context.metrics.leader.set(0);
        context.metrics.forget();
        for kind in Kind::ALL {
            context.health.trouble(kind.name(), None);
        }
        if *stop.borrow() {
            return ended.clean;
        }
        last = Some((acquisition, ended.recollection));
        tracing::warn!("this replica is no longer the active one");
    }
}

/// Deploys the speakers, if it is this replica that does; never returns.
async fn keep_deployed(deployer: Option<&mut Deployer>) -> Infallible {
    match deployer {
        Some(deployer) => deployer.keep().await,
        None => std::future::pending().await,
    }
}

/// Returns when the tenure `term` is over.
async fn lapse(mut tenure: watch::Receiver<Tenure>, term: u64) {
    loop {
        let present = tenure.borrow_and_update().clone();
        let Tenure::Active { term: present, ends, .. } = present else { return };
        if present != term || clock::now() >= ends {
            return;
        }
        tokio::select! {
            changed = tenure.changed() => if changed.is_err() { return },
            () = sleep_until(ends) => {}
        }
    }
}

/// Asks everything to stop at the first signal; returns only if signals cannot be received.
async fn stop_on_signal(stop: &watch::Sender<bool>) -> std::io::Error {
    let handlers = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match handlers {
        Ok(handlers) => handlers,
        Err(error) => return error,
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    std::future::pending().await
}

/// A name that no other process has, also not the next one in the same pod.
fn identity(pod: Option<&str>) -> Identity {
    let instance = match std::fs::read_to_string("/proc/sys/kernel/random/uuid") {
        Ok(uuid) => uuid.trim().to_owned(),
        Err(_) => format!("{}_{}", std::process::id(), clock::now().as_nanos()),
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    pod.map_or_else(|| Identity::on_host(&host, &instance), |pod| Identity::in_pod(pod, &instance))
}
