//! Whether the silence of an owner is told, and only that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use leasehold::clock;
use leasehold::detect::listener::Listener;
use leasehold::net::hearing::Peer;
use leasehold_core::desired::Detection;
use leasehold_core::election::{Ownership, Silence, Voice, VoiceId, Voices, Watched, Watchlist};
use leasehold_crds::lease::SessionId;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::world::{Namespace, Speaker, Test, World, eth0, eventually};

pub const TESTS: &[Test] = &[
    ("an_owner_whose_link_is_cut_is_silent_in_time", cut_owner),
    ("a_node_that_lost_only_its_address_answers_for_itself", lost_address),
    ("a_poller_that_is_cut_off_takes_nobody_for_silent", deaf_poller),
    ("a_busy_cpu_makes_no_silence_and_hides_none_with_a_real_time_priority", busy_with_priority),
    (
        "a_busy_cpu_makes_no_silence_and_hides_none_without_a_real_time_priority",
        busy_without_priority,
    ),
    ("listening_costs_little", cost),
    ("without_its_handle_the_listener_ends", end),
];

pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));
pub const FAST: Detection = Detection {
    interval: Duration::from_millis(50),
    retry_interval: Duration::from_millis(10),
    misses: 4,
    wire: true,
};

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Another speaker's node, which owns an address.
#[derive(Debug)]
pub struct Owner {
    host: Namespace,
    number: u8,
    vip: IpAddr,
}

impl Owner {
    pub fn new(world: &World, number: u8, vip: IpAddr) -> Result<Self> {
        let owner = Self { host: world.host(&format!("own{number}"), number)?, number, vip };
        owner.have(true)?;
        Ok(owner)
    }

    /// As the speaker there adds and removes it.
    fn have(&self, present: bool) -> Result<()> {
        let (ip, length) = (self.vip, if self.vip.is_ipv4() { 32 } else { 128 });
        if present {
            self.host.ip(&format!("addr add {ip}/{length} dev eth0 nodad preferred_lft 0"))?;
        } else {
            self.host.ip(&format!("addr del {ip}/{length} dev eth0"))?;
        }
        Ok(())
    }

    fn id(&self) -> Result<VoiceId> {
        let uid = format!("uid-{}", self.number).into();
        Ok(VoiceId {
            interface: eth0(),
            node: format!("owner-{}", self.number).parse()?,
            session: SessionId { uid, transitions: 1 },
            mac: self.host.mac()?,
        })
    }

    fn watched(&self, detection: Detection) -> Result<Watched> {
        let ownership = Ownership { claim: "default.web".parse()?, transitions: 1 };
        let own = Ipv4Addr::new(192, 0, 2, self.number).into();
        Ok(Watched {
            polled: true,
            detection,
            vips: [(self.vip, ownership)].into(),
            own: [own].into(),
        })
    }
}

/// The node's edge and its listener, which polls `owners`; the client can bear witness.
pub struct Listening {
    pub listener: Listener,
    _speaker: Speaker,
}

impl Listening {
    pub async fn start(
        speaker: Speaker,
        world: &World,
        owners: &[&Owner],
        detection: Detection,
    ) -> Result<Self> {
        let client = Peer { ip: Ipv4Addr::new(192, 0, 2, 2).into(), mac: world.client.mac()? };
        speaker.attend(|attention| attention.peers.extend([client]));
        let witnesses = speaker.edge.witnesses.clone();
        let listener = Listener::start(witnesses.clone(), speaker.edge.links.clone()).await?;
        let mut watchlist = Watchlist::default();
        for owner in owners {
            let id = owner.id()?;
            Arc::make_mut(&mut watchlist.speakers).insert(id.mac, id.node.clone());
            watchlist.owners.insert(id, Arc::new(owner.watched(detection)?));
        }
        listener.watchlist.send_replace(watchlist);
        let listening = Self { listener, _speaker: speaker };
        for owner in owners {
            listening.wait_for(owner, "heard", |voice| *voice == Voice::Heard).await?;
        }
        eventually("the client is a witness", millis(5_000), || {
            Ok(witnesses.borrow().get(&eth0()).is_some_and(|all| all.contains_key(&client.ip)))
        })
        .await?;
        Ok(listening)
    }

    /// As where a real-time priority is not granted.
    pub async fn start_without_priority(
        speaker: Speaker,
        world: &World,
        owners: &[&Owner],
        detection: Detection,
    ) -> Result<Self> {
        // The listener's thread inherits what this thread may do.
        let all = capabilities(None)?;
        let mut fewer = all;
        fewer.effective.remove(CapabilitySet::SYS_NICE);
        set_capabilities(None, fewer)?;
        let listening = Self::start(speaker, world, owners, detection).await;
        set_capabilities(None, all)?;
        ensure!(!ListenerThread::find()?.real_time()?, "it has the priority all the same");
        listening
    }

