//! The usage of processor, memory and segment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_lab::process::Process;
use leasehold_lab::{Cluster, Lab};
use serde_json::Value;

/// All speakers, the operator and the segment at one moment.
pub(crate) struct Usage {
    at: Instant,
    speakers: Vec<(Arc<Process>, Duration)>,
    operator: Duration,
    frames: f64,
}

/// The usage per second, since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Of one core, by the speaker that needs most.
    pub(crate) speaker_cpu: f64,
    pub(crate) operator_cpu: f64,
    /// The frames of all nodes on the clients' segment.
    pub(crate) frames: f64,
}

impl Usage {
    pub(crate) fn now(lab: &Lab, cluster: &Cluster) -> Result<Self> {
        let speakers = cluster.nodes().iter().map(|node| {
            let process = node.speaker()?.process()?;
            let used = cpu(&process)?;
            Ok((process, used))
        });
        Ok(Self {
            speakers: speakers.collect::<Result<_>>()?,
            operator: cpu(lab.operator()?.process())?,
            frames: frames(cluster)?,
            at: Instant::now(),
        })
    }

    /// Per second from then to now.
    pub(crate) fn until_now(&self, lab: &Lab, cluster: &Cluster) -> Result<Rates> {
        let seconds = self.at.elapsed().as_secs_f64();
        let mut most: f64 = 0.0;
        for (process, before) in &self.speakers {
            most = most.max((cpu(process)?.saturating_sub(*before)).as_secs_f64() / seconds);
        }
        let operator = cpu(lab.operator()?.process())?.saturating_sub(self.operator);
        Ok(Rates {
            speaker_cpu: most,
            operator_cpu: operator.as_secs_f64() / seconds,
            frames: (frames(cluster)? - self.frames) / seconds,
        })
    }
}

fn cpu(process: &Process) -> Result<Duration> {
    let (user, kernel) = process.cpu_time()?;
    Ok(user + kernel)
}

/// Frames that the nodes have sent on the clients' segment so far.
fn frames(cluster: &Cluster) -> Result<f64> {
    let mut sum = 0.0;
    for node in cluster.nodes() {
        let mut command = node.namespace().command("ip");
        let output = command.args(["-json", "-stats", "link", "show", "dev", "eth0"]).output()?;
        let links: Value = serde_json::from_slice(&output.stdout).context("statistics of eth0")?;
        let sent = links.pointer("/0/stats64/tx/packets").and_then(Value::as_f64);
        sum += sent.context("no count of frames")?;
    }
    Ok(sum)
}
