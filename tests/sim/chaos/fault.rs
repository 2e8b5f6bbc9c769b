//! What can go wrong.

use std::time::Duration;

use leasehold_core::desired::{NodeState, SpreadOver};
use leasehold_core::election::{DataPathView, Follower};

use crate::dice::Dice;
use crate::world::{Cuts, Down, Lost, ROUTER, Troubles, World};

/// In which a node is not as it should be.
const STATES: [NodeState; 4] =
    [NodeState::NotReady, NodeState::Cordoned, NodeState::Draining, NodeState::NetworkUnavailable];

/// What may be known of who follows a process that is asked to end.
const FOLLOWERS: [Follower; 2] = [Follower::Expected, Follower::Unknown];

/// One thing that goes wrong, for a while or at once.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Killed(usize),
    PowerOff(usize),
    Terminated(usize, Follower),
    Stopped {
        host: usize,
        halfway: bool,
    },
    Paused(usize),
    Lag(usize, Duration),
    /// Half of the frames that its core wants are dropped.
    Overflows(usize),
    State(usize, NodeState),
    NodeGone(usize),
    Carrier(usize),
    Wire(Box<Cuts>),
    NoApi(usize),
    Down(Down),
    ReadOnly,
    Slow(Duration),
    AnswersLate(Duration),
    Troubled(Troubles),
    Hung(usize),
    LateWatch(usize, Duration),
    Reset(usize),
    ServiceGone(u8),
    /// Its address is given to another claim.
    Reassigned(u8),
    /// Somebody takes its record off it.
    RecordGone(u8, Lost),
    /// The same, and nobody writes it again for a while.
    RecordGoneForLong(u8, Lost),
    NoOperator,
    ProxySilent(usize),
    /// The data path of this host is in this state.
    DataPath(usize, DataPathView),
    RulesLate(usize),
    Excluded(u8, usize),
    /// Pods come and go.
    Endpoints(u8, Box<SpreadOver>),
    ClaimDeleted(u8),
    SessionDeleted(usize),
    ClaimEdited(u8),
    SessionEdited(usize),
    Restored,
}

impl Fault {
    pub(super) fn any(dice: &mut Dice, world: &World) -> Self {
        let host = dice.below(world.hosts.len());
        let number = u8::try_from(1 + dice.below(world.desired.claims.len())).unwrap();
        match dice.below(52) {
            0 | 1 => Self::Killed(host),
            2 | 3 => Self::PowerOff(host),
            4 => Self::Terminated(host, dice.pick(&FOLLOWERS)),
            5..=7 => Self::Stopped { host, halfway: dice.percent(30) },
            8 => Self::Paused(host),
            9 => {
                Self::Lag(host, dice.between(Duration::from_millis(5), Duration::from_millis(150)))
            }
            10 | 11 => Self::State(host, dice.pick(&STATES)),
            12 => Self::NodeGone(host),
            13 => Self::Carrier(host),
            14..=19 => Self::Wire(Box::new(cuts(dice, world))),
            20 | 21 => Self::NoApi(host),
            22 | 23 => Self::Down(dice.pick(&[Down::Silent, Down::Refusing])),
            24 => Self::ReadOnly,
            25 => Self::Slow(dice.between(Duration::from_millis(20), Duration::from_millis(1200))),
            26 | 27 => Self::Troubled(troubles(dice)),
            28 => Self::Hung(host),
            29 => Self::LateWatch(
                host,
                dice.between(Duration::from_millis(50), Duration::from_secs(3)),
            ),
            30 => Self::Reset(host),
            31 => Self::ServiceGone(number),
            32 => Self::Excluded(number, host),
            33 => Self::ClaimDeleted(number),
            34 => Self::SessionDeleted(host),
            35 => Self::ClaimEdited(number),
            36 => Self::SessionEdited(host),
            37 => Self::Restored,
            38 | 39 => Self::Reassigned(number),
            40 => Self::NoOperator,
            41 | 42 => Self::RecordGone(number, dice.pick(&Lost::ANY)),
            43 => Self::RecordGoneForLong(number, dice.pick(&Lost::ANY)),
            44 | 45 => Self::ProxySilent(host),
            46 => Self::RulesLate(host),
            47 => Self::Overflows(host),
            48 => {
                let mut is = || dice.percent(50);
                let [slow, failing, filtered, has_replacement] = [is(), is(), is(), is()];
                let view = DataPathView { slow, failing, filtered, has_replacement };
                Self::DataPath(host, view)
            }
            49..=51 => Self::endpoints(dice, world, number),
            _ => Self::AnswersLate(
                dice.between(Duration::from_millis(50), Duration::from_millis(1400)),
            ),
        }
    }

