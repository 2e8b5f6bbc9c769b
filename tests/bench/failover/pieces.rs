//! A death that comes in pieces: links and processes of a machine that resets go one after another.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use leasehold_lab::Node;
use tokio::time::sleep;

use super::ground::Ground;

/// The longest pause between two pieces, in milliseconds.
const PAUSE: u64 = 20;

/// A part of a node that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// Its port on the clients' segment: it has no carrier any more.
    Port,
    /// Its way to the API server.
    Api,
    /// Its speaker.
    Process,
}

/// In which order they end, and with what pauses: drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    seed: u64,
    order: [Piece; 3],
    pauses: [u64; 2],
}

impl Pieces {
    pub(super) fn drawn(seed: u64) -> Self {
        use Piece::{Api, Port, Process};
        const ORDERS: [[Piece; 3]; 6] = [
            [Port, Api, Process],
            [Port, Process, Api],
            [Api, Port, Process],
            [Api, Process, Port],
            [Process, Port, Api],
            [Process, Api, Port],
        ];
        let mut drawn = scattered(seed);
        let mut below = |bound: u64| {
            let number = drawn % bound;
            drawn /= bound;
            number
        };
        let number = below(6);
        let order = ORDERS.into_iter().zip(0..).find(|(_, at)| *at == number);
        let pauses = [below(PAUSE + 1), below(PAUSE + 1)];
        Self { seed, order: order.map_or(ORDERS[0], |(order, _)| order), pauses }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Ends `node`.
    pub(super) async fn end(&self, ground: &Ground, node: &Node) -> Result<()> {
        let pauses = [0].into_iter().chain(self.pauses);
        for (piece, pause) in self.order.into_iter().zip(pauses) {
            sleep(Duration::from_millis(pause)).await;
            match piece {
                Piece::Port => node.clients_link_down()?,
                Piece::Api => node.cut_management()?,
                Piece::Process => ground.kill(node).await?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Pieces {
    /// `seed 7: port, 3 ms, API, 17 ms, process`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: ", self.seed)?;
        let pauses = self.pauses.into_iter().map(Some).chain([None]);
        for (piece, pause) in self.order.into_iter().zip(pauses) {
            f.write_str(match piece {
                Piece::Port => "port",
                Piece::Api => "API",
                Piece::Process => "process",
            })?;
            if let Some(pause) = pause {
                write!(f, ", {pause} ms, ")?;
            }
        }
        Ok(())
    }
}

/// A number that differs in all its digits from those of seeds nearby: the finaliser of `SplitMix64`.
const fn scattered(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_and_all_orders_and_pauses_are_drawn() {
        assert_eq!(Pieces::drawn(7), Pieces::drawn(7));
        let drawn: Vec<Pieces> = (0..500).map(Pieces::drawn).collect();
        let orders: BTreeSet<_> = drawn.iter().map(|it| it.order).collect();
        let pauses: BTreeSet<_> = drawn.iter().flat_map(|it| it.pauses).collect();
        assert_eq!(orders.len(), 6);
        assert_eq!(pauses, (0..=PAUSE).collect());
    }
}
