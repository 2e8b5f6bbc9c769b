//! IPv6, and both families of one Service.

use std::net::IpAddr;

use anyhow::{Context, Result};
use leasehold_lab::machines::{MachinesPlan, web};
use serde_json::json;

use crate::ground::{NAMESPACE, WEB};

pub async fn both_addresses_of_a_service_answer_and_move_when_the_power_is_cut() -> Result<()> {
    let machines = MachinesPlan::new("families").start().await?;
    machines.install().await?;
    machines.pool().await?;
    let [mut service, deployment] = web(NAMESPACE, WEB);
    let spec = service.get_mut("spec").and_then(serde_json::Value::as_object_mut);
    spec.context("no spec")?.insert("ipFamilyPolicy".to_owned(), json!("RequireDualStack"));
    for object in [service, deployment] {
        machines.lab().apply(object).await?;
    }
    machines.deployed(NAMESPACE, WEB).await?;
    let (_, owner) = machines.served(NAMESPACE, WEB).await?;
    let both = machines.service_addresses(NAMESPACE, WEB).await?;
    let of = |four: bool| both.iter().copied().find(|ip| ip.is_ipv4() == four);
    let (v4, v6) = (of(true).context("no IPv4 address")?, of(false).context("no IPv6 address")?);
    let answers = |vip: IpAddr| machines.client().get(vip, 80, "/hostname").is_ok();
    machines.eventually("both answer", async || Ok(answers(v4) && answers(v6))).await?;

    owner.power_off()?;
    machines
        .eventually("another machine has both, and both answer", async || {
            let (of_v4, of_v6) = (machines.holders(v4)?, machines.holders(v6)?);
            let other = of_v4.len() == 1 && of_v4 == of_v6 && of_v4 != [owner.name()];
            Ok(other && answers(v4) && answers(v6))
        })
        .await
}