    /// Some of the hosts have endpoints of this Service.
    fn endpoints(dice: &mut Dice, world: &World, number: u8) -> Self {
        Self::Endpoints(number, Box::new(super::endpoints(dice, world.hosts.len())))
    }

    /// The API server is of no use to anybody.
    pub(super) fn outage(dice: &mut Dice) -> Self {
        match dice.below(3) {
            0 => Self::Down(Down::Silent),
            1 => Self::Down(Down::Refusing),
            _ => Self::ReadOnly,
        }
    }

    /// What happens at the same time while it is away: to one node, or to the switch of all.
    pub(super) fn of_an_outage(dice: &mut Dice, world: &World) -> Vec<Self> {
        let host = dice.below(world.hosts.len());
        match dice.below(6) {
            0 => vec![Self::Killed(host)],
            1 => vec![Self::Stopped { host, halfway: dice.percent(30) }],
            2 => vec![Self::PowerOff(host)],
            3 | 4 => vec![Self::Carrier(host)],
            _ => (0..world.hosts.len()).map(Self::Carrier).collect(),
        }
    }

    /// One that is no cause for anything to move, if it is alone.
    pub(super) fn innocent(dice: &mut Dice, world: &World) -> Self {
        let host = dice.below(world.hosts.len());
        let number = u8::try_from(1 + dice.below(world.desired.claims.len())).unwrap();
        match dice.below(20) {
            0 | 1 => Self::Down(Down::Silent),
            2 => Self::Down(Down::Refusing),
            3 => Self::ReadOnly,
            4 => Self::Slow(dice.between(Duration::from_millis(20), Duration::from_millis(600))),
            5 => Self::Hung(host),
            6 => Self::LateWatch(
                host,
                dice.between(Duration::from_millis(50), Duration::from_secs(3)),
            ),
            7 => Self::Reset(host),
            8 => Self::Killed(host),
            9 => Self::Terminated(host, dice.pick(&FOLLOWERS)),
            10 => Self::ClaimDeleted(number),
            11 => Self::SessionDeleted(host),
            12 => Self::Stopped { host, halfway: dice.percent(30) },
            13 => Self::NoOperator,
            14 => Self::RecordGone(number, dice.pick(&Lost::ANY)),
            15 | 16 => Self::RecordGoneForLong(number, dice.pick(&Lost::ANY)),
            17 => Self::ProxySilent(host),
            18 => Self::RulesLate(host),
            _ => {
                Self::Lag(host, dice.between(Duration::from_millis(5), Duration::from_millis(150)))
            }
        }
    }

    /// For how long it is no cause.
    pub(super) fn innocent_for(&self, dice: &mut Dice) -> Duration {
        let most = match self {
            Self::Killed(_) | Self::Stopped { .. } => Duration::from_millis(2500),
            Self::Terminated(_, Follower::Expected) => Duration::from_secs(25),
            Self::Terminated(..) => Duration::from_secs(4),
            Self::ProxySilent(_) => Duration::from_secs(14),
            _ => Duration::from_secs(40),
        };
        dice.between(Duration::from_millis(50), most)
    }
}

fn cuts(dice: &mut Dice, world: &World) -> Cuts {
    let hosts = world.hosts.len();
    let segment = dice.below(world.hosts[0].nics.len());
    let (one, other) = (dice.below(hosts), dice.below(hosts));
    let mut cuts = Cuts::default();
    match dice.below(7) {
        0 | 1 => cuts.off(segment, one),
        2 => cuts.both_ways(segment, one, other),
        3 => cuts.one_way(segment, one, other),
        // Filtered ARP: it hears nothing.
        4 => cuts.deaf(segment, one),
        5 => {
            // Port isolation: the hosts hear the router and nobody else.
            for one in 0..hosts {
                for other in 0..hosts {
                    cuts.one_way(segment, one, other);
                }
            }
        }
        _ => {
            // Two halves.
            let half = dice.next();
            let side = |station: usize| half & (1 << station) != 0;
            for one in (0..hosts).chain([ROUTER]) {
                for other in (0..hosts).chain([ROUTER]) {
                    if side(one) != side(other) {
                        cuts.one_way(segment, one, other);
                    }
                }
            }
        }
    }
    cuts
}

fn troubles(dice: &mut Dice) -> Troubles {
    let mut chance = || if dice.percent(40) { dice.next() % 30 } else { 0 };
    Troubles {
        lost: chance(),
        answer_lost: chance(),
        late: chance(),
        throttled: chance(),
        refused: chance(),
    }
}
