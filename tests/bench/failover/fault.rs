//! The faults that can be measured, and on which ground.

use clap::ValueEnum;

use crate::others::Other;

/// Faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// The owner neither sends nor receives frames.
    NodeDead,
    /// The owner's node fails piece by piece: port, path to the API server, process; in any order,
    /// with pauses.
    NodeInPieces,
    /// As `node-in-pieces`, for a node that owns five Services.
    #[value(name = "node-in-pieces-5")]
    NodeInPiecesOfFive,
    /// Services exist, and all five nodes start at the same time.
    ColdStart,
    /// The owner is cut off from the segment of the clients, with its carrier up; it still reaches
    /// the API server.
    ClientsLinkCut,
    /// Two of five nodes fail at the same instant; each owns Services.
    TwoOfFive,
    /// Two of four nodes fail at the same instant.
    TwoOfFour,
    /// One of three nodes that serve 100 Services fails.
    HundredServices,
    /// The owner's speaker gets SIGTERM and is not restarted.
    SpeakerTerminated,
    /// The owner's speaker gets SIGTERM, and a new process starts 2 s later.
    SpeakerRestarted,
    /// The owner's speaker gets SIGKILL and is not restarted.
    SpeakerKilled,
    /// The owner's speaker gets SIGKILL, and a new process starts 2 s later.
    SpeakerKilledRestarted,
    /// The owner's speaker is stopped for 30 s and continues.
    #[value(name = "sigstop-30")]
    Sigstop,
    /// The speakers of all nodes are replaced, one after another.
    RollingUpgrade,
    /// A node that owns 20 Services is cordoned, which drains it.
    Drain,
    /// The API server is down for one minute.
    #[value(name = "api-down-60")]
    ApiDown,
    /// The API server is stopped and restarted immediately.
    ApiRestarted,
    /// The API server is stopped for 800 ms of each second, for 20 s.
    ApiSlow,
    /// The API server goes down, and 20 s later the owner fails.
    ApiDownOwnerDies,
    /// The owner and the API server fail at the same instant.
    OwnerAndApiDead,
    /// The owner alone cannot reach the API server for 12 s; packets are lost.
    OwnerCutFromApi,
    /// The segment of the clients is partitioned for 10 s and joined again.
    PartitionHeal,
}

/// The numbers of nodes and Services that a fault needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) nodes: u8,
    pub(crate) services: u8,
}

/// The order of repeats that run beside each other on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One cluster after the other: it is over within a second or two, and milliseconds count.
    InTurn,
    /// All clusters beside each other: it takes long, and what counts is whether anything is felt. Systems that
    /// take hundreds of milliseconds are always struck so.
    Together,
}

impl Fault {
    /// Those with the same shape beside each other: they are measured on the same clusters.
    pub(crate) const ALL: [Self; 22] = [
        Self::NodeDead,
        Self::NodeInPieces,
        Self::ClientsLinkCut,
        Self::SpeakerTerminated,
        Self::SpeakerRestarted,
        Self::SpeakerKilled,
        Self::SpeakerKilledRestarted,
        Self::Sigstop,
        Self::RollingUpgrade,
        Self::OwnerCutFromApi,
        Self::PartitionHeal,
        Self::ApiDown,
        Self::ApiRestarted,
        Self::ApiSlow,
        Self::ApiDownOwnerDies,
        Self::OwnerAndApiDead,
        Self::TwoOfFive,
        Self::ColdStart,
        Self::TwoOfFour,
        Self::NodeInPiecesOfFive,
        Self::Drain,
        Self::HundredServices,
    ];

