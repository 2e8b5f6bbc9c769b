//! UDP with sequence numbers, from one socket to any number of VIPs.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::{Answer, Track, every, join};
use crate::namespace::Namespace;

/// The time to wait for answers after the last datagram.
const GRACE: Duration = Duration::from_millis(500);

type Tracks = BTreeMap<IpAddr, Track>;

/// A running probe of many VIPs: each gets a datagram every period, evenly spread over it.
#[derive(Debug)]
pub struct Sweep {
    tracks: Arc<Mutex<Tracks>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Sweep {
    /// All VIPs must be of one family.
    pub(super) fn start(
        host: Arc<Namespace>,
        vips: &[IpAddr],
        port: u16,
        period: Duration,
    ) -> Result<Self> {
        let any: IpAddr = match vips.first() {
            Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        ensure!(vips.iter().all(|vip| vip.is_ipv4() == any.is_ipv4()), "VIPs of two families");
        let tracks = vips.iter().map(|&vip| (vip, Track::new())).collect();
        let tracks: Arc<Mutex<Tracks>> = Arc::new(Mutex::new(tracks));
        let stop = Arc::new(AtomicBool::new(false));
        let servers: Vec<_> = vips.iter().map(|&vip| SocketAddr::new(vip, port)).collect();
        let thread = {
            let (tracks, stop) = (Arc::clone(&tracks), Arc::clone(&stop));
            thread::spawn(move || {
                host.enter()?;
                let socket = UdpSocket::bind((any, 0))?;
                exchange(&socket, &servers, period, &tracks, &stop)
            })
        };
        Ok(Self { tracks, stop, thread: Some(thread) })
    }

    /// Whether each VIP has promptly answered a datagram that was sent at `since` or later.
    pub fn all_answered_since(&self, since: Instant) -> bool {
        lock(&self.tracks).values().all(|track| track.answered_since(since))
    }

    /// Ends it, and reports once late answers had their time.
    pub async fn stop(mut self) -> Result<BTreeMap<IpAddr, Track>> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread.take()).await?;
        Ok(std::mem::take(&mut *lock(&self.tracks)))
    }

    /// The same for a sweep of one VIP.
    pub(super) async fn stop_single(self) -> Result<Track> {
        let track = self.stop().await?.into_values().next();
        track.ok_or_else(|| anyhow!("no VIP was probed"))
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn lock(tracks: &Mutex<Tracks>) -> MutexGuard<'_, Tracks> {
    tracks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exchange(
    socket: &UdpSocket,
    servers: &[SocketAddr],
    period: Duration,
    tracks: &Mutex<Tracks>,
    stop: &AtomicBool,
) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    // One slice of the VIPs each tick; a tick is no shorter than the timers of a busy machine.
    let most = usize::try_from(period.as_millis())?;
    let slices = servers.len().min(most).max(1);
    let tick = period / u32::try_from(slices)?;
    let quiet = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(socket, tracks, &quiet));
        let mut turn = (0..slices).cycle();
        let sent = every(tick, stop, |now| {
            let first = turn.next().unwrap_or(0);
            for server in servers.iter().skip(first).step_by(slices) {
                let number = lock(tracks).get_mut(&server.ip()).map(|track| track.sent(now));
                let text = number.unwrap_or_default().to_string();
                // Not connected, so the only errors are those of a host without a route: lost.
                drop(socket.send_to(text.as_bytes(), server));
            }
            Ok(())
        });
        thread::sleep(GRACE);
        quiet.store(true, Ordering::Relaxed);
        receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        sent
    })
}

fn receive(socket: &UdpSocket, tracks: &Mutex<Tracks>, quiet: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 512];
    while !quiet.load(Ordering::Relaxed) {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            // With a timeout a call is not restarted after the process was stopped (signal(7)).
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = Instant::now();
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        if let (Some(number), Some(answer)) = (number, Answer::parse(&text))
            && let Some(track) = lock(tracks).get_mut(&from.ip().to_canonical())
        {
            track.answered(number, now, answer);
        }
    }
    Ok(())
}
