//! "A node has died": what whoever is on call sees of it, and does about it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use leasehold_lab::{Cluster, Lab, Node, SESSION_NAMESPACE};
use serde_json::{Value, json};

use crate::scene::{Scene, annotation, announced, edit_lease};

/// How many Services there are beside the first.
const MORE: u8 = 5;

pub async fn a_node_has_died_and_each_place_tells_of_it() -> Result<()> {
    let scene = Scene::alone("walk").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    for number in 1..=MORE {
        let service = cluster.service(&format!("web{number}")).pods_of(&scene.service);
        let service = service.vip(number).create().await?;
        cluster.ready(&service).await?;
    }
    let dead = scene.owner().await?;
    says_who_announces(&scene, dead).await?;
    scene
        .until("each claim says how long its beginning took", async || {
            let owners = lab.plugin(&["owners", "-o", "json"])?.json()?;
            let rows = owners.as_array().context("no list")?;
            Ok(rows.iter().all(|row| row.get("took").is_some_and(Value::is_string)))
        })
        .await?;
    let lost = owned_by(lab, dead.name())?;
    let session = scene.session(dead).await?;
    let number = session.spec.context("no spec")?.lease_transitions.unwrap_or(0);
    let failover = format!("{}/{number}", dead.name());
    let watching = lab.start_plugin("watch", &["watch", "--count", &lost.len().to_string()])?;
    scene.until("it watches", async || Ok(watching.output().contains("watching"))).await?;
    let before = counted(cluster)?;

    dead.dies()?;
    dead.speaker()?.kill().await?;
    let new = scene.moved_from(dead).await?;
    scene
        .until("nothing of it is left", async || Ok(owned_by(lab, dead.name())?.is_empty()))
        .await?;

    tell_logs(&scene, dead, &failover, lost.len()).await?;
    tell_events(&scene, dead, &failover, lost.len()).await?;
    tell_leases(&scene, dead).await?;
    says_who_announces(&scene, new).await?;
    tell_metrics(&scene, before, lost.len()).await?;
    tell_pages(&scene, dead, new, &failover)?;
    scene
        .until("each change was watched", async || {
            let seen = watching.output();
            let seen: Vec<_> = seen.lines().filter(|line| line.contains("fell silent")).collect();
            Ok(seen.len() == lost.len() && seen.iter().all(|line| line.contains("ms")))
        })
        .await?;
    tell_plugin(&scene, dead, new)
}

/// The Services that a node owns, as the plugin says it.
fn owned_by(lab: &Lab, node: &str) -> Result<BTreeSet<String>> {
    let owners = lab.plugin(&["owners", "-o", "json"])?.json()?;
    let rows = owners.as_array().context("no list")?.iter();
    let theirs = rows.filter(|row| row["node"] == node);
    Ok(theirs.filter_map(|row| Some(row["service"].as_str()?.to_owned())).collect())
}

/// The condition of the Service names the node that has its address, and the interface.
async fn says_who_announces(scene: &Scene, owner: &Node) -> Result<()> {
    let says = format!("{} announces {} on eth0", owner.name(), scene.vip);
    scene
        .until(&format!("the condition says: {says}"), async || {
            let condition = announced(&scene.service).await?;
            Ok(condition.is_some_and(|it| it.status == "True" && it.message == says))
        })
        .await
}

/// The lines of a failover that the live speakers have logged.
fn lines(scene: &Scene, dead: &Node, failover: &str) -> Result<Vec<String>> {
    let live = scene.cluster.nodes().iter().filter(|node| node.name() != dead.name());
    let logs = live.map(|node| Ok(node.speaker()?.log())).collect::<Result<Vec<_>>>()?;
    let marked = format!("failover={failover} ");
    let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains(&marked));
    Ok(lines.map(str::to_owned).collect())
}

async fn tell_logs(scene: &Scene, dead: &Node, failover: &str, lost: usize) -> Result<()> {
    scene
        .until("the logs tell the story", async || {
            let lines = lines(scene, dead, failover)?;
            let with = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
            Ok(with(": an owner fell silent ") >= 1
                && with(": fenced ") >= 1
                && with(": claimed ") == lost
                && with(": announced ") == lost)
        })
        .await?;
    let lines = lines(scene, dead, failover)?;
    let timed = |line: &String| line.contains("after=") || line.contains("took=");
    ensure!(lines.iter().all(timed), "{lines:#?}");
    Ok(())
}

async fn tell_events(scene: &Scene, dead: &Node, failover: &str, lost: usize) -> Result<()> {
    let events: Api<Event> = Api::all(scene.lab().admin());
    scene
        .until("the events tell it", async || {
            let all = events.list(&ListParams::default()).await?.items;
            let of = |reason: &str, kind: &str| {
                let notes = all.iter().filter_map(|event| {
                    let about = event.regarding.as_ref()?;
                    let matches = event.reason.as_deref() == Some(reason)
                        && about.kind.as_deref() == Some(kind);
                    event.note.clone().filter(|_| matches)
                });
                notes.collect::<Vec<_>>()
            };
            let fenced = of("Fenced", "Node");
            let nodes = of("TakenOver", "Node");
            Ok(fenced.iter().any(|note| note.contains(failover))
                && nodes.iter().any(|note| note.contains("after it fell silent"))
                && of("TakenOver", "Service").iter().filter(|it| it.contains(dead.name())).count()
                    == lost)
        })
        .await
}

