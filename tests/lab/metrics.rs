//! Reads a process's HTTP endpoints from within its network namespace.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::namespace::Namespace;

/// The body of a successful answer to `GET path` on a loopback port of a namespace.
pub fn get(namespace: &Namespace, port: u16, path: &str) -> Result<String> {
    namespace.within(|| get_here(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path))?
}

/// The same from the calling thread's own namespace.
pub fn get_here(server: SocketAddr, path: &str) -> Result<String> {
    let (head, body) = exchange(server, path)?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200"), "GET {path}: {status}\n{body}");
    Ok(body)
}

/// The head and the body of the answer to `GET path`, whatever it says.
pub fn exchange(server: SocketAddr, path: &str) -> Result<(String, String)> {
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&server, patience)
        .with_context(|| format!("connect to {server}"))?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    Ok((head.to_owned(), body.to_owned()))
}
