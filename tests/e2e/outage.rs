//! The API server is away: owners hold, or drop what they have where the policy says so.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use leasehold_lab::Lab;
use serde_json::json;
use tokio::time::sleep;

use crate::scene::{LEASE, Scene};

const AWAY: Duration = Duration::from_secs(15);
/// Longer than a lease: what would be fenced after the return is fenced by then.
const AFTERWARDS: Duration = Duration::from_secs(8);

pub async fn an_api_server_that_is_away_for_long_moves_nothing_and_nor_does_its_return()
-> Result<()> {
    let scene = Scene::alone("away").await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    scene.lab().plane().kill_api_server().await?;
    sleep(AWAY).await;
    scene.lab().plane().start_api_server().await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("API server away for 15 s", probe).await?;
    scene.not_moved(&claim).await?;

    // A speaker that crashes meanwhile knows from its record what to keep.
    let probe = scene.watch().await?;
    let owner = scene.owner().await?;
    scene.lab().plane().kill_api_server().await?;
    owner.speaker()?.kill().await?;
    sleep(Duration::from_secs(1)).await;
    owner.start_speaker()?;
    sleep(AWAY).await;
    scene.lab().plane().start_api_server().await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("... and the owner's speaker restarted meanwhile", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn a_new_authority_of_the_api_server_is_believed_without_a_restart() -> Result<()> {
    let scene = Scene::alone("authority").await?;
    let (plane, cluster) = (scene.lab().plane(), &scene.cluster);
    let answered = |answered: u8| {
        let line = format!("leasehold_speaker_api_reachable {answered}\n");
        cluster
            .nodes()
            .iter()
            .try_fold(true, |all, node| Ok(all && node.speaker_http("/metrics")?.contains(&line)))
    };
    scene.until("the API server answers each speaker", async || answered(1)).await?;
    plane.kill_api_server().await?;
    plane.rotate_authority().await?;
    scene.until("it answers no speaker", async || answered(0)).await?;
    plane.start_api_server().await?;
    scene.until("it answers each speaker again", async || answered(1)).await?;

    // The operator as well. The kube-proxies of these nodes would have to be started anew.
    cluster.service("later").vip(1).create().await?;
    let vip = cluster.addresses().vip(1).0;
    let served = async || Ok(cluster.holders(vip.into())?.len() == 1);
    scene.until("a new Service gets an address and a node", served).await
}

pub async fn speakers_reach_an_api_server_directly_where_that_of_the_service_is_dead() -> Result<()>
{
    let scene = Scene::alone("direct").await?;
    let (plane, claim) = (scene.lab().plane(), scene.claim().await?);
    // Nobody has these addresses. The kubeconfig leads to one of them, as a Service does to an API server that died.
    let nowhere = |last: u8| -> Result<String> {
        let IpAddr::V4(server) = plane.socket().ip() else { bail!("no IPv4 address") };
        let [a, b, c, _] = server.octets();
        Ok(format!("{}:{}", Ipv4Addr::new(a, b, c, last), plane.socket().port()))
    };
    let known = std::fs::read_to_string(plane.kubeconfig(leasehold_lab::SPEAKER_ACCOUNT))?;
    let broken = known.replace(&plane.url(), &format!("https://{}", nowhere(251)?));
    ensure!(broken != known, "the kubeconfig names another server");
    let broken = broken
        .replace("server: ", &format!("tls-server-name: {}\n    server: ", plane.socket().ip()));
    let path = plane.kubeconfig("direct");
    std::fs::write(&path, broken)?;
    let servers = format!("--api-server={},{}", nowhere(252)?, plane.socket());
    let owner = scene.owner().await?;
    let probe = scene.watch().await?;
    owner.speaker()?.terminate().await?;
    owner.speaker()?.reconfigure(|options| {
        options.kubeconfig = Some(path);
        options.arguments = vec![servers];
    });
    owner.start_speaker()?;
    let ready = async || Ok(owner.speaker_http("/readyz").is_ok());
    scene.until("its speaker reaches the second one", ready).await?;
    // Each connection is made so, and in time for the next renewal.
    plane.kill_api_server().await?;
    plane.start_api_server().await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("of three API servers two are dead", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn where_the_policy_says_so_addresses_go_before_anybody_else_could_own_them() -> Result<()>
{
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let plan = lab.cluster("drop").policy_fields(json!({ "onApiOutage": "Drop" }));
    let scene = Scene::of(plan).await?;
    let claim = scene.claim().await?;
    scene.lab().plane().kill_api_server().await?;
    let killed = Instant::now();
    scene.until("no kernel has the address", async || Ok(scene.holders()?.is_empty())).await?;
    let gone = killed.elapsed();
    println!("    dropped {} ms after the API server was killed", gone.as_millis());
    ensure!(gone < LEASE + Duration::from_secs(2), "the address stayed for {gone:?}");
    scene.lab().plane().start_api_server().await?;
    let owner = scene.owner().await?;
    scene.until("its owner has it again", async || Ok(scene.holders()? == [owner.name()])).await?;
    sleep(AFTERWARDS).await;
    scene.not_moved(&claim).await
}
