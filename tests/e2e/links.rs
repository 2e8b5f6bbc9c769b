//! Links that come, go, and change under the addresses that they carry.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Cluster, Lab, Node, Report};
use serde_json::json;
use tokio::time::sleep;

use crate::pair::{Pair, shorter_than};
use crate::scene::{
    Scene, UDP, annotation, announced, cordon, holder_and_transitions, interfaces, say, silence,
};

const AFTERWARDS: Duration = Duration::from_secs(1);
/// What a change may cost that a node cannot hide, on a busy machine. Without an announcement a client would
/// take longer: it checks what it knows after 8 s at the earliest.
const BRIEF: Duration = Duration::from_secs(3);

/// Has this node own the pair, by cordoning the others for as long as it takes.
async fn move_to(pair: &Pair<'_>, node: &Node) -> Result<String> {
    let others = || pair.scene.cluster.nodes().iter().filter(|it| it.name() != node.name());
    for other in others() {
        cordon(other, true).await?;
    }
    let (_, interface) = pair.settled("it moves", |it| it.name() == node.name()).await?;
    for other in others() {
        cordon(other, false).await?;
    }
    Ok(interface)
}

pub async fn an_interface_that_is_renamed_carries_under_its_new_name() -> Result<()> {
    let scene = Scene::open("rename").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (first, _) = pair.settled("at first", |_| true).await?;

    let probes = pair.watch().await?;
    first
        .namespace()
        .ip("link set dev eth0 down\nlink set dev eth0 name lan0\nlink set dev lan0 up\n")?;
    first.configure("lan0")?;
    pair.settled("somebody has it", |_| true).await?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("down, renamed, up", probes).await?;
    shorter_than("down, renamed, up", BRIEF, &reports)?;
    let interface = move_to(&pair, first).await?;
    ensure!(interface == "lan0", "{interface}");
    pair.is_at(&first.mac()).await?;

    // Linux renames links that are up since 6.2.
    let probes = pair.watch().await?;
    first.namespace().ip("link set dev lan0 name wan0\n")?;
    let (now, _) = pair.settled("somebody has it", |_| true).await?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("renamed while it is up", probes).await?;
    shorter_than("renamed while it is up", BRIEF, &reports)?;
    pair.is_at(&now.mac()).await?;
    let interface = move_to(&pair, first).await?;
    ensure!(interface == "wan0", "{interface}");
    pair.is_at(&first.mac()).await
}

pub async fn an_interface_that_comes_later_carries_where_the_policy_names_it() -> Result<()> {
    let scene = Scene::open("later").await?;
    let cluster = &scene.cluster;
    let pair = Pair::open(&scene, 1).await?;
    let (first, _) = pair.settled("at first", |_| true).await?;
    cluster.policy_with(interfaces(&["lan1"])).await?;
    scene
        .until("no node has such an interface, and nobody the addresses", async || {
            Ok(cluster.holders(pair.v4)?.is_empty() && cluster.holders(pair.v6)?.is_empty())
        })
        .await?;

    let probes = pair.watch().await?;
    let mac = first.plug_in("lan1")?;
    let plan = cluster.addresses();
    let (v4, v6) = (plan.client_v4(71), plan.client_v6(71));
    first.namespace().ip(&format!(
        "address add {v4}/24 dev lan1 metric 500\naddress add {v6}/64 dev lan1 nodad metric 500\n"
    ))?;
    let (_, interface) = pair.settled("it carries", |node| node.name() == first.name()).await?;
    ensure!(interface == "lan1", "{interface}");
    sleep(AFTERWARDS).await;
    let reports = pair.stop("an interface comes that the policy names", probes).await?;
    for report in &reports {
        ensure!(report.owners()?.two_owners().is_zero());
    }
    pair.is_at(&mac).await?;

    // The policy names another one of the same node: it goes over there, and nobody notices.
    let probes = pair.watch().await?;
    cluster.policy_with(interfaces(&["eth0"])).await?;
    goes_over(&pair, first, "eth0").await?;
    cluster.policy_with(interfaces(&["lan1"])).await?;
    goes_over(&pair, first, "lan1").await?;
    sleep(AFTERWARDS).await;
    for report in pair.stop("to another interface of the node and back", probes).await? {
        let (lost, none) = (report.udp()?.lost(), report.owners()?.longest_without_owner());
        ensure!(lost == 0 && none < BRIEF, "{}; none for {none:?}", report.udp()?);
    }
    pair.is_at(&mac).await?;

    // It goes, and the policy is content with any.
    first.namespace().ip("link del dev lan1\n")?;
    scene
        .until("its end takes the addresses along", async || {
            Ok(cluster.holders(pair.v4)?.is_empty() && cluster.holders(pair.v6)?.is_empty())
        })
        .await?;
    cluster.policy().await?;
    let (now, interface) = pair.settled("it is announced as before", |_| true).await?;
    sleep(AFTERWARDS).await;
    ensure!(interface == "eth0", "{interface}");
    pair.is_at(&now.mac()).await
}