async fn tell_leases(scene: &Scene, dead: &Node) -> Result<()> {
    scene
        .until("the claim says how long it took", async || {
            let claim = scene.claim().await?;
            let cause = annotation(&claim, "leasehold.dev/cause").unwrap_or_default();
            let took = annotation(&claim, "leasehold.dev/took").unwrap_or_default();
            Ok(cause.contains("fell silent") && took.ends_with("ms"))
        })
        .await?;
    let session = scene.session(dead).await?;
    let silence = annotation(&session, "leasehold.dev/silence").unwrap_or_default();
    ensure!(silence.starts_with("wire ") && silence.ends_with("ms"), "{silence}");
    Ok(())
}

/// How many takeovers after a silence the speakers of a cluster have counted.
fn counted(cluster: &Cluster) -> Result<usize> {
    let mut sum = 0;
    for node in cluster.nodes().iter().filter(|it| matches!(it.speaker(), Ok(it) if it.alive())) {
        let text = node.speaker_http("/metrics")?;
        let series = "leasehold_speaker_takeover_duration_seconds_count{cause=\"silence\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(series));
        sum += count.map(str::parse::<usize>).transpose()?.unwrap_or(0);
    }
    Ok(sum)
}

async fn tell_metrics(scene: &Scene, before: usize, lost: usize) -> Result<()> {
    scene
        .until("each takeover is counted", async || Ok(counted(&scene.cluster)? >= before + lost))
        .await
}

fn tell_pages(scene: &Scene, dead: &Node, new: &Node, failover: &str) -> Result<()> {
    let page = scene.lab().operator()?.http("/")?;
    let arrow = format!("{} → {}", dead.name(), new.name());
    ensure!(page.contains(&arrow), "{arrow}: {page}");
    let status: Value = serde_json::from_str(&new.speaker_http("/status.json")?)?;
    let moves = status.get("moves").and_then(Value::as_array).context("no moves")?;
    ensure!(moves.iter().any(|it| it["failover"] == failover), "{failover}: {moves:#?}");
    Ok(())
}

fn tell_plugin(scene: &Scene, dead: &Node, new: &Node) -> Result<()> {
    let lab = scene.lab();
    let status = lab.plugin(&["status"])?;
    ensure!(status.text.contains(dead.name()), "{status:?}");
    let service = format!("{}/web", scene.cluster.namespace());
    let story = lab.plugin(&["explain", &service, "-o", "json"])?.with_code(0)?.json()?;
    let nodes = story.pointer("/claims/0/nodes").and_then(Value::as_array).context("no nodes")?;
    let verdict = |node: &Node| {
        let row = nodes.iter().find(|row| row["node"] == node.name());
        row.map(|row| row["verdict"].as_str().unwrap_or_default().to_owned())
    };
    ensure!(verdict(new).as_deref() == Some("owns"), "{nodes:#?}");
    ensure!(verdict(dead).as_deref() == Some("noSession"), "{nodes:#?}");
    // What if the next one went, too?
    let simulated = lab.plugin(&["simulate", "--node-down", new.name(), "-o", "json"])?;
    ensure!(simulated.code == 0 && simulated.text.contains(&service), "{simulated:?}");
    print!("{}", lab.plugin(&["owners"])?.text);
    Ok(())
}

pub async fn what_is_logged_changes_while_processes_run() -> Result<()> {
    let scene = Scene::alone("loglevel").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    let node = cluster.node(0);
    let log =
        |filter: Value| json!({ "metadata": { "annotations": { "leasehold.dev/log": filter } } });
    let said = |what: &'static str| {
        scene.until(what, async move || Ok(node.speaker()?.log().contains(what)))
    };
    ensure!(!node.speaker()?.log().contains("DEBUG"));
    edit_lease(lab, SESSION_NAMESPACE, node.name(), log(json!("info,leasehold=debug"))).await?;
    said("DEBUG").await?;
    edit_lease(lab, SESSION_NAMESPACE, node.name(), log(json!("leasehold=loud=er"))).await?;
    said("is not a valid filter, such as `debug`").await?;
    // Renewed, the session still says so: people wrote it.
    edit_lease(lab, SESSION_NAMESPACE, node.name(), log(json!("warn"))).await?;
    scene
        .until("a renewal keeps it", async || {
            let session = scene.session(node).await?;
            let spec = session.spec.clone().unwrap_or_default();
            let renewed = spec.renew_time
                > scene.session(cluster.node(1)).await?.spec.unwrap_or_default().acquire_time;
            Ok(renewed && annotation(&session, "leasehold.dev/log") == Some("warn"))
        })
        .await?;
    let lease = "leasehold-operator";
    let namespace = leasehold_lab::SYSTEM_NAMESPACE;
    edit_lease(lab, namespace, lease, log(json!("debug"))).await?;
    scene
        .until("the operator logs more", async || {
            Ok(lab.operator()?.process().output().contains("DEBUG"))
        })
        .await?;
    edit_lease(lab, namespace, lease, log(Value::Null)).await?;
    scene
        .until("and what it was started with", async || {
            let log = lab.operator()?.process().output();
            let changes = log.lines().filter(|it| it.contains("changed the log filter"));
            Ok(changes.count() == 2)
        })
        .await
}
