//! `check`: problems of an installation.
//!
//! Each check is a pure function from objects to findings; `run` reads the objects and prints.
//!
//! | module | what |
//! |---|---|
//! | `finding` | a finding, its severity and remedy |
//! | `objects` | definitions, pools, policies |
//! | `rights` | rights of the service accounts, by the roles in `deploy/base` |
//! | `proxy` | kube-proxy in IPVS mode |
//! | `webhooks` | webhooks that would delay or refuse leases |
//! | `nodes` | kernels, and addresses of Services that a kubelet has taken for its node's |
//! | `speakers` | sessions, interfaces for the addresses of the pools, and their MTUs |
//! | `announcers` | others that announce addresses, or write to our Services |

mod announcers;
mod finding;
mod nodes;
mod objects;
mod proxy;
mod rights;
mod speakers;
mod webhooks;

use kube::Api;
use leasehold_core::explain::{View, World};

use finding::{Finding, Level, skip};

use super::args::FormatArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::operator::Operator;
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone};
use super::{output, read};

pub(super) async fn run(
    cluster: &Cluster,
    format: FormatArguments,
) -> Result<Outcome, PluginError> {
    let findings = findings(cluster).await?;
    let text = match output::document(&findings, format.output)? {
        Some(document) => document,
        None => text(&findings),
    };
    output::print(&text)?;
    Ok((!findings.iter().any(|it| it.level == Level::Fail)).into())
}

/// All checks, in the order in which they are shown.
pub(super) async fn findings(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let client = || cluster.client.clone();
    let definitions = read::list(cluster, Api::all(client())).await;
    let mut findings = objects::definitions(&skip(definitions)?);
    if findings.iter().any(|it| it.level == Level::Fail) {
        return Ok(findings);
    }
    let objects = read::objects(cluster).await?;
    let world = World::of(&objects);
    let view = View::new(&world);
    findings.extend(objects::pools(&objects.pools));
    findings.extend(objects::policies(&objects.policies, &view));
    findings.extend(rights::check(cluster).await?);
    findings.push(operator(&super::operator::look(cluster, &objects.claims).await?));
    findings.extend(proxy::check(&proxy::configuration(cluster).await?));
    findings.extend(webhooks::check(&webhooks::read(cluster).await?));
    findings.extend(nodes::kernels(&objects.nodes));
    findings.extend(nodes::addresses(&objects.nodes, &view, &objects.pools));
    // Sessions that are renewed change; those of a speaker that hangs do not.
    let renewed = speakers::renewed(cluster, &world).await?;
    findings.extend(speakers::sessions(&view, &renewed));
    findings.extend(speakers::interfaces(&view, &objects.pools));
    findings.extend(speakers::mtus(&view));
    findings.extend(speakers::ways(&view));
    findings.extend(announcers::heard(&view));
    findings.extend(announcers::check(&announcers::read(cluster).await?));
    findings.extend(announcers::strangers(&view, &objects.pools));
    findings.extend(announcers::writers(&view));
    Ok(findings)
}

/// Checks whether new Services get addresses.
fn operator(operator: &Operator) -> Finding {
    const OPERATOR: &str = "operator";
    match operator {
        Operator::Active(holder) => Finding::ok(OPERATOR, format!("{holder} is active")),
        Operator::Still(_) | Operator::Absent => Finding::fail(
            OPERATOR,
            operator.trouble().unwrap_or_default(),
            "check its pods: kubectl -n leasehold-system get pods -l \
             app.kubernetes.io/component=operator; until then, new Services get no addresses",
        ),
    }
}

fn text(findings: &[Finding]) -> String {
    let mut table = Table::new(&["CHECK", "RESULT", "WHAT"]);
    for finding in findings {
        let (word, tone) = match finding.level {
            Level::Ok => ("ok", Tone::Good),
            Level::Skipped => ("skipped", Tone::Dim),
            Level::Warn => ("warn", Tone::Warning),
            Level::Fail => ("FAIL", Tone::Bad),
        };
        table.row([
            Cell::from(finding.check),
            Cell::new(word, tone),
            finding.message.as_str().into(),
        ]);
        if let Some(fix) = &finding.fix {
            table.row(["".into(), "".into(), Cell::new(format!("-> {fix}"), Tone::Plain)]);
        }
    }
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    let (fails, warns) = (count(Level::Fail), count(Level::Warn));
    let plural = if warns == 1 { "" } else { "s" };
    format!("{}\n{fails} failed, {warns} warning{plural}\n", table.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_a_line_each_with_what_to_do_below() {
        let findings = [
            Finding::ok("pools", "no two pools overlap"),
            Finding::fail("proxy", "ipvs without strictARP", "set strictARP: true"),
            Finding::skipped("rights", "not allowed"),
        ];
        assert_eq!(
            anstream::adapter::strip_str(&text(&findings)).to_string(),
            "CHECK    RESULT    WHAT\n\
             pools    ok        no two pools overlap\n\
             proxy    FAIL      ipvs without strictARP\n                   \
             -> set strictARP: true\n\
             rights   skipped   not allowed\n\
             \n\
             1 failed, 0 warnings\n"
        );
    }
}