/// Waits until this interface of this node has both addresses, and the claim says so.
async fn goes_over(pair: &Pair<'_>, node: &Node, interface: &str) -> Result<()> {
    let scene = pair.scene;
    let what = format!("{interface} of {} carries both", node.name());
    scene
        .until(&what, async || {
            let claim = scene.cluster.claim(&pair.service).await?.context("no claim")?;
            let mut there = annotation(&claim, "leasehold.dev/interface") == Some(interface);
            for vip in [pair.v4, pair.v6] {
                let has = node.addresses()?.into_iter().filter(|it| it.address.addr() == vip);
                let on: Vec<_> = has.map(|it| it.interface).collect();
                there &= on == [interface];
            }
            Ok(there)
        })
        .await
}

pub async fn an_interface_that_comes_later_carries_the_addresses_of_its_subnet() -> Result<()> {
    const SUBNET: &str = "172.29.7";
    let scene = Scene::open("subnet").await?;
    let cluster = &scene.cluster;
    let vip: IpAddr = format!("{SUBNET}.100").parse()?;
    cluster.client().namespace().ip(&format!("route add {SUBNET}.0/24 dev eth0\n"))?;
    scene
        .lab()
        .apply(json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "IPAddressPool",
            "metadata": { "name": format!("{}-far", cluster.name()) },
            "spec": { "addresses": [format!("{vip}/32")], "autoAssign": false },
        }))
        .await?;
    let far = cluster.service("far").annotation("leasehold.dev/addresses", &vip.to_string());
    let far = far.pods_of(&scene.service).create().await?;
    let (_, first) = cluster.ready(&far).await?;
    let on = |node: &Node| Ok::<_, anyhow::Error>(node.has_address(vip)?.map(|a| a.interface));
    ensure!(on(first)?.as_deref() == Some("eth0"), "the default route leads through eth0");

    for round in ["another node", "the owner"] {
        let now = cluster.owner(&far).await?.context("no owner")?;
        let is_right = |node: &&Node| (node.name() == now) == (round == "the owner");
        let node = cluster.nodes().iter().find(is_right).context("no such node")?;
        let probe = cluster.client().probe(vip).udp(UDP).owners().start()?;
        sleep(Duration::from_millis(500)).await;
        let mac = node.plug_in("lan1")?;
        node.namespace().ip(&format!("address add {SUBNET}.1/24 dev lan1\n"))?;
        let what = format!("{} announces it on its segment, alone", node.name());
        scene
            .until(&what, async || {
                let claim = cluster.claim(&far).await?.context("no claim")?;
                Ok(cluster.holders(vip)?.len() == 1
                    && on(node)?.as_deref() == Some("lan1")
                    && annotation(&claim, "leasehold.dev/interface") == Some("lan1"))
            })
            .await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        say(&format!("{round} gets an interface whose subnet holds the address"), &report)?;
        brief("the subnet comes", &report)?;
        let known = cluster.client().neighbour(vip)?.map(|mac| mac.to_string());
        ensure!(known.as_deref() == Some(mac.as_str()), "the client has it at {known:?}");

        let probe = cluster.client().probe(vip).udp(UDP).owners().start()?;
        sleep(Duration::from_millis(500)).await;
        node.namespace().ip("link del dev lan1\n")?;
        let (_, now) = cluster.ready(&far).await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        say("... and loses it", &report)?;
        ensure!(on(now)?.as_deref() == Some("eth0") && cluster.holders(vip)?.len() == 1);
        let known = cluster.client().neighbour(vip)?.map(|mac| mac.to_string());
        ensure!(known == Some(now.mac()), "the client has it at {known:?}");
        brief("the subnet goes", &report)?;
    }
    Ok(())
}

fn brief(what: &str, report: &Report) -> Result<()> {
    let outage = report.udp()?.longest_outage();
    ensure!(outage < BRIEF, "{what}: {}", report.udp()?);
    Ok(())
}

