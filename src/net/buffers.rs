//! Buffer sizes of sockets.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force,
};

/// Sets the receive buffer of a socket in bytes: beyond `net.core.rmem_max` if the process may
/// (`CAP_NET_ADMIN`), else up to it.
pub(super) fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_socket_recv_buffer_size_force(&socket, bytes)
        .or_else(|_| set_socket_recv_buffer_size(&socket, bytes))
        .map_err(Into::into)
}

/// Sets the send buffer of a socket in bytes: beyond `net.core.wmem_max` if the process may
/// (`CAP_NET_ADMIN`), else up to it.
pub(super) fn set_send_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_socket_send_buffer_size_force(&socket, bytes)
        .or_else(|_| set_socket_send_buffer_size(&socket, bytes))
        .map_err(Into::into)
}