    /// As it is named on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// For people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::NodeDead => "owner's node dead",
            Self::NodeInPieces => {
                "owner's node dead piece by piece: port, way to the API server, process; any order, 0 to 20 ms apart"
            }
            Self::NodeInPiecesOfFive => "the same of a node with 5 of 15 Services; the slowest",
            Self::ColdStart => {
                "cold start: 10 Services exist, five nodes come up together; the slowest, from the first process"
            }
            Self::ClientsLinkCut => {
                "owner cut from the clients' segment, carrier up; it reaches the API server"
            }
            Self::TwoOfFive => {
                "two of five nodes dead in the same instant, 10 Services; the slowest"
            }
            Self::TwoOfFour => {
                "two of four nodes dead in the same instant, 8 Services; the slowest"
            }
            Self::HundredServices => "one of three nodes with 100 Services dead; the slowest",
            Self::SpeakerTerminated => "owner's speaker ended (SIGTERM), not started again",
            Self::SpeakerRestarted => "owner's speaker ended (SIGTERM), started again after 2 s",
            Self::SpeakerKilled => "owner's speaker killed (SIGKILL), not started again",
            Self::SpeakerKilledRestarted => {
                "owner's speaker killed (SIGKILL), started again after 2 s"
            }
            Self::Sigstop => "owner's speaker stopped (SIGSTOP) for 30 s",
            Self::RollingUpgrade => "all speakers upgraded, one after another",
            Self::Drain => "node with 20 of 60 Services drained; the Service that lost most",
            Self::ApiDown => "API server away for a minute",
            Self::ApiRestarted => "API server restarted",
            Self::ApiSlow => "API server still for 800 ms of each second, for 20 s",
            Self::ApiDownOwnerDies => "owner's node dead 20 s after the only API server",
            Self::OwnerAndApiDead => {
                "owner's node and the only API server dead in the same instant"
            }
            Self::OwnerCutFromApi => "owner alone cut from the API server for 12 s",
            Self::PartitionHeal => "segment parted for 10 s and joined again",
        }
    }

    pub(crate) const fn shape(self) -> Shape {
        match self {
            Self::TwoOfFive | Self::ColdStart => Shape { nodes: 5, services: 10 },
            Self::NodeInPiecesOfFive => Shape { nodes: 3, services: 15 },
            Self::TwoOfFour => Shape { nodes: 4, services: 8 },
            Self::Drain => Shape { nodes: 3, services: 60 },
            Self::HundredServices => Shape { nodes: 3, services: 100 },
            _ => Shape { nodes: 3, services: 1 },
        }
    }

    /// Whether a repeat takes half a minute and more.
    pub(crate) const fn slow(self) -> bool {
        matches!(
            self,
            Self::ApiDown | Self::ApiDownOwnerDies | Self::Sigstop | Self::SpeakerTerminated
        )
    }

    pub(crate) const fn pace(self) -> Pace {
        match self {
            Self::NodeDead
            | Self::NodeInPieces
            | Self::NodeInPiecesOfFive
            | Self::ClientsLinkCut
            | Self::TwoOfFive
            | Self::TwoOfFour
            | Self::HundredServices
            | Self::Drain => Pace::InTurn,
            _ => Pace::Together,
        }
    }

    /// Whether it is measured only when it is named: others are like it, or it is repeated more often.
    pub(crate) const fn extra(self) -> bool {
        matches!(
            self,
            Self::TwoOfFour
                | Self::HundredServices
                | Self::NodeInPieces
                | Self::NodeInPiecesOfFive
                | Self::ColdStart
        )
    }

    /// Whether the victim's speaker does not run afterwards.
    pub(crate) const fn ends_speaker(self) -> bool {
        matches!(
            self,
            Self::SpeakerKilled
                | Self::SpeakerTerminated
                | Self::NodeInPieces
                | Self::NodeInPiecesOfFive
        )
    }

    /// Whether another system is measured under it: one address, and for keepalived no Kubernetes API.
    pub(crate) const fn suits(self, other: Other) -> bool {
        match self {
            Self::NodeDead
            | Self::ClientsLinkCut
            | Self::SpeakerRestarted
            | Self::SpeakerKilled
            | Self::PartitionHeal
            | Self::Sigstop => true,
            Self::OwnerCutFromApi | Self::ApiDown | Self::ApiRestarted | Self::ApiDownOwnerDies => {
                !matches!(other, Other::Keepalived(_))
            }
            _ => false,
        }
    }

    /// The number of nodes that it hits.
    pub(crate) const fn victims(self) -> usize {
        match self {
            Self::TwoOfFive | Self::TwoOfFour => 2,
            _ => 1,
        }
    }
}
