//! Waiting for a condition, with a deadline and something to read when it passes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

/// Waits for a condition; when it does not come within `patience`, the error says which, and what `dump` shows.
pub async fn eventually(
    what: &str,
    patience: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool>,
    dump: impl AsyncFnOnce() -> String,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        // An error is as good as "not yet": the API server may be away.
        let outcome = condition().await;
        if matches!(outcome, Ok(true)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let error = outcome.err().map(|e| format!(" (last error: {e:#})")).unwrap_or_default();
            bail!("not within {patience:?}: {what}{error}\n{}", dump().await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All claims and sessions, as YAML.
pub(crate) async fn leases(client: &kube::Client) -> String {
    let mut text = String::new();
    for namespace in [crate::SESSION_NAMESPACE, crate::SYSTEM_NAMESPACE] {
        if let Err(error) = leases_in(client, namespace, &mut text).await {
            text += "leases: ";
            text += &error.to_string();
        }
    }
    text
}

async fn leases_in(client: &kube::Client, namespace: &str, text: &mut String) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let all = ListParams::default();
    let list = leases.list(&all);
    for mut lease in tokio::time::timeout(Duration::from_secs(3), list).await?? {
        lease.metadata.managed_fields = None;
        writeln!(text, "--- lease in {namespace}\n{}", serde_yaml_ng::to_string(&lease)?)?;
    }
    Ok(())
}
