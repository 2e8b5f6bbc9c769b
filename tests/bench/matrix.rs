//! What of Leasehold works with which version of Kubernetes and which mode of kube-proxy. On machines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use leasehold_lab::ProxyMode;
use leasehold_lab::controlplane::{minor, versions};
use leasehold_lab::machines::{Ground, Machines, MachinesPlan};
use serde::{Deserialize, Serialize};

use crate::record::{Book, Machine};

/// The file of the results.
pub(crate) const MATRIX: &str = "matrix.json";

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Minor versions of Kubernetes to try, such as 1.33 [default: all that there are].
    #[arg(long, value_delimiter = ',')]
    versions: Vec<String>,
    /// Modes of kube-proxy to try.
    #[arg(long, value_delimiter = ',', default_values_t = ProxyMode::value_variants().to_vec())]
    modes: Vec<ProxyMode>,
}

/// A thing that users expect, in the order in which they are tried on one cluster.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Check {
    /// The manifests bring pods that are ready, and an address that answers.
    Installs,
    /// ... in both families.
    BothFamilies,
    /// `externalTrafficPolicy: Local`.
    ClientAddress,
    /// New speakers and operators.
    RollOut,
    /// A drain of the owner.
    Drain,
    /// A power cut of the owner.
    PowerCut,
    /// The manifests are deleted.
    Uninstalls,
}

impl Check {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Installs,
        Self::BothFamilies,
        Self::ClientAddress,
        Self::RollOut,
        Self::Drain,
        Self::PowerCut,
        Self::Uninstalls,
    ];

    /// The heading of its column.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Installs => "installation",
            Self::BothFamilies => "IPv4 and IPv6",
            Self::ClientAddress => "client's address",
            Self::RollOut => "roll-out",
            Self::Drain => "drain",
            Self::PowerCut => "power cut",
            Self::Uninstalls => "removal",
        }
    }

    async fn of(self, ground: &Ground) -> Result<()> {
        match self {
            // A ground is what comes of it.
            Self::Installs => Ok(()),
            Self::BothFamilies => ground.answers_over_both_families().await.map(|_| ()),
            Self::ClientAddress => ground.keeps_the_address_of_clients().await,
            Self::RollOut => ground.rolls_out().await,
            Self::Drain => ground.drains().await,
            Self::PowerCut => ground.replaces_an_owner_without_power().await,
            Self::Uninstalls => ground.leaves_nothing(&ground.uninstalls().await?).await,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// As it has to be.
    Passed,
    /// Not so: the first line of the error.
    Failed(String),
    /// There was no cluster to try it on: why not.
    NotTried(String),
}

/// All checks of one version with one mode.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Cell {
    pub(crate) mode: ProxyMode,
    pub(crate) checks: BTreeMap<Check, Outcome>,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) date: String,
}

pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, MATRIX)?;
    let known = versions()?;
    let wanted: Vec<&str> = if plan.versions.is_empty() {
        known.keys().map(String::as_str).collect()
    } else {
        plan.versions.iter().map(String::as_str).collect()
    };
    let mut clean = true;
    for wanted in wanted {
        let version = known.get(wanted).with_context(|| {
            let all: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("there is no Kubernetes {wanted}, but {}", all.join(", "))
        })?;
        for &mode in &plan.modes {
            let cell = Cell::fill(version, mode).await?;
            println!("{version} {}: {:?}", mode.name(), cell.checks);
            clean &= !cell.checks.values().any(|it| matches!(it, Outcome::Failed(_)));
            book.write(&with(book.read()?, cell, &known))?;
        }
    }
    println!("\nevery cell is in {}", book.path().display());
    Ok(clean)
}

/// The cells in order, with this one in place of that of before, and without those of versions that are gone.
fn with(cells: Vec<Cell>, fresh: Cell, known: &BTreeMap<String, String>) -> Vec<Cell> {
    let key = |cell: &Cell| (minor(&cell.machine.kubernetes).to_owned(), cell.mode);
    let mut all: BTreeMap<_, _> = cells.into_iter().map(|cell| (key(&cell), cell)).collect();
    all.insert(key(&fresh), fresh);
    all.retain(|(minor, _), cell| known.get(minor) == Some(&cell.machine.kubernetes));
    all.into_values().collect()
}

/// Machines of a version whose kube-proxies run in a mode.
async fn start(version: &str, mode: ProxyMode) -> Result<Machines> {
    let plan = MachinesPlan::new("matrix").plain_names();
    let machines = plan.kubernetes(minor(version)).proxy_mode(mode).start().await?;
    for machine in machines.on() {
        machine.proxies().await?;
    }
    Ok(machines)
}

