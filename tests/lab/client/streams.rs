//! TCP: new connections, and one that lasts.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{interval, sleep, timeout};

use super::{Answer, Track};
use crate::namespace::Namespace;

/// The timeout of a new connection and its answer, unless a probe has another: less than the first retransmission of a
/// SYN.
pub(super) const PATIENCE: Duration = Duration::from_millis(900);
/// The ports of new connections: below those that the kernel chooses.
const PORTS: Range<u16> = 12_000..32_000;
/// The timeout of the lasting connection: a SYN that is lost, and sent again.
const MADE_WITHIN: Duration = Duration::from_secs(5);
/// The timeout of an answer on the lasting connection: a failover, and TCP's next retransmission.
const LASTING_PATIENCE: Duration = Duration::from_secs(30);
/// The same where many last: as long as users wait for a page.
const MANY_PATIENCE: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_millis(5);

/// Runs an async function on a thread within a namespace.
fn within<T, F>(host: Arc<Namespace>, function: F) -> JoinHandle<Result<T>>
where
    T: Send + 'static,
    F: AsyncFnOnce() -> Result<T> + Send + 'static,
{
    thread::spawn(move || {
        host.enter()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, function())
    })
}

/// New connections, from each of the addresses in turn, and from the next port each time that it is their turn: on the
/// way to a Service, the first packet of a connection that failed is remembered for minutes, and another connection by
/// the same address and port would be led to the same dead end.
pub(super) fn connects(
    host: Arc<Namespace>,
    sources: Vec<IpAddr>,
    server: SocketAddr,
    (period, patience): (Duration, Duration),
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Track>> {
    within(host, async move || {
        let track = Rc::new(RefCell::new(Track::new()));
        let mut attempts = JoinSet::new();
        let mut turns = interval(period);
        let ports = PORTS.cycle().flat_map(|port| sources.iter().map(move |ip| (*ip, port)));
        for source in ports.map(SocketAddr::from) {
            turns.tick().await;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let number = track.borrow_mut().sent(Instant::now());
            let track = Rc::clone(&track);
            attempts.spawn_local(async move {
                if let Ok(Ok(answer)) = timeout(patience, fetch(source, server)).await {
                    track.borrow_mut().answered(number, Instant::now(), answer);
                }
            });
            while attempts.try_join_next().is_some() {}
        }
        while attempts.join_next().await.is_some() {}
        let track = track.borrow().clone();
        Ok(track)
    })
}

async fn fetch(source: SocketAddr, server: SocketAddr) -> Result<Answer> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // There may be a connection of another probe by it.
    socket.set_reuseaddr(true)?;
    socket.bind(source)?;
    let mut stream = socket.connect(server).await?;
    // Closed by a reset: at hundreds a second, the host's ports would all wait for late segments otherwise.
    stream.set_zero_linger()?;
    exchange(&mut stream).await
}

pub(super) fn connection(
    host: Arc<Namespace>,
    server: SocketAddr,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Track>> {
    within(host, async move || {
        let stream = connect(server).await?;
        Ok(last(stream, PERIOD, LASTING_PATIENCE, &stop).await)
    })
}

/// So many connections that last, each with a request every `period`.
pub(super) fn connections(
    host: Arc<Namespace>,
    server: SocketAddr,
    count: usize,
    period: Duration,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Vec<Track>>> {
    within(host, async move || {
        let mut all = JoinSet::new();
        for _ in 0..count {
            let (stream, stop) = (connect(server).await?, Arc::clone(&stop));
            all.spawn_local(async move { last(stream, period, MANY_PATIENCE, &stop).await });
        }
        let mut tracks = Vec::new();
        while let Some(track) = all.join_next().await {
            tracks.push(track?);
        }
        Ok(tracks)
    })
}

async fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = timeout(MADE_WITHIN, TcpStream::connect(server))
        .await
        .with_context(|| format!("no connection to {server}"))?
        .with_context(|| format!("connect to {server}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends requests on a connection until it breaks, or until told to stop.
async fn last(
    mut stream: TcpStream,
    period: Duration,
    patience: Duration,
    stop: &AtomicBool,
) -> Track {
    let mut track = Track::new();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let number = track.sent(now);
        match timeout(patience, exchange(&mut stream)).await {
            Ok(Ok(answer)) => track.answered(number, Instant::now(), answer),
            Ok(Err(error)) => {
                track.broke(Instant::now(), format!("{error:#}"));
                break;
            }
            Err(_) => {
                track.broke(Instant::now(), format!("no answer in {patience:?}"));
                break;
            }
        }
        sleep(period.saturating_sub(now.elapsed())).await;
    }
    track
}

/// One request and its answer; the connection stays open.
async fn exchange(stream: &mut TcpStream) -> Result<Answer> {
    stream.write_all(b"GET /hostname HTTP/1.1\r\nHost: lab\r\n\r\n").await?;
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            bail!("closed by the server");
        }
        text.extend_from_slice(buffer.get(..length).unwrap_or_default());
        let answer = String::from_utf8_lossy(&text);
        if let Some((head, body)) = answer.split_once("\r\n\r\n")
            && body.len() >= content_length(head)?
        {
            return Answer::of_page(body).context("an answer from something else than a pod");
        }
    }
}

/// The length of a body, as its header says (RFC 9110 section 8.6).
fn content_length(head: &str) -> Result<usize> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = lengths.next().context("an answer without Content-Length")?;
    Ok(length.trim().parse()?)
}
