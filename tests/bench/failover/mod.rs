//! The effect of each fault on clients, for each system, with repeats.
//!
//! [`fault`] says what breaks, [`pieces`] how it does that piece by piece, [`field`] and [`ground`] where,
//! [`trial`] measures one round, [`cold`] one of starts, [`phases`] reads where the time went;
//! [`others`](crate::others) is what there is to compare with.

mod cold;
mod fault;
mod field;
mod ground;
mod phases;
mod pieces;
mod trial;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use leasehold_lab::sandbox;

pub(crate) use self::fault::{Fault, Shape};
use self::field::Field;
pub(crate) use self::ground::{Ground, Profile, System};
pub(crate) use self::phases::Phases;
pub(crate) use self::trial::UDP;
use crate::chance;
use crate::others::{Other, keepalived, kube_vip, metallb};
use crate::record::{Book, Felt, Machine, Run, Series, table};

/// The greatest length of an error in the output, in bytes.
const LINE: usize = 300;
/// After so many rounds that could not be measured a fault is given up.
const ATTEMPTS: usize = 3;
/// keepalived's advertisement intervals, in seconds.
const INTERVALS: [&str; 2] = ["0.1", "1"];

/// The file with the effect of each fault on clients, …
pub(crate) const FAILOVER: &str = "failover.json";
/// … of the same on other systems than Leasehold and keepalived, and …
pub(crate) const OTHERS: &str = "others.json";
/// … of nodes that end piece by piece and of cold starts, which are measured apart.
pub(crate) const APART: &str = "pieces-and-starts.json";

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Number of repetitions of each fault.
    #[arg(long, default_value_t = 20)]
    repeat: usize,
    /// Number of repetitions of faults that take half a minute or more; the value of `--repeat` if
    /// not given.
    #[arg(long, value_name = "REPEAT")]
    repeat_slow: Option<usize>,
    /// Maximum number of clusters of one system at the same time, each of which runs one repetition
    /// per round. Faults whose effect lasts milliseconds are caused in one cluster after another.
    /// Of clusters with many Services, there are five.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=20))]
    lanes: u8,
    /// Faults to measure; all but `two-of-four`, `hundred-services`, `node-in-pieces`,
    /// `node-in-pieces-5`, and `cold-start` if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Seed of the first order in which a node fails piece by piece; random if not given. Each
    /// repetition prints its own seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Name of the file to which each repetition is added.
    #[arg(long, default_value = FAILOVER)]
    book: String,
    /// Profile of failure detection.
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// Systems to measure; Leasehold, and keepalived if it is installed, if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Kind {
    Leasehold,
    Keepalived,
    Metallb,
    KubeVip,
}

impl Plan {
    /// Those of a group are measured beside each other.
    fn groups(&self) -> Vec<Vec<System>> {
        let by_default = |kind| self.systems.is_empty() && kind <= Kind::Keepalived;
        let wanted = |kind| by_default(kind) || self.systems.contains(&kind);
        let mut systems = Vec::new();
        if wanted(Kind::Leasehold) {
            systems.push(vec![System::Leasehold(self.profile)]);
        }
        if wanted(Kind::Keepalived) {
            if keepalived::installed() {
                systems.push(INTERVALS.map(Other::Keepalived).map(System::Other).to_vec());
            } else {
                println!("keepalived is not installed: nothing to compare with");
            }
        }
        if wanted(Kind::Metallb) {
            let all = [metallb::Settings::Default, metallb::Settings::Fast];
            systems.push(all.map(Other::Metallb).map(System::Other).to_vec());
        }
        if wanted(Kind::KubeVip) {
            let all = [kube_vip::Leases::DEFAULT, kube_vip::Leases::SHORT];
            systems.push(all.map(Other::KubeVip).map(System::Other).to_vec());
        }
        systems
    }

    fn faults(&self, systems: &[System]) -> Vec<Fault> {
        let all = self.faults.is_empty();
        let wanted = |fault: &Fault| all && !fault.extra() || self.faults.contains(fault);
        let possible = |fault: &Fault| {
            systems.iter().all(|system| match system {
                System::Leasehold(_) => true,
                System::Other(other) => fault.suits(*other),
            })
        };
        Fault::ALL.into_iter().filter(wanted).filter(possible).collect()
    }

    /// The number of repeats in one round.
    fn lanes(&self, fault: Fault) -> usize {
        let most = match fault.shape().services {
            1 => usize::MAX,
            100 => 1,
            _ => 5,
        };
        most.min(self.lanes.into()).min(self.repeats(fault))
    }

