//! One question from any host of the lab, and who answered it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Answer;
use crate::namespace::Namespace;

/// The timeout of an answer: less than the first retransmission of a SYN.
const PATIENCE: Duration = Duration::from_millis(900);

/// By a TCP connection and an HTTP request.
pub fn by_tcp(from: &Namespace, server: SocketAddr) -> Result<Answer> {
    let text = from.within(|| exchange(server, "/"))??;
    let (_, body) = text.split_once("\r\n\r\n").context("no HTTP answer")?;
    Answer::parse(body).context("an answer from something else than a pod")
}

/// By a datagram.
pub fn by_udp(from: &Namespace, server: SocketAddr) -> Result<Answer> {
    from.within(|| {
        let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(b"0")?;
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).with_context(|| format!("{server} is silent"))?;
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        Answer::parse(&text).context("an answer from something else than a pod")
    })?
}

/// The status code of an answer to `GET path`.
pub fn status(from: &Namespace, server: SocketAddr, path: &str) -> Result<u16> {
    let text = from.within(|| exchange(server, path))??;
    let code = text.split(' ').nth(1).context("no HTTP answer")?;
    code.parse().with_context(|| format!("{code} is no status code"))
}

fn exchange(server: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)
        .with_context(|| format!("connect to {server}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
