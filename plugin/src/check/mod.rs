//! `check`: what keeps Leasehold from working well.
//!
//! Each check is a pure function from objects to findings; `run` reads the objects and prints.
//!
//! | module | what |
//! |---|---|
//! | `objects` | definitions, pools, policies |
//! | `rights` | what the service accounts may do, by the roles in `deploy/base` |
//! | `proxy` | kube-proxy in IPVS mode |
//! | `webhooks` | webhooks that would delay or refuse leases |
//! | `nodes` | kernels, and addresses of Services that a kubelet has taken for its node's |
//! | `speakers` | sessions, interfaces for the addresses of the pools, and their MTUs |
//! | `announcers` | others that announce addresses, or write to our Services |

mod announcers;
mod nodes;
mod objects;
mod proxy;
mod rights;
mod speakers;
mod webhooks;

use kube::Api;
use leasehold::explain::{View, World};
use serde::Serialize;

use super::args::FormatArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::operator::Operator;
use super::outcome::Outcome;
use super::table::{Cell, Table, Tone};
use super::{output, read};

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    check: &'static str,
    level: Level,
    message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// The severity of a finding; the worst comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Level {
    /// All is well.
    Ok,
    /// It could not be looked at.
    Skipped,
    /// Worth a look.
    Warn,
    /// It keeps Leasehold from working.
    Fail,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), fix: None }
    }

    fn skipped(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, message: message.into(), fix: None }
    }

    fn warn(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    fn fail(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, message: message.into(), fix: Some(fix.into()) }
    }
}

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

/// Whether new Services get addresses.
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

/// The result of a read, or the reason for which this user may not read. Other errors stay errors.
fn skip<T>(read: Result<T, PluginError>) -> Result<Result<T, String>, PluginError> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(error @ PluginError::Refused { code: 401 | 403, .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The objects of a list; none of a kind that the API server does not know.
fn or_none<T>(read: Result<Vec<T>, PluginError>) -> Result<Vec<T>, PluginError> {
    match read {
        Err(PluginError::Refused { code: 404, .. }) => Ok(Vec::new()),
        read => read,
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