    /// The seed of the repeat after so many.
    fn seed(&self, repeats: usize) -> Result<u64> {
        Ok(match self.seed {
            Some(first) => first.wrapping_add(u64::try_from(repeats)?),
            None => chance::number()?,
        })
    }

    fn repeats(&self, fault: Fault) -> usize {
        let slow = self.repeat_slow.filter(|_| fault.slow());
        slow.unwrap_or(self.repeat)
    }
}

/// Runs it all; whether each fault was measured as often as asked. A round that could not be measured is told,
/// and measured again.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, &plan.book)?;
    let machine = Machine::here()?;
    let (mut all, mut complete) = (Vec::new(), true);
    for systems in plan.groups() {
        let mut field = None;
        for fault in plan.faults(&systems) {
            let new = |system: &System| {
                let (fault, system) = (fault.name(), label(*system));
                Series { fault, system, felt: Vec::new(), failed: 0 }
            };
            let mut each: Vec<Series> = systems.iter().map(new).collect();
            let (repeats, mut failed) = (plan.repeats(fault), 0);
            while each.iter().any(|series| series.felt.len() < repeats) && failed < ATTEMPTS {
                let seed = plan.seed(each.first().map_or(0, |series| series.felt.len()))?;
                match measure(&mut field, &systems, fault, plan.lanes(fault), seed).await {
                    Ok(round) => {
                        for (system, felt) in round {
                            let series = each.iter_mut().find(|it| it.system == label(system));
                            let series = series.context("a system that was not asked for")?;
                            let repeat = series.felt.len() + 1;
                            say(series, repeat, &felt);
                            book.append(&Run {
                                fault: fault.name(),
                                system: system.name(),
                                profile: system.profile().name().to_owned(),
                                repeat,
                                felt,
                                machine: machine.clone(),
                                date: k8s_openapi::jiff::Timestamp::now().to_string(),
                            })?;
                            series.felt.push(felt);
                        }
                    }
                    Err(error) => {
                        println!("{}: not measured: {}", fault.name(), brief(&error)?);
                        failed += 1;
                        for series in &mut each {
                            series.failed = failed;
                        }
                        // What is left of it is in an unknown state.
                        field = None;
                    }
                }
            }
            complete &= each.iter().all(|series| series.felt.len() >= repeats);
            all.extend(each);
        }
    }
    println!("\n{}", table(&all));
    println!("every repeat is in {}", book.path().display());
    Ok(complete)
}

/// One round, on the clusters of the round before if they suit.
async fn measure(
    field: &mut Option<Field>,
    systems: &[System],
    fault: Fault,
    lanes: usize,
    seed: u64,
) -> Result<Vec<(System, Felt)>> {
    let clusters = lanes * systems.len();
    let suits = match field {
        Some(field) if field.is(fault.shape(), clusters) => field.settle().await?,
        _ => false,
    };
    if !suits {
        // Ended before the next begins.
        drop(field.take());
        let new = Field::open(fault.shape(), systems, lanes).await?;
        new.settle().await?;
        *field = Some(new);
    }
    let field = field.as_ref().context("no clusters")?;
    let felt = trial::run(field, fault, seed).await?;
    Ok(field.grounds.iter().map(|ground| ground.system).zip(felt).collect())
}

/// The beginning of an error; all of it, with what the lab looked like, goes to the logs.
fn brief(error: &anyhow::Error) -> Result<String> {
    let text = format!("{error:#}\n");
    let log = sandbox::scratch()?.join("failures.log");
    File::options().create(true).append(true).open(log)?.write_all(text.as_bytes())?;
    Ok(text.lines().next().unwrap_or_default().chars().take(LINE).collect())
}

fn label(system: System) -> String {
    match system {
        System::Leasehold(Profile::Fast) => "leasehold fast".to_owned(),
        _ => system.name(),
    }
}

fn say(series: &Series, repeat: usize, felt: &Felt) {
    println!(
        "{} {} {repeat}: outage {} ms of {} VIPs, {} of {} lost, two owners {} ms, no ARP answer \
         {} ms{}{}{}",
        series.system,
        series.fault,
        felt.outage_ms,
        felt.hit,
        felt.lost,
        felt.sent,
        felt.two_owners_ms,
        felt.arp_unanswered_ms,
        if felt.connection_broken { ", connection broken" } else { "" },
        felt.shares.map(|shares| format!(", {shares} each")).unwrap_or_default(),
        if felt.recovered { "" } else { "; did not come back" },
    );
}
