//! Who comes first.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{ADDRESSES, SOON, Turn, versions};

pub async fn after_a_restart_what_is_assigned_comes_before_what_is_asked_for() -> Result<()> {
    let turn = Turn::take("restart").await?;
    turn.pool("lan", &["192.0.2.0/28"]).await?;
    for (name, address) in [("m", "192.0.2.0"), ("n", "192.0.2.1"), ("o", "192.0.2.2")] {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    // What comes while nobody is there: requests for what others have, new services with names before
    // theirs, one that goes, one that moves.
    turn.stop_operator().await?;
    turn.service("a-asks", json!({ADDRESSES: "192.0.2.1"}), json!({})).await?;
    turn.plain("b-new").await?;
    turn.delete("m").await?;
    turn.annotate("o", ADDRESSES, json!("192.0.2.7")).await?;
    turn.service("p-asks", json!({ADDRESSES: "192.0.2.2"}), json!({})).await?;
    let before = versions(&turn, &["n"]).await?;
    turn.lab.start_operator(&["--default-class"])?;

    turn.fails("a-asks", "AddressInUse", "restart/n").await?;
    turn.is_from("b-new", "lan").await?;
    turn.has("o", &["192.0.2.7"]).await?;
    turn.has("p-asks", &["192.0.2.2"]).await?;
    ensure!(versions(&turn, &["n"]).await? == before, "wrote to one that has what it wants");

    let names = ["a-asks", "b-new", "n", "o", "p-asks"];
    let before = versions(&turn, &names).await?;
    for name in ["c-new", "d-new"] {
        turn.restart_operator().await?;
        turn.plain(name).await?;
        turn.is_from(name, "lan").await?;
    }
    ensure!(versions(&turn, &names).await? == before, "a restart writes");
    Ok(())
}

pub async fn those_who_wait_are_served_by_age_also_when_the_holder_only_moves() -> Result<()> {
    let turn = Turn::take("waiting").await?;
    turn.pool("lan", &["192.0.2.7/32"]).await?;
    let reserved = json!({"addresses": ["198.51.100.0/30"], "autoAssign": false});
    turn.pool_with("reserved", reserved).await?;
    turn.plain("holder").await?;
    turn.has("holder", &["192.0.2.7"]).await?;
    // Creation times have whole seconds; names say the opposite.
    for name in ["z-first", "y-second", "x-third"] {
        turn.plain(name).await?;
        turn.fails(name, "PoolExhausted", "pool lan").await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    turn.annotate("holder", ADDRESSES, json!("198.51.100.2")).await?;
    turn.has("z-first", &["192.0.2.7"]).await?;
    turn.has("holder", &["198.51.100.2"]).await?;

    turn.delete("z-first").await?;
    turn.has("y-second", &["192.0.2.7"]).await?;
    turn.annotate("y-second", "leasehold.dev/address-pool", json!("reserved")).await?;
    turn.has("x-third", &["192.0.2.7"]).await?;
    turn.is_from("y-second", "reserved").await?;

    // Also when the first in the line asks for something else meanwhile.
    turn.plain("w-fourth").await?;
    turn.fails("w-fourth", "PoolExhausted", "pool lan").await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    turn.plain("v-fifth").await?;
    turn.fails("v-fifth", "PoolExhausted", "pool lan").await?;
    turn.annotate("w-fourth", ADDRESSES, json!("198.51.100.3")).await?;
    turn.has("w-fourth", &["198.51.100.3"]).await?;
    turn.delete("x-third").await?;
    turn.has("v-fifth", &["192.0.2.7"]).await
}

pub async fn a_service_whose_status_cannot_be_written_holds_up_nobody() -> Result<()> {
    let turn = Turn::take("refused-writes").await?;
    turn.pool("lan", &["192.0.2.0/30"]).await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-status"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["services/status"],
            }]},
            "validations": [{
                "expression": "!object.metadata.name.startsWith('stuck')",
                "message": "somebody forbids it",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-status"},
        "spec": {"policyName": "no-status", "validationActions": ["Deny"]},
    });
    turn.apply(&policy).await?;
    turn.apply(&binding).await?;
    let probe = json!({"type": "ClusterIP"});
    turn.service("stuck-probe", json!({}), probe).await?;
    let status = json!({"conditions": []});
    turn.lab
        .eventually("the API server forbids the status", SOON * 4, async || {
            Ok(turn.status("stuck-probe", status.clone()).await.is_err())
        })
        .await?;

    turn.plain("stuck").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Of the same second is the first by name.
    for (name, address) in [("x", "192.0.2.1"), ("y", "192.0.2.2"), ("z", "192.0.2.3")] {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    ensure!(turn.addresses("stuck").await?.is_empty(), "the status was written");
    turn.lab.delete(&binding).await?;
    turn.lab.delete(&policy).await?;
    // Tries are 10 s apart at most.
    turn.lab
        .eventually("it is served when that is over", SOON * 4, async || {
            Ok(turn.addresses("stuck").await? == ["192.0.2.0"])
        })
        .await
}
