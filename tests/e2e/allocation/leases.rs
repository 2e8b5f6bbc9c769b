//! Addresses under claims, and leases that have had their day.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use leasehold_lab::{SESSION_NAMESPACE, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use super::Turn;

fn lease(namespace: &str, name: &str, holder: Option<&str>, annotations: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 5, "leaseTransitions": 3},
    })
}

pub async fn an_address_under_a_valid_claim_is_given_to_another_only_after_its_release()
-> Result<()> {
    let turn = Turn::take("claimed").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    turn.plain("first").await?;
    turn.has("first", &["192.0.2.7"]).await?;

    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "holder"}});
    turn.apply(&node).await?;
    turn.apply(&lease(SESSION_NAMESPACE, "holder", Some("holder"), &json!({}))).await?;
    let sessions: Api<Lease> = Api::namespaced(turn.lab.admin(), SESSION_NAMESPACE);
    let uid = sessions.get("holder").await?.metadata.uid.unwrap_or_default();
    let says = json!({
        "leasehold.dev/addresses": "192.0.2.7",
        "leasehold.dev/session": format!("{uid}/3"),
    });
    let claim = "claimed.first";
    turn.apply(&lease(SYSTEM_NAMESPACE, claim, Some("holder"), &says)).await?;

    turn.delete("first").await?;
    turn.plain("second").await?;
    turn.says("second", "False", "AddressReleasing", claim).await?;
    anyhow::ensure!(turn.lease(claim).await?.is_some(), "a valid claim was deleted");

    // The session ends: that orphans the claim.
    let mut ended = lease(SESSION_NAMESPACE, "holder", None, &json!({}));
    ended["spec"]["leaseTransitions"] = json!(4);
    turn.apply(&ended).await?;
    turn.has("second", &["192.0.2.7"]).await?;
    turn.until("the orphaned claim of a deleted Service goes", async || {
        Ok(turn.lease(claim).await?.is_none())
    })
    .await?;
    anyhow::ensure!(sessions.get_opt("holder").await?.is_some(), "its Node still exists");
    turn.lab.delete(&node).await?;
    turn.until("the ended session of a deleted Node goes", async || {
        Ok(sessions.get_opt("holder").await?.is_none())
    })
    .await
}
