//! What is, and what would be.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{list, named, text};
use crate::scene::{Scene, cordon};
use crate::spread::crowd;

pub async fn owners_are_shown_in_every_format_and_services_are_found_by_every_name() -> Result<()> {
    let scene = Scene::open("plugowners").await?;
    let (lab, namespace) = (scene.lab(), scene.cluster.namespace());
    let owner = scene.owner().await?.name();
    let vip = scene.vip.to_string();
    let owners = ["-n", namespace, "owners", "-o"];

    let json = lab.plugin(&[&owners[..], &["json"]].concat())?.with_code(0)?.json()?;
    ensure!(text(&json, "/0/node")? == owner, "{json:#}");
    ensure!(text(&json, "/0/service")? == named(&scene, "web"), "{json:#}");
    ensure!(text(&json, "/0/addresses/0")? == vip, "{json:#}");
    ensure!(text(&json, "/0/interface")? == "eth0", "{json:#}");
    ensure!(list(&json, "")?.len() == 1, "{json:#}");
    let yaml = lab.plugin(&[&owners[..], &["yaml"]].concat())?.with_code(0)?;
    let yaml: Value = serde_yaml_ng::from_str(&yaml.text)?;
    ensure!(text(&yaml, "/0/node")? == owner, "{yaml:#}");
    let table = lab.plugin(&["-n", namespace, "owners"])?.with_code(0)?.text;
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default();
    ensure!(header.starts_with("SERVICE") && header.contains("SINCE"), "{table}");
    let row = lines.next().unwrap_or_default();
    ensure!(row.contains(&vip) && row.contains(owner) && !row.contains('\u{1b}'), "{table}");
    let wide = lab.plugin(&[&owners[..], &["wide"]].concat())?.with_code(0)?.text;
    let mac = scene.owner().await?.mac();
    ensure!(wide.contains(&mac) && wide.contains(&scene.service.claim()), "{wide}");
    print!("{table}");

    for name in [named(&scene, "web"), vip] {
        let story = lab.plugin(&["explain", &name, "-o", "json"])?.with_code(0)?.json()?;
        ensure!(text(&story, "/claims/0/owner/node")? == owner, "{story:#}");
    }
    lab.plugin(&["explain", "web", "--namespace", namespace])?.with_code(0)?;
    let unknown = lab.plugin(&["explain", "wbe", "-n", namespace])?.with_code(2)?;
    ensure!(unknown.notes.contains("did you mean plugowners/web?"), "{unknown:?}");
    let unknown = lab.plugin(&["simulate", "--node-down", "plugowners-node1"])?.with_code(2)?;
    ensure!(unknown.notes.contains("did you mean plugowners-node-1?"), "{unknown:?}");
    lab.plugin(&["explain"])?.with_code(2)?;

    let status = lab.plugin(&["status", "-o", "json"])?.json()?;
    let nodes = list(&status, "/nodes")?.iter().filter(|node| node["session"] == "live");
    let live =
        nodes.filter(|node| node["node"].as_str().is_some_and(|it| it.starts_with("plugowners")));
    ensure!(live.count() == 3, "{status:#}");
    let completed = lab.plugin(&["__complete", "drain", "plugowners-w"])?.with_code(0)?;
    let offline = completed.text.lines().last() == Some(":4");
    ensure!(offline, "{completed:?}");

    // Nobody listens there.
    let admin = std::fs::read_to_string(lab.plane().kubeconfig("admin"))?;
    let elsewhere = lab.folder().join("elsewhere.kubeconfig");
    std::fs::write(&elsewhere, admin.replace(":6443", ":6440"))?;
    let unreachable = lab.plugin_with(&elsewhere, &["owners"])?.with_code(3)?;
    ensure!(
        unreachable.notes.contains("no answer from the API server https://"),
        "{unreachable:?}"
    );
    Ok(())
}

/// What a story says of a node.
fn verdict<'a>(story: &'a Value, node: &str) -> Result<(&'a str, &'a str)> {
    let nodes = list(story, "/claims/0/nodes")?;
    let found = nodes.iter().find(|it| it["node"] == node);
    let found = found.with_context(|| format!("nothing of {node} in {story:#}"))?;
    Ok((text(found, "/verdict")?, text(found, "/reason")?))
}

