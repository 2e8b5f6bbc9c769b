//! The server in a pod: HTTP and UDP on port 8080, answering with the pod's name and the peer that
//! it saw.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use anyhow::{Context, Result};

/// The first argument by which a binary that uses the lab becomes a pod's server.
pub const ARGUMENT: &str = "pod-server";

/// The port of every pod, for TCP and UDP.
pub const PORT: u16 = 8080;

/// Serves until it is killed.
pub fn serve(name: &str) -> Result<()> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    let datagrams = UdpSocket::bind(address).context("bind UDP")?;
    let listener = TcpListener::bind(address).context("bind TCP")?;
    let echo_name = name.to_owned();
    thread::spawn(move || echo(&datagrams, &echo_name));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let name = name.to_owned();
        // A connection ends as its client pleases; there is nobody to tell.
        thread::spawn(move || drop(converse(&stream, &name)));
    }
    Ok(())
}

/// Answers each datagram with itself, then ` <name> <peer>`.
fn echo(socket: &UdpSocket, name: &str) {
    let mut buffer = [0; 2048];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
        let mut answer = buffer.get(..length).unwrap_or_default().to_vec();
        answer.extend(format!(" {name} {}", canonical(peer)).into_bytes());
        // Lost like any datagram.
        drop(socket.send_to(&answer, peer));
    }
}

/// HTTP/1.1 with persistent connections (RFC 9112): every GET is answered with one line.
fn converse(stream: &TcpStream, name: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let peer = canonical(stream.peer_addr()?);
    let body = format!("{name} {peer}\n");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut requested = false;
        let mut close = false;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            requested |= header.starts_with("GET ");
            close |= header.eq_ignore_ascii_case("connection: close");
        }
        let status = if requested { "200 OK" } else { "405 Method Not Allowed" };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        (&mut &*stream).write_all(answer.as_bytes())?;
        if close {
            return Ok(());
        }
    }
}

fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}
