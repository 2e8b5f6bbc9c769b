//! The status page, as a person sees it in a real browser.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use leasehold_lab::browser::{Browser, Colours};
use leasehold_lab::{Lab, repository};
use serde_json::{Value, json};

use crate::scene::Scene;

/// Where the screenshots go that are looked at.
fn screenshots() -> Result<PathBuf> {
    let folder = repository().join("target/screenshots");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Which node the picture shows an address on.
async fn pictured(browser: &Browser, vip: &str) -> Result<String> {
    let expression = format!(
        "document.querySelector('.chip[data-key={}]')?.closest('.node').querySelector('h3').innerText ?? ''",
        json!(vip)
    );
    Ok(browser.value(&expression).await?.as_str().unwrap_or_default().to_owned())
}

/// Nothing has to be scrolled sideways.
async fn fits(browser: &Browser) -> Result<()> {
    let expression = "document.documentElement.scrollWidth <= innerWidth";
    ensure!(browser.value(expression).await? == json!(true), "wider than its window");
    Ok(())
}

fn page(lab: &Lab) -> Result<String> {
    Ok(lab.operator()?.url("/"))
}

pub async fn the_page_shows_a_failover_as_it_happens() -> Result<()> {
    let scene = Scene::alone("page").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    for number in 2..=6 {
        let service = cluster.service(&format!("more-{number}")).pods_of(&scene.service);
        let service = service.vip(number).create().await?;
        cluster.ready(&service).await?;
    }
    let browser = Browser::start(lab.folder(), Colours::Light).await?;
    browser.resize(1200, 1500).await?;
    browser.open(&page(lab)?).await?;
    let (vip, owner) = (scene.vip.to_string(), scene.owner().await?);
    browser.shows("#live", &["Live."]).await?;
    browser.shows("#health", &["all announced", "all running"]).await?;
    browser.shows("#picture", &[&vip, owner.name()]).await?;
    ensure!(pictured(&browser, &vip).await? == owner.name());
    browser.screenshot(&screenshots()?.join("cluster-light.png")).await?;

    // Nobody loads it anew.
    browser.value("window.marked = true").await?;
    owner.dies()?;
    owner.speaker()?.kill().await?;
    let new = scene.moved_from(owner).await?;
    browser
        .shows("#moves", &[&format!("{} → {}", owner.name(), new.name()), "fell silent", " ms"])
        .await?;
    browser.shows("#nodes", &["gone"]).await?;
    browser.shows("#health", &["some missing", "all announced"]).await?;
    ensure!(pictured(&browser, &vip).await? == new.name());
    ensure!(browser.value("window.marked").await? == json!(true), "it was loaded anew");
    browser.screenshot(&screenshots()?.join("cluster-failover.png")).await?;

    // A speaker's page tells the same from where it stands.
    let theirs = new.speaker_http("/")?;
    for part in [&vip, "Kernel addresses of this node", "taken from", owner.name()] {
        ensure!(theirs.contains(part), "{part}: {theirs}");
    }
    let json: Value = serde_json::from_str(&new.speaker_http("/status.json")?)?;
    let mut moves = json.get("moves").and_then(Value::as_array).into_iter().flatten();
    let taken = moves.find(|one| one.get("from") == Some(&json!(owner.name())));
    let taken = taken.context("no such move")?;
    ensure!(taken.get("took").and_then(Value::as_u64).is_some_and(|took| took > 0), "{taken}");
    let failover = taken.get("failover").and_then(Value::as_str).context("no name")?;
    ensure!(
        new.speaker()?.log().contains(&format!("failover={failover}")),
        "{failover} is not in the log"
    );
    browser.close().await
}

pub async fn the_page_shows_a_pool_that_runs_out() -> Result<()> {
    let scene = Scene::alone("full").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    cluster.pool(0, 1).await?;
    let browser = Browser::start(lab.folder(), Colours::Dark).await?;
    browser.resize(1200, 1500).await?;
    browser.open(&page(lab)?).await?;
    browser.shows("#trouble", &["None."]).await?;
    let full = cluster.service("second").pods_of(&scene.service);
    let full = full.annotation("leasehold.dev/address-pool", cluster.name()).create().await?;
    cluster.ready(&full).await?;
    let waits = cluster.service("third").pods_of(&scene.service);
    waits.annotation("leasehold.dev/address-pool", cluster.name()).create().await?;
    browser.shows("#pools", &[cluster.name(), "2 of 2", "exhausted"]).await?;
    browser.shows("#trouble", &["third", "no address for"]).await?;
    browser.shows("#health", &["some not announced"]).await?;
    let dark = browser.value("getComputedStyle(document.body).backgroundColor").await?;
    ensure!(dark == json!("rgb(20, 23, 26)"), "{dark}");
    browser.screenshot(&screenshots()?.join("cluster-dark.png")).await?;

    // On a telephone, and with the keyboard alone.
    browser.resize(500, 1500).await?;
    fits(&browser).await?;
    browser.screenshot(&screenshots()?.join("cluster-narrow.png")).await?;
    let focused =
        "document.activeElement.className + document.activeElement.getAttribute('aria-label')";
    let mut reached = Vec::new();
    for _ in 0..12 {
        browser.tab().await?;
        reached.push(browser.value(focused).await?.as_str().unwrap_or_default().to_owned());
    }
    ensure!(reached.first().is_some_and(|first| first.starts_with("skip")), "{reached:?}");
    ensure!(reached.iter().any(|it| it.contains("Pools")), "{reached:?}");

    // Without JavaScript it says the same.
    let plain = lab.operator()?.http("/")?;
    ensure!(plain.contains("third") && plain.contains("exhausted"), "{plain}");
    let head = lab.operator()?.head("/")?.to_lowercase();
    ensure!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    let refused = browser
        .value("(() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1'; \
                document.body.append(s); return window.bad ?? 0; })()")
        .await?;
    ensure!(refused == json!(0), "a script in the page was run");
    browser.close().await
}
