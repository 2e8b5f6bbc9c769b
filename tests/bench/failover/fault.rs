//! The faults that can be measured, and on which ground.

use clap::ValueEnum;

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// Nothing comes out of the owner any more, and nothing gets in.
    NodeDead,
    /// The owner's node ends piece by piece: port, way to the API server, process; in any order, with pauses.
    NodeInPieces,
    /// The same of one that owns five Services.
    #[value(name = "node-in-pieces-5")]
    NodeInPiecesOfFive,
    /// Services exist, and all five nodes come up together.
    ColdStart,
    /// The owner is cut from the clients' segment, carrier up; it still reaches the API server.
    ClientsLinkCut,
    /// Two of five nodes are dead in the same instant; each owned services.
    TwoOfFive,
    /// Two of four.
    TwoOfFour,
    /// One of three nodes that serve 100 services is dead.
    HundredServices,
    /// SIGTERM to the owner's speaker, which is not started again.
    SpeakerTerminated,
    /// SIGTERM, and a new process 2 s later.
    SpeakerRestarted,
    /// SIGKILL to the owner's speaker, which is not started again.
    SpeakerKilled,
    /// SIGKILL, and a new process 2 s later.
    SpeakerKilledRestarted,
    /// The owner's speaker is stopped for 30 s and goes on.
    #[value(name = "sigstop-30")]
    Sigstop,
    /// The speakers of all nodes are replaced, one after the other.
    RollingUpgrade,
    /// A node that owns 20 services is cordoned, which drains it.
    Drain,
    /// The API server is away for a minute.
    #[value(name = "api-down-60")]
    ApiDown,
    /// The API server is ended and started again at once.
    ApiRestarted,
    /// The API server stands still for 800 ms of each second, 20 s long.
    ApiSlow,
    /// It is away, and 20 s later the owner dies.
    ApiDownOwnerDies,
    /// Owner and API server die in the same instant.
    OwnerAndApiDead,
    /// The owner alone does not reach the API server for 12 s; packets are lost.
    OwnerCutFromApi,
    /// The clients' segment is parted for 10 s and joined again.
    PartitionHeal,
}

/// How many nodes and services a fault needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) nodes: u8,
    pub(crate) services: u8,
}

/// How repeats that run at a time on one machine are struck.
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

    /// Whether it exists without a Kubernetes API, for one address.
    pub(crate) const fn suits_keepalived(self) -> bool {
        matches!(
            self,
            Self::NodeDead
                | Self::ClientsLinkCut
                | Self::SpeakerRestarted
                | Self::SpeakerKilled
                | Self::PartitionHeal
                | Self::Sigstop
        )
    }

    /// How many nodes it hits.
    pub(crate) const fn victims(self) -> usize {
        match self {
            Self::TwoOfFive | Self::TwoOfFour => 2,
            _ => 1,
        }
    }
}
