//! A way to the API server of a lab from the host, for kubectl: a port on the host's loopback, and
//! behind it connections that are made from within the sandbox's network.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::background::{Slot, State};

/// The file by which the inside says that it is up: it holds the API server's address.
pub(crate) const READY: &str = "ready";

/// Waits, beside the sandbox, until the inside is up; then opens the port and writes the state.
pub(crate) fn start(slot: &Slot, scratch: &Path, inside: u32) -> Result<()> {
    let network = File::open(format!("/proc/{inside}/ns/net"))?;
    let (slot, scratch) = (slot.clone(), scratch.to_owned());
    thread::spawn(move || {
        if let Err(error) = serve(&slot, &scratch, inside, &network) {
            eprintln!("the relay to the API server failed: {error:#}");
        }
    });
    Ok(())
}

fn serve(slot: &Slot, scratch: &Path, inside: u32, network: &File) -> Result<()> {
    let server: SocketAddr = loop {
        if let Ok(text) = fs::read_to_string(scratch.join(READY))
            && let Ok(address) = text.parse()
        {
            break address;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    State::write(slot, scratch, inside, listener.local_addr()?)?;
    for stream in listener.incoming() {
        let stream = stream?;
        let network = network.try_clone()?;
        thread::spawn(move || {
            if let Err(error) = relay(&stream, &network, server) {
                eprintln!("a connection to the API server: {error:#}");
            }
        });
    }
    Ok(())
}

fn relay(outer: &TcpStream, network: &File, server: SocketAddr) -> Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .context("enter the sandbox's network")?;
    let inner = TcpStream::connect(server)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(outer, &inner));
        copy(&inner, outer);
    });
    Ok(())
}

/// Copies until the source ends; how it ends is the other side's to see.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Write));
}
