//! A real Prometheus scrapes the lab with the configuration that is shipped, and its alerts fire for what they
//! are for.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::prometheus::{Programs, Prometheus};
use leasehold_lab::{Cluster, Service, repository};
use serde_json::{Value, json};

use crate::scene::Scene;

/// How long an alert may take, of which it waits half a minute by itself.
const PATIENCE: Duration = Duration::from_secs(180);

const WITHOUT_OWNER: &str = "LeaseholdAddressWithoutOwner";
const FLAPPING: &str = "LeaseholdSessionFlapping";
const UNREACHABLE: &str = "LeaseholdAPIUnreachable";
const NEARLY_FULL: &str = "LeaseholdPoolNearlyFull";

/// What a machine that is busy with other things raises rightly.
const OF_LOAD: &str = "LeaseholdKernelLifetimeLow|LeaseholdDecisionsLate|LeaseholdSpeakerDown";

async fn until(
    prometheus: &Prometheus,
    what: &str,
    condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    leasehold_lab::eventually(what, PATIENCE, condition, async || prometheus.dump()).await
}

/// Starts Prometheus, and waits until it scrapes all speakers and the operator.
async fn watching(cluster: &Cluster) -> Result<Prometheus> {
    let prometheus = Prometheus::start(cluster).await?;
    let all = cluster.nodes().len() + 1;
    until(&prometheus, "all targets are up", async || {
        let targets = prometheus.targets()?;
        let well = |target: &&Value| {
            target.get("health") == Some(&json!("up"))
                && target.get("lastError") == Some(&json!(""))
        };
        Ok(targets.len() == all && targets.iter().filter(well).count() == all)
    })
    .await?;
    Ok(prometheus)
}

/// Waits until an alert fires, and returns it.
async fn fires(prometheus: &Prometheus, alert: &str) -> Result<Value> {
    until(prometheus, &format!("{alert} fires"), async || {
        Ok(!prometheus.firing(alert)?.is_empty())
    })
    .await?;
    let mut firing = prometheus.firing(alert)?;
    ensure!(firing.len() == 1, "{alert} fires {} times: {firing:?}", firing.len());
    firing.pop().context("no alert")
}

async fn ends(prometheus: &Prometheus, alert: &str) -> Result<()> {
    until(prometheus, &format!("{alert} ends"), async || Ok(prometheus.firing(alert)?.is_empty()))
        .await
}

fn is_quiet(prometheus: &Prometheus, alert: &str) -> Result<()> {
    let firing = prometheus.firing(alert)?;
    ensure!(firing.is_empty(), "fires: {firing:?}");
    Ok(())
}

fn label<'a>(alert: &'a Value, name: &str) -> Option<&'a str> {
    alert.get("labels")?.get(name)?.as_str()
}

/// The metrics of Leasehold that a text names.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| {
        ["leasehold_speaker_", "leasehold_operator_"].iter().any(|prefix| word.starts_with(prefix))
    };
    words.filter(ours).collect()
}

pub async fn prometheus_finds_all_metrics_that_alerts_and_dashboard_name_and_no_alert_fires()
-> Result<()> {
    let programs = Programs::locate()?;
    let scene = Scene::alone("scraped").await?;
    let (cluster, lab) = (&scene.cluster, scene.lab());
    let prometheus = watching(cluster).await?;

    for node in cluster.nodes() {
        programs.lint(&node.speaker_http("/metrics")?).context(node.name().to_owned())?;
    }
    // A metric is served from when there is something to say: a request that cannot be met.
    let impossible = cluster.service("impossible").pods_of(&scene.service);
    impossible.annotation("leasehold.dev/address-pool", "missing").create().await?;
    let shipped = repository().join("deploy/monitoring");
    let texts =
        ["alerts.yaml", "dashboard.json"].map(|file| fs::read_to_string(shipped.join(file)));
    let [alerts, dashboard] = texts;
    let (alerts, dashboard) = (alerts?, dashboard?);
    let names: BTreeSet<&str> = named(&alerts).union(&named(&dashboard)).copied().collect();
    ensure!(names.len() > 20, "only {names:?} are named");
    let mut missing = Vec::new();
    let served = async || {
        missing.clear();
        for name in &names {
            if prometheus.query(&format!("count({name})"))?.is_empty() {
                missing.push((*name).to_owned());
            }
        }
        Ok(missing.is_empty())
    };
    let found = until(&prometheus, "all metrics are served", served).await;
    found.with_context(|| format!("not served: {missing:?}"))?;
    programs.lint(&lab.operator()?.http("/metrics")?).context("operator")?;

    // The panels' queries, with Grafana's variables filled in.
    let panels: Value = serde_json::from_str(&dashboard)?;
    let panels = panels.get("panels").and_then(Value::as_array).context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    for query in targets.filter_map(|target| target.get("expr")?.as_str()) {
        let query = query.replace("$__rate_interval", "1m").replace("$node", ".*");
        prometheus.query(&query).with_context(|| query.clone())?;
    }

    // For longer than most alerts wait by themselves.
    let scrapes = "min(count_over_time(up[10m]))";
    until(&prometheus, "every target was scraped 70 times", async || {
        let series = prometheus.query(scrapes)?;
        let count = series.first().and_then(|one| one.pointer("/value/1")?.as_str()?.parse().ok());
        Ok(count.is_some_and(|count: u32| count >= 70))
    })
    .await?;
    let fired = prometheus.query(&format!(
        "count_over_time(ALERTS{{alertstate=\"firing\", alertname!~\"{OF_LOAD}\"}}[10m])"
    ))?;
    ensure!(fired.is_empty(), "alerts fire: {fired:?}");
    Ok(())
}

