//! Whether what others send keeps a node from hearing the owners.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use leasehold::clock;
use leasehold::net::MacAddr;
use leasehold::net::frames::arp::{ArpFrame, ArpOperation};
use leasehold::net::frames::socket::{Arrived, FrameBuffer, PacketKind, PacketSocket, Sought};

use crate::listening::{FAST, ListenerThread, Listening, Owner, V4, millis};
use crate::world::{Namespace, Speaker, Test, World};

pub const TESTS: &[Test] = &[
    ("requests_on_a_link_that_nobody_attends_to_make_no_silence_and_hide_none", elsewhere),
    ("requests_on_the_segment_make_no_silence_and_hide_none_for_long", requests),
    ("answers_that_nobody_asked_for_make_no_silence_and_hide_none_for_long", answers),
    ("a_packet_socket_says_what_was_dropped_and_has_all_else", dropped),
    ("the_core_is_told_that_frames_were_missed", missed),
    ("a_packet_socket_receives_only_what_it_was_told_to", told),
];

/// How long a flood lasts at most.
const LASTS: Duration = Duration::from_secs(2);

/// For how long the listener may run meanwhile where nothing of the flood is for it: its polls alone take a
/// tenth.
const COSTS: Duration = Duration::from_millis(50);

/// A thread that sends as fast as it can.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Flood {
    /// Sends `frame` on `eth0` of `from`.
    fn start(from: &Namespace, frame: &ArpFrame) -> Result<Self> {
        let (index, frame) = (from.index("eth0")?, frame.encode());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let socket = from.enter(|| {
            let _within = runtime.enter();
            Ok(PacketSocket::open(PacketKind::Arp, Sought::All)?)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let within = runtime.enter();
            let (mut sent, end) = (0, clock::now() + LASTS);
            loop {
                sent += u64::from(socket.send(index, &frame).is_ok());
                if stopped.load(Ordering::Relaxed) || clock::now() >= end {
                    break;
                }
            }
            drop(socket);
            drop(within);
            Ok(sent)
        });
        Ok(Self { stop, thread })
    }

    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it; how many frames were sent.
    fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the flood panicked"))?
    }
}

/// Threads that want to run all the time, for [`LASTS`] at most.
struct Hogs(Arc<AtomicBool>);

