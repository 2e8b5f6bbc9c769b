//! IPv6, and both families of one Service.

use anyhow::Result;
use leasehold_lab::machines::Ground;

pub async fn both_addresses_of_a_service_answer_and_move_when_the_power_is_cut() -> Result<()> {
    let ground = Ground::start("families").await?;
    let [v4, v6] = ground.answers_over_both_families().await?;
    let owner = ground.owner().await?;
    owner.power_off()?;
    let machines = &ground.machines;
    machines
        .eventually("another machine has both, and both answer", async || {
            let (of_v4, of_v6) = (machines.holders(v4)?, machines.holders(v6)?);
            let other = of_v4.len() == 1 && of_v4 == of_v6 && of_v4 != [owner.name()];
            let answers = |vip| machines.client().get(vip, 80, "/hostname").is_ok();
            Ok(other && answers(v4) && answers(v6))
        })
        .await
}