pub async fn what_keeps_each_node_from_taking_an_address_is_explained() -> Result<()> {
    let scene = Scene::open("plugwhy").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    let web = named(&scene, "web");
    let explain = || lab.plugin(&["explain", &web, "-o", "json"]);
    let owner = scene.owner().await?;
    let others: Vec<_> =
        cluster.nodes().iter().filter(|node| node.name() != owner.name()).collect();
    let [cordoned, stopped] = others[..] else { anyhow::bail!("three nodes") };
    cordon(cordoned, true).await?;
    stopped.speaker()?.kill().await?;
    scene
        .until("each node has its verdict", async || {
            let story = explain()?.with_code(0)?.json()?;
            Ok(verdict(&story, cordoned.name())?.0 == "cordoned"
                && verdict(&story, stopped.name())?.0 == "noSession")
        })
        .await?;
    let story = explain()?.json()?;
    ensure!(text(&story, "/policy/policy")? == cluster.name(), "{story:#}");
    let (owns, _) = verdict(&story, owner.name())?;
    ensure!(owns == "owns", "{story:#}");
    let (_, why) = verdict(&story, cordoned.name())?;
    ensure!(why.contains("cordoned"), "{why}");
    let (_, why) = verdict(&story, stopped.name())?;
    ensure!(why.contains("no live session: "), "{why}");
    let worker = cluster.workers().first().context("no worker")?;
    let (none, why) = verdict(&story, worker.name())?;
    ensure!(none == "noSession" && why.contains("no speaker has run on the node"), "{why}");
    print!("{}", lab.plugin(&["explain", &web])?.with_code(0)?.text);

    // What the policy does not select says so, and what has no address says what the operator says.
    scene.policy_for(&[owner, cordoned]).await?;
    scene
        .until("the stopped one is not selected either", async || {
            let story = explain()?.json()?;
            Ok(verdict(&story, stopped.name())?.0 == "notSelected")
        })
        .await?;
    let waits = cluster.service("waits").vip(60).create().await?;
    let waits_named = named(&scene, waits.name());
    scene
        .until("the operator has said why", async || {
            let answer = lab.plugin(&["explain", &waits_named])?.with_code(1)?;
            Ok(answer.text.contains("no address for"))
        })
        .await
}

/// Who owns what in the namespace of the scene, by claim.
fn owners(scene: &Scene) -> Result<BTreeMap<String, String>> {
    let namespace = scene.cluster.namespace();
    let rows = scene.lab().plugin(&["-n", namespace, "owners", "-o", "json"])?.json()?;
    let owner =
        |row: &Value| Some((row["claim"].as_str()?.to_owned(), row["node"].as_str()?.to_owned()));
    Ok(list(&rows, "")?.iter().filter_map(owner).collect())
}

pub async fn a_simulation_says_what_happens_when_the_node_dies() -> Result<()> {
    let (scene, services) = crowd("plugsim", 8).await?;
    let lab = scene.lab();
    let before = owners(&scene)?;
    ensure!(before.len() == services.len() + 1, "{before:?}");
    let dies = scene.owner().await?;

    let simulate = ["simulate", "--node-down", dies.name(), "-o", "json"];
    let answer = lab.plugin(&simulate)?.with_code(0)?.json()?;
    let mut expected = before.clone();
    for step in list(&answer, "/moves")? {
        ensure!(text(step, "/from")? == dies.name(), "{step:#}");
        expected.insert(text(step, "/claim")?.to_owned(), text(step, "/to")?.to_owned());
    }
    print!("{}", lab.plugin(&["simulate", "--node-down", dies.name()])?.with_code(0)?.text);
    let all: Vec<&str> = scene.cluster.nodes().iter().map(leasehold_lab::Node::name).collect();
    let nobody = lab.plugin(&["simulate", "--node-down", &all.join(",")])?.with_code(1)?;
    ensure!(nobody.text.contains("No node could take"), "{nobody:?}");

    dies.dies()?;
    dies.speaker()?.kill().await?;
    scene
        .until("all is owned by nodes that live", async || {
            let now = owners(&scene)?;
            Ok(now.len() == before.len() && now.values().all(|node| node != dies.name()))
        })
        .await?;
    let now = owners(&scene)?;
    ensure!(now == expected, "expected {expected:?}\nand it is {now:?}");
    let moved = before.iter().filter(|(claim, node)| now.get(*claim) != Some(*node)).count();
    println!("    {moved} of {} claims moved, each as the simulation said", before.len());
    Ok(())
}

pub async fn a_failover_is_shown_while_it_happens() -> Result<()> {
    let scene = Scene::open("plugwatch").await?;
    let watch = scene.lab().start_plugin("plugwatch-watch", &["watch", "--output", "json"])?;
    let watching = async || Ok(watch.output().contains("watching"));
    scene.until("the watch has begun", watching).await?;
    let old = scene.owner().await?;
    old.dies()?;
    old.speaker()?.kill().await?;
    let new = scene.moved_from(old).await?;
    let claim = scene.service.claim();
    let mut line = Value::Null;
    scene
        .until("the change is shown", async || {
            let output = watch.output();
            let mut lines = output.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
            let found = lines.find(|it| it["claim"] == json!(claim) && it["from"] == old.name());
            line = found.unwrap_or_default();
            Ok(!line.is_null())
        })
        .await?;
    println!("    {line}");
    ensure!(text(&line, "/from")? == old.name(), "{line:#}");
    ensure!(text(&line, "/to")? == new.name(), "{line:#}");
    ensure!(text(&line, "/addresses/0")? == scene.vip.to_string(), "{line:#}");
    ensure!(text(&line, "/cause")?.contains("fell silent"), "{line:#}");
    ensure!(watch.terminate(Duration::from_secs(5)).await.is_ok());
    Ok(())
}