    async fn wait_for(
        &self,
        owner: &Owner,
        what: &str,
        mut condition: impl FnMut(&Voice) -> bool,
    ) -> Result<Voice> {
        let id = owner.id()?;
        let mut voices = self.listener.voices.clone();
        let holds = |voices: &Voices| voices.owners.get(&id).is_some_and(&mut condition);
        let waited = tokio::time::timeout(millis(5_000), voices.wait_for(holds)).await;
        let voices = waited.with_context(|| format!("not within 5 s: {what}"))??;
        voices.owners.get(&id).cloned().context("the owner is not on the list")
    }

    pub async fn silence(&self, owner: &Owner) -> Result<Silence> {
        match self.wait_for(owner, "silent", |voice| matches!(voice, Voice::Silent(_))).await? {
            Voice::Silent(silence) => Ok(silence),
            Voice::Unheard | Voice::Heard => anyhow::bail!("not silent"),
        }
    }

    /// Fails if anybody falls silent within `duration`.
    pub async fn nobody_is_silent_for(&self, duration: Duration) -> Result<()> {
        let mut voices = self.listener.voices.clone();
        let silent =
            |voices: &Voices| voices.owners.values().any(|voice| matches!(voice, Voice::Silent(_)));
        match tokio::time::timeout(duration, voices.wait_for(silent)).await {
            Err(_) => Ok(()),
            Ok(voices) => anyhow::bail!("silent: {:?}", *voices?),
        }
    }
}

