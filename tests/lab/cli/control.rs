//! What is done to nodes of a lab that was left running: one line on a socket, one line back.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use leasehold_lab::Cluster;

/// The socket, in the scratch folder.
pub(crate) const SOCKET: &str = "control";

/// What can be done to a node of a kind of lab.
pub(crate) trait Act: ValueEnum {
    /// The lab.
    type Lab;

    /// Does it.
    async fn apply(self, lab: &Self::Lab, node: &str) -> Result<()>;
}

/// An action on a node.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    /// Nothing comes out of it any more, nothing gets in.
    Die,
    /// Undoes every fault of its links.
    Heal,
    /// Its link to the clients has no carrier.
    Unplug,
    /// Its link to the API server drops everything.
    CutManagement,
    /// SIGTERM to its speaker.
    StopSpeaker,
    /// SIGKILL to its speaker.
    KillSpeaker,
    /// SIGSTOP to its speaker.
    FreezeSpeaker,
    /// SIGCONT to its speaker.
    ThawSpeaker,
    /// Starts its speaker.
    StartSpeaker,
}

impl Act for Action {
    type Lab = Cluster;

    async fn apply(self, cluster: &Cluster, node: &str) -> Result<()> {
        let node = cluster.node_named(node)?;
        match self {
            Self::Die => node.dies(),
            Self::Heal => node.heal(),
            Self::Unplug => node.clients_link_down(),
            Self::CutManagement => node.cut_management(),
            Self::StopSpeaker => node.speaker()?.terminate().await.map(|_| ()),
            Self::KillSpeaker => node.speaker()?.kill().await,
            Self::FreezeSpeaker => node.speaker()?.freeze(),
            Self::ThawSpeaker => node.speaker()?.thaw(),
            Self::StartSpeaker if node.speaker()?.alive() => bail!("it runs"),
            Self::StartSpeaker => node.start_speaker(),
        }
    }
}

/// Serves requests, one after the other, until the process ends.
pub(crate) async fn serve<A: Act>(folder: &Path, lab: &A::Lab) -> Result<()> {
    let listener = UnixListener::bind(folder.join(SOCKET))?;
    loop {
        let (stream, _) = tokio::task::block_in_place(|| listener.accept())?;
        let answer = match answer::<A>(&stream, lab).await {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("failed: {error:#}"),
        };
        // Whoever asked may be gone.
        drop(writeln!(&stream, "{}", answer.replace('\n', " ")));
    }
}

async fn answer<A: Act>(stream: &UnixStream, lab: &A::Lab) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let (action, node) =
        line.trim().split_once(' ').context("a request is an action and a node")?;
    let action = A::from_str(action, true).map_err(anyhow::Error::msg)?;
    action.apply(lab, node).await
}

/// Sends a request and returns the answer.
pub(crate) fn request<A: Act>(socket: &Path, action: &A, node: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).context("the lab does not answer")?;
    let action = action.to_possible_value().context("an action without name")?;
    writeln!(stream, "{} {node}", action.get_name())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}
