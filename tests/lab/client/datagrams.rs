//! UDP with sequence numbers, from one socket.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::{Answer, Track, every};
use crate::namespace::Namespace;

const PERIOD: Duration = Duration::from_millis(5);
/// How long answers are awaited after the last datagram.
const GRACE: Duration = Duration::from_millis(500);

pub(super) fn start(
    host: Arc<Namespace>,
    server: SocketAddr,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Track>> {
    thread::spawn(move || {
        host.enter()?;
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let track = Mutex::new(Track::new());
        let quiet = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&socket, &track, &quiet));
            let sent = every(PERIOD, &stop, |now| {
                let number = track.lock().unwrap_or_else(PoisonError::into_inner).sent(now);
                // Not connected, so the only errors are those of a host without a route: lost.
                drop(socket.send_to(number.to_string().as_bytes(), server));
                Ok(())
            });
            thread::sleep(GRACE);
            quiet.store(true, Ordering::Relaxed);
            receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
            sent
        })?;
        Ok(track.into_inner().unwrap_or_else(PoisonError::into_inner))
    })
}

fn receive(socket: &UdpSocket, track: &Mutex<Track>, quiet: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 512];
    while !quiet.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = Instant::now();
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        if let (Some(number), Some(answer)) = (number, Answer::parse(&text)) {
            track.lock().unwrap_or_else(PoisonError::into_inner).answered(number, now, answer);
        }
    }
    Ok(())
}
