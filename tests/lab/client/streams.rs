//! TCP: new connections, and one that lasts.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use super::{Answer, Track};
use crate::namespace::Namespace;

/// The timeout of a new connection and its answer: less than the first retransmission of a SYN.
const PATIENCE: Duration = Duration::from_millis(900);
/// The timeout of the lasting connection: a SYN that is lost, and sent again.
const MADE_WITHIN: Duration = Duration::from_secs(5);
/// The timeout of an answer on the lasting connection: a failover, and TCP's next retransmission.
const LASTING_PATIENCE: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(5);

/// Runs an async function on a thread within a namespace.
fn within<F>(host: Arc<Namespace>, function: F) -> JoinHandle<Result<Track>>
where
    F: AsyncFnOnce() -> Result<Track> + Send + 'static,
{
    thread::spawn(move || {
        host.enter()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, function())
    })
}

pub(super) fn connects(
    host: Arc<Namespace>,
    server: SocketAddr,
    period: Duration,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Track>> {
    within(host, async move || {
        let track = Rc::new(RefCell::new(Track::new()));
        let mut attempts = JoinSet::new();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let number = track.borrow_mut().sent(now);
            let track = Rc::clone(&track);
            attempts.spawn_local(async move {
                if let Ok(Ok(answer)) = timeout(PATIENCE, fetch(server)).await {
                    track.borrow_mut().answered(number, Instant::now(), answer);
                }
            });
            while attempts.try_join_next().is_some() {}
            sleep(period.saturating_sub(now.elapsed())).await;
        }
        while attempts.join_next().await.is_some() {}
        let track = track.borrow().clone();
        Ok(track)
    })
}

async fn fetch(server: SocketAddr) -> Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    exchange(&mut stream).await
}

pub(super) fn connection(
    host: Arc<Namespace>,
    server: SocketAddr,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<Track>> {
    within(host, async move || {
        let mut track = Track::new();
        let mut stream = timeout(MADE_WITHIN, TcpStream::connect(server))
            .await
            .with_context(|| format!("no connection to {server}"))?
            .with_context(|| format!("connect to {server}"))?;
        stream.set_nodelay(true)?;
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let number = track.sent(now);
            match timeout(LASTING_PATIENCE, exchange(&mut stream)).await {
                Ok(Ok(answer)) => track.answered(number, Instant::now(), answer),
                Ok(Err(error)) => {
                    track.broke(Instant::now(), format!("{error:#}"));
                    break;
                }
                Err(_) => {
                    track.broke(Instant::now(), format!("no answer in {LASTING_PATIENCE:?}"));
                    break;
                }
            }
            sleep(PERIOD.saturating_sub(now.elapsed())).await;
        }
        Ok(track)
    })
}

/// One request and its answer; the connection stays open.
async fn exchange(stream: &mut TcpStream) -> Result<Answer> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").await?;
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            bail!("closed by the server");
        }
        text.extend_from_slice(buffer.get(..length).unwrap_or_default());
        // The body is one line, and the headers have no empty line before it.
        let answer = String::from_utf8_lossy(&text);
        if let Some((_, body)) = answer.split_once("\r\n\r\n")
            && body.ends_with('\n')
        {
            return Answer::parse(body).context("an answer from something else than a pod");
        }
    }
}
