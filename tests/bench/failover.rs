//! Every fault, on every system, as often as asked.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use leasehold_lab::sandbox;

use crate::fault::Fault;
use crate::ground::{Ground, Profile, System};
use crate::record::{Book, Felt, Machine, Run, Series, table};
use crate::{keepalived, trial};

/// How much of an error is shown.
const LINE: usize = 300;
/// keepalived's advertisement intervals, in seconds.
const INTERVALS: [&str; 2] = ["0.1", "1"];

#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// How often each fault is repeated.
    #[arg(long, default_value_t = 20)]
    repeat: usize,
    /// How often those that take half a minute and more; as the others if not given.
    #[arg(long, value_name = "REPEAT")]
    repeat_slow: Option<usize>,
    /// Which; all if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// How quickly silence is noticed.
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// Which systems; all that are installed if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Leasehold,
    Keepalived,
}

impl Plan {
    fn systems(&self) -> Vec<System> {
        let wanted = |kind| self.systems.is_empty() || self.systems.contains(&kind);
        let mut systems = Vec::new();
        if wanted(Kind::Leasehold) {
            systems.push(System::Leasehold(self.profile));
        }
        if wanted(Kind::Keepalived) {
            if keepalived::installed() {
                systems.extend(INTERVALS.map(System::Keepalived));
            } else {
                println!("keepalived is not installed: nothing to compare with");
            }
        }
        systems
    }

    fn faults(&self, system: System) -> Vec<Fault> {
        let wanted = |fault: &Fault| self.faults.is_empty() || self.faults.contains(fault);
        let possible =
            |fault: &Fault| matches!(system, System::Leasehold(_)) || fault.suits_keepalived();
        Fault::ALL.into_iter().filter(wanted).filter(possible).collect()
    }

    fn repeats(&self, fault: Fault) -> usize {
        let slow = self.repeat_slow.filter(|_| fault.slow());
        slow.unwrap_or(self.repeat)
    }
}

/// Runs it all; whether every repeat could be measured and ended well.
pub(crate) async fn run(plan: &Plan, out: &Path) -> Result<bool> {
    let book = Book::open(out, "failover.json")?;
    let machine = Machine::here()?;
    let mut all = Vec::new();
    for system in plan.systems() {
        let mut ground = None;
        for fault in plan.faults(system) {
            let mut series =
                Series { fault: fault.name(), system: label(system), felt: Vec::new(), failed: 0 };
            for repeat in 1..=plan.repeats(fault) {
                match measure(&mut ground, system, fault).await {
                    Ok(felt) => {
                        say(&series, repeat, &felt);
                        book.append(&Run {
                            fault: fault.name(),
                            system: &system.name(),
                            profile: system.profile().name(),
                            repeat,
                            felt,
                            machine: &machine,
                            date: k8s_openapi::jiff::Timestamp::now().to_string(),
                        })?;
                        series.felt.push(felt);
                    }
                    Err(error) => {
                        println!("{} {repeat}: not measured: {}", series.fault, brief(&error)?);
                        series.failed += 1;
                        // What is left of it is in an unknown state.
                        ground = None;
                    }
                }
            }
            all.push(series);
        }
    }
    println!("\n{}", table(&all));
    println!("every repeat is in {}", book.path().display());
    Ok(all.iter().all(|series| series.failed == 0))
}

/// One repeat, on the ground of the repeat before if it suits.
async fn measure(ground: &mut Option<Ground>, system: System, fault: Fault) -> Result<Felt> {
    let suits = match ground {
        Some(ground) if ground.shape == fault.shape() => {
            ground.deal_anew().await?;
            ground.settle().await?;
            // Nodes that died again and again get nothing for a while.
            ground.is_even()?
        }
        _ => false,
    };
    if !suits {
        // Ended before the next begins.
        drop(ground.take());
        let mut new = Ground::open(fault.shape(), system).await?;
        new.settle().await?;
        // The speaker that was up first may have taken all.
        if !new.is_even()? {
            new.deal_anew().await?;
            new.settle().await?;
        }
        *ground = Some(new);
    }
    match ground {
        Some(ground) => trial::run(ground, fault).await,
        None => anyhow::bail!("no ground"),
    }
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
         {} ms{}",
        series.system,
        series.fault,
        felt.outage_ms,
        felt.hit,
        felt.lost,
        felt.sent,
        felt.two_owners_ms,
        felt.arp_unanswered_ms,
        if felt.recovered { "" } else { "; did not come back" },
    );
}