impl Hogs {
    fn start() -> Self {
        let (stop, end) = (Arc::new(AtomicBool::new(false)), clock::now() + LASTS);
        for _ in 0..4 {
            let stop = Arc::clone(&stop);
            std::thread::spawn(
                move || {
                    while !stop.load(Ordering::Relaxed) && clock::now() < end {}
                },
            );
        }
        Self(stop)
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a frame for some time.
async fn send(from: &Namespace, frame: &ArpFrame, lasting: Duration) -> Result<u64> {
    let flood = Flood::start(from, frame)?;
    tokio::time::sleep(lasting).await;
    let sent = flood.end()?;
    // The last ones arrive, too.
    tokio::time::sleep(millis(20)).await;
    Ok(sent)
}

/// How many frames of a socket can be read.
fn read(socket: &PacketSocket) -> Result<u32> {
    let (mut buffer, mut count) = (FrameBuffer::default(), 0);
    while socket.receive_now(&mut buffer)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// A question of no use, to everybody.
fn question() -> ArpFrame {
    let mac = MacAddr(2, 0, 0, 0, 9, 9);
    ArpFrame::request(
        MacAddr::broadcast(),
        mac,
        Ipv4Addr::new(192, 0, 2, 99),
        Ipv4Addr::new(192, 0, 2, 98),
    )
}

/// While there is a flood and the CPUs are busy an owner that answers is not silent; one that is cut off
/// then is. Returns how long the listener ran during the first flood.
async fn while_flooded(world: &World, from: &Namespace, frame: ArpFrame) -> Result<Duration> {
    let owner = Owner::new(world, 3, V4)?;
    let speaker = Speaker::marking_by(world.node.mark).await?;
    let listening = Listening::start_without_priority(speaker, world, &[&owner], FAST).await?;
    let thread = ListenerThread::find()?;
    let before = thread.usage()?.ran;
    let (flood, hogs) = (Flood::start(from, &frame)?, Hogs::start());
    listening.nobody_is_silent_for(millis(1_900)).await?;
    let ran = thread.usage()?.ran.saturating_sub(before);
    hogs.end();
    println!("{} frames, nobody was silent, the listener ran {ran:?}", flood.end()?);
    // The next polls are clean.
    listening.nobody_is_silent_for(millis(300)).await?;
    let flood = Flood::start(from, &frame)?;
    tokio::time::sleep(millis(200)).await;
    let cut = clock::now();
    world.lan.ip("link set own3 nomaster")?;
    let silence = listening.silence(&owner).await?;
    let took = silence.since.saturating_since(cut);
    println!("silent {took:?} after it was cut off, the flood over: {}", flood.is_over());
    println!("{} frames", flood.end()?);
    ensure!(took < LASTS + millis(1_000), "silent {took:?} after it was cut off");
    Ok(ran)
}

fn dropped(world: &World) -> Result<()> {
    let index = world.node.index("eth0")?;
    world.node.block_on(|| async move {
        let socket = PacketSocket::open(PacketKind::Arp, Sought::All)?;
        socket.attend(&[index])?;
        let (mut sent, mut arrived) = (0, Arrived::default());
        // Nothing is read meanwhile.
        for _ in 0..10 {
            sent += send(&world.client, &question(), LASTS).await?;
            let more = socket.arrived()?;
            arrived.queued += more.queued;
            arrived.dropped += more.dropped;
            if arrived.dropped > 0 {
                break;
            }
        }
        println!("{sent} frames, {arrived:?}");
        ensure!(arrived.dropped > 0, "the buffer was never full");
        ensure!(u64::from(arrived.queued) + u64::from(arrived.dropped) <= sent, "too many");
        ensure!(read(&socket)? == arrived.queued, "others are there");
        ensure!(socket.arrived()? == Arrived::default(), "each is said once");
        Ok(())
    })
}

#[expect(clippy::disallowed_methods, reason = "the runtime's thread is to stand still")]
fn missed(world: &World) -> Result<()> {
    world.node.block_on(|| async {
        let mut speaker = Speaker::marking_by(world.node.mark).await?;
        tokio::time::sleep(millis(100)).await;
        ensure!(*speaker.edge.missed.borrow_and_update() == 0, "nothing was sent yet");
        for _ in 0..10 {
            let flood = Flood::start(&world.client, &question())?;
            // Its task does not run meanwhile, nor any other of this thread.
            std::thread::sleep(LASTS);
            flood.end()?;
            tokio::time::sleep(millis(100)).await;
            let dropped = speaker.edge.counters.dropped.load(Ordering::Relaxed);
            let told = speaker.edge.missed.has_changed()?;
            println!("{dropped} frames were dropped, told: {told}");
            ensure!(told == (dropped > 0), "{dropped} frames were dropped, told: {told}");
            if told {
                return Ok(());
            }
        }
        Err(anyhow!("the buffer was never full"))
    })
}

fn told(world: &World) -> Result<()> {
    let other = world.beside("other", "eth1")?;
    let [eth0, eth1] = [world.node.index("eth0")?, world.node.index("eth1")?];
    let answer = ArpFrame {
        destination: MacAddr::broadcast(),
        operation: ArpOperation::Reply,
        ..question()
    };
    world.node.block_on(|| async move {
        let all = PacketSocket::open(PacketKind::Arp, Sought::All)?;
        let answers = PacketSocket::open(PacketKind::Arp, Sought::Answers)?;
        let many: Vec<u32> = (1_000..1_253).chain([eth0, eth1]).collect();
        for (attended, on_eth0, on_eth1) in [
            (vec![], false, false),
            (vec![eth0], true, false),
            (vec![eth1], false, true),
            (many, true, true),
            (vec![], false, false),
        ] {
            for socket in [&all, &answers] {
                socket.attend(&attended)?;
                read(socket)?;
            }
            for (from, heard) in [(&world.client, on_eth0), (&other, on_eth1)] {
                ensure!(send(from, &question(), millis(2)).await? > 0);
                ensure!((read(&all)? > 0) == heard, "a question, {attended:?}");
                ensure!(read(&answers)? == 0, "a question, {attended:?}");
                ensure!(send(from, &answer, millis(2)).await? > 0);
                ensure!((read(&all)? > 0) == heard, "an answer, {attended:?}");
                ensure!((read(&answers)? > 0) == heard, "an answer, {attended:?}");
            }
        }
        Ok(())
    })
}

fn elsewhere(world: &World) -> Result<()> {
    // A pod.
    let pod = world.beside("pod", "pod0")?;
    world.node.block_on(|| async {
        let ran = while_flooded(world, &pod, question()).await?;
        ensure!(ran < COSTS, "the listener ran {ran:?}: it reads what it throws away");
        Ok(())
    })
}

fn requests(world: &World) -> Result<()> {
    let stranger = world.host("stranger", 9)?;
    world.node.block_on(|| async {
        let ran = while_flooded(world, &stranger, question()).await?;
        ensure!(ran < COSTS, "the listener ran {ran:?}: it reads what it throws away");
        Ok(())
    })
}

fn answers(world: &World) -> Result<()> {
    let stranger = world.host("stranger", 9)?;
    let answer = ArpFrame {
        destination: world.node.mac()?,
        operation: ArpOperation::Reply,
        target_mac: world.node.mac()?,
        target_ip: Ipv4Addr::new(192, 0, 2, 1),
        ..question()
    };
    world.node.block_on(|| async { while_flooded(world, &stranger, answer).await.map(drop) })
}