pub async fn a_node_whose_own_addresses_change_goes_on() -> Result<()> {
    let scene = Scene::open("readdress").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (owner, _) = pair.settled("at first", |_| true).await?;
    let plan = scene.cluster.addresses();
    let (router_v4, router_v6) = (plan.client_v4(1), plan.client_v6(1));
    let [old_v4, old_v6] = owner.own_addresses();
    let (new_v4, new_v6) = (plan.client_v4(81), plan.client_v6(81));

    // The new one comes before the old one goes, as with network managers.
    owner.namespace().sysctl(&[("net.ipv4.conf.all.promote_secondaries", "1")])?;
    let claim = scene.cluster.claim(&pair.service).await?.context("no claim")?;
    let probes = pair.watch().await?;
    owner.namespace().ip(&format!(
        "address add {new_v4}/24 dev eth0\n\
         address add {new_v6}/64 dev eth0 nodad\n\
         address del {old_v4}/24 dev eth0\n\
         address del {old_v6}/64 dev eth0\n\
         route replace default via {router_v4}\n\
         route replace default via {router_v6}\n"
    ))?;
    scene
        .until("its session lists the new addresses", async || {
            let session = scene.session(owner).await?;
            let listed = serde_json::to_string(&session.metadata.annotations)?;
            let lists = |ip: String| listed.contains(&ip);
            Ok(lists(format!("{new_v4}/24"))
                && lists(format!("{new_v6}/64"))
                && !lists(format!("{old_v4}/24"))
                && !lists(format!("{old_v6}/64")))
        })
        .await?;
    sleep(Duration::from_secs(3)).await;
    let reports = pair.stop("the owner's own addresses change", probes).await?;
    for report in &reports {
        let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
        ensure!(lost == 0 && two.is_zero(), "{}; two owners {two:?}", report.udp()?);
    }
    let now = scene.cluster.claim(&pair.service).await?.context("no claim")?;
    let (before, after) = (holder_and_transitions(&claim), holder_and_transitions(&now));
    ensure!(before == after, "it moved: {before:?}, {after:?}");
    pair.is_at(&owner.mac()).await?;

    // The old one goes first, as by hand.
    let probes = pair.watch().await?;
    owner.namespace().ip(&format!(
        "address del {new_v4}/24 dev eth0\n\
         address del {new_v6}/64 dev eth0\n\
         address add {old_v4}/24 dev eth0\n\
         address add {old_v6}/64 dev eth0 nodad\n\
         route replace default via {router_v4}\n\
         route replace default via {router_v6}\n"
    ))?;
    sleep(Duration::from_secs(3)).await;
    let (now, _) = pair.settled("somebody has it", |_| true).await?;
    let reports = pair.stop("... and back, the old ones first", probes).await?;
    shorter_than("the old address first", BRIEF, &reports)?;
    pair.is_at(&now.mac()).await
}

pub async fn a_mac_address_that_changes_is_announced_at_once() -> Result<()> {
    let scene = Scene::open("mac").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (owner, _) = pair.settled("at first", |_| true).await?;
    pair.is_at(&owner.mac()).await?;
    let probes = pair.watch().await?;
    let mac = "02:1e:a5:00:00:99";
    owner.namespace().ip(&format!("link set dev eth0 address {mac}\n"))?;
    sleep(Duration::from_secs(3)).await;
    let (now, _) = pair.settled("somebody has it", |_| true).await?;
    let reports = pair.stop("the MAC address changes", probes).await?;
    let here = now.name() == owner.name();
    println!("    ... and it is {}", if here { "where it was" } else { "elsewhere" });
    shorter_than("the MAC address changes", BRIEF, &reports)?;
    pair.is_at(&if here { mac.to_owned() } else { now.mac() }).await?;
    let session = scene.session(owner).await?;
    let listed = serde_json::to_string(&session.metadata.annotations)?;
    ensure!(listed.contains(mac), "its session lists {listed}");
    move_to(&pair, owner).await?;
    sleep(AFTERWARDS).await;
    pair.is_at(mac).await
}

/// The address of a node on its second link.
fn second(cluster: &Cluster, node: &Node) -> Result<Ipv4Addr> {
    let at = cluster.nodes().iter().position(|it| it.name() == node.name());
    let at = u8::try_from(at.context("no such node")?)?;
    Ok(cluster.addresses().client_v4(71_u8.saturating_add(at)))
}

