//! Asks the service proxy whether it is well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::http::{Answer, get, get_text};
use super::state::{Check, after};
use crate::clock;
use crate::clock::sleep_until;
use leasehold_core::election::{ProxyHealth, ProxyView};

/// The interval of health checks, and the timeout of each.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval as long as kube-proxy has never answered: it may be about to start, as the node does.
const EAGER: Duration = Duration::from_millis(200);
/// Where kube-proxy says whether it is well, …
const LIVEZ: &str = "/livez";
/// … and where others do.
const HEALTHZ: &str = "/healthz";
/// Where kube-proxy says its mode, by default on the same address (`metricsBindAddress`), …
const METRICS_PORT: u16 = 10249;
const MODE: &str = "/proxyMode";
/// … and the one that has tables which can be looked at.
const NFTABLES: &str = "nftables";
/// `Not Found` (RFC 9110, section 15.5.5).
const NOT_FOUND: u16 = 404;

/// Asks until the end of the process. `has_tables` is set where kube-proxy says that it makes tables of `nf_tables`,
/// before it is first said to answer.
pub(super) async fn run(
    at: SocketAddr,
    view: Arc<watch::Sender<ProxyView>>,
    has_tables: Arc<AtomicBool>,
) {
    let mut is_mode_known = false;
    loop {
        let sent = clock::now();
        let (check, is_kube_proxy) = check(at).await;
        match check {
            // It may have another one after a restart.
            Check::Silent => is_mode_known = false,
            Check::Well | Check::Ill if !is_mode_known => {
                let mode = get_text(SocketAddr::new(at.ip(), METRICS_PORT), MODE, INTERVAL).await;
                is_mode_known = mode.is_some();
                if let Some(mode) = mode {
                    has_tables.store(mode == NFTABLES, Ordering::Relaxed);
                }
            }
            Check::Well | Check::Ill => {}
        }
        let mut interval = INTERVAL;
        view.send_if_modified(|view| {
            let health = after(view.health, sent, check);
            if health == ProxyHealth::Unknown {
                interval = EAGER;
            }
            let is_kube_proxy = view.is_kube_proxy || is_kube_proxy;
            let changed = (health, is_kube_proxy) != (view.health, view.is_kube_proxy);
            (view.health, view.is_kube_proxy) = (health, is_kube_proxy);
            changed
        });
        sleep_until(sent + interval).await;
    }
}

/// The result of a check, and whether kube-proxy answered it.
async fn check(at: SocketAddr) -> (Check, bool) {
    let (answer, by_kube_proxy) = match get(at, LIVEZ, INTERVAL).await {
        Answer::Status(NOT_FOUND) => (get(at, HEALTHZ, INTERVAL).await, false),
        answer => (answer, true),
    };
    let check = match answer {
        Answer::Status(200) => Check::Well,
        Answer::Status(503) => Check::Ill,
        Answer::Status(_) | Answer::Refused | Answer::Silent => Check::Silent,
    };
    (check, by_kube_proxy && check != Check::Silent)
}