impl Cell {
    async fn fill(version: &str, mode: ProxyMode) -> Result<Self> {
        Ok(Self {
            mode,
            checks: checks(version, mode).await,
            machine: Machine { kubernetes: version.to_owned(), ..Machine::here()? },
            date: Timestamp::now().to_string(),
        })
    }
}

/// Tries each check on one cluster, and after one that fails on another.
async fn checks(version: &str, mode: ProxyMode) -> BTreeMap<Check, Outcome> {
    let mut done = BTreeMap::new();
    let mut open: Option<Ground> = None;
    for check in Check::ALL {
        let current = match open.take() {
            Some(ground) => ground,
            None => match ground(version, mode).await {
                Ok(ground) => ground,
                Err(obstacle) => return rest(done, obstacle),
            },
        };
        let outcome = match check.of(&current).await {
            Ok(()) => {
                open = Some(current);
                Outcome::Passed
            }
            Err(error) => Outcome::Failed(first_line(&error)),
        };
        done.insert(check, outcome);
    }
    done
}

/// Why there is no ground: what that is of the installation, and of all other checks.
struct Obstacle {
    installs: Outcome,
    others: Outcome,
}

async fn ground(version: &str, mode: ProxyMode) -> Result<Ground, Obstacle> {
    let machines = start(version, mode).await.map_err(|error| {
        let outcome = Outcome::NotTried(first_line(&error));
        Obstacle { installs: outcome.clone(), others: outcome }
    })?;
    Ground::on(machines).await.map_err(|error| Obstacle {
        installs: Outcome::Failed(first_line(&error)),
        others: Outcome::NotTried("it is not installed".to_owned()),
    })
}

/// The checks that are left where there is no ground.
fn rest(mut done: BTreeMap<Check, Outcome>, obstacle: Obstacle) -> BTreeMap<Check, Outcome> {
    done.entry(Check::Installs).or_insert(obstacle.installs);
    for check in Check::ALL {
        done.entry(check).or_insert_with(|| obstacle.others.clone());
    }
    done
}

/// The first line of an error; its others show whole clusters, here.
fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    println!("{text}");
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A cell of which all passed but for what is said.
    pub(crate) fn cell(version: &str, mode: ProxyMode, others: &[(Check, Outcome)]) -> Cell {
        let mut checks: BTreeMap<_, _> = Check::ALL.map(|it| (it, Outcome::Passed)).into();
        checks.extend(others.iter().cloned());
        let machine = Machine {
            commit: "abc".to_owned(),
            kernel: "6.1".to_owned(),
            processor: "x".to_owned(),
            cores: 2,
            kubernetes: version.to_owned(),
            keepalived: "2".to_owned(),
        };
        Cell { mode, checks, machine, date: "2026-01-02T03:04:05Z".to_owned() }
    }

    #[test]
    fn a_cell_replaces_that_of_before_and_those_of_versions_that_are_gone() {
        let known = [("1.33", "v1.33.2"), ("1.34", "v1.34.1")];
        let known = known.map(|(minor, version)| (minor.to_owned(), version.to_owned())).into();
        let failed = [(Check::Drain, Outcome::Failed("lost".to_owned()))];
        let cells = vec![
            cell("v1.32.9", ProxyMode::Nftables, &[]),
            cell("v1.34.1", ProxyMode::Nftables, &[]),
            cell("v1.33.1", ProxyMode::Iptables, &[]),
            cell("v1.33.2", ProxyMode::Nftables, &failed),
        ];
        let cells = with(cells, cell("v1.33.2", ProxyMode::Nftables, &[]), &known);
        let left: Vec<_> = cells.iter().map(|it| it.machine.kubernetes.as_str()).collect();
        assert_eq!(left, ["v1.33.2", "v1.34.1"]);
        assert!(cells.iter().all(|it| it.checks.values().all(|it| *it == Outcome::Passed)));
    }

    #[test]
    fn what_cannot_be_installed_failed_and_the_other_checks_are_not_tried() {
        let (failed, not_tried) =
            (Outcome::Failed("not ready".to_owned()), Outcome::NotTried("no".to_owned()));
        let obstacle = || Obstacle { installs: failed.clone(), others: not_tried.clone() };
        let all = rest(BTreeMap::new(), obstacle());
        assert_eq!(all.len(), Check::ALL.len());
        assert_eq!(all.get(&Check::Installs), Some(&failed));
        assert_eq!(all.get(&Check::Uninstalls), Some(&not_tried));
        // A second cluster, after a check has failed on the first.
        let all = rest([(Check::Installs, Outcome::Passed)].into(), obstacle());
        assert_eq!(all.get(&Check::Installs), Some(&Outcome::Passed));
        assert_eq!(all.get(&Check::Drain), Some(&not_tried));
    }
}
