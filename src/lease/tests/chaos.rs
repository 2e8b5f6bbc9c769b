//! Many faults at once, by seed: whatever happened, after they heal there is one owner for each
//! address, and its kernel alone has it.

use super::world::controls::{claim, on_claim, on_session, session};
use super::world::{Trouble, World};
use super::{millis, secs};
use crate::lease::{Target, weight};

const ALL: [&str; 4] = ["a", "b", "c", "d"];
const SERVICES: u8 = 8;

/// The numbers that a seed stands for.
struct Dice {
    seed: u32,
    throws: u32,
}

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.throws += 1;
        let value = weight(&self.seed.to_string(), &self.throws.to_string());
        usize::try_from(value % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn disturb(world: &mut World, dice: &mut Dice) {
    let host = ALL[dice.below(ALL.len())];
    let number = u8::try_from(dice.below(usize::from(SERVICES))).unwrap() + 1;
    let running = world.hosts[host].core.is_some();
    let trouble = [
        Trouble::Lost,
        Trouble::AnswerLost,
        Trouble::Late(millis(2500)),
        Trouble::Throttled,
        Trouble::Refused,
    ][dice.below(5)];
    match dice.below(16) {
        0 if running => world.kill(host),
        1 if running => world.kill_node(host),
        2 if running => world.terminate(host),
        3 | 4 if !running => restart(world, host),
        5 => world.set_api_of(host, false),
        6 => world.set_api_of(host, true),
        7 => world.set_carrier(host, false),
        8 => world.set_carrier(host, true),
        9 => world.cordon(host, true),
        10 => world.cordon(host, false),
        11 => world.fault(Some(host), on_claim, trouble, 3),
        12 => world.fault(Some(host), on_session, trouble, 2),
        13 if world.store.claims.contains_key(&claim(number)) => {
            world.delete(&Target::Claim(claim(number)));
        }
        14 if world.store.sessions.contains_key(&session(host)) => {
            world.delete(&Target::Session(session(host)));
        }
        15 if world.store.claims.contains_key(&claim(number)) => {
            world.edit_claim(number, |claim| claim.transitions -= 1);
        }
        _ => world.cut_off(host),
    }
}

fn restart(world: &mut World, host: &str) {
    world.hosts.get_mut(host).unwrap().carrier = true;
    world.start(host);
}

fn heal(world: &mut World) {
    world.clear_faults();
    world.cuts.clear();
    for host in ALL {
        world.cordon(host, false);
        world.set_api_of(host, true);
        if world.hosts[host].core.is_none() {
            restart(world, host);
        }
        world.set_carrier(host, true);
    }
}

#[test]
fn after_all_faults_heal_each_address_has_one_owner_and_one_host() {
    for seed in 0..40 {
        let mut world = World::settled(&ALL, SERVICES);
        // Kernels of speakers that were killed or cut off hold on; that ends with the faults.
        world.laws.overlap = secs(600);
        let mut dice = Dice { seed, throws: 0 };
        for _ in 0..12 {
            disturb(&mut world, &mut dice);
            let pause = [millis(3), millis(200), secs(1), secs(4)][dice.below(4)];
            world.run(pause);
        }
        heal(&mut world);
        world.run(secs(60));
        // Processes that were still ending when all was healed.
        heal(&mut world);
        world.run(secs(60));
        let check = std::panic::AssertUnwindSafe(|| world.assert_served());
        assert!(std::panic::catch_unwind(check).is_ok(), "seed {seed}");
    }
}