pub async fn alerts_and_dashboard_pass_the_checks_of_prometheus_and_grafana() -> Result<()> {
    let programs = Programs::locate()?;
    let shipped = repository().join("deploy/monitoring");
    programs
        .promtool(&shipped, &["check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"])?;
    let tests = repository().join("tests/prometheus");
    programs.promtool(&tests, &["test", "rules", "alerts.test.yaml"])?;
    // Each alert has a test.
    let parse =
        |path| -> Result<Value> { Ok(serde_yaml_ng::from_str(&fs::read_to_string(path)?)?) };
    let (alerts, rule) =
        (parse(shipped.join("alerts.yaml"))?, parse(shipped.join("prometheus-rule.yaml"))?);
    let tested = fs::read_to_string(tests.join("alerts.test.yaml"))?;
    let groups = alerts.get("groups").and_then(Value::as_array).context("no groups")?;
    for alert in groups.iter().filter_map(|group| group.get("rules")?.as_array()).flatten() {
        let name = alert.get("alert").and_then(Value::as_str).context("a rule that is no alert")?;
        ensure!(tested.contains(&format!("alertname=\"{name}\"")), "{name} has no test");
        for part in ["/labels/severity", "/annotations/summary", "/annotations/description"] {
            ensure!(alert.pointer(part).is_some_and(Value::is_string), "{name} has no {part}");
        }
    }
    ensure!(
        rule.get("spec") == Some(&alerts),
        "prometheus-rule.yaml is not alerts.yaml: run `make alerts`"
    );
    let output = Command::new(repository().join("tests/grafana/check"))
        .arg(shipped.join("dashboard.json"))
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub async fn an_address_without_an_owner_and_a_pool_that_is_nearly_full_raise_alerts() -> Result<()>
{
    let scene = Scene::alone("nobody").await?;
    let cluster = &scene.cluster;
    // One that serves everybody: others are made to fit.
    let ((first, _), (last, _)) = (cluster.addresses().vip(0), cluster.addresses().vip(9));
    let ((_, first_v6), (_, last_v6)) = (cluster.addresses().vip(0), cluster.addresses().vip(9));
    let addresses = [format!("{first}-{last}"), format!("{first_v6}-{last_v6}")];
    let pool = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": { "name": cluster.name() }, "spec": { "addresses": addresses, "autoAssign": true },
    });
    scene.lab().apply(pool).await?;
    let prometheus = watching(cluster).await?;
    is_quiet(&prometheus, WITHOUT_OWNER)?;
    is_quiet(&prometheus, NEARLY_FULL)?;

    // Nine of ten addresses; and no node has a link to the clients' segment.
    let mut services: Vec<Service> = Vec::new();
    for number in 1..=8 {
        let plan = cluster.service(&format!("web-{number}")).pods_of(&scene.service).vip(number);
        services.push(plan.create().await?);
    }
    for node in cluster.nodes() {
        node.clients_link_down()?;
    }
    let alert = fires(&prometheus, WITHOUT_OWNER).await?;
    let description = alert.pointer("/annotations/description").and_then(Value::as_str);
    ensure!(description.is_some_and(|it| it.starts_with("9 claims")), "{alert}");
    let alert = fires(&prometheus, NEARLY_FULL).await?;
    ensure!(label(&alert, "pool") == Some(cluster.name()), "{alert}");
    ensure!(label(&alert, "family") == Some("IPv4"), "{alert}");

    for node in cluster.nodes() {
        node.clients_link_up()?;
    }
    services.pop().context("no service")?.delete().await?;
    ends(&prometheus, WITHOUT_OWNER).await?;
    ends(&prometheus, NEARLY_FULL).await?;
    cluster.ready(&scene.service).await?;
    Ok(())
}

pub async fn a_session_that_flaps_and_an_api_server_that_does_not_answer_raise_alerts() -> Result<()>
{
    let scene = Scene::alone("flaps").await?;
    let (cluster, plane) = (&scene.cluster, scene.lab().plane());
    let prometheus = watching(cluster).await?;
    is_quiet(&prometheus, FLAPPING)?;
    let node = scene.owner().await?;
    for times in 1..=3 {
        is_quiet(&prometheus, FLAPPING)?;
        node.speaker()?.freeze()?;
        let session = scene.session(node).await?.spec.and_then(|spec| spec.holder_identity);
        scene
            .until("it is fenced", async || {
                let now = scene.session(node).await?.spec.and_then(|spec| spec.holder_identity);
                Ok(session.is_some() && now != session)
            })
            .await?;
        node.speaker()?.thaw()?;
        let lost =
            format!("leasehold_speaker_sessions_lost_total{{node=\"{}\"}} >= {times}", node.name());
        until(&prometheus, &lost, async || Ok(!prometheus.query(&lost)?.is_empty())).await?;
        scene
            .until("it has a session again", async || {
                let now = scene.session(node).await?.spec.and_then(|spec| spec.holder_identity);
                Ok(now.as_deref() == Some(node.name()))
            })
            .await?;
    }
    let alert = fires(&prometheus, FLAPPING).await?;
    ensure!(label(&alert, "node") == Some(node.name()), "{alert}");

    is_quiet(&prometheus, UNREACHABLE)?;
    plane.freeze_api_server()?;
    let alert = fires(&prometheus, UNREACHABLE).await?;
    let description = alert.pointer("/annotations/description").and_then(Value::as_str);
    ensure!(description.is_some_and(|it| it.starts_with("3 speakers")), "{alert}");
    // All addresses are announced all the while, and nobody says otherwise.
    is_quiet(&prometheus, WITHOUT_OWNER)?;
    plane.thaw_api_server()?;
    ends(&prometheus, UNREACHABLE).await
}