fn cut_owner(world: &World) -> Result<()> {
    let owners = [Owner::new(world, 3, V4)?, Owner::new(world, 4, V6)?];
    for detection in [Detection::default(), FAST] {
        world.node.speak(|speaker| async {
            let all: Vec<&Owner> = owners.iter().collect();
            let listening = Listening::start(speaker, world, &all, detection).await?;
            let bound = detection.interval + detection.retry_interval * detection.misses;
            for owner in &owners {
                let mut took = Vec::new();
                for round in 0..5 {
                    let port = format!("own{}", owner.number);
                    let before = clock::now();
                    world.lan.ip(&format!("link set {port} nomaster"))?;
                    let after = clock::now();
                    let silence = listening.silence(owner).await?;
                    ensure!(silence.address == owner.vip && !silence.node_answers, "{silence:?}");
                    let (least, most) = (
                        silence.since.saturating_since(after),
                        silence.since.saturating_since(before),
                    );
                    ensure!(least < bound + millis(500), "{least:?}, should be within {bound:?}");
                    took.push((least, most));
                    world.lan.ip(&format!("link set {port} master br0"))?;
                    listening.wait_for(owner, "heard", |voice| *voice == Voice::Heard).await?;
                    // Another phase of the interval the next time.
                    tokio::time::sleep(detection.interval + detection.interval / 5 * round).await;
                }
                println!("{}: silent within {bound:?}: {took:?}", owner.vip);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn lost_address(world: &World) -> Result<()> {
    let owners = [Owner::new(world, 3, V4)?, Owner::new(world, 4, V6)?];
    world.node.speak(|speaker| async {
        let all: Vec<&Owner> = owners.iter().collect();
        let listening = Listening::start(speaker, world, &all, Detection::default()).await?;
        for owner in &owners {
            owner.have(false)?;
            let silence = listening.silence(owner).await?;
            ensure!(silence.address == owner.vip && silence.node_answers, "{silence:?}");
            owner.have(true)?;
            listening.wait_for(owner, "heard", |voice| *voice == Voice::Heard).await?;
        }
        Ok(())
    })
}

fn deaf_poller(world: &World) -> Result<()> {
    let owners = [Owner::new(world, 3, V4)?, Owner::new(world, 4, V6)?];
    world.node.speak(|speaker| async {
        let all: Vec<&Owner> = owners.iter().collect();
        let listening = Listening::start(speaker, world, &all, FAST).await?;
        for deaf in [2_500, 70, 150, 30, 300] {
            world.lan.ip("link set node nomaster")?;
            listening.nobody_is_silent_for(millis(deaf)).await?;
            world.lan.ip("link set node master br0")?;
            listening.nobody_is_silent_for(millis(300)).await?;
        }
        // It does hear again: an owner that is gone is silent.
        world.lan.ip("link set own3 nomaster")?;
        listening.silence(&owners[0]).await.map(drop)
    })
}

fn busy_with_priority(world: &World) -> Result<()> {
    let owner = Owner::new(world, 3, V4)?;
    world.node.speak(|speaker| async {
        let listening = Listening::start(speaker, world, &[&owner], FAST).await?;
        while_busy(world, &owner, &listening).await
    })
}

fn busy_without_priority(world: &World) -> Result<()> {
    let owner = Owner::new(world, 3, V4)?;
    world.node.speak(|speaker| async {
        let listening = Listening::start_without_priority(speaker, world, &[&owner], FAST).await?;
        while_busy(world, &owner, &listening).await
    })
}

/// Four threads keep the CPUs busy for 5 s: an owner that answers is not silent, one that is cut off
/// is.
async fn while_busy(world: &World, owner: &Owner, listening: &Listening) -> Result<()> {
    let thread = ListenerThread::find()?;
    let before = thread.usage()?;
    let end = clock::now() + millis(5_000);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            let hog = move || while !stop.load(Ordering::Relaxed) && clock::now() < end {};
            std::thread::spawn(hog)
        })
        .collect();
    let found = find_silence(world, owner, listening).await;
    stop.store(true, Ordering::Relaxed);
    for hog in hogs {
        hog.join().map_err(|_| anyhow!("a hog panicked"))?;
    }
    let after = thread.usage()?;
    println!(
        "real-time: {}, waited {:?} for a CPU, cut -> silent after {:?}",
        thread.real_time()?,
        after.waited.saturating_sub(before.waited),
        found?,
    );
    Ok(())
}

async fn find_silence(world: &World, owner: &Owner, listening: &Listening) -> Result<Duration> {
    listening.nobody_is_silent_for(millis(3_500)).await?;
    let cut = clock::now();
    world.lan.ip("link set own3 nomaster")?;
    let silence = listening.silence(owner).await?;
    Ok(silence.since.saturating_since(cut))
}

fn cost(world: &World) -> Result<()> {
    let owners = [
        Owner::new(world, 3, V4)?,
        Owner::new(world, 4, V6)?,
        Owner::new(world, 5, Ipv4Addr::new(198, 51, 100, 8).into())?,
    ];
    world.node.speak(|speaker| async {
        let all: Vec<&Owner> = owners.iter().collect();
        let listening = Listening::start(speaker, world, &all, Detection::default()).await?;
        let thread = ListenerThread::find()?;
        let before = thread.usage()?;
        listening.nobody_is_silent_for(millis(5_000)).await?;
        let after = thread.usage()?;
        let wakeups = (after.sleeps - before.sleeps) / 5;
        let cpu = after.ran.saturating_sub(before.ran) / 5;
        println!("three owners each 100 ms: {wakeups} wake-ups and {cpu:?} of CPU time per second");
        // Three polls and three answers, ten times a second, and as much again for the segment's
        // other talk; a loop that spins wakes a hundred times as often.
        ensure!(wakeups < 150, "{wakeups} wake-ups per second");
        ensure!(cpu < millis(30), "{cpu:?} of CPU time per second");
        Ok(())
    })
}

fn end(world: &World) -> Result<()> {
    let owner = Owner::new(world, 3, V4)?;
    world.node.speak(|speaker| async {
        let listening = Listening::start(speaker, world, &[&owner], FAST).await?;
        ListenerThread::find()?;
        drop(listening);
        eventually("the thread ends", millis(5_000), || Ok(ListenerThread::find().is_err()))
            .await?;
        Ok(())
    })
}

/// The listener's thread of this test: the one in the network namespace of this thread.
#[derive(Debug)]
pub struct ListenerThread(PathBuf);

#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub ran: Duration,
    waited: Duration,
    sleeps: u64,
}

impl ListenerThread {
    pub fn find() -> Result<Self> {
        let here = std::fs::read_link("/proc/thread-self/ns/net")?;
        for entry in std::fs::read_dir("/proc/self/task")? {
            let folder = entry?.path();
            // Threads of other tests may end meanwhile.
            let Ok(name) = std::fs::read_to_string(folder.join("comm")) else { continue };
            let Ok(there) = std::fs::read_link(folder.join("ns/net")) else { continue };
            if name.trim() == "listener" && there == here {
                return Ok(Self(folder));
            }
        }
        bail!("there is no thread of the listener")
    }

    pub fn usage(&self) -> Result<Usage> {
        let schedule = std::fs::read_to_string(self.0.join("schedstat"))?;
        let mut numbers = schedule.split_whitespace().map(str::parse::<u64>);
        let mut next =
            || numbers.next().context("schedstat is short")?.map_err(anyhow::Error::from);
        let (ran, waited) = (Duration::from_nanos(next()?), Duration::from_nanos(next()?));
        let status = std::fs::read_to_string(self.0.join("status"))?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(Usage { ran, waited, sleeps: sleeps.context("no switches")?.trim().parse()? })
    }

    /// Whether its policy is `SCHED_FIFO`: field 41 of proc(5)'s stat.
    fn real_time(&self) -> Result<bool> {
        let stat = std::fs::read_to_string(self.0.join("stat"))?;
        let (_, behind_name) = stat.rsplit_once(')').context("stat has no name")?;
        Ok(behind_name.split_whitespace().nth(38) == Some("1"))
    }
}