/// As RHEL sets a node up: strict reverse path filtering, here with a second link in the clients' subnet. The
/// routes to the subnet lead through `by`.
fn lead(cluster: &Cluster, node: &Node, by: &str) -> Result<()> {
    let (plan, own) = (cluster.addresses(), second(cluster, node)?);
    let (subnet, router) = (plan.client_v4(0), plan.client_v4(1));
    let [first, _] = node.own_addresses();
    let metric = |link: &str| if link == by { 0 } else { 200 };
    let (eth0, eth1) = (metric("eth0"), metric("eth1"));
    node.namespace().ip(&format!(
        "route flush exact {subnet}/24\n\
         route add {subnet}/24 dev eth0 src {first} metric {eth0}\n\
         route add {subnet}/24 dev eth1 src {own} metric {eth1}\n\
         route replace default via {router} dev {by}\n"
    ))
}

pub async fn with_strict_reverse_path_filtering_the_link_that_answers_carries() -> Result<()> {
    let plan = Lab::shared().await?.cluster("strict");
    let scene = Scene::before(plan, |cluster| {
        for node in cluster.nodes() {
            node.plug_in("eth1")?;
            let own = second(cluster, node)?;
            node.namespace().ip(&format!("address add {own}/24 dev eth1\n"))?;
            let strict = ["all", "eth0", "eth1"].map(|it| format!("net.ipv4.conf.{it}.rp_filter"));
            for setting in &strict {
                node.namespace().sysctl(&[(setting.as_str(), "1")])?;
            }
            lead(cluster, node, "eth1")?;
        }
        Ok(())
    })
    .await?;
    let cluster = &scene.cluster;
    let carries = async |link: &str| {
        let owner = scene.owner().await?;
        let claim = scene.claim().await?;
        let has = owner.has_address(scene.vip)?.map(|held| held.interface);
        Ok(has.as_deref() == Some(link)
            && annotation(&claim, "leasehold.dev/interface") == Some(link)
            && scene.service.answers(cluster, scene.vip)?)
    };
    scene.until("the link that answers carries", async || carries("eth1").await).await?;

    let before = holder_and_transitions(&scene.claim().await?);
    let owner = scene.owner().await?;
    let probe = scene.watch().await?;
    lead(cluster, owner, "eth0")?;
    scene.until("it goes over to the other", async || carries("eth0").await).await?;
    sleep(AFTERWARDS).await;
    let report = probe.stop().await?;
    say("the routes lead through the other link", &report)?;
    brief("the routes change", &report)?;
    ensure!(holder_and_transitions(&scene.claim().await?) == before, "it has another owner");

    // On the other two nodes eth1 answers, on this one it does not.
    cluster.policy_with(interfaces(&["eth1"])).await?;
    scene.moved_from(owner).await?;
    for node in cluster.nodes() {
        lead(cluster, node, "eth0")?;
    }
    let not_answered = async || {
        let says = silence(&scene.service).await?;
        Ok(says.is_some_and(|it| {
            it.reason == "ClientsNotAnswered" && it.message.contains("eth1.rp_filter=2")
        }))
    };
    let unanswered = "the Service says that its clients are not answered";
    scene.until(unanswered, not_answered).await?;

    // Answers leave by the link that carries, as long as the policy says so.
    let symmetric = json!({ "layer2": { "interfaces": ["eth1"] }, "returnPath": "Symmetric" });
    cluster.policy_with(symmetric).await?;
    scene.until("clients are answered by the return path", async || carries("eth1").await).await?;
    scene
        .until("the Service says that they are", async || {
            let says = announced(&scene.service).await?;
            Ok(says.is_some_and(|it| it.status == "True"))
        })
        .await?;
    for round in 0..20 {
        ensure!(scene.service.answers(cluster, scene.vip)?, "no answer in round {round}");
    }
    cluster.policy_with(interfaces(&["eth1"])).await?;
    scene.until(unanswered, not_answered).await?;
    scene
        .until("nothing of the return path is left", async || {
            let shown = scene.owner().await?.namespace().command("ip").arg("rule").output()?;
            let rules = String::from_utf8(shown.stdout)?;
            let left = rules.is_empty() || rules.contains("proto 76");
            Ok(!left && !scene.service.answers(cluster, scene.vip)?)
        })
        .await?;
    let owner = scene.owner().await?;
    owner.namespace().sysctl(&[("net.ipv4.conf.eth1.rp_filter", "2")])?;
    scene
        .until("they are, once it is set as it says", async || {
            scene.service.answers(cluster, scene.vip)
        })
        .await?;
    // What is set is looked at each half minute, and with each change of a route.
    lead(cluster, owner, "eth0")?;
    scene
        .until("the Service says so", async || {
            let says = announced(&scene.service).await?;
            Ok(says.is_some_and(|it| it.status == "True"))
        })
        .await
}
